//! Rules that compare fields of different objects in a pod.

use std::collections::BTreeSet;

use k8s_openapi::serde_json::Value;

use super::{FieldError, each};
use pleg_kubelet::fields_at;

/// The maximum number of bytes in the keys and values of all annotations of a pod.
const MOST_ANNOTATIONS: usize = 256 << 10;

pub(super) fn check(pod: &Value, errors: &mut Vec<FieldError>) {
    let mut add = |field: String, problem: String| errors.push(FieldError::new(field, problem));
    for (field, annotations) in fields_at(pod, "metadata.annotations") {
        let given = annotations.as_object().into_iter().flatten();
        let bytes =
            |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
        let bytes: usize = given.map(bytes).sum();
        if bytes > MOST_ANNOTATIONS {
            let problem = format!("{bytes} bytes are too many: write at most {MOST_ANNOTATIONS}");
            add(field, problem);
        }
    }
    let volumes = fields_at(pod, "spec.volumes.name");
    for (path, container) in each(pod, "spec.@") {
        let privileged = container.pointer("/securityContext/privileged");
        for (mount, name) in fields_at(container, "volumeMounts.name") {
            if !volumes.iter().any(|(_, volume)| *volume == name) {
                let problem = format!("there is no volume {name}: add it to spec.volumes");
                add(format!("{path}.{mount}"), problem);
            }
        }
        for (field, propagation) in fields_at(container, "volumeMounts.mountPropagation") {
            if propagation == "Bidirectional" && privileged != Some(&Value::Bool(true)) {
                let problem = "\"Bidirectional\" needs a privileged container: use HostToContainer, \
                               or write securityContext: {privileged: true}";
                add(format!("{path}.{field}"), problem.to_owned());
            }
        }
    }
    check_host_ports(pod, add);
}

/// Checks that no port of the node is used twice and, on the host network, that `hostPort` equals `containerPort`.
fn check_host_ports(pod: &Value, mut add: impl FnMut(String, String)) {
    let on_host = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
    let mut used = BTreeSet::new();
    for (path, port) in each(pod, "spec.@.ports") {
        let number = |field: &str| port[field].as_i64().filter(|number| *number != 0);
        let text = |field: &str, default| port[field].as_str().unwrap_or(default);
        let (of_container, of_node) = (number("containerPort"), number("hostPort"));
        if let (Some(of_node), Some(of_container)) = (of_node, of_container)
            && on_host
            && of_node != of_container
        {
            let problem = format!(
                "{of_node} is not the containerPort {of_container}: on the host network, write the same number"
            );
            add(format!("{path}.hostPort"), problem);
        }
        let field = if of_node.is_some() {
            "hostPort"
        } else {
            "containerPort"
        };
        let Some(number) = of_node.or(of_container.filter(|_| on_host)) else {
            continue;
        };
        let protocol = text("protocol", "TCP");
        if !used.insert((number, protocol, text("hostIP", ""))) {
            let problem = format!("port {number}/{protocol} is used twice: change one");
            add(format!("{path}.{field}"), problem);
        }
    }
}
