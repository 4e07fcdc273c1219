//! The filters of `pleg watch`.

use std::collections::HashMap;
use std::str::FromStr;

use pleg::Pleg;
use pleg::core::{PodStatus, PodUid};

use crate::record::{DEGRADED, LAGGED, NOT_READY, READY, RECOVERED, Record, SYNCED};

/// Which records are shown. Records about the whole node pass every filter but that of the type.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only pods in this namespace; may be repeated
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Vec<String>,
    /// Only these pods: NAME, NAMESPACE/NAME or a uid. An asterisk at the end stands for any text
    #[arg(value_name = "POD")]
    pub(crate) pod: Vec<String>,
    /// Only pods with these labels, for example app=web,tier!=cache,canary
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with_all = ["agent", "since"])]
    pub(crate) selector: Option<Selector>,
    /// Only these types, for example ContainerDied or Degraded; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = TYPES)]
    pub(crate) types: Vec<String>,
    /// Only exits with a code other than 0 or with an unknown code, and changes of health
    #[arg(long)]
    pub(crate) failed: bool,
    /// Leave out what existed at the start
    #[arg(long)]
    pub(crate) no_initial: bool,
}

/// Which pods `pleg pods` shows.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PodFilter {
    /// Only pods in this namespace; may be repeated
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Only pods with these labels, for example app=web,tier!=cache,canary. The labels are those of the
    /// pod's sandbox
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Selector>,
}

impl PodFilter {
    /// Without a sandbox, the labels are not known.
    pub(crate) fn matches(&self, status: &PodStatus) -> bool {
        let in_namespace = self.namespace.is_empty()
            || self
                .namespace
                .iter()
                .any(|namespace| **namespace == *status.namespace);
        in_namespace
            && self.selector.as_ref().is_none_or(|selector| {
                let labels = status.sandboxes.first().map(|s| &s.details.labels);
                labels.is_some_and(|labels| selector.matches(|key| labels.get(key)))
            })
    }
}

const TYPES: [&str; 11] = [
    "ContainerStarted",
    "ContainerDied",
    "ContainerRemoved",
    "ContainerChanged",
    "PodSync",
    SYNCED,
    LAGGED,
    DEGRADED,
    RECOVERED,
    NOT_READY,
    READY,
];

impl Filters {
    /// Whether the record is shown, as far as it says itself.
    pub(crate) fn matches(&self, record: &Record) -> bool {
        if !self.types.is_empty() && !self.types.contains(&record.r#type) {
            return false;
        }
        if record.is_event() && self.failed && !record.is_failure()
            || self.no_initial && record.initial == Some(true)
        {
            return false;
        }
        let Some(pod) = &record.pod else {
            return true;
        };
        let in_namespace = self.namespace.is_empty() || self.namespace.contains(&pod.namespace);
        let full = format!("{}/{}", pod.namespace, pod.name);
        let texts = [&pod.name, &full, &pod.uid];
        let named = |pattern: &String| texts.iter().any(|text| is_match(pattern, text));
        in_namespace && (self.pod.is_empty() || self.pod.iter().any(named))
    }
}

/// An asterisk at the end of the pattern stands for any text.
fn is_match(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => text == pattern,
    }
}

/// A selector of labels, with the equality-based part of the syntax of kubectl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Equal(String, String),
    /// Also without that label.
    NotEqual(String, String),
    Exists(String),
    Missing(String),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let requirement = |part: &str| {
            let part = part.trim();
            let pair = |(key, value): (&str, &str)| {
                let value = value.strip_prefix('=').unwrap_or(value);
                (key.trim().to_owned(), value.trim().to_owned())
            };
            let parsed = if let Some(parts) = part.split_once("!=") {
                let (key, value) = pair(parts);
                Requirement::NotEqual(key, value)
            } else if let Some(parts) = part.split_once('=') {
                let (key, value) = pair(parts);
                Requirement::Equal(key, value)
            } else if let Some(key) = part.strip_prefix('!') {
                Requirement::Missing(key.trim().to_owned())
            } else {
                Requirement::Exists(part.to_owned())
            };
            let (Requirement::Equal(key, _)
            | Requirement::NotEqual(key, _)
            | Requirement::Exists(key)
            | Requirement::Missing(key)) = &parsed;
            let invalid = key.is_empty() || key.contains([' ', '(', ')', '!']);
            match invalid {
                true => Err(format!(
                    "{part:?} is not KEY, !KEY, KEY=VALUE or KEY!=VALUE"
                )),
                false => Ok(parsed),
            }
        };
        let requirements = text.split(',').map(requirement);
        Ok(Self {
            text: text.to_owned(),
            requirements: requirements.collect::<Result<_, _>>()?,
        })
    }
}

