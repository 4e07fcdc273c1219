//! The values of a pod's API object that decisions and configurations need, with the defaults of the API.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRuleOnExitCodes, Pod, PodSpec};
use k8s_openapi::serde_json;

use crate::names;

/// The value for an exit code that stays unknown. It counts as a failure.
pub(crate) const UNKNOWN_EXIT_CODE: i32 = -1;

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
        let keys = [names::POD_NAME, names::POD_NAMESPACE, names::POD_UID];
        let values = [self.name, self.namespace, self.uid].map(str::to_owned);
        keys.map(str::to_owned).into_iter().zip(values)
    }
}

/// The specification of a pod, or an empty one.
pub(crate) fn spec_of(pod: &Pod) -> &PodSpec {
    static NONE: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}

pub(crate) fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    containers_in(spec_of(pod)).find(|c| c.name == name)
}

/// The init containers, then the regular ones.
pub(crate) fn containers_in(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers)
}

/// Returns true if an init container is a sidecar (`restartPolicy: Always`), which runs as long as the pod runs.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The restart policy of a container or, if the container has none, of its pod.
pub(crate) fn policy<'a>(container: &'a Container, spec: &'a PodSpec) -> &'a str {
    let own = container.restart_policy.as_deref();
    own.or(spec.restart_policy.as_deref()).unwrap_or("Always")
}

/// Returns true if the container is restarted after it exited with `exit_code`.
pub(crate) fn restarts(container: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    let is_named = |codes: &ContainerRestartRuleOnExitCodes| {
        let is_in = codes.values.iter().flatten().any(|code| *code == exit_code);
        codes.operator == "In" && is_in || codes.operator == "NotIn" && !is_in
    };
    let is_restarted = match policy(container, spec) {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    };
    // `restartPolicyRules` overrule the container's own `restartPolicy`. If it has none, the rules are ignored.
    let rules = container.restart_policy_rules.iter().flatten();
    let rules = rules.filter(|rule| rule.action == "Restart");
    let mut rules = rules.filter_map(|rule| rule.exit_codes.as_ref());
    is_restarted || container.restart_policy.is_some() && rules.any(is_named)
}

/// The grace period of a pod. A deletion may have shortened it.
pub(crate) fn grace_period(pod: &Pod) -> Duration {
    let of_spec = spec_of(pod).termination_grace_period_seconds;
    let grace = pod.metadata.deletion_grace_period_seconds.or(of_spec);
    Duration::from_secs(u64::try_from(grace.unwrap_or(30)).unwrap_or(0))
}

/// The key under which the back-off counts the restarts of a container.
pub(crate) fn back_off_key(container: &Container) -> String {
    format!("{}_{}", container.name, container_hash(container))
}

/// The hash of the container's name and image, the fields that cannot change while the container runs. As upstream, it
/// is the FNV-1a hash of the JSON of both, in the form in which Go prints the bytes of this JSON.
#[must_use]
pub fn container_hash(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let picked = serde_json::json!({"image": image, "name": container.name}).to_string();
    let printed = format!("([]uint8){:?}", picked.as_bytes()).replace(", ", " ");
    let hash = printed.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:x}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn grace_period_comes_from_the_deletion_or_the_pod() {
        for (of_spec, deletion, expected) in [
            (json!(5), None, 5),
            (json!(60), Some(2), 2),
            (json!(-1), None, 0),
            (json!(null), None, 30),
        ] {
            let spec = json!({"containers": [], "terminationGracePeriodSeconds": of_spec});
            let metadata = json!({"deletionGracePeriodSeconds": deletion});
            let pod = json!({"metadata": metadata, "spec": spec});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(grace_period(&pod).as_secs(), expected);
        }
    }

    #[test]
    fn hash_matches_upstream_and_changes_with_name_and_image_only() {
        let hash = |name: &str, image: &str, args: Option<Vec<String>>| {
            let mut container = Container::default();
            (container.name, container.args) = (name.to_owned(), args);
            container.image = Some(image.to_owned());
            container_hash(&container)
        };
        let same = hash("test_container", "foo/image:v1", None);
        assert_eq!(same, "8e45cbd0");
        let with_args = hash("test_container", "foo/image:v1", Some(vec!["x".to_owned()]));
        assert_eq!(with_args, same);
        assert_ne!(hash("test_container", "foo/image:v2", None), same);
        assert_ne!(hash("log", "foo/image:v1", None), same);
    }
}
