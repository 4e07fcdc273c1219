//! The name, namespace and uid of a pod.

use k8s_openapi::api::core::v1::Pod;

use crate::names;

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
    pub(crate) fn labels(self) -> [(String, String); 3] {
        [
            (names::POD_NAME, self.name),
            (names::POD_NAMESPACE, self.namespace),
            (names::POD_UID, self.uid),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    }
}
