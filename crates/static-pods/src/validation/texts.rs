//! The values that are allowed in one field: a choice, a range, or a kind of text such as a name, a key or a path.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::serde_json::Value;

use super::resources::{is_extended, is_huge_pages};
use pleg_kubelet::cri_config::stop_signal;
use pleg_kubelet::quantity::Amount;

/// The kinds of texts. Each line has a name, what a text of this kind is, and advice on how to write it.
const KINDS: &str = "\
absolute path: an absolute path: begin it with /
annotation key: a key: use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends; a domain and / may come before
field of a pod: a field that a variable can have: use one of metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP and status.podIPs
header: the name of a header: use letters, digits and -
image: an image: remove the spaces at its start and end
ip: an IP address: write one such as 10.0.0.1
key: a key: use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends; a domain and / may come before
label value: the value of a label: use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends
label: a name: use at most 63 lower-case letters, digits and -, with a letter or digit at both ends
medium: a medium: use Memory, HugePages or HugePages-SIZE, or remove it
mount path: a path in a container: write a path without a colon
node path: an absolute path without ..: begin it with /, and leave out ..
port name: the name of a port: use at most 15 lower-case letters, digits and single -, with at least one letter, and a letter or digit at both ends
relative path: a relative path without ..: do not begin it with /, and leave out ..
resource field: a resource that a variable can have: use cpu, memory, ephemeral-storage or hugepages-SIZE after limits. or requests.
resource: a resource: use cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain such as example.com/gpu
signal: a signal: use a name such as SIGTERM, SIGUSR1 or SIGRTMIN+1
subdomain: a name: use at most 253 lower-case letters, digits, - and ., with a letter or digit at both ends
sysctl: the name of a sysctl: use parts of lower-case letters, digits, - and _ with . or / between them, such as kernel.shm_rmid_forced
variable: the name of a variable: use printable ASCII characters except =";

/// Returns true if `text` is of the kind `kind`.
fn is(kind: &str, text: &str) -> bool {
    match kind {
        "absolute path" => text.starts_with('/'),
        "annotation key" => is_key(&text.to_ascii_lowercase()),
        "field of a pod" => is_field(text),
        "header" => !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        "image" => text.trim() == text,
        "ip" => text.parse::<IpAddr>().is_ok(),
        "key" => is_key(text),
        "label" => text.len() <= 63 && is_label(text),
        "label value" => text.is_empty() || is_key_name(text),
        "medium" => matches!(text, "Memory" | "HugePages") || text.starts_with("HugePages-"),
        "mount path" => !text.is_empty() && !text.contains(':'),
        "node path" => text.starts_with('/') && text.split('/').all(|part| part != ".."),
        "port name" => is_port_name(text),
        "relative path" => !text.starts_with('/') && text.split('/').all(|part| part != ".."),
        "resource" => is_basic(text) || is_huge_pages(text) || is_extended(text),
        "resource field" => {
            let name = text.strip_prefix("limits.");
            let name = name.or(text.strip_prefix("requests."));
            name.is_some_and(|name| is_basic(name) || name.starts_with("hugepages-"))
        }
        "signal" => text.starts_with("SIG") && stop_signal(text).is_some(),
        "subdomain" => is_subdomain(text),
        "sysctl" => {
            let is_part = |part: &str| is_label(&part.replace('_', "-"));
            text.len() <= 253 && text.split(['.', '/']).all(is_part)
        }
        "variable" => {
            !text.is_empty() && text.chars().all(|c| (' '..='~').contains(&c) && c != '=')
        }
        // The rule table has no other kind.
        _ => false,
    }
}

/// Returns the problems of a value, with advice. `check` is a kind of text in `KINDS`, or one of these:
///
/// * `keys KIND`: all keys of an object are texts of this kind,
/// * `empty or KIND`: a text of this kind, or an empty one,
/// * `one of A, B`: one of these texts, or an empty one,
/// * `from A to B`, `at least A`, `1 in a FIELD` (at most 1; errors name FIELD): a number,
/// * `one field of A, B`: an object with at most one of these fields; `one field except A`: with at most one besides A,
/// * `at most A elements`: a list; `amount`: a quantity that is not negative,
/// * `port`: a number, or the name of a port.
pub(super) fn problems(value: &Value, check: &str) -> Vec<String> {
    let Some(kind) = check.strip_prefix("keys ") else {
        return problem(value, check).into_iter().collect();
    };
    let object = value.as_object();
    let keys = object.into_iter().flat_map(|object| object.keys());
    keys.filter_map(|key| of_text(key, kind)).collect()
}

