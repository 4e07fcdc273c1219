//! Names, labels and annotations of the pod.

use k8s_openapi::api::core::v1::Pod;

use super::texts::{ANNOTATION_KEY, KEY, LABEL, LABEL_VALUE, SUBDOMAIN};
use super::{Allowed, Errors, Rule};

pub(super) const RULES: &[Rule] = &[
    ("metadata.annotations", Allowed::Keys(&ANNOTATION_KEY)),
    ("metadata.labels", Allowed::Keys(&KEY)),
    ("metadata.labels.*", Allowed::Is(&LABEL_VALUE)),
    ("metadata.name", Allowed::Is(&SUBDOMAIN)),
    ("metadata.namespace", Allowed::IsOrEmpty(&LABEL)),
];

/// The most bytes that keys and values of annotations may have together.
const MOST_ANNOTATIONS: usize = 256 << 10;

pub(super) fn check(pod: &Pod, errors: &mut Errors) {
    let metadata = &pod.metadata;
    if metadata.name.is_none() {
        errors.add("metadata.name", "it is missing: write a name");
    }
    let annotations = metadata.annotations.iter().flatten();
    let bytes: usize = annotations
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > MOST_ANNOTATIONS {
        let problem = format!("{bytes} bytes are too many: write at most {MOST_ANNOTATIONS}");
        errors.add("metadata.annotations", problem);
    }
    if pod.spec.is_none() {
        errors.add("spec", "it is missing: write the containers of the pod");
    }
}
