//! Parses the text of a manifest to a typed pod. The error messages are for the authors of manifests.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde_json::Value;

use pleg_kubelet::cri_config::FieldError;

/// Parses the YAML documents of a file. Each document must be a mapping.
///
/// # Errors
/// The problem of the file.
pub(super) fn mappings(contents: &str) -> Result<Vec<Value>, String> {
    if contents.trim().is_empty() {
        return Err("it is empty: write the manifest of a pod".to_owned());
    }
    // JSON is a subset of YAML. As in upstream's YAML, numbers with a leading 0 are octal, such as file modes.
    let one_line = serde_saphyr::options! { with_snippet: false, legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(contents, one_line)
        .map_err(|error| format!("it is not valid YAML: {error}"))?;
    match documents.is_empty() || !documents.iter().all(Value::is_object) {
        true => Err("it is not a mapping: write the manifest of a pod".to_owned()),
        false => Ok(documents),
    }
}

/// Converts a mapping to a pod.
///
/// # Errors
/// Fails if a field's value has the wrong type, or if the mapping is not the manifest of a pod.
pub(super) fn pod(given: &Value) -> Result<Pod, FieldError> {
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        let problem = match given.get(field) {
            Some(Value::String(text)) if text == wanted => continue,
            None | Some(Value::Null) => format!("it is missing: write {wanted}"),
            Some(value) => format!("{value} is not {wanted}: only a v1 Pod can be run"),
        };
        return Err(FieldError::new(field, problem));
    }
    serde_path_to_error::deserialize(given).map_err(|error| {
        let message = error.inner().to_string();
        let problem = for_authors(&message).unwrap_or(message);
        FieldError::new(error.path().to_string(), problem)
    })
}

/// Rewrites serde's messages, such as "invalid type: integer `1`, expected a string", for authors of manifests.
fn for_authors(message: &str) -> Option<String> {
    let types = message.strip_prefix("invalid type: ")?;
    let (found, expected) = types.split_once(", expected ")?;
    let wanted = match expected {
        "a string" => "a text: write it in quotes",
        "a boolean" => "true or false",
        "i32" | "i64" => "a whole number",
        "a sequence" => "a list: begin each element with -",
        "a map" => "a mapping of names to values",
        kind if kind.starts_with(char::is_uppercase) => "a mapping of fields to values",
        _ => return None,
    };
    let found = match found {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        found => found.replace("string ", "the text ").replace('`', ""),
    };
    Some(format!("{found} is not {wanted}"))
}
