//! The restart of a container that has ended, by the rule of the decision.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::from_pod::{restart_policy, set_restart_rule};
use crate::spec::ContainerSpec;

/// Returns true if an init container is restartable: it runs as long as the pod (a sidecar).
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns true if the container is restarted after it exited with that code.
pub(super) fn restarts(container: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    let mut made = ContainerSpec::new(&*container.name);
    set_restart_rule(&mut made, container);
    made.restarts(restart_policy(spec), exit_code)
}
