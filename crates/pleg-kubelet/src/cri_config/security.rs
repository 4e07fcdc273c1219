//! Security contexts: namespaces, users, capabilities.

use k8s_openapi::api::core::v1::{Container, PodSpec, SecurityContext};
use pleg_cri::v1::security_profile::ProfileType;
use pleg_cri::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy,
};

use super::FieldError;
use crate::spec::containers_in;

/// Kernel paths that are hidden from a container, unless it is privileged or has `procMount: Unmasked`.
const MASKED: &str = "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats \
                      /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware \
                      /sys/devices/virtual/powercap";

/// Kernel paths that a container cannot change, unless it is privileged or has `procMount: Unmasked`.
const READ_ONLY: &str = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger";

/// The namespaces that containers use: those of the node, those of the pod, or their own.
fn namespaces(spec: &PodSpec) -> NamespaceOption {
    let mode = |on_node: Option<bool>, otherwise: NamespaceMode| match on_node {
        Some(true) => NamespaceMode::Node,
        _ => otherwise,
    };
    let pid = match spec.share_process_namespace {
        Some(true) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    NamespaceOption {
        network: mode(spec.host_network, NamespaceMode::Pod).into(),
        pid: mode(spec.host_pid, pid).into(),
        ipc: mode(spec.host_ipc, NamespaceMode::Pod).into(),
        ..NamespaceOption::default()
    }
}

/// The security context of a container: its own settings and, where it has none, the settings of the pod.
fn effective(spec: &PodSpec, container: &Container) -> SecurityContext {
    let own = container.security_context.clone().unwrap_or_default();
    let pod = spec.security_context.clone().unwrap_or_default();
    SecurityContext {
        run_as_user: own.run_as_user.or(pod.run_as_user),
        run_as_group: own.run_as_group.or(pod.run_as_group),
        run_as_non_root: own.run_as_non_root.or(pod.run_as_non_root),
        seccomp_profile: own.seccomp_profile.or(pod.seccomp_profile),
        se_linux_options: own.se_linux_options.or(pod.se_linux_options),
        ..own
    }
}

/// The security context of a sandbox: as of a container without `securityContext`, except seccomp and `privileged`.
pub(super) fn of_sandbox(spec: &PodSpec) -> LinuxSandboxSecurityContext {
    let bare = Container::default();
    let context = of_container(spec, &bare);
    let is_privileged = |container| effective(spec, container).privileged == Some(true);
    LinuxSandboxSecurityContext {
        namespace_options: context.namespace_options,
        run_as_user: context.run_as_user,
        run_as_group: context.run_as_group,
        supplemental_groups: context.supplemental_groups,
        supplemental_groups_policy: context.supplemental_groups_policy,
        selinux_options: context.selinux_options,
        privileged: containers_in(spec).any(is_privileged),
        // As upstream, the sandbox gets `RuntimeDefault` (0 in the CRI), not the pod's profile: it runs only `pause`.
        seccomp: Some(SecurityProfile::default()),
        ..LinuxSandboxSecurityContext::default()
    }
}

/// Checks that `runAsUser` is set, and not to 0, if the container must not run as root: the kubelet does not look up
/// the image's user. It must also be set if `runAsGroup` is: containerd and CRI-O refuse a group without a user.
pub(crate) fn check_user(spec: &PodSpec, container: &Container) -> Result<(), FieldError> {
    const NO_USER: &str = "the user of the image is not looked up: write runAsUser as well";
    const ROOT: &str = "the container must not run as root, and runAsUser is 0: change one";
    let context = effective(spec, container);
    let is_non_root = context.run_as_non_root == Some(true);
    let (field, problem) = match context.run_as_user {
        Some(0) if is_non_root => ("runAsNonRoot", ROOT),
        None if is_non_root => ("runAsNonRoot", NO_USER),
        None if context.run_as_group.is_some() => ("runAsGroup", NO_USER),
        _ => return Ok(()),
    };
    Err(FieldError::new(format!("securityContext.{field}"), problem))
}

pub(super) fn of_container(spec: &PodSpec, container: &Container) -> LinuxContainerSecurityContext {
    let context = effective(spec, container);
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let groups = of_pod.supplemental_groups.into_iter().flatten();
    let policy = of_pod.supplemental_groups_policy.as_deref();
    // A runtime without `supplementalGroupsPolicy`, such as containerd 1.7, ignores it: the groups are merged.
    let policy = policy.and_then(SupplementalGroupsPolicy::from_str_name);
    let profile = context.seccomp_profile.unwrap_or_default();
    let profile_type = match &*profile.type_ {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    let number = |value: Option<i64>| value.map(|value| Int64Value { value });
    let privileged = context.privileged == Some(true);
    let unmasked = context.proc_mount.as_deref() == Some("Unmasked") || privileged;
    let paths = |paths: &str| {
        let paths = paths.split(' ').filter(|_| !unmasked);
        paths.map(str::to_owned).collect()
    };
    LinuxContainerSecurityContext {
        capabilities: context.capabilities.map(|c| Capability {
            add_capabilities: c.add.unwrap_or_default(),
            drop_capabilities: c.drop.unwrap_or_default(),
            ..Capability::default()
        }),
        privileged,
        namespace_options: Some(namespaces(spec)),
        // On a node with SELinux, the runtime applies these labels to the container.
        selinux_options: context.se_linux_options.map(|o| SeLinuxOption {
            user: o.user.unwrap_or_default(),
            role: o.role.unwrap_or_default(),
            r#type: o.type_.unwrap_or_default(),
            level: o.level.unwrap_or_default(),
        }),
        run_as_user: number(context.run_as_user),
        run_as_group: number(context.run_as_group),
        readonly_rootfs: context.read_only_root_filesystem == Some(true),
        supplemental_groups: of_pod.fs_group.into_iter().chain(groups).collect(),
        supplemental_groups_policy: policy.unwrap_or(SupplementalGroupsPolicy::Merge).into(),
        no_new_privs: context.allow_privilege_escalation == Some(false),
        masked_paths: paths(MASKED),
        readonly_paths: paths(READ_ONLY),
        seccomp: Some(SecurityProfile {
            profile_type: profile_type.into(),
            localhost_ref: profile.localhost_profile.unwrap_or_default(),
        }),
        ..LinuxContainerSecurityContext::default()
    }
}
