//! The findings about the generator: about its readiness, its degraded reasons and its event stream.

use std::collections::BTreeMap;

use pleg::core::{Counters, Degraded, Health, Instant, NotReady, StreamEnd, StreamState};
use serde::{Deserialize, Serialize};

use super::finding::{Finding, Severity};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Generator {
    pub(crate) state: State,
    /// The error with which the last stream ended, if no stream is open.
    pub(crate) why: Option<String>,
    /// The reason why the generator does not subscribe, if a subscription might harm a kubelet or the runtime.
    pub(crate) not_subscribed: Option<String>,
    pub(crate) events: u64,
    /// Missed events of the last 10 minutes: a read showed the change, but the runtime's event did not arrive.
    pub(crate) missed: u64,
    /// STARTED and STOPPED events of the last 10 minutes: the number that arrived, plus `missed`.
    pub(crate) expected: u64,
    pub(crate) splits_events: bool,
    /// Announced changes, from events and from lists.
    pub(crate) changes: u64,
    pub(crate) degraded: BTreeMap<String, Reason>,
    pub(crate) not_ready: Option<String>,
    pub(crate) not_ready_code: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// The generator did not subscribe.
    #[default]
    Off,
    Open,
    /// The stream is open, and an event has arrived.
    Proven,
    /// The runtime has no events, or they are disabled.
    NotOffered,
    Down,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reason {
    pub(crate) sentence: String,
    pub(crate) seconds: Option<f64>,
    pub(crate) lasts: bool,
    #[serde(skip)]
    since: Option<Instant>,
}

impl Generator {
    /// Records the degraded reasons that hold now, and which earlier ones are over.
    pub(crate) fn watch(&mut self, health: &Health, now: Instant) {
        for reason in self.degraded.values_mut() {
            reason.since = reason.since.filter(|_| reason.lasts);
            reason.lasts = false;
        }
        for degraded in health.degraded(now) {
            let reason = self.degraded.entry(degraded.as_str().to_owned());
            let reason = reason.or_default();
            // A reason such as `stream_lossy` has no start time, so use the time of the first look that saw it.
            let since = degraded.since().or(reason.since).unwrap_or(now);
            *reason = Reason {
                sentence: match (&degraded, &health.stream) {
                    (Degraded::StreamDown { .. }, StreamState::Down { why, .. }) => {
                        format!("{degraded} ({why})")
                    }
                    _ => degraded.to_string(),
                },
                seconds: Some(now.since(since).as_secs_f64()),
                lasts: true,
                since: Some(since),
            };
        }
    }

    pub(crate) fn end(&mut self, health: &Health, counters: &Counters, now: Instant) {
        self.watch(health, now);
        self.events = counters.events.total();
        self.missed = health.loss.missed;
        self.expected = health.loss.expected;
        self.splits_events = health.splits_events_between_subscribers;
        self.set_ready(&health.ready(now));
        use StreamEnd::{Declined, Disabled, NeverOffered};
        let (state, why) = match &health.stream {
            StreamState::Subscribed { proven: true, .. } => (State::Proven, None),
            StreamState::Subscribed { .. } | StreamState::Starting { .. } => (State::Open, None),
            StreamState::Down { why, .. } => match why {
                NeverOffered | Declined(_) | Disabled => (State::NotOffered, Some(why)),
                _ => (State::Down, Some(why)),
            },
            _ => (State::Off, None),
        };
        self.state = state;
        self.why = why.map(ToString::to_string);
        self.not_subscribed = health.stream.declined().map(str::to_owned);
    }

    pub(super) fn set_ready(&mut self, ready: &Result<(), NotReady>) {
        let why = ready.as_ref().err();
        self.not_ready = why.map(ToString::to_string);
        self.not_ready_code = why.map(|why| why.as_str().to_owned());
    }

    /// Reads the state of the generator, and forgets degraded reasons that are over.
    pub(crate) fn look(&mut self, health: &Health, counters: &Counters, now: Instant) {
        self.end(health, counters, now);
        self.degraded.retain(|_, reason| reason.lasts);
    }
}

/// The reasons for not being ready, and the degraded reasons, that become findings with the text of the generator.
const REASONS: &str = "never_listed stale stalled closed runtime_silent list_failed list_slow stream_down backlog \
                       unacknowledged";

pub(super) fn next_step(code: &str) -> &'static str {
    match code {
        "never_listed" => "Start the runtime, or set its socket with -r. Run as root.",
        "stale" => "Do what the other findings say.",
        "runtime_silent" => {
            "See the findings about the host and the runtime's process. Save a stack dump (`pkill -USR1 -x \
             'containerd|crio'`), then restart the runtime; containers keep running."
        }
        "list_failed" => {
            "Read the runtime's log. If the answer is too large, remove dead containers."
        }
        "list_slow" => {
            "See the findings about the host and the runtime; remove dead containers; run fewer pods on this node."
        }
        "stream_down" => "Nothing if the runtime restarts. Otherwise read its log.",
        "backlog" => {
            "Find what creates and ends containers at this rate; see the findings about CPU pressure."
        }
        "unacknowledged" => "Find out why this part of the kubelet does not read exits.",
        _ => "Look for CPU pressure. Restart this process, and report the bug with its log.",
    }
}

