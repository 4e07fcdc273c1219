//! Fields that are not known, and fields that need what this kubelet does not have.

use k8s_openapi::serde_json::Value;

use crate::validation::paths::matches;
use pleg_kubelet::cri_config::{FieldError, SUB_PATH};

/// Patterns of fields that cannot be used, and why.
const UNSUPPORTED: [(&str, &str); 33] = [
    (
        "spec.activeDeadlineSeconds",
        "no deadline is enforced: remove it",
    ),
    (
        "spec.dnsConfig",
        "pods have the name resolution of the node: remove it",
    ),
    (
        "spec.ephemeralContainers",
        "static pods have no ephemeral containers: remove them",
    ),
    ("spec.hostUsers", "user namespaces are not made: remove it"),
    (
        "spec.imagePullSecrets",
        "there is no API server to read secrets from: remove them",
    ),
    (
        "spec.overhead",
        "it follows from a runtime class: remove it",
    ),
    (
        "spec.readinessGates",
        "nobody sets their conditions: remove them",
    ),
    (
        "spec.resourceClaims",
        "there is no API server to read claims from: remove them",
    ),
    ("spec.resources", "write the resources of the containers"),
    (
        "spec.runtimeClassName",
        "there is no API server to read runtime classes from: remove it",
    ),
    (
        "spec.schedulingGates",
        "static pods are not scheduled: remove them",
    ),
    (
        "spec.serviceAccount",
        "static pods have no service account: remove it",
    ),
    (
        "spec.serviceAccountName",
        "static pods have no service account: remove it",
    ),
    (
        "spec.securityContext.appArmorProfile",
        "AppArmor profiles are not applied: remove it",
    ),
    (
        "spec.securityContext.seccompProfile.localhostProfile",
        "profiles of the node are not looked up: write type RuntimeDefault",
    ),
    (
        "spec.securityContext.windowsOptions",
        "this kubelet runs on Linux: remove them",
    ),
    (
        "spec.*[].envFrom",
        "there is no API server to read config maps and secrets from: write the variables in env",
    ),
    ("spec.*[].lifecycle", "hooks are not run: remove them"),
    (
        "spec.*[].livenessProbe.grpc",
        "use an exec, tcpSocket or httpGet probe",
    ),
    (
        "spec.*[].readinessProbe.grpc",
        "use an exec, tcpSocket or httpGet probe",
    ),
    (
        "spec.*[].startupProbe.grpc",
        "use an exec, tcpSocket or httpGet probe",
    ),
    (
        "spec.*[].livenessProbe.terminationGracePeriodSeconds",
        "containers are stopped with the grace period of the pod: remove it",
    ),
    (
        "spec.*[].readinessProbe.terminationGracePeriodSeconds",
        "containers are stopped with the grace period of the pod: remove it",
    ),
    (
        "spec.*[].startupProbe.terminationGracePeriodSeconds",
        "containers are stopped with the grace period of the pod: remove it",
    ),
    (
        "spec.*[].restartPolicyRules",
        "rules are not applied: write a restartPolicy of the pod",
    ),
    (
        "spec.*[].resources.claims",
        "there is no API server to read claims from: remove them",
    ),
    (
        "spec.*[].securityContext.appArmorProfile",
        "AppArmor profiles are not applied: remove it",
    ),
    (
        "spec.*[].securityContext.seccompProfile.localhostProfile",
        "profiles of the node are not looked up: write type RuntimeDefault",
    ),
    (
        "spec.*[].securityContext.windowsOptions",
        "this kubelet runs on Linux: remove them",
    ),
    (
        "spec.*[].volumeDevices",
        "block devices are not provided: mount a hostPath",
    ),
    ("spec.*[].volumeMounts[].subPath", SUB_PATH),
    ("spec.*[].volumeMounts[].subPathExpr", SUB_PATH),
    (
        "spec.containers[].restartPolicy",
        "write a restartPolicy of the pod",
    ),
];

/// Quantities may be written as numbers.
pub(super) fn quantities_as_text(given: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = given.get_mut("spec").and_then(|spec| spec.get_mut(list));
        for container in containers
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            for kind in ["requests", "limits"] {
                let amounts = container.get_mut("resources").and_then(|r| r.get_mut(kind));
                let amounts = amounts.and_then(Value::as_object_mut);
                for (_, amount) in amounts.into_iter().flatten() {
                    if amount.is_number() {
                        *amount = Value::String(amount.to_string());
                    }
                }
            }
        }
    }
}

/// Returns the paths of given fields that the API does not have: the pod that was understood, written
/// again, lacks them.
pub(super) fn unknown(given: &Value, understood: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    compare(given, understood, "", &mut unknown);
    unknown
}

fn compare(given: &Value, understood: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            let separator = if path.is_empty() { "" } else { "." };
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("{path}{separator}{name}");
                match understood.get(name) {
                    Some(understood) => compare(value, understood, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(understood)) => {
            for (at, (value, understood)) in given.iter().zip(understood).enumerate() {
                compare(value, understood, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Checks that no given field needs what this kubelet does not have.
///
/// # Errors
/// The first such field.
pub(super) fn all_supported(given: &Value) -> Result<(), FieldError> {
    for (pattern, problem) in UNSUPPORTED {
        let mut fields = matches(given, pattern).into_iter();
        if let Some((field, _)) = fields.find(|(_, value)| is_set(value)) {
            return Err(FieldError::new(field, problem));
        }
    }
    Ok(())
}

/// Returns false for values that the API treats as not given.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}
