//! The resources of containers in the specification, in the kernel's units and in the status, and the pod's QoS class.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use pleg::core::Resources;
use pleg_cri::v1::LinuxContainerResources;

use crate::quantity::Amount;
use crate::spec::{containers_in, is_sidecar};

/// The CFS period of each container, in microseconds.
const PERIOD: i64 = 100_000;
/// The smallest CFS quota that the kernel accepts, in microseconds.
const MIN_QUOTA: i64 = 1_000;
/// The fewest and the most CPU shares that the kernel accepts.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// The lowest CPU limit that takes effect, in thousandths of a CPU.
const MIN_MILLI_CPU_LIMIT: i64 = 10;

/// The limit of a resource. `None` if the limit is missing, or is not a quantity.
pub(crate) fn limit(of: Option<&ResourceRequirements>, name: &str) -> Option<Amount> {
    Amount::try_from(of?.limits.as_ref()?.get(name)?).ok()
}

/// The requested amount of a resource. Without a valid request, the resource's limit, as the API server sets it.
pub(crate) fn request(of: Option<&ResourceRequirements>, name: &str) -> Option<Amount> {
    let given = of?.requests.as_ref().and_then(|given| given.get(name));
    let given = given.and_then(|given| Amount::try_from(given).ok());
    given.or_else(|| limit(of, name))
}

/// The resources that a container must have. Zero: the specification does not set the resource, so it stays unchanged.
pub(crate) fn wanted(container: &Container, spec: &PodSpec) -> Option<Resources> {
    // The node's memory affects only the OOM score, which is not used here.
    container.resources.as_ref()?;
    let linux = linux_resources(spec, container, 0);
    let mut resources = Resources::default();
    resources.cpu_shares = linux.cpu_shares;
    resources.cpu_quota = linux.cpu_quota;
    resources.memory_limit = linux.memory_limit_in_bytes;
    Some(resources)
}

/// The resources of a container in the kernel's units, as upstream converts them. `node_memory` is in bytes.
pub(crate) fn linux_resources(
    spec: &PodSpec,
    container: &Container,
    node_memory: u64,
) -> LinuxContainerResources {
    let resources = container.resources.as_ref();
    let cpu_limit = milli(limit(resources, "cpu"));
    let memory_limit = limit(resources, "memory").unwrap_or_default();
    let memory_of = |c: &Container| request(c.resources.as_ref(), "memory").unwrap_or_default();
    let mut memory_request = memory_of(container);
    if is_sidecar(container) {
        // The OOM killer must not kill a sidecar before the regular containers.
        let least = spec.containers.iter().map(memory_of).min();
        memory_request = memory_request.max(least.unwrap_or_default());
    }
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: match cpu_limit {
            // A CPU limit of zero or less is no limit, like a missing one.
            ..=0 => 0,
            _ => (cpu_limit.saturating_mul(PERIOD) / 1000).max(MIN_QUOTA),
        },
        cpu_shares: shares_of(milli(request(resources, "cpu"))),
        memory_limit_in_bytes: memory_limit.value(),
        oom_score_adj: oom_score_adj(spec, memory_request.value(), node_memory),
        ..LinuxContainerResources::default()
    }
}

fn milli(cpu: Option<Amount>) -> i64 {
    cpu.unwrap_or_default().milli_value()
}

