//! Admission: decides if a node can run a pod in addition to the node's other pods. The checks, their order and their
//! reasons are the same as in upstream's kubelet. Taints are not checked, because static pods tolerate all taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::host_ports::share_host_port;
use pleg::WallTime;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::pod_status::{api_time, qos_class};
use pleg_kubelet::quantity::Amount;

/// The properties and resources that a node offers to pods.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NodeFacts {
    /// The node's name.
    pub name: String,
    /// The node's labels.
    pub labels: BTreeMap<String, String>,
    /// The total that pods may request: `cpu`, `memory`, `pods` and others. A resource that is not listed is unlimited.
    /// But huge pages and extended resources (with a `/` in the name) must be listed: otherwise the node has none.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Sysctls that are allowed although they are not safe. A `*` at the end matches any text.
    pub unsafe_sysctls: Vec<String>,
}

impl NodeFacts {
    /// The node `name` with upstream's labels. It offers all CPUs and memory of `config`, and room for 110 pods.
    #[must_use]
    pub fn new(name: &str, config: &NodeConfig) -> Self {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let labels = [("hostname", name), ("os", "linux"), ("arch", arch)];
        let labels = labels.map(|(key, value)| (format!("kubernetes.io/{key}"), value.to_owned()));
        let memory = Amount::whole(i64::try_from(config.memory).unwrap_or(i64::MAX));
        let allocatable = [
            ("cpu", Amount::whole(config.cpus.into()).decimal()),
            ("memory", memory.binary()),
            ("pods", Amount::whole(110).decimal()),
        ];
        Self {
            name: name.to_owned(),
            labels: labels.into(),
            allocatable: allocatable
                .map(|(kind, amount)| (kind.to_owned(), amount))
                .into(),
            unsafe_sysctls: Vec::new(),
        }
    }
}

/// The reason why a node rejects a pod. A rejected pod has the phase Failed, and is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{message}")]
pub struct Rejection {
    /// Upstream's reason, such as `OutOfcpu`, `NodeAffinity` or `SysctlForbidden`.
    pub reason: String,
    /// The reason in words.
    pub message: String,
}

impl Rejection {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// The status of a pod that was rejected at `now`, which is its start time as in upstream's `status_manager.go`.
    #[must_use]
    pub fn status(&self, pod: &Pod, now: WallTime) -> PodStatus {
        let class = pod.spec.as_ref().map(qos_class);
        PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(self.reason.clone()),
            message: Some(format!("Pod was rejected: {}", self.message)),
            start_time: Some(api_time(now)),
            qos_class: class.map(str::to_owned),
            observed_generation: pod.metadata.generation,
            ..PodStatus::default()
        }
    }
}

/// Checks that the node can run a pod. `others` are the node's admitted pods that have not ended.
///
/// # Errors
/// Fails with the reason of the first check that fails.
pub fn admit<'a>(
    pod: &Pod,
    node: &NodeFacts,
    others: impl IntoIterator<Item = &'a Pod>,
) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let others: Vec<&Pod> = others.into_iter().collect();
    sysctls(spec, node)?;
    os(spec, node)?;
    resources(spec, node, &others)?;
    let name = spec.node_name.as_ref().filter(|name| !name.is_empty());
    let (reason, problem) = if !selects(spec, node) {
        ("NodeAffinity", "match Pod's node affinity/selector")
    } else if name.is_some_and(|name| *name != node.name) {
        ("NodeName", "match the requested node name")
    } else if others.iter().any(|other| share_host_port(pod, other)) {
        ("NodePorts", "have free ports for the requested pod ports")
    } else {
        return Ok(());
    };
    let message = format!("Predicate {reason} failed: node(s) didn't {problem}");
    Err(Rejection::new(reason, message))
}

/// Sysctls that affect only the pod that sets them and cannot harm the node, on the kernels that upstream supports.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

fn sysctls(spec: &PodSpec, node: &NodeFacts) -> Result<(), Rejection> {
    let context = spec.security_context.iter();
    let sysctls = context.flat_map(|context| context.sysctls.iter().flatten());
    for sysctl in sysctls {
        let name = sysctl.name.replace('/', ".");
        let is_allowed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        };
        // A pod without a network or IPC namespace of its own would set the node's sysctl.
        let of_node = match name.starts_with("net.") {
            true => spec.host_network == Some(true),
            false => spec.host_ipc == Some(true),
        };
        let is_known = SAFE_SYSCTLS.contains(&&*name) || node.unsafe_sysctls.iter().any(is_allowed);
        if of_node || !is_known {
            let message = format!("forbidden sysctl: {:?} not allowlisted", sysctl.name);
            return Err(Rejection::new("SysctlForbidden", message));
        }
    }
    Ok(())
}

