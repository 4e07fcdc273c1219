//! Fields that are not known, and fields that need what this kubelet does not have.

use k8s_openapi::serde_json::Value;

use crate::cri_config::{FieldError, SUB_PATH};

/// Fields that cannot be used, and why. `[]` is every element of a list.
const UNSUPPORTED: [(&str, &str); 36] = [
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
    (
        "spec.hostAliases",
        "the hosts file is that of the runtime: remove them",
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
        "spec.securityContext.seLinuxOptions",
        "SELinux labels are not applied: remove them",
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
        "spec.*[].securityContext.seLinuxOptions",
        "SELinux labels are not applied: remove them",
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

/// Every given field is one that the API has: what was understood, written again, has it, too.
pub(super) fn all_known(given: &Value, understood: &Value) -> Result<(), FieldError> {
    compare(given, understood, &mut String::new())
}

fn compare(given: &Value, understood: &Value, path: &mut String) -> Result<(), FieldError> {
    let length = path.len();
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                let Some(understood) = understood.get(name) else {
                    let problem = "there is no such field: check its name and its indentation";
                    return Err(FieldError::new(&**path, problem));
                };
                compare(value, understood, path)?;
                path.truncate(length);
            }
        }
        (Value::Array(given), Value::Array(understood)) => {
            for (at, (value, understood)) in given.iter().zip(understood).enumerate() {
                path.push_str(&format!("[{at}]"));
                compare(value, understood, path)?;
                path.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

/// No given field needs what this kubelet does not have.
pub(super) fn all_supported(given: &Value) -> Result<(), FieldError> {
    for (pattern, problem) in UNSUPPORTED {
        let patterns = match pattern.strip_prefix("spec.*") {
            Some(rest) => ["initContainers", "containers"]
                .map(|list| format!("spec.{list}{rest}"))
                .to_vec(),
            None => vec![pattern.to_owned()],
        };
        for pattern in patterns {
            let parts: Vec<_> = pattern.split('.').collect();
            if let Some(field) = find(given, &parts, String::new()) {
                return Err(FieldError::new(field, problem));
            }
        }
    }
    Ok(())
}

/// The path of the first field that the pattern matches.
fn find(value: &Value, pattern: &[&str], path: String) -> Option<String> {
    let Some((part, rest)) = pattern.split_first() else {
        let empty = match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        return (!empty).then_some(path);
    };
    let name = part.strip_suffix("[]");
    let field = value.get(name.unwrap_or(part))?;
    let separator = if path.is_empty() { "" } else { "." };
    let path = format!("{path}{separator}{}", name.unwrap_or(part));
    match name {
        None => find(field, rest, path),
        Some(_) => {
            let elements = field.as_array()?.iter().enumerate();
            let mut each =
                elements.map(|(at, element)| find(element, rest, format!("{path}[{at}]")));
            each.find_map(|found| found)
        }
    }
}
