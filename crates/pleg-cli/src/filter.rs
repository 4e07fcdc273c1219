//! The filters of `pleg watch`.

use std::collections::HashMap;
use std::str::FromStr;

use derive_more::{Constructor, Display};
use pleg::Pleg;
use pleg::core::{PodStatus, PodUid};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::record::{DEGRADED, LAGGED, NOT_READY, READY, RECOVERED, Record, SYNCED};

/// Selects the records to show. Records about the whole node pass every filter but `--type`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    #[command(flatten)]
    pub(crate) pods: PodFilter,
    /// Only these pods: NAME, NAMESPACE/NAME or a uid. An asterisk at the end stands for any text
    #[arg(value_name = "POD")]
    pod: Vec<String>,
    /// Only these types, for example ContainerDied or Degraded; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = TYPES)]
    types: Vec<String>,
    /// Only exits with a code other than 0 or with an unknown code, and changes of health
    #[arg(long)]
    failed: bool,
    /// Leave out what existed at the start
    #[arg(long)]
    no_initial: bool,
    /// By pod uid: true if the selector matches the pod's labels. The cache has no labels of a removed pod.
    #[arg(skip)]
    has_labels: HashMap<String, bool>,
}

/// Selects pods by namespace and labels.
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
    /// Returns true if the pod matches. A pod without a sandbox matches no selector: its labels are unknown.
    pub(crate) fn matches(&self, status: &PodStatus) -> bool {
        let selected = |selector: &Selector| selector.matches_pod(status) == Some(true);
        self.has_namespace(&status.namespace) && self.selector.as_ref().is_none_or(selected)
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace.iter().any(|shown| shown == namespace)
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
    /// Returns true if all filters but the label selector let the record pass.
    pub(crate) fn matches(&self, record: &Record) -> bool {
        if !self.types.is_empty() && !self.types.contains(&record.r#type) {
            return false;
        }
        if record.is_event() && self.failed && !record.is_failure()
            || self.no_initial && record.initial == Some(true)
        {
            return false;
        }
        let Some(pod) = &record.pod else { return true };
        let full = format!("{}/{}", pod.namespace, pod.name);
        let texts = [&pod.name, &full, &pod.uid];
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => texts.iter().any(|text| text.starts_with(prefix)),
            None => texts.contains(&pattern),
        };
        self.pods.has_namespace(&pod.namespace)
            && (self.pod.is_empty() || self.pod.iter().any(named))
    }

    /// Returns true if the label selector matches the record's pod. The labels come from the cache of `pleg`.
    pub(crate) fn match_labels(&mut self, record: &Record, pleg: &Pleg) -> bool {
        let (Some(selector), Some(pod)) = (&self.pods.selector, &record.pod) else {
            return true;
        };
        let status = pleg.get(&PodUid::from(pod.uid.as_str())).status;
        if let Some(matches) = selector.matches_pod(&status) {
            self.has_labels.insert(pod.uid.clone(), matches);
            return matches;
        }
        let known = self.has_labels.get(&pod.uid).copied();
        // Keeps the result until the sandbox's removal is recorded: the cache may have lost the pod before that.
        let is_sandbox = record.kind.as_deref() == Some("sandbox");
        if !status.exists() && is_sandbox && record.r#type == "ContainerRemoved" {
            self.has_labels.remove(&pod.uid);
        }
        known.unwrap_or(false)
    }
}

/// A selector of labels, in the syntax of `kubectl -l` without `in` and `notin`.
#[derive(Clone, Debug, PartialEq, Eq, DeserializeFromStr, SerializeDisplay, Display)]
#[display("{text}")]
pub(crate) struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

/// One part of a selector: `KEY` or `KEY=VALUE`; if `negated`, `!KEY` or `KEY!=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq, Constructor)]
struct Requirement {
    key: String,
    value: Option<String>,
    negated: bool,
}