fn os(spec: &PodSpec, node: &NodeFacts) -> Result<(), Rejection> {
    const LABEL: &str = "kubernetes.io/os";
    let selector = spec.node_selector.as_ref();
    let selected = selector.and_then(|selector| selector.get(LABEL));
    if selected.is_some_and(|os| node.labels.get(LABEL) != Some(os)) {
        let reason = "PodOSSelectorNodeLabelDoesNotMatch";
        let label = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(Rejection::new(reason, label));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(Rejection::new("PodOSNotSupported", message));
    }
    Ok(())
}

fn resources(spec: &PodSpec, node: &NodeFacts, others: &[&Pod]) -> Result<(), Rejection> {
    let allocatable = |resource: &str| match node.allocatable.get(resource) {
        Some(amount) => Amount::try_from(amount).ok(),
        None if resource.contains('/') || resource.starts_with("hugepages-") => {
            Some(Amount::default())
        }
        None => None,
    };
    let pods = Amount::whole(i64::try_from(others.len()).unwrap_or(i64::MAX));
    let others = others.iter().filter_map(|pod| pod.spec.as_ref());
    let others: Vec<_> = others.map(requests).collect();
    let mut wanted = vec![("pods".to_owned(), Amount::whole(1), pods)];
    wanted.extend(requests(spec).into_iter().map(|(resource, amount)| {
        let used = others.iter().filter_map(|other| other.get(&resource));
        let used = used.fold(Amount::default(), |sum, amount| sum.plus(*amount));
        (resource, amount, used)
    }));
    wanted.retain(|(_, amount, _)| *amount != Amount::ZERO);
    for (resource, requested, used) in wanted {
        let Some(capacity) = allocatable(&resource) else {
            continue;
        };
        if requested.plus(used) > capacity {
            let unit = |amount: Amount| match &*resource {
                "cpu" => amount.milli_value(),
                _ => amount.value(),
            };
            let (requested, used, capacity) = (unit(requested), unit(used), unit(capacity));
            let message = format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            return Err(Rejection::new(format!("OutOf{resource}"), message));
        }
    }
    Ok(())
}

type Requests = BTreeMap<String, Amount>;

/// For each resource, the largest sum of requests of containers that run together. `set_defaults` must have run before.
fn requests(spec: &PodSpec) -> Requests {
    let of = |container: &Container| -> Requests {
        let resources = container.resources.iter();
        let requests = resources.flat_map(|r| r.requests.iter().flatten());
        let amount =
            |(name, quantity): (&String, _)| Some((name.clone(), Amount::try_from(quantity).ok()?));
        requests.filter_map(amount).collect()
    };
    let combine = |into: &mut Requests, with: Requests, by: fn(Amount, Amount) -> Amount| {
        for (name, amount) in with {
            let sum = into.entry(name).or_default();
            *sum = by(*sum, amount);
        }
    };
    let (mut sidecars, mut most) = (Requests::new(), Requests::new());
    for container in spec.init_containers.iter().flatten() {
        let mut beside = sidecars.clone();
        combine(&mut beside, of(container), Amount::plus);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.clone_from(&beside);
        }
        combine(&mut most, beside, Amount::max);
    }
    for container in &spec.containers {
        combine(&mut sidecars, of(container), Amount::plus);
    }
    combine(&mut most, sidecars, Amount::max);
    most
}

/// Returns true if the pod's `nodeSelector` and its required node affinity select the node.
fn selects(spec: &PodSpec, node: &NodeFacts) -> bool {
    let mut labels = spec.node_selector.iter().flatten();
    let required = spec.affinity.as_ref().and_then(|affinity| {
        let affinity = affinity.node_affinity.as_ref()?;
        let required = &affinity.required_during_scheduling_ignored_during_execution;
        Some(&required.as_ref()?.node_selector_terms)
    });
    labels.all(|(key, value)| node.labels.get(key) == Some(value))
        && required.is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
}

/// Returns true if a term selects the node. A term without requirements selects no node.
fn matches(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let labels = || term.match_expressions.iter().flatten();
    let fields = || term.match_fields.iter().flatten();
    let name = |key: &str| (key == "metadata.name").then_some(&node.name);
    labels().chain(fields()).next().is_some()
        && labels().all(|wanted| holds(wanted, node.labels.get(&wanted.key)))
        && fields().all(|wanted| holds(wanted, name(&wanted.key)))
}

