//! Changes of health, as records: what begins and what ends, with its duration.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::core::{Instant, NotReady, PodUid};
use pleg::runtime::clock::Clock;
use pleg::{PodProblem, PodProblemKind};

use crate::picture::Picture;
use crate::picture::finding::{Finding, Severity};
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
    pub(crate) fn update(
        &mut self,
        picture: &Picture,
        problems: &[PodProblem],
        clock: Clock,
    ) -> Vec<Record> {
        let now = clock.now();
        let mut changes = Changes {
            clock,
            now,
            records: Vec::new(),
        };
        self.readiness(&mut changes, picture.ready.clone());
        self.reasons(&mut changes, &picture.findings);
        self.pods(&mut changes, problems);
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
            // Each start takes some milliseconds until the first list.
            (Some((code, since)), None, _)
                if code != "never_listed" || changes.lasted(since) >= Duration::from_secs(1) =>
            {
                let lasted = changes.lasted(since);
                let message = format!("ready after {}", duration(lasted));
                changes.add(READY, code, message).seconds = Some(lasted.as_secs_f64());
            }
            _ => {}
        }
        self.not_ready = Some(present);
    }

    /// Pods are named one by one instead.
    fn reasons(&mut self, changes: &mut Changes, findings: &[Finding]) {
        let of_node = |finding: &&Finding| {
            let is_shown = finding.severity > Severity::Info && !finding.not_ready;
            is_shown && !["pods_hung", "pods_failing"].contains(&finding.code)
        };
        self.degraded.retain(|code, since| {
            let lasts = findings.iter().any(|finding| finding.code == *code);
            if !lasts {
                let lasted = changes.lasted(*since);
                let message = ended(code, lasted);
                changes.add(RECOVERED, code, message).seconds = Some(lasted.as_secs_f64());
            }
            lasts
        });
        for finding in findings.iter().filter(of_node) {
            if !self.degraded.contains_key(finding.code) {
                let since = changes.now.before(finding.lasted());
                self.degraded.insert(finding.code, since);
                changes.begin(finding.code, finding.summary.clone(), since);
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
