//! Valid values that need what this kubelet does not have.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use pleg_kubelet::check_of;
use pleg_kubelet::cri_config::FieldError;

type Provided = Result<(), FieldError>;

/// Checks that all values of a valid pod can be provided.
///
/// # Errors
/// The first field that needs something else.
pub(super) fn all_provided(pod: &Pod) -> Provided {
    let Some(spec) = &pod.spec else { return Ok(()) };
    for (at, volume) in spec.volumes.iter().flatten().enumerate() {
        self::volume(&format!("spec.volumes[{at}]"), volume)?;
    }
    for (at, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{at}]");
        if let Some(policy @ ("OnFailure" | "Never")) = container.restart_policy.as_deref() {
            let problem = format!("{policy} is not provided: write a restartPolicy of the pod");
            return Err(FieldError::new(format!("{path}.restartPolicy"), problem));
        }
        self::container(&path, container)?;
    }
    for (at, container) in spec.containers.iter().enumerate() {
        self::container(&format!("spec.containers[{at}]"), container)?;
    }
    Ok(())
}

fn volume(path: &str, volume: &Volume) -> Provided {
    let medium = volume.empty_dir.as_ref().and_then(|e| e.medium.as_deref());
    if let Some(medium) = medium.filter(|medium| !medium.is_empty()) {
        let problem = format!("{medium} is not provided: remove the medium");
        return Err(FieldError::new(format!("{path}.emptyDir.medium"), problem));
    }
    if volume.host_path.is_none() && volume.empty_dir.is_none() {
        let problem = "this kubelet provides hostPath and emptyDir only: use one of them";
        return Err(FieldError::new(path, problem));
    }
    Ok(())
}

fn container(path: &str, container: &Container) -> Provided {
    for (at, variable) in container.env.iter().flatten().enumerate() {
        let from = variable.value_from.as_ref();
        if from.is_some_and(|from| from.field_ref.is_none()) {
            let problem = "only fieldRef can be used without an API server: write the value";
            return Err(FieldError::new(
                format!("{path}.env[{at}].valueFrom"),
                problem,
            ));
        }
    }
    for (at, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.recursive_read_only.as_deref() == Some("Enabled") {
            let field = format!("{path}.volumeMounts[{at}].recursiveReadOnly");
            let problem = "Enabled is not provided: write IfPossible, or remove it";
            return Err(FieldError::new(field, problem));
        }
    }
    for (name, probe) in [
        ("startupProbe", &container.startup_probe),
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
    ] {
        let Some(probe) = probe else { continue };
        if let Err(error) = check_of(container, probe) {
            let separator = if error.field.is_empty() { "" } else { "." };
            let field = format!("{path}.{name}{separator}{}", error.field);
            return Err(FieldError::new(field, error.problem));
        }
    }
    Ok(())
}
