//! The configuration of a pod's sandbox, the pod's host name, and the pod's hosts file.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodSpec};
use pleg_cri::v1::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol,
};

use crate::spec::{PodName, containers_in, spec_of};
use crate::volumes::Result;

use super::{NodeConfig, security};

/// The configuration of a pod's sandbox. `attempt` is the attempt number of the sandbox.
///
/// # Errors
/// If the pod's namespace, name and uid cannot form the name of its log directory.
pub fn sandbox_config(pod: &Pod, node: &NodeConfig, attempt: u32) -> Result<PodSandboxConfig> {
    let (name, spec) = (PodName::of(pod), spec_of(pod));
    let host_name = match spec.host_network {
        Some(true) => String::new(),
        _ => host_name_of(pod),
    };
    let context = spec.security_context.iter();
    let sysctls = context.flat_map(|c| c.sysctls.iter().flatten());
    let metadata = pod.metadata.clone();
    let labels = metadata.labels.into_iter().flatten();
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.name.to_owned(),
            uid: name.uid.to_owned(),
            namespace: name.namespace.to_owned(),
            attempt,
        }),
        hostname: host_name,
        log_directory: node.logs_of(name)?.display().to_string(),
        dns_config: Some(node.dns.clone()),
        port_mappings: port_mappings(spec),
        labels: labels.chain(name.labels()).collect(),
        annotations: metadata.annotations.into_iter().flatten().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: node.cgroup_parent.clone(),
            security_context: Some(security::of_sandbox(spec)),
            sysctls: sysctls.map(|s| (s.name.clone(), s.value.clone())).collect(),
            ..LinuxPodSandboxConfig::default()
        }),
    })
}

/// The host name of a pod: at most 63 characters, without `-` and `.` at its end.
fn host_name_of(pod: &Pod) -> String {
    let own = spec_of(pod).hostname.as_deref();
    let own = own.filter(|name| !name.is_empty());
    let name = own.unwrap_or(PodName::of(pod).name);
    let short: String = name.chars().take(63).collect();
    short.trim_end_matches(['-', '.']).to_owned()
}

fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    let ports = containers_in(spec).flat_map(|c| c.ports.iter().flatten());
    let mapping = |port: &ContainerPort| {
        let protocol = port.protocol.as_deref().and_then(Protocol::from_str_name);
        PortMapping {
            protocol: protocol.unwrap_or(Protocol::Tcp).into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        }
    };
    ports.map(mapping).collect()
}

pub(super) const LOCAL: &str = "\
# This file is made for the pod. Changes are lost.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

/// The hosts file of a pod, as upstream's kubelet writes it for every runtime. Without it, containerd mounts the node's
/// file into all containers, CRI-O only into those on the host network: other pods could not resolve `localhost`.
///
/// `ips` are the pod's addresses. `of_node` is the node's hosts file, with which the file begins on the host network.
pub(crate) fn hosts(pod: &Pod, ips: &[IpAddr], of_node: &str) -> String {
    let spec = spec_of(pod);
    let mut text = match spec.host_network {
        Some(true) => format!("{}\n", of_node.trim_end()),
        _ => {
            let own = |ip| format!("{ip}\t{}\n", host_name_of(pod));
            LOCAL.to_owned() + &ips.iter().map(own).collect::<String>()
        }
    };
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        text += &format!("{}\t{}\n", alias.ip, names.join("\t"));
    }
    text
}
