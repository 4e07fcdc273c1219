//! Whether a container that has ended is restarted: its own rules and policy, else that of the pod.

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// Whether an init container is restartable: it runs as long as the pod (a sidecar).
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the container is restarted after it exited with that code.
pub(super) fn restarts(container: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    if let Some(policy) = container.restart_policy.as_deref() {
        return matches_rule(container, exit_code) || by_policy(policy, exit_code);
    }
    by_policy(
        spec.restart_policy.as_deref().unwrap_or("Always"),
        exit_code,
    )
}

fn by_policy(policy: &str, exit_code: i32) -> bool {
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

fn matches_rule(container: &Container, exit_code: i32) -> bool {
    let rules = container.restart_policy_rules.iter().flatten();
    rules.filter(|rule| rule.action == "Restart").any(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let among = codes.values.iter().flatten().any(|code| *code == exit_code);
            match codes.operator.as_str() {
                "In" => among,
                "NotIn" => !among,
                _ => false,
            }
        })
    })
}
