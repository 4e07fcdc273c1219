//! Resources of a container as the runtime takes them.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg_cri::v1::LinuxContainerResources;

use crate::pod_status::qos_class;
use crate::quantity::{Amount, amount};
use crate::spec::is_sidecar;

/// CFS period, in microseconds.
const PERIOD: i64 = 100_000;

/// The smallest CFS quota that the kernel accepts, in microseconds.
const MIN_QUOTA: i64 = 1_000;

/// The fewest CPU shares that the kernel accepts.
pub(crate) const MIN_SHARES: i64 = 2;

/// The most CPU shares.
const MAX_SHARES: i64 = 262_144;

/// The resources of a container in the kernel's units, as upstream converts them. `node_memory` is in bytes.
pub(crate) fn linux_resources(
    spec: &PodSpec,
    container: &Container,
    node_memory: u64,
) -> LinuxContainerResources {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|r| r.requests.as_ref());
    let limits = resources.and_then(|r| r.limits.as_ref());
    let limit = amount(limits, "cpu").unwrap_or_default().milli_value();
    let request = amount(requests, "cpu").map_or(limit, Amount::milli_value);
    let memory_limit = amount(limits, "memory").unwrap_or_default();
    let mut memory_request = memory_of(container);
    if is_sidecar(container) {
        // The OOM killer does not take a sidecar before the regular containers.
        let least = spec.containers.iter().map(memory_of).min();
        memory_request = memory_request.max(least.unwrap_or_default());
    }
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: match limit {
            // There is no limit.
            ..=0 => 0,
            _ => (limit.saturating_mul(PERIOD) / 1000).max(MIN_QUOTA),
        },
        cpu_shares: shares_of(request),
        memory_limit_in_bytes: memory_limit.value(),
        oom_score_adj: oom_score_adj(spec, memory_request.value(), node_memory),
        ..LinuxContainerResources::default()
    }
}

/// The requested memory.
fn memory_of(container: &Container) -> Amount {
    let resources = container.resources.as_ref();
    let request = amount(resources.and_then(|r| r.requests.as_ref()), "memory");
    let limit = || amount(resources.and_then(|r| r.limits.as_ref()), "memory");
    request.or_else(limit).unwrap_or_default()
}

pub(crate) fn shares_of(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// OOM score: when memory is short, the kernel first kills containers that use more than they requested.
fn oom_score_adj(spec: &PodSpec, memory_request: i64, node_memory: u64) -> i64 {
    /// The priority class `system-node-critical` protects pods from the OOM killer; `system-cluster-critical` does not.
    const CRITICAL: &str = "system-node-critical";
    if spec.priority_class_name.as_deref() == Some(CRITICAL) {
        return -997;
    }
    match qos_class(spec) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let memory = i128::from(node_memory.max(1));
            let adjusted = 1000 - 1000 * i128::from(memory_request) / memory;
            // Burstable pods get a score between those of Guaranteed and BestEffort pods.
            i64::try_from(adjusted.clamp(3, 999)).unwrap_or(999)
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::notation::rows;

    /// A row: the container's resources, and its CPU shares, CPU quota, memory limit and OOM score.
    #[test]
    fn resources_are_converted_as_upstream_converts_them() {
        let table = r#"
            {}                                            | 2 0 0 1000
            {"requests": {"cpu": "1"}}                    | 1024 0 0 999
            {"requests": {"cpu": "1m"}}                   | 2 0 0 999
            {"requests": {"cpu": "1000"}}                 | 262144 0 0 999
            # Shares follow the limit if there is no request.
            {"limits": {"cpu": "500m"}}                   | 512 50000 0 999
            {"limits": {"cpu": "5m"}}                     | 5 1000 0 999
            {"requests": {"cpu": "0"}, "limits": {"cpu": "2"}} | 2 200000 0 999
            {"requests": {"memory": "1Gi"}}               | 2 0 0 750
            {"requests": {"memory": "4Gi"}}               | 2 0 0 3
            {"limits": {"memory": "2Gi"}}                 | 2 0 2147483648 500
            {"limits": {"cpu": "1", "memory": "1Gi"}}     | 1024 100000 1073741824 -997
        "#;
        for row in rows(table) {
            let resources: Value = serde_json::from_str(row[0]).unwrap();
            let spec = json!({"containers": [{"name": "app", "resources": resources}]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let made = linux_resources(&spec, &spec.containers[0], 4 << 30);
            let (shares, quota) = (made.cpu_shares, made.cpu_quota);
            let (memory, score) = (made.memory_limit_in_bytes, made.oom_score_adj);
            let found = format!("{shares} {quota} {memory} {score}");
            assert_eq!(found, row[1], "{row:?}");
            assert_eq!(made.cpu_period, 100_000);
        }
    }

    #[test]
    fn sidecar_is_killed_no_sooner_than_a_regular_container() {
        let app = json!({"name": "app", "resources": {"requests": {"memory": "2Gi"}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always"});
        let spec = json!({"containers": [app], "initContainers": [sidecar]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let sidecar = &spec.init_containers.as_ref().unwrap()[0];
        assert_eq!(linux_resources(&spec, sidecar, 4 << 30).oom_score_adj, 500);
    }

    #[test]
    fn node_critical_pods_are_protected_from_the_oom_killer() {
        for (class, score) in [
            ("system-node-critical", -997),
            ("system-cluster-critical", 1000),
        ] {
            let spec = json!({"containers": [{"name": "app"}], "priorityClassName": class});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let linux = linux_resources(&spec, &spec.containers[0], 4 << 30);
            assert_eq!(linux.oom_score_adj, score, "{class}");
        }
    }
}