/// The findings about the generator, without those about pods whose calls hang or fail.
pub(super) fn check(generator: &Generator) -> Vec<Finding> {
    let reasons = REASONS.split(' ');
    let reasons = reasons.filter_map(|code| reason(generator, code));
    reasons.chain(stream(generator)).collect()
}

fn reason(generator: &Generator, code: &'static str) -> Option<Finding> {
    let next = next_step(code);
    if generator.not_ready_code.as_deref() == Some(code) {
        let mut found = Finding::new(code, generator.not_ready.as_ref()?, next);
        found.not_ready = true;
        return Some(found);
    }
    let reason = generator.degraded.get(code)?;
    let needs_none = generator.not_subscribed.is_some() || generator.state == State::NotOffered;
    if code == "stream_down" && needs_none {
        return None;
    }
    let found = Finding::new(code, &reason.sentence, next).lasting(reason.seconds);
    let over = found.severity.min(Severity::Warning);
    Some(match reason.lasts {
        true => found,
        false => found.severity(over).because("it is over"),
    })
}

fn stream(stream: &Generator) -> impl Iterator<Item = Finding> {
    let not_subscribed = stream.not_subscribed.as_ref().map(|why| {
        let summary =
            "the event stream was not examined: a subscription may harm the kubelet or the runtime";
        let next = "Nothing, unless the kubelet misses events. To examine the stream anyway, use --events always.";
        Finding::new("stream_not_examined", summary, next).because(why)
    });
    let is_offered = stream.state != State::NotOffered || not_subscribed.is_some();
    let not_offered = (!is_offered).then(|| {
        let summary = "the runtime offers no events; everything is learned from lists";
        let next = "Nothing for a kubelet with the generic PLEG. For events use containerd 1.7 or later, or CRI-O with \
                    enable_pod_events = true.";
        let why = stream.why.clone().unwrap_or_default();
        Finding::new("stream_disabled", summary, next).because(why)
    });
    let (missed, changes) = (stream.missed, stream.changes);
    let is_open = matches!(stream.state, State::Open | State::Proven);
    let silent = (is_open && stream.events == 0 && missed >= 2).then(|| {
        let summary = "the event stream is open but delivers nothing: a kubelet with EventedPLEG misses every change";
        let next = "Restart the runtime, or disable EventedPLEG in the kubelet.";
        let why = format!("{changes} changes in lists; {missed} events are missing, no event arrived");
        Finding::new("stream_silent", summary, next).because(why)
    });
    let lossy = stream.degraded.get("stream_lossy").map(|reason| {
        let (summary, next) = match stream.splits_events {
            true => (
                "another subscriber takes events: this runtime gives each event to one subscriber only",
                "Nothing is missed here, but lists find changes late. Find the other subscriber (ss -xp): a kubelet \
                 with EventedPLEG, or an agent, which does not subscribe with --events auto. Or update the runtime \
                 (containerd 2, CRI-O 1.28).",
            ),
            false => (
                "the event stream loses events: a kubelet with EventedPLEG misses changes",
                "Disable EventedPLEG in the kubelet; read the runtime's log; update the runtime.",
            ),
        };
        let expected = stream.expected.max(missed);
        let lost = 100.0 * missed as f64 / expected.max(1) as f64;
        let why = format!("{missed} of {expected} events are missing ({lost:.0} %)");
        Finding::new("stream_lossy", summary, next).because(why).lasting(reason.seconds)
    });
    let all = [not_subscribed, not_offered, silent, lossy];
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use pleg::core::{NotReady, StreamLoss};

    use super::*;
    use crate::view::tests::{Sample, at};

    #[test]
    fn each_degraded_or_not_ready_reason_becomes_a_finding() {
        let proven = Generator {
            state: State::Proven,
            ..Generator::default()
        };
        let codes = |found: Vec<Finding>| Vec::from_iter(found.iter().map(|f| f.code));
        // Leaves out the reasons about single pods: `runtime::check_problems` makes findings from them.
        let of_pods = |code: &&str| code.starts_with("pods_");
        for code in Degraded::CODES.into_iter().filter(|code| !of_pods(code)) {
            let mut degraded = proven.clone();
            degraded.degraded = [(code.to_owned(), Reason::default())].into();
            assert_eq!(codes(check(&degraded)), [code]);
        }
        for code in NotReady::CODES {
            let mut unready = proven.clone();
            (unready.not_ready, unready.not_ready_code) = (Some("why".into()), Some(code.into()));
            assert_eq!(codes(check(&unready)), [code]);
        }
    }

    #[test]
    fn stream_lossy_finding_counts_seconds_from_the_first_lossy_look() {
        let calm = Sample::empty().health;
        let mut lossy = calm.clone();
        lossy.loss = StreamLoss::new(100, 30);
        let mut generator = Generator::default();
        for (now, health, seconds) in [
            (10, &lossy, Some(0.0)),
            (14, &lossy, Some(4.0)),
            (20, &calm, None),
            (30, &lossy, Some(0.0)),
        ] {
            generator.look(health, &Counters::default(), at(now));
            let found = stream(&generator).find(|f| f.code == "stream_lossy");
            assert_eq!(found.and_then(|found| found.seconds), seconds, "{now}");
        }
    }
}
