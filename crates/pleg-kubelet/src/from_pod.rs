//! The specification that pod workers use, from a `v1.Pod`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::serde_json;

use crate::spec::{ContainerRole, ContainerSpec, PodSpec, RestartPolicy};

impl PodSpec {
    /// The specification of a pod. What is left out has the API's default.
    #[must_use]
    pub fn from_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::new(Vec::new());
        };
        let init = spec.init_containers.iter().flatten().map(|c| {
            let sidecar = c.restart_policy.as_deref() == Some("Always");
            let role = if sidecar {
                ContainerRole::Sidecar
            } else {
                ContainerRole::Init
            };
            container_spec(c, role)
        });
        let regular = spec
            .containers
            .iter()
            .map(|c| container_spec(c, ContainerRole::Regular));
        // A deletion may shorten the grace period.
        let grace = pod.metadata.deletion_grace_period_seconds;
        let grace = grace
            .or(spec.termination_grace_period_seconds)
            .unwrap_or(30);
        let mut made = Self::new(init.chain(regular).collect());
        made.restart_policy = match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        made.termination_grace_period = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        made
    }
}

fn container_spec(container: &Container, role: ContainerRole) -> ContainerSpec {
    let mut made = ContainerSpec::new(&*container.name);
    made.role = role;
    made.hash = container_hash(container);
    made
}

/// Of what cannot be changed while the container runs: its name and its image, as upstream. The
/// value is upstream's, too (FNV-1a of the JSON of both).
#[must_use]
pub fn container_hash(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let picked = format!(
        "{{\"image\":{},\"name\":{}}}",
        text(image),
        text(&container.name)
    );
    let hash = picked.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:x}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn specification_has_init_containers_first_and_the_apis_defaults() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "app", "image": "shop:1"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        }}))
        .expect("a pod");
        let spec = PodSpec::from_pod(&pod);
        let roles: Vec<_> = spec.containers.iter().map(|c| (&*c.name, c.role)).collect();
        assert_eq!(
            roles,
            [
                ("i", ContainerRole::Init),
                ("s", ContainerRole::Sidecar),
                ("app", ContainerRole::Regular)
            ]
        );
        assert_eq!(spec.restart_policy, RestartPolicy::Always);
        assert_eq!(spec.termination_grace_period, Duration::from_secs(30));
    }

    #[test]
    fn policy_and_grace_period_are_those_of_the_pod() {
        let of = |policy, grace: i64, deletion: Option<i64>| {
            let pod = json!({
                "metadata": {"deletionGracePeriodSeconds": deletion},
                "spec": {
                    "containers": [],
                    "restartPolicy": policy,
                    "terminationGracePeriodSeconds": grace,
                },
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let spec = PodSpec::from_pod(&pod);
            (spec.restart_policy, spec.termination_grace_period.as_secs())
        };
        assert_eq!(of("Never", 5, None), (RestartPolicy::Never, 5));
        assert_eq!(of("OnFailure", 60, Some(2)), (RestartPolicy::OnFailure, 2));
        assert_eq!(of("Always", -1, None), (RestartPolicy::Always, 0));
    }

    #[test]
    fn hash_changes_with_name_and_image_only() {
        let container = |change: fn(&mut Container)| {
            let mut container = Container {
                name: "app".to_owned(),
                image: Some("shop:1".to_owned()),
                ..Container::default()
            };
            change(&mut container);
            container_hash(&container)
        };
        let same = container(|_| ());
        assert_eq!(container(|c| c.args = Some(vec!["x".to_owned()])), same);
        assert_ne!(container(|c| c.image = Some("shop:2".to_owned())), same);
        assert_ne!(container(|c| c.name = "log".to_owned()), same);
    }
}
