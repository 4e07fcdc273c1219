//! The labels and annotations with which upstream's kubelet marks sandboxes and containers.

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
/// Annotation: the pod's grace period, in seconds.
pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: the source of the pod's specification, which is `file` for a static pod.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
