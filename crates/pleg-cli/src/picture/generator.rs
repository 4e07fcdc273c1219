//! What a generator says of the node: whether its pods are known, its degraded reasons, and its event stream.

use std::collections::BTreeMap;

use pleg::core::{Counters, Degraded, Health, Instant, NotReady, StreamEnd, StreamState};
use serde::{Deserialize, Serialize};

use super::finding::{Finding, Layer, Severity};

/// What follows if the runtime does not answer.
pub(super) const EXPLAINED_BY_SILENCE: &[&str] = &[
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
    "stream_down",
    NEVER_LISTED,
    STALE,
];
/// What follows if lists fail or hang.
pub(super) const EXPLAINED_BY_LISTS: &[&str] = &[NEVER_LISTED, STALE];

const NEVER_LISTED: &str = "never_listed";
const STALE: &str = "stale";

/// What a generator says, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Generator {
    pub(crate) state: State,
    /// How the last stream ended, if none is open.
    pub(crate) why: Option<String>,
    /// Why it was not subscribed to, so that no kubelet loses events.
    pub(crate) not_subscribed: Option<String>,
    /// Events that arrived.
    pub(crate) events: u64,
    /// Events that the lists show to be missing.
    pub(crate) missed: u64,
    /// STARTED and STOPPED events that arrived, and those missed.
    pub(crate) expected: u64,
    /// Each event goes to one subscriber only.
    pub(crate) splits_events: bool,
    /// Changes that were announced, whatever showed them.
    pub(crate) changes: u64,
    /// The generator's degraded reasons, by code.
    pub(crate) degraded: BTreeMap<String, Reason>,
    /// Why the node's pods are not known at the end.
    pub(crate) not_ready: Option<String>,
    /// The code of that reason.
    pub(crate) not_ready_code: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// It was not subscribed to.
    #[default]
    Off,
    /// The call is open.
    Open,
    /// The call is open, and an event has arrived.
    Proven,
    /// The runtime has no events, or they are disabled.
    NotOffered,
    /// It broke.
    Down,
}

/// A degraded reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reason {
    pub(crate) sentence: String,
    /// How long it lasted, if that is known.
    pub(crate) seconds: Option<f64>,
    /// It lasts at the end.
    pub(crate) lasts: bool,
}

impl Generator {
    /// What a generator with this health says now.
    pub(crate) fn of(health: &Health, counters: &Counters, now: Instant) -> Self {
        let mut generator = Self::default();
        generator.end(health, counters, now);
        generator
    }

    /// Adds what health says now.
    pub(crate) fn watch(&mut self, health: &Health, now: Instant) {
        for reason in self.degraded.values_mut() {
            reason.lasts = false;
        }
        for degraded in health.degraded(now) {
            let known = self
                .degraded
                .entry(degraded.as_str().to_owned())
                .or_default();
            let since = degraded.since();
            *known = Reason {
                sentence: sentence(&degraded, health),
                seconds: since.map(|since| now.since(since).as_secs_f64().round()),
                lasts: true,
            };
        }
    }

    /// What the generator says at the end.
    pub(crate) fn end(&mut self, health: &Health, counters: &Counters, now: Instant) {
        self.watch(health, now);
        self.events = counters.events.total();
        self.missed = health.loss.missed;
        self.expected = health.loss.expected;
        self.splits_events = health.splits_events_between_subscribers;
        let why = health.ready(now).err();
        self.not_ready = why.as_ref().map(ToString::to_string);
        self.not_ready_code = why.map(|why| why.as_str().to_owned());
        let (state, why) = match &health.stream {
            StreamState::Subscribed { proven: true, .. } => (State::Proven, None),
            StreamState::Subscribed { .. } | StreamState::Starting { .. } => (State::Open, None),
            StreamState::Down { why, .. } => match why {
                StreamEnd::NeverOffered | StreamEnd::Declined(_) | StreamEnd::Disabled => {
                    (State::NotOffered, Some(why.to_string()))
                }
                _ => (State::Down, Some(why.to_string())),
            },
            _ => (State::Off, None),
        };
        self.state = state;
        self.why = why;
        self.not_subscribed = health.stream.declined().map(str::to_owned);
    }

