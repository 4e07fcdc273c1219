//! Finds fields of a manifest that the API does not have, and fields that need an API server.

use k8s_openapi::serde_json::Value;

use pleg_kubelet::cri_config::FieldError;
use pleg_kubelet::fields_at;

/// Converts quantities that the manifest gives as numbers, such as `cpu: 1`, to texts.
pub(super) fn quantities_as_text(given: &mut Value) {
    if let Some(spec) = given.get_mut("spec") {
        in_field(spec, "spec", "");
    }
}

/// Converts the quantities in `value`, which is the field `name` of an object in the field `of`.
fn in_field(value: &mut Value, name: &str, of: &str) {
    let is_amount = matches!(name, "sizeLimit" | "divisor") || matches!(of, "requests" | "limits");
    match value {
        Value::Number(number) if is_amount => *value = Value::String(number.to_string()),
        Value::Array(list) => list.iter_mut().for_each(|value| in_field(value, name, of)),
        Value::Object(fields) => {
            let fields = fields.iter_mut();
            fields.for_each(|(field, value)| in_field(value, field, name));
        }
        _ => {}
    }
}

/// The paths of fields that the API does not have. `given` is the manifest, and `understood` the parsed pod.
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

/// Checks that the pod has no service account and no readiness gates, which need an API server.
///
/// # Errors
/// Returns the first field that needs an API server.
pub(super) fn no_references(pod: &Value) -> Result<(), FieldError> {
    let account = "static pods have no service account: remove it";
    let gates = "nobody sets their conditions: remove them";
    for (field, problem) in [
        ("spec.serviceAccount", account),
        ("spec.serviceAccountName", account),
        ("spec.readinessGates.[]", gates),
    ] {
        let is_set = |(_, value): &(String, &Value)| **value != "";
        if fields_at(pod, field).iter().any(is_set) {
            let field = field.trim_end_matches(".[]");
            return Err(FieldError::new(field, problem));
        }
    }
    Ok(())
}
