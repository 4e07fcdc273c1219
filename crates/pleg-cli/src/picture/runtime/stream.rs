//! The event stream: whether it is offered, what it delivers, and what it loses, measured by the lists.

use std::collections::BTreeMap;

use pleg::core::{Counters, Health, Instant, StreamEnd, StreamState};
use serde::{Deserialize, Serialize};

use crate::health::sentence;
use crate::picture::finding::{Finding, Layer, Severity};

pub(super) const SILENT_NEXT: &str = "See the findings about the host and the runtime's process. Save a stack dump (SIGUSR1 for containerd and \
     CRI-O), then restart the runtime; containers keep running.";

/// What follows if the runtime does not answer.
pub(super) const EXPLAINED_BY_SILENCE: &[&str] = &[
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
    "stream_down",
];

/// The event stream, and what the generator says of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stream {
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

impl Stream {
    /// Adds what health says now.
    pub(super) fn watch(&mut self, health: &Health, now: Instant) {
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
    pub(super) fn end(&mut self, health: &Health, counters: &Counters, now: Instant) {
        self.watch(health, now);
        self.events = counters.events.total();
        self.missed = counters.missed.total();
        self.expected = health.loss.expected;
        self.splits_events = health.splits_events_between_subscribers;
        self.not_ready = health.ready(now).err().map(|why| why.to_string());
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

pub(super) fn check(stream: &Stream) -> Vec<Finding> {
    let findings = [
        silent_runtime(stream),
        not_subscribed(stream),
        not_offered(stream),
        silent(stream),
        lossy(stream),
        down(stream),
        backlog(stream),
    ];
    findings.into_iter().flatten().collect()
}

fn finding(
    code: &'static str,
    severity: Severity,
    summary: impl Into<String>,
    next: &'static str,
) -> Finding {
    Finding::new(code, Layer::Stream, severity, summary, next)
}

fn silent_runtime(stream: &Stream) -> Option<Finding> {
    let reason = stream.reason("runtime_silent")?;
    let severity = match reason.lasts {
        true => Severity::Critical,
        false => Severity::Warning,
    };
    let finding = Finding::new(
        "runtime_silent",
        Layer::Runtime,
        severity,
        "the runtime does not answer, not even Version",
        SILENT_NEXT,
    );
    let seconds = reason.seconds.unwrap_or_default();
    let lasts = if reason.lasts {
        "and still does not"
    } else {
        "and answered again"
    };
    Some(
        finding
            .because(format!("no answer for {seconds} s, {lasts}"))
            .explains(EXPLAINED_BY_SILENCE),
    )
}

fn not_subscribed(stream: &Stream) -> Option<Finding> {
    let why = stream.not_subscribed.as_ref()?;
    let finding = finding(
        "stream_not_examined",
        Severity::Info,
        "the event stream was not examined, because that may harm the kubelet or the runtime",
        "Nothing, unless the kubelet misses events. --events always examines it anyway.",
    );
    Some(finding.because(why.clone()))
}

fn not_offered(stream: &Stream) -> Option<Finding> {
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
fn silent(stream: &Stream) -> Option<Finding> {
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

fn lossy(stream: &Stream) -> Option<Finding> {
    let reason = stream.reason("stream_lossy");
    if reason.is_none() || stream.events == 0 {
        return None;
    }
    let (summary, next) = match stream.splits_events {
        true => (
            "another subscriber takes events: this runtime gives each event to one subscriber only",
            "Stop the other subscriber: a kubelet with EventedPLEG, an agent. Or update the runtime (containerd 2, \
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

fn down(stream: &Stream) -> Option<Finding> {
    let reason = stream.reason("stream_down")?;
    let is_known = stream.not_subscribed.is_some() || stream.state == State::NotOffered;
    if is_known {
        return None;
    }
    let severity = match reason.lasts {
        true => Severity::Warning,
        false => Severity::Info,
    };
    let finding = finding(
        "stream_down",
        severity,
        "the event stream broke",
        "Read the runtime's log; see whether it restarted.",
    );
    Some(finding.because(reason.sentence.clone()))
}

fn backlog(stream: &Stream) -> Option<Finding> {
    let reason = stream.reason("backlog")?;
    let finding = finding(
        "backlog",
        Severity::Warning,
        "events arrive faster than this process applies them",
        "See the findings about CPU pressure.",
    );
    Some(finding.because(format!(
        "{}: {} s",
        reason.sentence,
        reason.seconds.unwrap_or_default()
    )))
}
