//! The rules that upstream's API server has for the values of a pod.
//!
//! Not checked: the contents of volumes other than `hostPath` and `emptyDir`, affinity, topology spread,
//! `windowsOptions`, `volumeDevices`, and rules that need a node, such as those about unsafe sysctls.
//!
//! Stricter than upstream, because a runtime would fail later: `hostPath` and `terminationMessagePath`
//! are absolute, a mount path has no colon, a `hostIP` is an address, and init
//! containers do not use a host port of another container.

// Each file is about one subject: first a table of patterns of paths and what is allowed there, then
// rules about several fields.

mod containers;
mod env;
mod metadata;
mod pod;
mod ports;
mod probes;
mod resources;
mod rules;
mod security;
mod texts;
mod volumes;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::serde_json;

pub use pleg_kubelet::cri_config::FieldError;
use pleg_kubelet::fields_at;
use rules::{Allowed, Rule};

const TABLES: [&[Rule]; 9] = [
    metadata::RULES,
    pod::RULES,
    volumes::RULES,
    containers::RULES,
    env::RULES,
    ports::RULES,
    probes::RULES,
    resources::RULES,
    security::RULES,
];

/// Rules about several fields of the pod.
const OF_POD: [fn(&PodSpec, &mut Errors); 6] = [
    pod::check,
    pod::check_tolerations,
    volumes::check,
    containers::check_names,
    ports::check_host_ports,
    security::check_pod,
];

/// Rules about several fields of a container.
const OF_CONTAINER: [fn(&Each<'_>, &mut Errors); 8] = [
    containers::check,
    env::check,
    ports::check,
    probes::check,
    probes::check_lifecycle,
    resources::check,
    security::check_container,
    volumes::check_mounts,
];

/// Finds all values of a pod that upstream's API server rejects. A valid pod has none.
///
/// Each error has the path of the field, its value, what is allowed and what to do. Errors are in the
/// order of their paths; elements of lists are in the order of the list.
///
/// A field that is not set is judged as its default. Fields that a kubelet cannot provide, although
/// they are valid, are not errors.
#[must_use]
pub fn validate(pod: &Pod) -> Vec<FieldError> {
    let value = serde_json::to_value(pod).unwrap_or_default();
    let mut errors = Errors::default();
    for (pattern, allowed) in TABLES.into_iter().flatten() {
        for (field, value) in fields_at(&value, pattern) {
            for problem in allowed.problems(value) {
                errors.add(&*field, problem);
            }
        }
    }
    metadata::check(pod, &mut errors);
    if let Some(spec) = &pod.spec {
        OF_POD.iter().for_each(|check| check(spec, &mut errors));
        for each in containers(spec) {
            OF_CONTAINER
                .iter()
                .for_each(|check| check(&each, &mut errors));
        }
    }
    errors.0.sort_by_cached_key(|error| order(&error.field));
    errors.0
}

/// The sort key of a path: indices are compared as numbers.
fn order(path: &str) -> Vec<(Option<u64>, String)> {
    let parts = path.split(['[', ']']);
    parts
        .map(|part| (part.parse().ok(), part.to_owned()))
        .collect()
}

#[derive(Debug, Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(FieldError::new(field, problem));
    }

    /// Adds the problem of each key that an earlier field has as well.
    fn unique<K: Ord>(
        &mut self,
        keys: impl IntoIterator<Item = (String, K)>,
        problem: impl Fn(&K) -> String,
    ) {
        let mut seen = BTreeSet::new();
        for (field, key) in keys {
            if seen.contains(&key) {
                self.add(field, problem(&key));
            }
            seen.insert(key);
        }
    }
}

/// A container of a pod.
struct Each<'a> {
    path: String,
    pod: &'a PodSpec,
    container: &'a Container,
    /// An init container that runs until it exits, in contrast to a sidecar.
    plain_init: bool,
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = Each<'_>> {
    let each = move |list: &str, at: usize, container, plain_init| Each {
        path: format!("spec.{list}[{at}]"),
        pod,
        container,
        plain_init,
    };
    let init = pod.init_containers.iter().flatten().enumerate();
    let init = init.map(move |(at, container)| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        each("initContainers", at, container, !sidecar)
    });
    let regular = pod.containers.iter().enumerate();
    init.chain(regular.map(move |(at, container)| each("containers", at, container, false)))
}

/// Returns the names of the alternatives that are given.
fn given<'a>(alternatives: &[(&'a str, bool)]) -> Vec<&'a str> {
    let given = alternatives.iter().filter(|(_, given)| *given);
    given.map(|(name, _)| *name).collect()
}
