//! The runtime's own `Status`: RuntimeReady, NetworkReady and further conditions.

use std::fmt;

use pleg::core::Instant;
use pleg_cri::v1::StatusResponse;
use serde::{Deserialize, Serialize};

use super::Failure;
use crate::picture::finding::{Finding, Kind};
use crate::picture::kinds::{NETWORK_NOT_READY, RUNTIME_NOT_READY};
use crate::text::clip;

/// How many conditions are kept, and how many characters of each text. containerd has three.
const MOST: usize = 8;
const MOST_TEXT: usize = 300;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Conditions {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) status: bool,
    pub(crate) reason: String,
    /// Empty in a redacted recording.
    pub(crate) message: String,
    /// Since when it has this status, as far as this process knows.
    #[serde(skip)]
    pub(crate) since: Option<Instant>,
}

impl Condition {
    /// Returns true if a kubelet does not work without this condition.
    pub(crate) fn is_needed(&self) -> bool {
        NEEDED.iter().any(|(name, ..)| *name == self.name)
    }
}

/// Its status, with the reason and the message.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)?;
        let texts = [(" (", &self.reason, ")"), (": ", &self.message, "")];
        let mut texts = texts.into_iter().filter(|(_, text, _)| !text.is_empty());
        texts.try_for_each(|(begin, text, end)| write!(f, "{begin}{text}{end}"))
    }
}

impl Conditions {
    /// Sets since when each condition has its status: since `last` if it was the same there, else since now.
    pub(crate) fn since(mut self, last: &Self, now: Instant) -> Self {
        for new in &mut self.conditions {
            let known = last.conditions.iter().find(|known| known.name == new.name);
            let known = known.filter(|known| known.status == new.status);
            new.since = known.map_or(Some(now), |known| known.since);
        }
        self
    }
}

impl From<StatusResponse> for Conditions {
    fn from(answer: StatusResponse) -> Self {
        let text = |text: String| clip(&text, MOST_TEXT).into_owned();
        let conditions = answer.status.unwrap_or_default().conditions.into_iter();
        let conditions = conditions.take(MOST).map(|condition| Condition {
            name: text(condition.r#type),
            status: condition.status,
            reason: text(condition.reason),
            message: text(condition.message),
            since: None,
        });
        Self {
            conditions: conditions.collect(),
            failure: None,
        }
    }
}

/// What a kubelet needs, and what is found without it.
const NEEDED: [(&str, Kind, &str, &str); 2] = [
    (
        "NetworkReady",
        NETWORK_NOT_READY,
        "the runtime's network is not ready: the kubelet starts no pod that needs it",
        "Install or repair the network plugin: its configuration (/etc/cni/net.d) and its pods.",
    ),
    (
        "RuntimeReady",
        RUNTIME_NOT_READY,
        "the runtime says that it is not ready: the kubelet starts no pod",
        "Read the runtime's log.",
    ),
];

pub(crate) fn check(conditions: &Conditions) -> impl Iterator<Item = Finding> {
    NEEDED.iter().filter_map(|(name, kind, summary, next)| {
        let mut unmet = conditions.conditions.iter().filter(|c| !c.status);
        let condition = unmet.find(|condition| condition.name == *name)?;
        let evidence = format!("Status: {name} is {condition}");
        Some(kind.found(*summary, *next).because(evidence))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};

    use super::*;

    fn answer(name: &str, status: bool, message: &str, times: usize) -> Conditions {
        let condition = RuntimeCondition {
            r#type: name.to_owned(),
            status,
            message: message.to_owned(),
            ..RuntimeCondition::default()
        };
        let conditions = vec![condition; times];
        Conditions::from(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            ..StatusResponse::default()
        })
    }

    #[test]
    fn since_is_kept_while_the_status_stays_the_same() {
        let at = |seconds| Instant::ORIGIN.after(Duration::from_secs(seconds));
        let mut last = Conditions::default();
        for (now, status, message, shown, since) in [
            (1, false, "no cni config", "false: no cni config", 1),
            (31, false, "not initialized", "false: not initialized", 1),
            (61, true, "", "true", 61),
        ] {
            last = answer("NetworkReady", status, message, 1).since(&last, at(now));
            let condition = &last.conditions[0];
            assert_eq!(condition.to_string(), shown);
            assert_eq!(condition.since, Some(at(since)), "{shown}");
        }
    }

    #[test]
    fn kept_conditions_are_bounded() {
        let all = answer("a", false, &"x".repeat(10_000), 1_000).conditions;
        assert_eq!(all.len(), MOST);
        assert!(all[0].message.chars().count() <= MOST_TEXT);
    }
}
