//! Security contexts of the pod and its containers.

use k8s_openapi::api::core::v1::{PodSpec, SeccompProfile, SecurityContext};

use super::rules::MAX;
use super::texts::{RELATIVE, SYSCTL};
use super::{Allowed, Each, Errors, Rule};

const PROFILE: Allowed = Allowed::OneOf(&["RuntimeDefault", "Localhost", "Unconfined"]);
const ID: Allowed = Allowed::Range(0, MAX);

pub(super) const RULES: &[Rule] = &[
    ("spec.securityContext.appArmorProfile.type", PROFILE),
    ("spec.securityContext.fsGroup", ID),
    (
        "spec.securityContext.fsGroupChangePolicy",
        Allowed::OneOf(&["OnRootMismatch", "Always"]),
    ),
    ("spec.securityContext.runAsGroup", ID),
    ("spec.securityContext.runAsUser", ID),
    (
        "spec.securityContext.seLinuxChangePolicy",
        Allowed::OneOf(&["Recursive", "MountOption"]),
    ),
    ("spec.securityContext.seccompProfile.type", PROFILE),
    ("spec.securityContext.supplementalGroups.[]", ID),
    (
        "spec.securityContext.supplementalGroupsPolicy",
        Allowed::OneOf(&["Merge", "Strict"]),
    ),
    ("spec.securityContext.sysctls.name", Allowed::Is(&SYSCTL)),
    ("spec.@.securityContext.appArmorProfile.type", PROFILE),
    (
        "spec.@.securityContext.procMount",
        Allowed::OneOf(&["Default", "Unmasked"]),
    ),
    ("spec.@.securityContext.runAsGroup", ID),
    ("spec.@.securityContext.runAsUser", ID),
    ("spec.@.securityContext.seccompProfile.type", PROFILE),
];

/// Sysctls of the IPC namespace.
const IPC: [&str; 6] = [
    "kernel.shm",
    "kernel.msg",
    "kernel.sem",
    "fs.mqueue.",
    "kernel/shm",
    "kernel/msg",
];

pub(super) fn check_pod(spec: &PodSpec, errors: &mut Errors) {
    let Some(context) = &spec.security_context else {
        return;
    };
    let path = "spec.securityContext";
    check_seccomp(path, context.seccomp_profile.as_ref(), errors);
    let sysctls = context.sysctls.iter().flatten().enumerate();
    let names = sysctls.map(|(at, sysctl)| (format!("{path}.sysctls[{at}].name"), &*sysctl.name));
    let names: Vec<_> = names.collect();
    errors.unique(names.clone(), |name| {
        format!("{name:?} is set twice: remove one")
    });
    for (field, name) in names {
        let network = name.starts_with("net.") || name.starts_with("net/");
        let ipc = IPC.iter().any(|prefix| name.starts_with(prefix));
        for (of_node, switch) in [
            (network && spec.host_network == Some(true), "hostNetwork"),
            (ipc && spec.host_ipc == Some(true), "hostIPC"),
        ] {
            if of_node {
                let problem = format!("{name:?} is the node's with {switch}: remove one");
                errors.add(&*field, problem);
            }
        }
    }
}

pub(super) fn check_container(each: &Each<'_>, errors: &mut Errors) {
    let Some(context) = &each.container.security_context else {
        return;
    };
    let path = format!("{}.securityContext", each.path);
    check_seccomp(&path, context.seccomp_profile.as_ref(), errors);
    if context.allow_privilege_escalation == Some(false) {
        let field = format!("{path}.allowPrivilegeEscalation");
        for cause in escalations(context) {
            errors.add(
                &*field,
                format!("false is not allowed with {cause}: remove one"),
            );
        }
    }
    let unmasked = context.proc_mount.as_deref() == Some("Unmasked");
    if unmasked && each.pod.host_users != Some(false) {
        let problem = "\"Unmasked\" needs a user namespace: write hostUsers: false, or Default";
        errors.add(format!("{path}.procMount"), problem);
    }
}

/// Returns the settings that allow a container to get more privileges.
fn escalations(context: &SecurityContext) -> Vec<&'static str> {
    let added = context.capabilities.as_ref().and_then(|c| c.add.as_ref());
    let admin = added.is_some_and(|added| added.iter().any(|name| name == "CAP_SYS_ADMIN"));
    super::given(&[
        ("privileged: true", context.privileged == Some(true)),
        ("the capability CAP_SYS_ADMIN", admin),
    ])
}

/// A profile of the node has a path below the kubelet's directory of profiles; others have none.
fn check_seccomp(path: &str, profile: Option<&SeccompProfile>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    let field = format!("{path}.seccompProfile");
    let file = profile.localhost_profile.as_deref().unwrap_or_default();
    let problem = match &*profile.type_ {
        "" => {
            let field = format!("{field}.type");
            let problem = "it is missing: write RuntimeDefault, Localhost or Unconfined";
            return errors.add(field, problem);
        }
        "Localhost" if file.is_empty() => {
            Some("it is missing: write the path of the profile".to_owned())
        }
        "Localhost" => RELATIVE.problem(file),
        other if !file.is_empty() => Some(format!(
            "{file:?} is not allowed with type {other}: remove it, or write type: Localhost"
        )),
        _ => None,
    };
    if let Some(problem) = problem {
        errors.add(format!("{field}.localhostProfile"), problem);
    }
}