fn holds(wanted: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = || wanted.values.iter().flatten();
    let is_one = value.is_some_and(|value| values().any(|other| other == value));
    let numbers = || {
        let number = |text: &String| text.parse::<i64>().ok();
        Some((number(value?)?, number(values().next()?)?))
    };
    match wanted.operator.as_str() {
        "In" => is_one,
        "NotIn" => !is_one,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, Value, json};

    use super::*;
    use crate::manifest::set_defaults;

    fn pod(spec: &Value) -> Pod {
        let mut pod = json!({"spec": {"containers": [{"name": "app"}]}});
        json_patch::merge(&mut pod["spec"], spec);
        let mut pod = serde_json::from_value(pod).unwrap();
        set_defaults(&mut pod);
        pod
    }

    fn node() -> NodeFacts {
        let mut config = NodeConfig::of_host("/r".as_ref(), Vec::new());
        (config.cpus, config.memory) = (2, 1 << 30);
        let mut node = NodeFacts::new("n1", &config);
        node.labels.insert("disk".to_owned(), "ssd".to_owned());
        node.labels.insert("rank".to_owned(), "5".to_owned());
        let pods = Quantity("2".to_owned());
        node.allocatable.insert("pods".to_owned(), pods);
        node.unsafe_sysctls.push("net.core.*".to_owned());
        node
    }

    /// A pod specification with `fields` at the place that `kind` names; `pod` means the specification as a whole.
    fn spec(kind: &str, fields: &str) -> Value {
        let fields: Value = serde_json::from_str(fields).unwrap();
        match kind {
            "port" => json!({"containers": [{"name": "app", "ports": [fields]}]}),
            "resources" => json!({"containers": [{"name": "app", "resources": fields}]}),
            "sysctl" => json!({"securityContext": {"sysctls": [{"name": fields, "value": "1"}]}}),
            "affinity" => {
                let never =
                    json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]});
                let terms = json!({"nodeSelectorTerms": [never, fields]});
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
            }
            _ => fields,
        }
    }

    /// A row of the table: the specification of a pod, and the reason if the pod is rejected.
    #[test]
    fn pod_that_node_cannot_run_is_rejected_with_upstreams_reason() {
        let running = r#"{"name": "app", "ports": [{"containerPort": 80, "hostPort": 80},
            {"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.1"}], "resources": {"limits": {"cpu": "1500m"}}}"#;
        let running = pod(&spec("pod", &format!("{{\"containers\": [{running}]}}")));
        let table = r#"
            pod {} |
            pod {"nodeSelector": {"disk": "ssd", "kubernetes.io/hostname": "n1"}} |
            pod {"nodeSelector": {"disk": "hdd"}} | NodeAffinity
            pod {"nodeSelector": {"kubernetes.io/os": "windows"}} | PodOSSelectorNodeLabelDoesNotMatch
            pod {"nodeName": "n2"} | NodeName
            affinity {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd", "ssd"]}]} |
            affinity {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]} | NodeAffinity
            affinity {"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a"]}]} |
            affinity {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]} | NodeAffinity
            affinity {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["4"]}]} |
            affinity {"matchExpressions": [{"key": "rank", "operator": "Lt", "values": ["5"]}]} | NodeAffinity
            affinity {} | NodeAffinity
            affinity {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]} |
            port {"containerPort": 1, "hostPort": 80} | NodePorts
            port {"containerPort": 80, "hostPort": 80, "protocol": "UDP"} |
            port {"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"} | NodePorts
            port {"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.2"} |
            port {"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.1"} | NodePorts
            port {"containerPort": 1, "hostPort": 90, "hostIP": "0.0.0.0"} | NodePorts
            resources {"requests": {"cpu": "500m"}} |
            resources {"limits": {"cpu": "501m"}} | OutOfcpu
            resources {"requests": {"memory": "2Gi"}} | OutOfmemory
            resources {"requests": {"ephemeral-storage": "9Ti"}} |
            resources {"limits": {"example.com/gpu": "1"}} | OutOfexample.com/gpu
            sysctl "kernel.shm_rmid_forced" |
            sysctl "net/core/somaxconn" |
            sysctl "kernel.msgmax" | SysctlForbidden
            pod {"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}} | SysctlForbidden
        "#;
        for row in table.trim().lines() {
            let (words, reason) = row.split_once('|').unwrap();
            let (kind, fields) = words.trim().split_once(' ').unwrap();
            let rejected = admit(&pod(&spec(kind, fields)), &node(), [&running]).err();
            let found = rejected.map(|rejection| rejection.reason);
            assert_eq!(found.unwrap_or_default(), reason.trim(), "{row}");
        }
        let empty = pod(&json!({}));
        let full = admit(&empty, &node(), [&empty, &empty]).unwrap_err();
        assert_eq!(full.reason, "OutOfpods");
    }

    #[test]
    fn sidecar_requests_are_added_to_later_init_containers() {
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("s", "1");
        sidecar["restartPolicy"] = "Always".into();
        let init = [container("first", "3"), sidecar, container("last", "4")];
        let spec = json!({"initContainers": init, "containers": [container("app", "2")]});
        let spec = pod(&spec).spec.unwrap();
        assert_eq!(requests(&spec)["cpu"], Amount::whole(5));
    }
}