    pub(crate) fn reason(&self, code: &str) -> Option<&Reason> {
        self.degraded.get(code)
    }

    /// The share of expected events that were missed, in percent.
    #[allow(clippy::cast_precision_loss, reason = "it is shown")]
    fn lost(&self) -> f64 {
        100.0 * self.missed as f64 / self.expected.max(self.missed).max(1) as f64
    }
}

/// The sentence of a reason. That of a lost stream says why it ended.
fn sentence(reason: &Degraded, health: &Health) -> String {
    match (reason, &health.stream) {
        (Degraded::StreamDown { .. }, StreamState::Down { why, .. }) => format!("{reason} ({why})"),
        _ => reason.to_string(),
    }
}

/// The findings. Those about single pods follow from their statuses.
pub(super) fn check(generator: &Generator) -> Vec<Finding> {
    let mut findings: Vec<Finding> = not_ready(generator).into_iter().collect();
    findings.extend(not_subscribed(generator));
    findings.extend(not_offered(generator));
    findings.extend(silent(generator));
    findings.extend(lossy(generator));
    let reasons = generator.degraded.iter();
    findings.extend(reasons.filter_map(|(code, reason)| degraded(generator, code, reason)));
    findings
}

/// Why the node's pods are not known, in the words of the kubelet.
fn not_ready(generator: &Generator) -> Option<Finding> {
    let (why, code) = (
        generator.not_ready.as_ref()?,
        generator.not_ready_code.as_ref()?,
    );
    let code = NotReady::CODES.into_iter().find(|known| known == code)?;
    let (layer, next) = match code {
        NEVER_LISTED => (
            Layer::Calls,
            "Start the runtime, or set its socket with -r. Run as root.",
        ),
        STALE => (Layer::Calls, "Do what the other findings say."),
        _ => (
            Layer::Kubelet,
            "Look for CPU pressure. Restart this process, and report the bug with its log.",
        ),
    };
    let finding = Finding::new(code, layer, Severity::Critical, why, next);
    Some(Finding {
        not_ready: true,
        ..finding
    })
}

/// A finding about a degraded reason, in the words of the generator.
fn degraded(generator: &Generator, code: &str, reason: &Reason) -> Option<Finding> {
    let is_known = generator.not_subscribed.is_some() || generator.state == State::NotOffered;
    let (code, layer, severity, next, explains): (_, _, _, _, &[&str]) = match code {
        "runtime_silent" => (
            "runtime_silent",
            Layer::Runtime,
            Severity::Critical,
            SILENT_NEXT,
            EXPLAINED_BY_SILENCE,
        ),
        "list_failed" => (
            "list_failed",
            Layer::Calls,
            Severity::Critical,
            LIST_FAILED,
            EXPLAINED_BY_LISTS,
        ),
        "list_slow" => (
            "list_slow",
            Layer::Calls,
            Severity::Warning,
            LIST_SLOW,
            EXPLAINED_BY_LISTS,
        ),
        "stream_down" if !is_known => (
            "stream_down",
            Layer::Stream,
            Severity::Warning,
            "Nothing if the runtime restarts. Otherwise read its log.",
            &[],
        ),
        "backlog" => (
            "backlog",
            Layer::Kubelet,
            Severity::Warning,
            "Find what creates and ends containers at this rate; see the findings about CPU pressure.",
            &[],
        ),
        "unacknowledged" => (
            "unacknowledged",
            Layer::Kubelet,
            Severity::Warning,
            "Find out why this part of the kubelet does not read exits.",
            &[],
        ),
        _ => return None,
    };
    let mut finding = Finding::new(code, layer, severity, &reason.sentence, next)
        .lasting(reason.seconds)
        .explains(explains);
    if !reason.lasts {
        finding.severity = finding.severity.min(Severity::Warning);
        finding = finding.because("it is over");
    }
    Some(finding)
}

pub(super) const SILENT_NEXT: &str = "See the findings about the host and the runtime's process. Save a stack dump (SIGUSR1 for containerd and \
     CRI-O), then restart the runtime; containers keep running.";
