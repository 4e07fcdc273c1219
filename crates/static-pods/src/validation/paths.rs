//! Paths of fields in a pod.

use k8s_openapi::serde_json::Value;

/// Returns all values that a pattern matches, with their paths.
///
/// In a pattern, `[]` is every element of a list, `{}` every value of an object, `*Probe` every field
/// whose name ends with `Probe`, and `spec.*[]` every container: those of `spec.initContainers` and
/// `spec.containers`.
pub(crate) fn matches<'a>(value: &'a Value, pattern: &str) -> Vec<(String, &'a Value)> {
    let patterns = match pattern.strip_prefix("spec.*[]") {
        Some(rest) => ["initContainers", "containers"]
            .map(|list| format!("spec.{list}[]{rest}"))
            .to_vec(),
        None => vec![pattern.to_owned()],
    };
    let found = patterns.iter().flat_map(|pattern| {
        let root = vec![(String::new(), value)];
        pattern.split('.').fold(root, |found, part| {
            found.into_iter().flat_map(|at| step(at, part)).collect()
        })
    });
    found.collect()
}

fn step<'a>((path, value): (String, &'a Value), part: &str) -> Vec<(String, &'a Value)> {
    let separator = if path.is_empty() { "" } else { "." };
    let name = part.trim_end_matches(['[', ']', '{', '}']);
    let fields: Vec<(String, &Value)> = match name.strip_prefix('*') {
        Some(end) => members(value)
            .filter(|(name, _)| name.ends_with(end))
            .map(|(name, value)| (format!("{path}{separator}{name}"), value))
            .collect(),
        None => value
            .get(name)
            .map(|value| (format!("{path}{separator}{name}"), value))
            .into_iter()
            .collect(),
    };
    let each = |(path, value): (String, &'a Value)| -> Vec<(String, &'a Value)> {
        if part.ends_with("[]") {
            let elements = value.as_array().into_iter().flatten().enumerate();
            elements
                .map(|(at, element)| (format!("{path}[{at}]"), element))
                .collect()
        } else if part.ends_with("{}") {
            let values = members(value);
            values
                .map(|(key, value)| (format!("{path}.{key}"), value))
                .collect()
        } else {
            vec![(path, value)]
        }
    };
    fields.into_iter().flat_map(each).collect()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::json;

    use super::*;

    #[test]
    fn patterns_match_lists_objects_and_all_containers() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "a"}],
            "containers": [{"name": "b", "livenessProbe": {"x": 1}}, {"readinessProbe": {"x": 2}}],
            "nodeSelector": {"k": "v"},
        }});
        let found = |pattern: &str| {
            let found = matches(&pod, pattern);
            let found: Vec<_> = found
                .iter()
                .map(|(path, v)| format!("{path}={v}"))
                .collect();
            found.join(" ")
        };
        assert_eq!(
            found("spec.*[].name"),
            "spec.initContainers[0].name=\"a\" spec.containers[0].name=\"b\""
        );
        assert_eq!(
            found("spec.*[].*Probe.x"),
            "spec.containers[0].livenessProbe.x=1 spec.containers[1].readinessProbe.x=2"
        );
        assert_eq!(found("spec.nodeSelector{}"), "spec.nodeSelector.k=\"v\"");
        assert_eq!(found("spec.nodeSelector[]"), "");
        assert_eq!(found("spec.volumes[].name"), "");
    }
}