fn problem(value: &Value, check: &str) -> Option<String> {
    let text = value.as_str().unwrap_or_default();
    let words: Vec<&str> = check.split(' ').collect();
    match words[..] {
        ["empty", "or", ..] if text.is_empty() => None,
        ["empty", "or", ..] => of_text(text, check.trim_start_matches("empty or ")),
        ["one", "of", ..] => {
            let allowed = check.trim_start_matches("one of ");
            let is_allowed = text.is_empty() || allowed.split(", ").any(|allowed| allowed == text);
            (!is_allowed).then(|| format!("{text:?} is none of {allowed}"))
        }
        ["from", least, "to", most] => {
            let (number, range) = (value.as_i64()?, least.parse().ok()?..=most.parse().ok()?);
            let rule = format!("write a number from {least} to {most}");
            (!range.contains(&number)).then(|| format!("{number} is not allowed: {rule}"))
        }
        ["at", "least", least] => {
            let number = value.as_i64().filter(|n| Some(*n) < least.parse().ok())?;
            Some(format!("{number} is not allowed: write {least} or more"))
        }
        ["1", "in", "a", field] => {
            let number = value.as_i64().filter(|number| *number > 1)?;
            Some(format!("{number} is not allowed in a {field}: write 1"))
        }
        ["at", "most", most, "elements"] => {
            let given = value.as_array()?.len();
            let is_wrong = Some(given) > most.parse().ok();
            is_wrong.then(|| format!("{given} are too many: write at most {most}"))
        }
        ["one", "field", "of", ..] => {
            let names = check.trim_start_matches("one field of ");
            several(value, |name| names.split(", ").any(|one| one == name))
        }
        ["one", "field", "except", other] => several(value, |name| name != other),
        ["amount"] => amount(text),
        ["port"] if value.is_number() => problem(value, "from 1 to 65535"),
        ["port"] if text.parse::<u16>().is_ok() => Some(format!(
            "{text:?} is a text: write the number without quotes"
        )),
        ["port"] => of_text(text, "port name"),
        _ => of_text(text, check),
    }
}

/// The problem of an object that has more than one of the fields that `is_counted` selects.
fn several(object: &Value, is_counted: impl Fn(&str) -> bool) -> Option<String> {
    let names = object.as_object()?.keys().map(|name| &**name);
    let given: Vec<&str> = names.filter(|name| is_counted(name)).collect();
    (given.len() > 1).then(|| format!("{} are given: keep one", given.join(" and ")))
}

fn of_text(text: &str, kind: &str) -> Option<String> {
    (!is(kind, text)).then(|| format!("{text:?} is not {}", described(kind).unwrap_or(kind)))
}

fn described(kind: &str) -> Option<&'static str> {
    let mut kinds = KINDS.lines().filter_map(|line| line.split_once(": "));
    kinds.find(|(name, _)| *name == kind).map(|(_, what)| what)
}

fn amount(text: &str) -> Option<String> {
    match Amount::try_from(&Quantity(text.to_owned())) {
        Err(error) => Some(error.to_string()),
        Ok(amount) if amount < Amount::ZERO => Some(format!("{text} is negative: write 0 or more")),
        Ok(_) => None,
    }
}

fn is_basic(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory" | "ephemeral-storage")
}

/// Returns true if an environment variable may refer to this field of the pod.
fn is_field(text: &str) -> bool {
    let maps = ["metadata.labels['", "metadata.annotations['"];
    let key = maps.iter().find_map(|map| text.strip_prefix(map));
    let key = key.and_then(|key| key.strip_suffix("']"));
    let is_plain = match text.split_once('.') {
        Some(("metadata", name)) => matches!(name, "name" | "namespace" | "uid"),
        Some(("spec", name)) => matches!(name, "nodeName" | "serviceAccountName"),
        Some(("status", name)) => matches!(name, "hostIP" | "hostIPs" | "podIP" | "podIPs"),
        _ => false,
    };
    is_plain || key.is_some_and(is_key)
}

/// Returns true for a DNS label of any length: lower-case letters, digits and `-`, with a letter or digit at both ends.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_outer = !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
    is_outer && text.chars().all(is_inner)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Returns true for a key, such as the key of a label: a name, or a domain, a `/` and a name.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_key_name(name),
        None => is_key_name(text),
    }
}

fn is_key_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_outer = is_end(text.chars().next()) && is_end(text.chars().next_back());
    text.len() <= 63 && is_outer && text.chars().all(is_inner)
}

fn is_port_name(text: &str) -> bool {
    let has_letter = text.chars().any(|c| c.is_ascii_lowercase());
    text.len() <= 15 && has_letter && is_label(text) && !text.contains("--")
}
