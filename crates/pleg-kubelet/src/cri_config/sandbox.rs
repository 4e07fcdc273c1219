//! The configuration of a pod's sandbox.

use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodSpec};
use pleg_cri::v1::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol,
};

use crate::names::PodName;
use crate::spec::{containers_in, spec_of};
use crate::volumes::Result;

use super::{NodeConfig, security, text};

const HOST_NAME_MAX: usize = 63;

/// The configuration of the sandbox number `attempt` of a pod.
///
/// # Errors
/// If the pod's names cannot form the name of its log directory.
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
        log_directory: text(&node.log_directory(pod)?),
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

/// The host name of a pod: at most 63 characters that do not end with `-` or `.`.
pub(crate) fn host_name_of(pod: &Pod) -> String {
    let own = spec_of(pod).hostname.as_deref();
    let own = own.filter(|name| !name.is_empty());
    let name = own.unwrap_or(PodName::of(pod).name);
    let short: String = name.chars().take(HOST_NAME_MAX).collect();
    match name.len() > HOST_NAME_MAX {
        true => short.trim_end_matches(['-', '.']).to_owned(),
        false => short,
    }
}

fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    let ports = containers_in(spec).flat_map(|c| c.ports.iter().flatten());
    let mapping = |port: &ContainerPort| PortMapping {
        protocol: match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        }
        .into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or_default(),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    };
    ports.map(mapping).collect()
}
