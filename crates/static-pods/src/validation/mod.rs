//! The rules of upstream's API server for the values of a pod's fields.
//!
//! These are not checked: the contents of volumes other than `hostPath` and `emptyDir`, affinity, topology spread,
//! `windowsOptions`, `volumeDevices`, and rules that need a node, such as those about unsafe sysctls.
//!
//! Some rules are stricter than upstream's, because a runtime would fail later: `hostPath` and `terminationMessagePath`
//! must be absolute, a mount path must not have a colon, a `hostIP` must be an address, and init containers must not
//! use a host port of another container.

mod resources;
mod several;
mod table;
mod texts;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde_json::{self, Value};

pub use pleg_kubelet::cri_config::FieldError;
use pleg_kubelet::fields_at;

/// Finds all values of a pod that upstream's API server rejects. A valid pod has no such values.
///
/// Each error has the path of the field, its value, what is allowed and what to do. Errors are in the
/// order of their paths; elements of lists are in the order of the list.
///
/// A field that is not set counts as its default. A valid field is no error, even if a kubelet cannot implement it.
#[must_use]
pub fn validate(pod: &Pod) -> Vec<FieldError> {
    let value = serde_json::to_value(pod).unwrap_or_default();
    let mut errors = Vec::new();
    let rules = |table: &'static str| table.lines().filter_map(|rule| rule.split_once(": "));
    for (path, check) in rules(table::RULES) {
        for path in with_containers(path) {
            rule(&value, &path, check, &mut errors);
        }
    }
    for (path, problem) in rules(table::UNIQUE) {
        unique(&value, path, problem, &mut errors);
    }
    several::check(&value, &mut errors);
    resources::check(&value, &mut errors);
    errors.sort_by_cached_key(|error| order(&error.field));
    errors.dedup();
    errors
}

/// Replaces `spec~` in a path of the rule table by two paths: `spec` for the pod, and `spec.@` for its containers.
fn with_containers(path: &str) -> Vec<String> {
    match path.contains('~') {
        true => vec![path.replace('~', ""), path.replace('~', ".@")],
        false => vec![path.to_owned()],
    }
}

/// The sort key of a path. List indices in the path are compared as numbers.
fn order(path: &str) -> Vec<(Option<u64>, String)> {
    let parts = path.split(['[', ']']);
    let key = |part: &str| (part.parse().ok(), part.to_owned());
    parts.map(key).collect()
}

/// Finds the objects at a path. Replaces each list by its elements.
fn each<'a>(value: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let found = fields_at(value, path).into_iter();
    let elements = found.flat_map(|(at, found)| match found {
        Value::Array(list) => {
            let list = list.iter().enumerate();
            list.map(|(n, one)| (format!("{at}[{n}]"), one)).collect()
        }
        one => vec![(at, one)],
    });
    elements.collect()
}

/// Checks one rule of the table.
fn rule(pod: &Value, path: &str, check: &str, errors: &mut Vec<FieldError>) {
    if let Some(rule) = check.strip_prefix("if ") {
        let (parent, field) = path.split_once(' ').unwrap_or(("", path));
        for (at, parent) in each(pod, parent) {
            if let Some(problem) = conditional(pod, parent, field, rule) {
                let names = [&*at, field].into_iter();
                let names = names.filter(|name| !matches!(*name, "" | "."));
                let field = names.collect::<Vec<_>>().join(".");
                errors.push(FieldError::new(field, problem));
            }
        }
        return;
    }
    for (field, value) in fields_at(pod, path) {
        let problems = texts::problems(value, check).into_iter();
        errors.extend(problems.map(|problem| FieldError::new(&*field, problem)));
    }
}

/// The problem of a rule `CONDITION CONDITION: PROBLEM`, if all its conditions hold. In the problem, `{NAME}` is
/// replaced by the value of the field NAME, and `{}` by the value of the rule's own field.
fn conditional(pod: &Value, parent: &Value, field: &str, rule: &str) -> Option<String> {
    let (conditions, problem) = rule.split_once(": ")?;
    if !conditions.split(' ').all(|c| holds(pod, parent, c)) {
        return None;
    }
    let Some((before, rest)) = problem.split_once('{') else {
        return Some(problem.to_owned());
    };
    let (name, after) = rest.split_once('}')?;
    let value = parent.get(if name.is_empty() { field } else { name })?;
    Some(format!("{before}{value}{after}"))
}

/// Returns true if a condition holds: `FIELD` (the field is given), `!FIELD` (it is not given), `FIELD=VALUE` or
/// `FIELD!=VALUE`. VALUE may be several values with `|` between them. A `*` at the end of a value matches any text.
fn holds(pod: &Value, parent: &Value, condition: &str) -> bool {
    let find = |path: &str| match path.starts_with("spec.") {
        true => fields_at(pod, path),
        false => fields_at(parent, path),
    };
    let is_given = |path| {
        let mut found = find(path).into_iter();
        found.any(|(_, value)| !value.is_null() && *value != "" && *value != Value::Array(vec![]))
    };
    let is_one = |path, values: &str| {
        let mut found = find(path).into_iter();
        found.any(|(_, value)| values.split('|').any(|wanted| is(value, wanted)))
    };
    match (condition.split_once("!="), condition.split_once('=')) {
        (Some((path, values)), _) => !is_one(path, values),
        (None, Some((path, values))) => is_one(path, values),
        (None, None) => match condition.strip_prefix('!') {
            Some(path) => !is_given(path),
            None => is_given(condition),
        },
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    let text = value.as_str().map(str::to_owned);
    let text = text.unwrap_or_else(|| value.to_string());
    match wanted.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == wanted,
    }
}

/// Adds an error for each repeated value at `PATH`. For `WITHIN PATH`, checks each object at `WITHIN` by itself.
fn unique(pod: &Value, path: &str, problem: &str, errors: &mut Vec<FieldError>) {
    let (within, path) = path.split_once(' ').unwrap_or(("", path));
    for (at, within) in each(pod, within) {
        let mut seen = BTreeSet::new();
        for (field, value) in fields_at(within, path) {
            if *value != "" && !seen.insert(value.to_string()) {
                let separator = if at.is_empty() { "" } else { "." };
                let field = format!("{at}{separator}{field}");
                let problem = problem.replace("{}", &value.to_string());
                errors.push(FieldError::new(field, problem));
            }
        }
    }
}
