//! Ports of containers.

use k8s_openapi::api::core::v1::PodSpec;

use super::texts::{IP, PORT_NAME};
use super::{Allowed, Each, Errors, Rule, containers};

pub(super) const RULES: &[Rule] = &[
    ("spec.@.ports.containerPort", Allowed::Range(1, 65535)),
    ("spec.@.ports.hostIP", Allowed::IsOrEmpty(&IP)),
    ("spec.@.ports.hostPort", Allowed::Range(0, 65535)),
    ("spec.@.ports.name", Allowed::IsOrEmpty(&PORT_NAME)),
    (
        "spec.@.ports.protocol",
        Allowed::OneOf(&["TCP", "UDP", "SCTP"]),
    ),
];

pub(super) fn check(each: &Each<'_>, errors: &mut Errors) {
    let ports = || each.container.ports.iter().flatten().enumerate();
    let path = |at: usize, field: &str| format!("{}.ports[{at}].{field}", each.path);
    let names = ports().filter_map(|(at, port)| {
        let name = port.name.as_ref().filter(|name| !name.is_empty())?;
        Some((path(at, "name"), name))
    });
    errors.unique(names, |name| {
        format!("another port of the container is named {name:?}: rename one")
    });
    for (at, port) in ports().filter(|_| each.pod.host_network == Some(true)) {
        let other = |number: &i32| *number != 0 && *number != port.container_port;
        if let Some(number) = port.host_port.filter(other) {
            let problem = format!(
                "{number} is not the containerPort {}: on the host network, write the same number",
                port.container_port
            );
            errors.add(path(at, "hostPort"), problem);
        }
    }
}

/// On the host network, each port is a port of the node.
pub(super) fn check_host_ports(spec: &PodSpec, errors: &mut Errors) {
    let on_host = spec.host_network == Some(true);
    let ports = containers(spec).flat_map(|each| {
        let ports = each.container.ports.iter().flatten().enumerate();
        let used = ports.filter_map(move |(at, port)| {
            let given = port.host_port.filter(|number| *number != 0);
            let number = given.or(on_host.then_some(port.container_port))?;
            let field = if given.is_some() {
                "hostPort"
            } else {
                "containerPort"
            };
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let key = (
                number,
                protocol,
                port.host_ip.as_deref().unwrap_or_default(),
            );
            Some((format!("{}.ports[{at}].{field}", each.path), key))
        });
        used.collect::<Vec<_>>()
    });
    errors.unique(ports, |(number, protocol, _)| {
        format!("port {number}/{protocol} is used twice: change one")
    });
}
