//! The labels and annotations with which upstream's kubelet marks sandboxes and containers.

use k8s_openapi::api::core::v1::Pod;

/// Label: the name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the uid of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: the name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation: the hash of the container's name and image, in hexadecimal.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Annotation: the restart count of the container, 0 for the first one of its name.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: the file in which a container leaves its termination message.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: the policy for an empty message file. `FallbackToLogsOnError` means that the end of the log is used.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: the container's ports, as JSON.
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: the pod's grace period, in seconds.
pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: the source of the pod's specification, which is `file` for a static pod.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// The name, the namespace and the uid of a pod.
#[derive(Clone, Copy)]
pub(crate) struct PodName<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
}

impl<'a> PodName<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Self {
        let metadata = &pod.metadata;
        Self {
            name: metadata.name.as_deref().unwrap_or_default(),
            namespace: metadata.namespace.as_deref().unwrap_or("default"),
            uid: metadata.uid.as_deref().unwrap_or_default(),
        }
    }

    /// The labels of the pod's sandboxes and containers.
    pub(crate) fn labels(self) -> impl Iterator<Item = (String, String)> {
        let keys = [POD_NAME, POD_NAMESPACE, POD_UID].map(str::to_owned);
        let values = [self.name, self.namespace, self.uid].map(str::to_owned);
        keys.into_iter().zip(values)
    }
}