impl Selector {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| match requirement {
                Requirement::Equal(key, value) => label(key) == Some(value),
                Requirement::NotEqual(key, value) => label(key) != Some(value),
                Requirement::Exists(key) => label(key).is_some(),
                Requirement::Missing(key) => label(key).is_none(),
            })
    }
}

/// Applies a selector to the pods in the cache. It remembers the result for each pod, because a pod
/// that is removed has no labels any more.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    selector: Option<Selector>,
    known: HashMap<String, bool>,
}

impl Selected {
    pub(crate) fn new(selector: Option<Selector>) -> Self {
        Self {
            selector,
            known: HashMap::new(),
        }
    }

    /// Whether the pod of this record has the labels.
    pub(crate) fn matches(&mut self, record: &Record, pleg: &Pleg) -> bool {
        let (Some(selector), Some(pod)) = (&self.selector, &record.pod) else {
            return true;
        };
        let status = pleg.get(&PodUid::from(pod.uid.as_str())).status;
        if !status.exists() {
            // The cache may be ahead: more records of the pod may follow, until its sandbox is removed.
            let known = self.known.get(&pod.uid).copied().unwrap_or(false);
            let is_sandbox = record.kind.as_deref() == Some("sandbox");
            if is_sandbox && record.r#type == "ContainerRemoved" {
                self.known.remove(&pod.uid);
            }
            return known;
        }
        let labels = status.sandboxes.first().map(|s| &s.details.labels);
        let Some(labels) = labels else {
            return self.known.get(&pod.uid).copied().unwrap_or(false);
        };
        let matches = selector.matches(|key| labels.get(key));
        self.known.insert(pod.uid.clone(), matches);
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Pod;

    fn event(kind: &str, name: &str, code: Option<i32>) -> Record {
        Record {
            r#type: kind.to_owned(),
            pod: Some(Pod {
                uid: format!("uid-{name}"),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
            }),
            kind: Some("container".to_owned()),
            source: Some("stream".to_owned()),
            initial: Some(false),
            exit_code: code,
            ..Record::default()
        }
    }

    #[test]
    fn pods_are_named_by_name_namespace_uid_or_prefix() {
        let record = event("ContainerDied", "web-1", Some(0));
        for (pods, shown) in [
            (&["web-1"][..], true),
            (&["shop/web-1"], true),
            (&["uid-web-1"], true),
            (&["web-*"], true),
            (&["shop/*"], true),
            (&["web"], false),
            (&["test/web-1"], false),
            (&["db", "web-1"], true),
        ] {
            let filters = Filters {
                pod: pods.iter().map(ToString::to_string).collect(),
                ..Filters::default()
            };
            assert_eq!(filters.matches(&record), shown, "{pods:?}");
        }
    }

    #[test]
    fn failed_shows_exits_with_other_codes_and_health() {
        let filters = Filters {
            failed: true,
            ..Filters::default()
        };
        let health = Record {
            r#type: DEGRADED.to_owned(),
            ..Record::default()
        };
        for (record, shown) in [
            (event("ContainerDied", "a", Some(0)), false),
            (event("ContainerDied", "a", Some(137)), true),
            (event("ContainerDied", "a", None), true),
            (event("ContainerStarted", "a", None), false),
            (health, true),
        ] {
            assert_eq!(filters.matches(&record), shown, "{record:?}");
        }
    }

    #[test]
    fn type_filter_applies_to_every_record() {
        let filters = Filters {
            types: vec![DEGRADED.to_owned()],
            ..Filters::default()
        };
        assert!(!filters.matches(&event("ContainerDied", "a", None)));
        let synced = Record {
            r#type: SYNCED.to_owned(),
            ..Record::default()
        };
        assert!(!filters.matches(&synced));
    }

    #[test]
    fn selector_is_parsed_and_applied() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "canary" => Some(""),
            _ => None,
        };
        for (text, matches) in [
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("tier!=cache", true),
            ("canary", true),
            ("!canary", false),
            ("app=web, !tier", true),
            ("app=web,tier", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(labels), matches, "{text}");
        }
        for invalid in ["", "=web", "app in (a)", "app=web,"] {
            assert!(invalid.parse::<Selector>().is_err(), "{invalid}");
        }
    }
}
