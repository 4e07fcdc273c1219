//! What of a node is asked for: which pods, in which order, and which page of them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::state::Summary;
use crate::filter::Selector;
use crate::record::Record;

/// The most pods and records in a view.
pub(crate) const MOST_ROWS: usize = 200;

/// Which pods and records are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query {
    /// Only what contains this text: pods by name, uid, container, id or image. Without case.
    pub(crate) search: String,
    /// Only pods in this namespace, unless it is empty.
    pub(crate) namespace: String,
    /// Only pods with these labels.
    pub(crate) labels: Option<Selector>,
    pub(crate) sort: Sort,
    pub(crate) reverse: bool,
    /// How many pods to skip.
    pub(crate) offset: usize,
    /// How many pods to show.
    pub(crate) limit: usize,
    /// How many records to show.
    pub(crate) records: usize,
    /// The uid of the pod whose place in the list is asked for.
    pub(crate) selected: String,
    /// The uid of the pod to show in detail.
    pub(crate) pod: String,
}

/// The order of the pods. Equal ones are ordered by namespace and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Sort {
    /// Problems first, then failed containers.
    #[default]
    State,
    Name,
    /// The most restarts first.
    Restarts,
    /// The last change first.
    Change,
    /// The least fresh first.
    Freshness,
}

impl Sort {
    pub(crate) const ALL: [Self; 5] = [
        Self::State,
        Self::Name,
        Self::Restarts,
        Self::Change,
        Self::Freshness,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Name => "name",
            Self::Restarts => "restarts",
            Self::Change => "change",
            Self::Freshness => "freshness",
        }
    }
}

impl Query {
    /// The query as parameters of a URL.
    pub(crate) fn to_parameters(&self) -> String {
        let labels = self.labels.as_ref();
        let numbers = [self.offset, self.limit, self.records].map(|n| n.to_string());
        let [offset, limit, records] = &numbers;
        let pairs = [
            ("search", &*self.search),
            ("namespace", &self.namespace),
            ("labels", labels.map_or("", Selector::as_str)),
            ("sort", self.sort.as_str()),
            ("reverse", if self.reverse { "true" } else { "" }),
            ("offset", offset),
            ("limit", limit),
            ("records", records),
            ("selected", &self.selected),
            ("pod", &self.pod),
        ];
        let mut text = String::new();
        for (key, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            let separator = if text.is_empty() { "" } else { "&" };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}{key}={}", encoded(value));
        }
        text
    }

    /// Parses parameters of a URL; unknown ones are ignored. Without a limit the page is as large as it
    /// may be.
    pub(crate) fn from_parameters(text: &str) -> Result<Self, String> {
        let mut query = Self {
            limit: MOST_ROWS,
            records: MOST_ROWS,
            ..Self::default()
        };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(key, decoded(value))?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        let number = |text: &str| -> Result<usize, String> {
            let number = text.parse();
            number.map_err(|_| format!("{key} is a whole number"))
        };
        match key {
            "search" => self.search = value,
            "namespace" => self.namespace = value,
            "labels" => self.labels = Some(value.parse()?),
            "sort" => {
                let sort = Sort::ALL.into_iter().find(|sort| sort.as_str() == value);
                self.sort = sort.ok_or("sort is state, name, restarts, change or freshness")?;
            }
            "reverse" => self.reverse = value == "true",
            "offset" => self.offset = number(&value)?,
            "limit" => self.limit = number(&value)?.min(MOST_ROWS),
            "records" => self.records = number(&value)?.min(MOST_ROWS),
            "selected" => self.selected = value,
            "pod" => self.pod = value,
            _ => {}
        }
        Ok(())
    }

    /// Whether the pod is shown. `search` is in lower case.
    pub(super) fn matches(&self, pod: &Summary<'_>, search: &str) -> bool {
        let status = pod.status;
        if !self.namespace.is_empty() && *self.namespace != *status.namespace {
            return false;
        }
        let labels = status.sandboxes.first().map(|s| &s.details.labels);
        let selected =
            |selector: &Selector| selector.matches(|key| labels.and_then(|labels| labels.get(key)));
        if !self.labels.as_ref().is_none_or(selected) {
            return false;
        }
        let contains = |text: &str| text.to_lowercase().contains(search);
        search.is_empty()
            || contains(&format!("{}/{}", status.namespace, status.name))
            || contains(status.uid.as_str())
            || status.sandboxes.iter().any(|s| contains(s.id.as_str()))
            || status
                .containers
                .iter()
                .any(|c| contains(&c.name) || contains(c.id.as_str()) || contains(&c.details.image))
    }

    /// Whether the record is shown. Records about the whole node are.
    pub(super) fn matches_record(&self, record: &Record) -> bool {
        let Some(pod) = &record.pod else {
            return true;
        };
        if !self.namespace.is_empty() && self.namespace != pod.namespace {
            return false;
        }
        let search = self.search.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&search);
        search.is_empty()
            || contains(&format!("{}/{}", pod.namespace, pod.name))
            || contains(&pod.uid)
            || [&record.name, &record.id]
                .into_iter()
                .flatten()
                .any(|text| contains(text))
    }
}

/// Percent-encoding: everything but letters, digits and `-._~`.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The inverse. What is not encoded correctly stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_the_same_after_encoding() {
        let query = Query {
            search: "a b&c=d%25+ü\u{202e}".to_owned(),
            namespace: "shop".to_owned(),
            labels: Some("app=web,tier!=cache".parse().unwrap()),
            sort: Sort::Restarts,
            reverse: true,
            offset: 40,
            limit: 20,
            records: 0,
            selected: "uid-1".to_owned(),
            pod: "uid-2".to_owned(),
        };
        let text = query.to_parameters();
        assert!(text.is_ascii() && !text.contains(' '), "{text}");
        assert_eq!(Query::from_parameters(&text), Ok(query));
    }

    #[test]
    fn parameters_are_bounded_and_checked() {
        let query = Query::from_parameters("limit=99999999&other=1&records=1000").unwrap();
        assert_eq!((query.limit, query.records), (MOST_ROWS, MOST_ROWS));
        for invalid in ["limit=x", "sort=size", "labels=%3Da", "offset=-1"] {
            assert!(Query::from_parameters(invalid).is_err(), "{invalid}");
        }
        let odd = Query::from_parameters("search=%ü%4").unwrap();
        assert_eq!(odd.search, "%ü%4");
    }
}
