//! Ports of the node that pods use.

use k8s_openapi::api::core::v1::Pod;

/// A port of the node, its protocol and its address. Without an address, all addresses of the node have the port.
type HostPort = (i32, String, Option<String>);

/// Returns true if both pods use the same port of the node.
#[must_use]
pub(crate) fn share_host_port(pod: &Pod, other: &Pod) -> bool {
    let ports = host_ports(pod);
    let is_taken = |(port, protocol, address): &HostPort| {
        ports.iter().any(|(own_port, own_protocol, own_address)| {
            let same_address = !matches!((own_address, address), (Some(a), Some(b)) if a != b);
            own_port == port && own_protocol == protocol && same_address
        })
    };
    host_ports(other).iter().any(is_taken)
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec.init_containers.iter().flatten();
    let ports = init
        .chain(&spec.containers)
        .flat_map(|c| c.ports.iter().flatten());
    let used = ports.filter_map(|port| {
        let of_container = (spec.host_network == Some(true)).then_some(port.container_port);
        let number = port.host_port.filter(|port| *port != 0).or(of_container)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let address = port.host_ip.clone();
        let address = address.filter(|ip| !["", "0.0.0.0", "::"].contains(&&**ip));
        Some((number, protocol, address))
    });
    used.collect()
}