impl Requirement {
    fn parse(part: &str) -> Result<Self, String> {
        let part = part.trim();
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key, Some(value.strip_prefix('=').unwrap_or(value))),
            None => (part, None),
        };
        let without_mark = match value {
            Some(_) => key.strip_suffix('!'),
            None => key.strip_prefix('!'),
        };
        let key = without_mark.unwrap_or(key).trim();
        if key.is_empty() || key.contains([' ', '(', ')', '!']) {
            let forms = "KEY, !KEY, KEY=VALUE or KEY!=VALUE";
            return Err(format!("{part:?} is not {forms}"));
        }
        let value = value.map(|value| value.trim().to_owned());
        Ok(Self::new(key.to_owned(), value, without_mark.is_some()))
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let requirements = text.split(',').map(Requirement::parse);
        Ok(Self {
            text: text.to_owned(),
            requirements: requirements.collect::<Result<_, _>>()?,
        })
    }
}

impl Selector {
    fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|required| {
            let found = label(&required.key);
            let is_met = match &required.value {
                Some(value) => found == Some(value),
                None => found.is_some(),
            };
            is_met != required.negated
        })
    }

    /// Matches the labels of the pod's sandbox. Returns `None` if the pod has no sandbox, and thus no known labels.
    pub(crate) fn matches_pod(&self, status: &PodStatus) -> Option<bool> {
        let labels = &status.sandboxes.first()?.details.labels;
        Some(self.matches(|key| labels.get(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::view::tests::{died, wall};
    use clap::Parser as _;

    #[test]
    fn filters_select_records_by_pod_type_and_failed_exit() {
        let event = |kind: &str, code, initial| Record {
            r#type: kind.to_owned(),
            exit_code: code,
            initial: Some(initial),
            ..died(wall(0), "shop", "web-1", "app", 0)
        };
        let [health, synced] = [DEGRADED, SYNCED].map(|kind| Record::new(kind, wall(0)));
        let lagged = Record::lagged(wall(0), 3, "exits");
        let text = "the reader was too slow: 3 exits are not shown";
        let shown = (lagged.missed, lagged.message.as_deref());
        assert_eq!(shown, (Some(3), Some(text)));
        let exits = [Some(0), Some(137), None].map(|code| event("ContainerDied", code, false));
        let starts = [true, false].map(|initial| event("ContainerStarted", None, initial));
        let ([ok, failed, unknown], [old, new]) = (&exits, &starts);
        // A record, the filters that show it, and the filters that hide it.
        let selected = "web-1; shop/web-1; uid-web-1; web-*; shop/*; db web-1; -n shop -n test";
        for (record, shown_by, hidden_by) in [
            (ok, selected, "web; test/web-1; -n test; --failed"),
            (failed, "--failed", "--type Degraded"),
            (unknown, "--failed", "--type Degraded"),
            (&health, "web; --failed; --type Degraded", "--type Synced"),
            (&synced, "--type Degraded,Synced", "--type Degraded"),
            (&lagged, "web; --failed; --type Lagged", "--type Synced"),
            (old, "--type ContainerStarted", "--no-initial"),
            (new, "--no-initial", "--failed"),
        ] {
            for (all, shown) in [(shown_by, true), (hidden_by, false)] {
                for args in all.split("; ") {
                    let words = format!("pleg watch {args}");
                    let Command::Watch(watch) = Args::parse_from(words.split(' ')).command else {
                        panic!("another command");
                    };
                    assert_eq!(watch.filters.matches(record), shown, "{args} {record:?}");
                }
            }
        }
    }

    #[test]
    fn selector_matches_labels_and_invalid_selector_text_is_an_error() {
        let labels = HashMap::from([("app", "web"), ("canary", "")]);
        let label = |key: &str| labels.get(key).copied();
        let matching = "app=web; app==web; app!=db; tier!=cache; canary; app=web, !tier";
        for (texts, matches) in [(matching, true), ("app=db; !canary; app=web,tier", false)] {
            for text in texts.split("; ") {
                let selector: Selector = text.parse().unwrap();
                assert_eq!(selector.matches(label), matches, "{text}");
            }
        }
        for invalid in ["", "=web", "app in (a)", "app=web,", "!app=web"] {
            assert!(invalid.parse::<Selector>().is_err(), "{invalid}");
        }
    }
}
