//! Environment variables.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource};

use super::texts::{KEY, Text, VARIABLE};
use super::{Allowed, Each, Errors, Rule, given};

pub(super) const RULES: &[Rule] = &[
    ("spec.@.env.name", Allowed::Is(&VARIABLE)),
    (
        "spec.@.env.valueFrom.fieldRef.fieldPath",
        Allowed::Is(&FIELD),
    ),
    (
        "spec.@.env.valueFrom.resourceFieldRef.resource",
        Allowed::Is(&RESOURCE_FIELD),
    ),
    ("spec.@.envFrom.prefix", Allowed::IsOrEmpty(&VARIABLE)),
];

/// A field of the pod that a variable can have.
const FIELD: Text = Text::new(
    "a field that a variable can have",
    "use one of metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], \
     metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP, \
     status.hostIPs, status.podIP and status.podIPs",
    |text| {
        let fields = [
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ];
        let maps = ["metadata.labels['", "metadata.annotations['"];
        let key = maps.iter().find_map(|map| text.strip_prefix(map));
        let key = key.and_then(|key| key.strip_suffix("']"));
        fields.contains(&text) || key.is_some_and(|key| KEY.problem(key).is_none())
    },
);

const RESOURCE_FIELD: Text = Text::new(
    "a resource that a variable can have",
    "use cpu, memory, ephemeral-storage or hugepages-SIZE after limits. or requests.",
    |text| {
        let name = ["limits.", "requests."].map(|kind| text.strip_prefix(kind));
        let name = name.into_iter().flatten().next().unwrap_or_default();
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    },
);

pub(super) fn check(each: &Each<'_>, errors: &mut Errors) {
    for (at, variable) in each.container.env.iter().flatten().enumerate() {
        if let Some(source) = &variable.value_from {
            let field = format!("{}.env[{at}].valueFrom", each.path);
            check_source(&field, variable, source, errors);
        }
    }
}

fn check_source(field: &str, variable: &EnvVar, source: &EnvVarSource, errors: &mut Errors) {
    if let Some(value) = variable.value.as_ref().filter(|value| !value.is_empty()) {
        let problem = format!("the value {value:?} is given as well: keep one");
        errors.add(field, problem);
    }
    // `fileKeyRef` is not in all versions of the API that can be selected.
    let sources = given(&[
        ("fieldRef", source.field_ref.is_some()),
        ("resourceFieldRef", source.resource_field_ref.is_some()),
        ("configMapKeyRef", source.config_map_key_ref.is_some()),
        ("secretKeyRef", source.secret_key_ref.is_some()),
    ]);
    if sources.len() > 1 {
        let problem = format!("{} are given: keep one", sources.join(" and "));
        errors.add(field, problem);
    } else if *source == EnvVarSource::default() {
        errors.add(field, "it is empty: write a source such as fieldRef");
    }
}
