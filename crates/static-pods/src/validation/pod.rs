//! Fields of the pod that are not about its containers or volumes.

use k8s_openapi::api::core::v1::PodSpec;

use super::rules::MAX;
use super::texts::{IP, KEY, LABEL, LABEL_VALUE, SUBDOMAIN};
use super::{Allowed, Errors, Rule};

pub(super) const RULES: &[Rule] = &[
    ("spec.activeDeadlineSeconds", Allowed::Range(1, MAX)),
    (
        "spec.containers",
        Allowed::Filled("there is none: write at least one"),
    ),
    ("spec.dnsConfig.nameservers.[]", Allowed::Is(&IP)),
    (
        "spec.dnsPolicy",
        Allowed::OneOf(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    ),
    ("spec.hostAliases.hostnames.[]", Allowed::Is(&SUBDOMAIN)),
    ("spec.hostAliases.ip", Allowed::Is(&IP)),
    ("spec.hostname", Allowed::IsOrEmpty(&LABEL)),
    ("spec.nodeName", Allowed::IsOrEmpty(&SUBDOMAIN)),
    ("spec.nodeSelector", Allowed::Keys(&KEY)),
    ("spec.nodeSelector.*", Allowed::Is(&LABEL_VALUE)),
    ("spec.os.name", Allowed::OneOf(&["linux", "windows"])),
    (
        "spec.preemptionPolicy",
        Allowed::OneOf(&["Never", "PreemptLowerPriority"]),
    ),
    ("spec.priorityClassName", Allowed::IsOrEmpty(&SUBDOMAIN)),
    ("spec.readinessGates.conditionType", Allowed::Is(&KEY)),
    (
        "spec.restartPolicy",
        Allowed::OneOf(&["Always", "OnFailure", "Never"]),
    ),
    ("spec.runtimeClassName", Allowed::Is(&SUBDOMAIN)),
    ("spec.serviceAccountName", Allowed::IsOrEmpty(&SUBDOMAIN)),
    ("spec.subdomain", Allowed::IsOrEmpty(&LABEL)),
    ("spec.terminationGracePeriodSeconds", Allowed::AtLeast(0)),
    (
        "spec.tolerations.effect",
        Allowed::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    ),
    ("spec.tolerations.key", Allowed::IsOrEmpty(&KEY)),
    (
        "spec.tolerations.operator",
        Allowed::OneOf(&["Exists", "Equal", "Lt", "Gt"]),
    ),
];

/// The most name servers that a resolver uses.
const MOST_NAME_SERVERS: usize = 3;

pub(super) fn check(spec: &PodSpec, errors: &mut Errors) {
    let dns = spec.dns_config.as_ref();
    let servers = dns.and_then(|dns| dns.nameservers.as_deref());
    let servers = servers.unwrap_or_default().len();
    if spec.dns_policy.as_deref() == Some("None") && servers == 0 {
        let problem = "\"None\" needs name servers: write dnsConfig.nameservers";
        errors.add("spec.dnsPolicy", problem);
    }
    if servers > MOST_NAME_SERVERS {
        let problem = format!("{servers} are too many: write at most {MOST_NAME_SERVERS}");
        errors.add("spec.dnsConfig.nameservers", problem);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let problem = "true is not allowed together with hostPID: remove one";
        errors.add("spec.shareProcessNamespace", problem);
    }
    if spec.host_users == Some(false) {
        for (field, on_node) in [
            ("hostNetwork", spec.host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
        ] {
            if on_node == Some(true) {
                let problem = "true is not allowed with hostUsers: false: remove one";
                errors.add(format!("spec.{field}"), problem);
            }
        }
    }
}

pub(super) fn check_tolerations(spec: &PodSpec, errors: &mut Errors) {
    for (at, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let path = format!("spec.tolerations[{at}]");
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let operator = set(&toleration.operator).unwrap_or_else(|| "Equal".to_owned());
        if set(&toleration.key).is_none() && operator != "Exists" {
            let problem = format!("{operator:?} needs a key: write one, or operator: Exists");
            errors.add(format!("{path}.operator"), problem);
        }
        if let Some(value) = set(&toleration.value).filter(|_| operator == "Exists") {
            let problem = format!("{value:?} is not allowed with operator: Exists: remove one");
            errors.add(format!("{path}.value"), problem);
        }
        let forever = toleration.effect.as_deref() != Some("NoExecute");
        if let Some(seconds) = toleration.toleration_seconds.filter(|_| forever) {
            let problem = format!("{seconds} needs effect: NoExecute: write it, or remove this");
            errors.add(format!("{path}.tolerationSeconds"), problem);
        }
    }
}
