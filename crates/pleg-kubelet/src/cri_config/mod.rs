//! What the runtime is told of a pod: sandbox and container configurations with upstream's names,
//! labels and annotations.

mod container;
mod env;
mod resources;
mod sandbox;
mod security;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Volume};
use pleg_cri::v1::DnsConfig;

pub use container::{ContainerInput, container_config};
pub use env::expand;
pub use resources::linux_resources;
pub use sandbox::sandbox_config;

/// The labels and annotations of upstream's kubelet.
pub mod names {
    /// Label: the name of the pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Label: the namespace of the pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Label: the uid of the pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Label: the name of the container.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Annotation: the hash of the container's specification, in hexadecimal.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// Annotation: the number of earlier containers of that name.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Annotation: the file in which a container leaves a message when it ends.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Annotation: whether the end of the log is used if that file is empty.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// Annotation: the container's ports, as JSON.
    pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
    /// Annotation: the pod's grace period, in seconds.
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// A field of a pod that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The path of the field, such as `spec.containers[0].image`.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// What the node provides.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// The directory of logs: `/var/log/pods`.
    pub logs: PathBuf,
    /// The directory of the pods' own files: `/var/lib/kubelet/pods`.
    pub pods: PathBuf,
    /// The node's memory, in bytes.
    pub memory: u64,
    /// The name resolution of the node.
    pub dns: DnsConfig,
    /// The parent cgroup of sandboxes; empty for that of the runtime.
    pub cgroup_parent: String,
    /// The node's addresses, the preferred family first.
    pub host_ips: Vec<IpAddr>,
}

impl NodeConfig {
    /// The directory of a pod's logs: `<logs>/<namespace>_<name>_<uid>`.
    #[must_use]
    pub fn log_directory(&self, pod: &Pod) -> PathBuf {
        let PodName {
            name,
            namespace,
            uid,
        } = PodName::of(pod);
        self.logs.join(format!("{namespace}_{name}_{uid}"))
    }

    /// The path of a volume on the node, for those that this kubelet can provide.
    #[must_use]
    pub fn volume_path(&self, pod: &Pod, volume: &Volume) -> Option<PathBuf> {
        if let Some(host_path) = &volume.host_path {
            return Some(PathBuf::from(&host_path.path));
        }
        volume.empty_dir.as_ref()?;
        let of_pod = self.pods.join(PodName::of(pod).uid);
        Some(
            of_pod
                .join("volumes/kubernetes.io~empty-dir")
                .join(&volume.name),
        )
    }
}

/// The path of a container's log in the pod's directory: `<container>/<attempt>.log`.
#[must_use]
pub fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// What identifies a pod.
#[derive(Clone, Copy)]
struct PodName<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
}

impl<'a> PodName<'a> {
    fn of(pod: &'a Pod) -> Self {
        let metadata = &pod.metadata;
        Self {
            name: metadata.name.as_deref().unwrap_or_default(),
            namespace: metadata.namespace.as_deref().unwrap_or("default"),
            uid: metadata.uid.as_deref().unwrap_or_default(),
        }
    }

    fn labels(self) -> [(String, String); 3] {
        [
            (names::POD_NAME, self.name),
            (names::POD_NAMESPACE, self.namespace),
            (names::POD_UID, self.uid),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
