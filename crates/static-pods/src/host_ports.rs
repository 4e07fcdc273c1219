//! Ports of the node that pods use.

use k8s_openapi::api::core::v1::Pod;

/// A port of the node that both pods use, such as `8080/TCP`.
#[must_use]
pub(crate) fn host_port_conflict(pod: &Pod, other: &Pod) -> Option<String> {
    let ports = host_ports(pod);
    let theirs = host_ports(other);
    let HostPort { port, protocol, .. } = theirs
        .iter()
        .find(|t| ports.iter().any(|p| p.conflicts_with(t)))?;
    Some(format!("{port}/{protocol}"))
}

/// A port of the node that a pod uses.
struct HostPort {
    port: i32,
    protocol: String,
    /// `None`: on all addresses.
    address: Option<String>,
}

impl HostPort {
    fn conflicts_with(&self, other: &Self) -> bool {
        let addresses = (&self.address, &other.address);
        let same_address = !matches!(addresses, (Some(a), Some(b)) if a != b);
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    });
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let ports = containers
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(|port| {
            let on_host = on_host.then_some(port.container_port);
            let is_any = |ip: &String| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
            Some(HostPort {
                port: port.host_port.filter(|p| *p != 0).or(on_host)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                address: port.host_ip.clone().filter(|ip| !is_any(ip)),
            })
        });
    ports.collect()
}
