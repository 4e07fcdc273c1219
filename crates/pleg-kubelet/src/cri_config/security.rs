//! Security contexts: namespaces, users, capabilities.

use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};
use pleg_cri::v1::security_profile::ProfileType;
use pleg_cri::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy,
};

use super::FieldError;
use crate::from_pod::containers_in;

/// Paths of the kernel that are hidden from a container, unless it is privileged.
const MASKED: &str = "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats \
                      /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware \
                      /sys/devices/virtual/powercap";

/// Paths of the kernel that a container cannot change, unless it is privileged.
const READ_ONLY: &str = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger";

/// The namespaces of the node or the pod that containers use.
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

const fn number(value: i64) -> Int64Value {
    Int64Value { value }
}

fn supplemental_groups(context: Option<&PodSecurityContext>) -> Vec<i64> {
    let group = context.and_then(|c| c.fs_group);
    let given = context.and_then(|c| c.supplemental_groups.clone());
    group
        .into_iter()
        .chain(given.into_iter().flatten())
        .collect()
}

/// The policy for supplemental groups. The runtime refuses one that it does not support.
fn groups_policy(context: Option<&PodSecurityContext>) -> i32 {
    let policy = context.and_then(|c| c.supplemental_groups_policy.as_deref());
    let policy = policy.and_then(SupplementalGroupsPolicy::from_str_name);
    policy.unwrap_or(SupplementalGroupsPolicy::Merge).into()
}

fn seccomp(profile: Option<&SeccompProfile>, default: ProfileType) -> SecurityProfile {
    let kind = match profile.map(|p| p.type_.as_str()) {
        Some("RuntimeDefault") => ProfileType::RuntimeDefault,
        Some("Localhost") => ProfileType::Localhost,
        Some(_) => ProfileType::Unconfined,
        None => default,
    };
    SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: profile
            .and_then(|p| p.localhost_profile.clone())
            .unwrap_or_default(),
    }
}

/// The SELinux labels of a container. The runtime sets them on a node with SELinux.
fn selinux(options: Option<&SELinuxOptions>) -> Option<SeLinuxOption> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    options.map(|options| SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    })
}

/// The security context of a pod's sandbox.
pub(super) fn of_sandbox(spec: &PodSpec) -> LinuxSandboxSecurityContext {
    let context = spec.security_context.as_ref();
    let privileged = containers_in(spec).any(is_privileged);
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec)),
        run_as_user: context.and_then(|c| c.run_as_user).map(number),
        run_as_group: context.and_then(|c| c.run_as_group).map(number),
        supplemental_groups: supplemental_groups(context),
        supplemental_groups_policy: groups_policy(context),
        selinux_options: selinux(context.and_then(|c| c.se_linux_options.as_ref())),
        privileged,
        seccomp: Some(seccomp(
            context.and_then(|c| c.seccomp_profile.as_ref()),
            ProfileType::RuntimeDefault,
        )),
        ..LinuxSandboxSecurityContext::default()
    }
}

fn is_privileged(container: &Container) -> bool {
    let context = container.security_context.as_ref();
    context.and_then(|c| c.privileged) == Some(true)
}

/// Checks that a container that must not run as root, or that has a group, names its user: the user of the image is not
/// looked up, and both runtimes refuse a group without a user.
pub(super) fn check_user(spec: &PodSpec, container: &Container) -> Result<(), FieldError> {
    const NO_USER: &str = "the user of the image is not looked up: write runAsUser as well";
    let pod = spec.security_context.as_ref();
    let own = container.security_context.as_ref();
    let non_root = own.and_then(|c| c.run_as_non_root);
    let is_non_root = non_root.or_else(|| pod?.run_as_non_root) == Some(true);
    let (field, problem) = match user(pod, own) {
        Some(0) if is_non_root => (
            "runAsNonRoot",
            "it must not run as root, and runAsUser is 0: change one",
        ),
        None if is_non_root => ("runAsNonRoot", NO_USER),
        None if group(pod, own).is_some() => ("runAsGroup", NO_USER),
        _ => return Ok(()),
    };
    Err(FieldError::new(format!("securityContext.{field}"), problem))
}

fn user(pod: Option<&PodSecurityContext>, own: Option<&SecurityContext>) -> Option<i64> {
    own.and_then(|c| c.run_as_user).or_else(|| pod?.run_as_user)
}

fn group(pod: Option<&PodSecurityContext>, own: Option<&SecurityContext>) -> Option<i64> {
    let group = own.and_then(|c| c.run_as_group);
    group.or_else(|| pod?.run_as_group)
}

/// The security context of a container: its own settings, else those of the pod.
pub(super) fn of_container(spec: &PodSpec, container: &Container) -> LinuxContainerSecurityContext {
    let pod = spec.security_context.as_ref();
    let own = container.security_context.as_ref();
    let user = user(pod, own);
    let group = group(pod, own);
    let profile = own.and_then(|c| c.seccomp_profile.as_ref());
    let profile = profile.or_else(|| pod?.seccomp_profile.as_ref());
    let labels = own.and_then(|c| c.se_linux_options.as_ref());
    let labels = labels.or_else(|| pod?.se_linux_options.as_ref());
    let privileged = is_privileged(container);
    let unmasked = own.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked") || privileged;
    let paths = |paths: &str| {
        let paths = paths.split(' ').filter(|_| !unmasked);
        paths.map(str::to_owned).collect()
    };
    let capabilities = own.and_then(|c| c.capabilities.as_ref());
    LinuxContainerSecurityContext {
        capabilities: capabilities.map(|c| Capability {
            add_capabilities: c.add.clone().unwrap_or_default(),
            drop_capabilities: c.drop.clone().unwrap_or_default(),
            ..Capability::default()
        }),
        privileged,
        namespace_options: Some(namespaces(spec)),
        selinux_options: selinux(labels),
        run_as_user: user.map(number),
        run_as_group: group.map(number),
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem) == Some(true),
        supplemental_groups: supplemental_groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths: paths(MASKED),
        readonly_paths: paths(READ_ONLY),
        seccomp: Some(seccomp(profile, ProfileType::Unconfined)),
        ..LinuxContainerSecurityContext::default()
    }
}