fn shares_of(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// The OOM score adjustment: when memory is short, the kernel first kills containers that exceed their requests.
fn oom_score_adj(spec: &PodSpec, memory_request: i64, node_memory: u64) -> i64 {
    let adjusted = 1000 - 1000 * i128::from(memory_request) / i128::from(node_memory.max(1));
    match (spec.priority_class_name.as_deref(), qos_class(spec)) {
        // `system-node-critical` protects pods from the OOM killer; `system-cluster-critical` does not.
        (Some("system-node-critical"), _) | (_, "Guaranteed") => -997,
        (_, "BestEffort") => 1000,
        // Burstable pods get a score between the scores of Guaranteed and BestEffort pods.
        _ => i64::try_from(adjusted.clamp(3, 999)).unwrap_or(999),
    }
}

/// The specified resources. Values in effect replace them where the runtime has reported some for a running container.
pub(crate) fn reported(
    container: &Container,
    in_effect: Option<&Resources>,
) -> Option<ResourceRequirements> {
    let specified = container.resources.as_ref();
    let mut resources = specified?.clone();
    let in_effect = in_effect.cloned().unwrap_or_default();
    if let Some(limits) = &mut resources.limits {
        let (quota, period) = (in_effect.cpu_quota, in_effect.cpu_period);
        let limit_in_effect = quota.saturating_mul(1000) / period.max(1);
        let highest = limit_in_effect.max(milli(limit(specified, "cpu")));
        // CPU limits up to the minimum take effect as the minimum. The status then keeps the specified limit.
        if quota > 0 && period > 0 && highest > MIN_MILLI_CPU_LIMIT {
            limits.insert("cpu".to_owned(), Amount::millis(limit_in_effect).decimal());
        }
        if in_effect.memory_limit > 0 {
            let limit = Amount::whole(in_effect.memory_limit).binary();
            limits.insert("memory".to_owned(), limit);
        }
    }
    let shares = in_effect.cpu_shares;
    if shares > 0
        && let Some(requests) = &mut resources.requests
    {
        let wanted = milli(request(specified, "cpu"));
        // Reports the specified request if its CPU shares are in effect. Other shares are converted, rounded up.
        let request = match shares_of(wanted) == shares {
            true => wanted,
            false => shares.saturating_mul(1000).saturating_add(1023) / 1024,
        };
        if request.max(wanted) > MIN_SHARES {
            requests.insert("cpu".to_owned(), Amount::millis(request).decimal());
        }
    }
    Some(resources)
}

/// The QoS class of a pod: from the pod's own resources if it has any, else from its containers' resources. A missing
/// request counts as equal to the limit, as the API server sets it.
///
/// `Guaranteed`: every container has equal requests and limits of CPU and memory. `Burstable`: some container has a
/// request or a limit. `BestEffort`: no container has a request or limit.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let of_pod = spec.resources.as_ref();
    let of_pod = of_pod.filter(|r| r.requests.is_some() || r.limits.is_some());
    let each: Vec<_> = match of_pod {
        Some(_) => vec![of_pod],
        None => containers_in(spec).map(|c| c.resources.as_ref()).collect(),
    };
    let amounts = |of| ["cpu", "memory"].map(|name| [limit(of, name), request(of, name)]);
    let is_set = |amount: &Option<Amount>| amount.is_some_and(|amount| amount != Amount::ZERO);
    let amounts: Vec<_> = each.into_iter().flat_map(amounts).collect();
    let is_guaranteed = |[limit, request]: &[Option<Amount>; 2]| is_set(limit) && request == limit;
    if !amounts.iter().flatten().any(is_set) {
        "BestEffort"
    } else if amounts.iter().all(is_guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::notation::rows;

    /// A row: the resources of a pod's only container, or a specification; then the CPU shares, CPU quota, memory limit
    /// and OOM score of the first container, which is an init container if there is one.
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
            # The QoS class: BestEffort, Guaranteed, Burstable.
            {"requests": {"cpu": "0"}}                    | 2 0 0 1000
            {"limits": {"example.com/gpu": "1"}}          | 2 0 0 1000
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}} | 1024 100000 1073741824 -997
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}} | 512 100000 1073741824 750
            {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, {"name": "b"}]} | 1024 100000 1073741824 750
            {"priorityClassName": "system-node-critical", "containers": [{"name": "app"}]} | 2 0 0 -997
            {"priorityClassName": "system-cluster-critical", "containers": [{"name": "app"}]} | 2 0 0 1000
            # A sidecar is killed no sooner than a regular container.
            {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "app", "resources": {"requests": {"memory": "2Gi"}}}]} | 2 0 0 500
        "#;
        for row in rows(table) {
            let mut spec: Value = serde_json::from_str(row[0]).unwrap();
            if spec["containers"].is_null() {
                spec = json!({"containers": [{"name": "app", "resources": spec}]});
            }
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let first = containers_in(&spec).next();
            let made = linux_resources(&spec, first.unwrap(), 4 << 30);
            let (shares, quota) = (made.cpu_shares, made.cpu_quota);
            let (memory, score) = (made.memory_limit_in_bytes, made.oom_score_adj);
            let found = format!("{shares} {quota} {memory} {score}");
            assert_eq!(found, row[1], "{row:?}");
            assert_eq!(made.cpu_period, 100_000);
        }
    }
}