pub(super) const LIST_FAILED: &str =
    "Read the runtime's log. If the answer is too large, remove dead containers.";
pub(super) const LIST_SLOW: &str = "See the findings about the host and the runtime; remove dead containers; run fewer pods on this node.";

fn finding(
    code: &'static str,
    severity: Severity,
    summary: impl Into<String>,
    next: &'static str,
) -> Finding {
    Finding::new(code, Layer::Stream, severity, summary, next)
}

fn not_subscribed(stream: &Generator) -> Option<Finding> {
    let why = stream.not_subscribed.as_ref()?;
    let finding = finding(
        "stream_not_examined",
        Severity::Info,
        "the event stream was not examined, because that may harm the kubelet or the runtime",
        "Nothing, unless the kubelet misses events. --events always examines it anyway.",
    );
    Some(finding.because(why.clone()))
}

fn not_offered(stream: &Generator) -> Option<Finding> {
    let is_known = stream.not_subscribed.is_some();
    if stream.state != State::NotOffered || is_known {
        return None;
    }
    let finding = finding(
        "stream_disabled",
        Severity::Info,
        "the runtime offers no events; everything is learned from lists",
        "Nothing for a kubelet with the generic PLEG. For events use containerd 1.7 or later, or CRI-O with \
         enable_pod_events = true.",
    );
    Some(finding.because(stream.why.clone().unwrap_or_default()))
}

/// A stream that delivers nothing while lists show changes.
fn silent(stream: &Generator) -> Option<Finding> {
    let is_open = matches!(stream.state, State::Open | State::Proven);
    if !is_open || stream.events > 0 || stream.missed < 2 {
        return None;
    }
    let finding = finding(
        "stream_silent",
        Severity::Warning,
        "the event stream is open and delivers nothing: a kubelet with EventedPLEG misses every change",
        "Restart the runtime, or disable EventedPLEG in the kubelet.",
    );
    Some(
        finding
            .because(format!(
                "{} changes in lists, {} missing events, none arrived",
                stream.changes, stream.missed
            ))
            .explains(&["stream_lossy"]),
    )
}

fn lossy(stream: &Generator) -> Option<Finding> {
    stream.reason("stream_lossy")?;
    let (summary, next) = match stream.splits_events {
        true => (
            "another subscriber takes events: this runtime gives each event to one subscriber only",
            "Nothing is missed here, but found late, by lists. Find the other subscriber (ss -xp): a kubelet with \
             EventedPLEG, or an agent, which --events auto keeps from it. Or update the runtime (containerd 2, \
             CRI-O 1.28).",
        ),
        false => (
            "the event stream loses events: a kubelet with EventedPLEG misses changes",
            "Disable EventedPLEG in the kubelet; read the runtime's log; update the runtime.",
        ),
    };
    let finding = finding("stream_lossy", Severity::Warning, summary, next);
    Some(finding.because(format!(
        "{} of {} events are missing ({:.0} %)",
        stream.missed,
        stream.expected.max(stream.missed),
        stream.lost()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_a_generator_is_a_finding() {
        let reason = || Reason {
            sentence: "it lasts".to_owned(),
            seconds: Some(4.0),
            lasts: true,
        };
        let codes = Degraded::CODES.into_iter();
        // Those about single pods follow from their statuses.
        let codes = codes.filter(|code| !["pods_hung", "pods_failing"].contains(code));
        let mut generator = Generator {
            state: State::Proven,
            events: 1,
            degraded: codes
                .clone()
                .map(|code| (code.to_owned(), reason()))
                .collect(),
            ..Generator::default()
        };
        let found =
            |generator: &Generator| check(generator).iter().map(|f| f.code).collect::<Vec<_>>();
        for code in codes {
            assert!(found(&generator).contains(&code), "{code}");
        }
        for code in NotReady::CODES {
            generator.not_ready = Some("pleg has shut down".to_owned());
            generator.not_ready_code = Some(code.to_owned());
            assert!(found(&generator).contains(&code), "{code}");
        }
    }
}
