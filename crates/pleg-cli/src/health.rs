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
/// What begins later or lasts shorter is not worth a time.
const SECOND: Duration = Duration::from_secs(1);

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
        let mut changes = Changes {
            clock,
            now: clock.now(),
            records: Vec::new(),
        };
        self.readiness(&mut changes, &picture.ready);
        self.reasons(&mut changes, &picture.findings);
        self.pods(&mut changes, problems);
        changes.records
    }

    fn readiness(&mut self, changes: &mut Changes, ready: &Result<(), NotReady>) {
        let known = self.not_ready.is_some();
        let last = self.not_ready.flatten();
        let begins = |why: &NotReady| (why.as_str(), changes.now);
        let present = ready.as_ref().err().map(|why| last.unwrap_or(begins(why)));
        self.not_ready = Some(present);
        match (last, ready) {
            (None, Err(why)) if known => {
                changes.add(NOT_READY, why.as_str(), why.to_string());
            }
            // Each start takes some milliseconds until the first list.
            (Some((code, since)), Ok(()))
                if code != "never_listed" || changes.lasted(since) >= SECOND =>
            {
                changes.end(READY, code, since, "ready after");
            }
            _ => {}
        }
    }

    /// Pods are named one by one instead.
    fn reasons(&mut self, changes: &mut Changes, findings: &[Finding]) {
        self.degraded.retain(|code, since| {
            let lasts = findings.iter().any(|finding| finding.code == *code);
            if !lasts {
                let what = match *code {
                    "runtime_silent" => "the runtime answers again; no answer for",
                    "stream_down" => "subscribed again; no event stream for",
                    _ => "recovered after",
                };
                changes.end(RECOVERED, code, *since, what);
            }
            lasts
        });
        for finding in findings {
            let code = finding.code;
            let is_shown = finding.severity > Severity::Info && !finding.not_ready;
            let is_known = self.degraded.contains_key(code);
            if is_shown && !is_known && !["pods_hung", "pods_failing"].contains(&code) {
                let since = changes.now.before(finding.lasted());
                self.degraded.insert(code, since);
                changes.begin(code, finding.summary.clone(), since);
            }
        }
    }

    fn pods(&mut self, changes: &mut Changes, problems: &[PodProblem]) {
        self.pods.retain(|uid, problem| {
            let lasts = problems.iter().any(|p| p.pod.uid == *uid);
            if !lasts {
                let what = format!("{} succeeds again after", problem.operation);
                let record = changes.end(RECOVERED, code_of(problem), problem.since, &what);
                record.of(problem);
            }
            lasts
        });
        for problem in problems {
            if !self.pods.contains_key(&problem.pod.uid) {
                let message = problem.to_string();
                changes
                    .begin(code_of(problem), message, problem.since)
                    .of(problem);
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
        if lasted >= SECOND {
            message.push_str(&format!(", for {}", duration(lasted)));
        }
        let record = self.add(DEGRADED, code, message);
        record.seconds = Some(lasted.as_secs_f64());
        record
    }

    fn end(&mut self, kind: &str, code: &str, since: Instant, what: &str) -> &mut Record {
        let lasted = self.lasted(since);
        let record = self.add(kind, code, format!("{what} {}", duration(lasted)));
        record.seconds = Some(lasted.as_secs_f64());
        record
    }

    fn add(&mut self, kind: &str, code: &str, message: String) -> &mut Record {
        let at = self.clock.wall_at(self.now);
        self.records
            .push_mut(Record::health(kind, at, code, message))
    }
}
