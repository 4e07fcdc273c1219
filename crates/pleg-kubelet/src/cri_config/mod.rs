//! Sandbox and container configurations for the runtime, with upstream's names, labels and annotations.

mod container;
mod sandbox;
mod security;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use pleg::{ContainerStatus, PodStatus};
use pleg_cri::v1::DnsConfig;

use crate::spec::PodName;
use crate::volumes::{Result, file_name};

pub use container::stop_signal;
pub(crate) use container::{ContainerInput, absolute};
pub(crate) use sandbox::hosts;
pub use sandbox::sandbox_config;
pub(crate) use security::check_user;

/// An error about a field of a pod that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The path of the field, such as `spec.containers[0].image`.
    pub field: String,
    /// The problem, and what to do.
    pub problem: String,
}

impl FieldError {
    /// A problem with the field whose path is `field`.
    #[must_use]
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.into(), problem.into());
        Self { field, problem }
    }

    /// Returns this error with `path` put before the path of its field.
    pub(crate) fn below(self, path: &str) -> Self {
        let separator = if self.field.is_empty() { "" } else { "." };
        Self::new(format!("{path}{separator}{}", self.field), self.problem)
    }
}

/// The node's directories, resources and addresses.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// The directory of logs: `/var/log/pods`.
    pub logs: PathBuf,
    /// The directory of the pods' files (volumes, hosts files, termination messages), such as `/var/lib/kubelet/pods`.
    pub pods: PathBuf,
    /// The node's CPUs.
    pub cpus: u32,
    /// The node's memory, in bytes.
    pub memory: u64,
    /// The name resolution of the node.
    pub dns: DnsConfig,
    /// The parent cgroup of sandboxes. Empty: the runtime's default. With `SystemdCgroup`, a slice: `system.slice`.
    pub cgroup_parent: String,
    /// The IP addresses of the node. Addresses of the preferred family come first.
    pub host_ips: Vec<IpAddr>,
}

impl NodeConfig {
    /// The CPUs, memory and name resolution of this host. Logs are in `root/logs`, and the pods' files in `root/pods`.
    ///
    /// Reads `/proc/meminfo` and `/etc/resolv.conf`. Values that these files do not have stay empty.
    #[must_use]
    pub fn of_host(root: &Path, host_ips: Vec<IpAddr>) -> Self {
        // Make the path absolute: CRI-O refuses a relative path, and containerd resolves it in a directory of its own.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let resolv_conf = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let words = |text: &str, key: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(key));
            let words = lines.flat_map(str::split_whitespace);
            words.map(str::to_owned).collect()
        };
        let memory = words(&meminfo, "MemTotal:");
        let kibibytes: Option<u64> = memory.first().and_then(|number| number.parse().ok());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            logs: root.join("logs"),
            pods: root.join("pods"),
            cpus: u32::try_from(cpus).unwrap_or(1),
            memory: kibibytes.unwrap_or(0) * 1024,
            dns: DnsConfig {
                servers: words(&resolv_conf, "nameserver"),
                searches: words(&resolv_conf, "search"),
                options: words(&resolv_conf, "options"),
            },
            cgroup_parent: String::new(),
            host_ips,
        }
    }

    /// The directory of a pod's logs: `<logs>/<namespace>_<name>_<uid>`. Create it for CRI-O, which does not create it.
    ///
    /// # Errors
    /// If the namespace, name or uid has a `/` or a `:`.
    pub fn log_directory(&self, pod: &Pod) -> Result<PathBuf> {
        self.logs_of(PodName::of(pod))
    }

    pub(crate) fn logs_of(&self, pod: PodName<'_>) -> Result<PathBuf> {
        let directory = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
        Ok(self.logs.join(file_name(&directory)?))
    }

    /// The log of a container, and the file of its termination message.
    pub(crate) fn files_of(&self, pod: &PodStatus, c: &ContainerStatus) -> Result<[PathBuf; 2]> {
        let uid = pod.uid.as_str();
        let directory = self.logs_of(PodName {
            name: &pod.name,
            namespace: &pod.namespace,
            uid,
        })?;
        let log = directory.join(log_path(file_name(&c.name)?, c.attempt));
        Ok([log, self.termination_log(uid, &c.name, c.attempt)?])
    }
}

/// The path of a container's log in the log directory of its pod: `<container>/<attempt>.log`.
fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}
