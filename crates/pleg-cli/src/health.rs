//! Changes of health, as records: what begins and what ends, with its duration.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::core::{Degraded, Health, Instant, NotReady, PodUid, StreamState};
use pleg::runtime::clock::Clock;
use pleg::{HealthWatch, PodProblem, PodProblemKind};

use crate::record::{DEGRADED, NOT_READY, READY, RECOVERED, Record};
use crate::text::duration;

/// How often health is checked without a change: some of it changes as time passes.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The last known health.
#[derive(Debug, Default)]
pub(crate) struct HealthChanges {
    /// Since when the generator is not ready, with the code of the reason; `None` before the first
    /// check.
    not_ready: Option<Option<(&'static str, Instant)>>,
    degraded: BTreeMap<&'static str, Instant>,
    pods: BTreeMap<PodUid, PodProblem>,
}

impl HealthChanges {
    /// What has changed since the last call.
    pub(crate) fn update(&mut self, health: &HealthWatch, clock: Clock) -> Vec<Record> {
        let now = clock.now();
        let mut changes = Changes {
            clock,
            now,
            records: Vec::new(),
        };
        let current = health.current();
        self.readiness(&mut changes, current.ready(now));
        self.reasons(&mut changes, &current);
        self.pods(&mut changes, &health.pod_problems());
        changes.records
    }

    fn readiness(&mut self, changes: &mut Changes, ready: Result<(), NotReady>) {
        let last = self.not_ready.unwrap_or_default();
        let known = self.not_ready.is_some();
        let present = match (&ready, last) {
            (Ok(()), _) => None,
            (Err(_), Some(last)) => Some(last),
            (Err(why), None) => Some((why.as_str(), changes.now)),
        };
        match (last, present, &ready) {
            (None, Some((code, _)), Err(why)) if known => {
                changes.add(NOT_READY, code, why.to_string());
            }
            (Some((code, since)), None, _) => {
                let lasted = changes.lasted(since);
                let message = format!("ready after {}", duration(lasted));
                changes.add(READY, code, message).seconds = Some(lasted.as_secs_f64());
            }
            _ => {}
        }
        self.not_ready = Some(present);
    }

    /// Pods are named one by one instead.
    fn reasons(&mut self, changes: &mut Changes, health: &Health) {
        let degraded = health.degraded(changes.now);
        let of_node =
            |d: &&Degraded| !matches!(d, Degraded::PodsHung { .. } | Degraded::PodsFailing { .. });
        self.degraded.retain(|code, since| {
            let lasts = degraded.iter().any(|d| d.as_str() == *code);
            if !lasts {
                let lasted = changes.lasted(*since);
                let message = ended(code, lasted);
                changes.add(RECOVERED, code, message).seconds = Some(lasted.as_secs_f64());
            }
            lasts
        });
        for reason in degraded.iter().filter(of_node) {
            let code = reason.as_str();
            if !self.degraded.contains_key(code) {
                let since = reason.since().unwrap_or(changes.now);
                self.degraded.insert(code, since);
                changes.begin(code, sentence(reason, health), since);
            }
        }
    }

    fn pods(&mut self, changes: &mut Changes, problems: &[PodProblem]) {
        self.pods.retain(|uid, problem| {
            let lasts = problems.iter().any(|p| p.pod.uid == *uid);
            if !lasts {
                let lasted = changes.lasted(problem.since);
                let message = format!(
                    "{} succeeds again after {}",
                    problem.operation,
                    duration(lasted)
                );
                let record = changes.add(RECOVERED, code_of(problem), message);
                record.seconds = Some(lasted.as_secs_f64());
                *record = std::mem::take(record).of(problem);
            }
            lasts
        });
        for problem in problems {
            if !self.pods.contains_key(&problem.pod.uid) {
                let record = changes.begin(code_of(problem), problem.to_string(), problem.since);
                *record = std::mem::take(record).of(problem);
                self.pods.insert(problem.pod.uid.clone(), problem.clone());
            }
        }
    }
}

/// The sentence of a reason. That of a lost stream says why it ended.
pub(crate) fn sentence(reason: &Degraded, health: &Health) -> String {
    match (reason, &health.stream) {
        (Degraded::StreamDown { .. }, StreamState::Down { why, .. }) => format!("{reason} ({why})"),
        _ => reason.to_string(),
    }
}

/// The code of the reason to which a pod's problem belongs.
fn code_of(problem: &PodProblem) -> &'static str {
    match problem.kind {
        PodProblemKind::Hung => "pods_hung",
        _ => "pods_failing",
    }
}

fn ended(code: &str, lasted: Duration) -> String {
    let lasted = duration(lasted);
    match code {
        "runtime_silent" => format!("the runtime answers again; no answer for {lasted}"),
        "stream_down" => format!("subscribed again; no event stream for {lasted}"),
        _ => format!("recovered after {lasted}"),
    }
}

/// The changes that one check finds.
struct Changes {
    clock: Clock,
    now: Instant,
    records: Vec<Record>,
}

impl Changes {
    fn lasted(&self, since: Instant) -> Duration {
        self.now.since(since)
    }

    fn begin(&mut self, code: &str, mut message: String, since: Instant) -> &mut Record {
        let lasted = self.lasted(since);
        if lasted >= Duration::from_secs(1) {
            message.push_str(&format!(", for {}", duration(lasted)));
        }
        let record = self.add(DEGRADED, code, message);
        record.seconds = Some(lasted.as_secs_f64());
        record
    }

    fn add(&mut self, kind: &str, code: &str, message: String) -> &mut Record {
        let at = self.clock.wall_at(self.now);
        self.records.push(Record::health(kind, at, code, message));
        let last = self.records.len() - 1;
        &mut self.records[last]
    }
}
