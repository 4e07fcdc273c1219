//! Changes of health as records: the beginning and the end of each trouble, with its duration.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use pleg::core::{Instant, PodUid};
use pleg::runtime::clock::Clock;
use pleg::{PodProblem, PodProblemKind};

use crate::picture::Picture;
use crate::picture::finding::Severity;
use crate::record::{DEGRADED, NOT_READY, READY, RECOVERED, Record};
use crate::text::duration;

/// The period of checks without a change: some reasons begin as time passes.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// A shorter trouble gets no duration, and is no record if it is the time until the first list.
const SECOND: Duration = Duration::from_secs(1);

/// The troubles at the last check, by [`NOT_READY`], the code of a finding, or the uid of a pod. `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct HealthChanges(Option<BTreeMap<Key, Trouble>>);

type Key = (&'static str, Option<PodUid>);

#[derive(Clone, Debug)]
struct Trouble {
    code: &'static str,
    since: Instant,
    begins: String,
    /// The start of the message at the end; the duration follows.
    ends: String,
    problem: Option<PodProblem>,
}

impl HealthChanges {
    pub(crate) fn update(&mut self, picture: &Picture, clock: Clock) -> Vec<Record> {
        let (now, is_first) = (clock.now(), self.0.is_none());
        let last = self.0.take().unwrap_or_default();
        let mut present = BTreeMap::new();
        if let Err(why) = &picture.ready {
            let trouble = Trouble::new(why.as_str(), now, why, "ready after");
            present.insert((NOT_READY, None), trouble);
        }
        for finding in &picture.findings {
            let key = (finding.code, None);
            let is_shown = finding.severity > Severity::Info || last.contains_key(&key);
            // Each of these pods gets a record of its own.
            let is_of_pods = ["pods_hung", "pods_failing"].contains(&finding.code);
            if is_shown && !finding.not_ready && !is_of_pods {
                let lasted = Duration::try_from_secs_f64(finding.seconds.unwrap_or_default());
                let since = now.before(lasted.unwrap_or_default());
                let ends = match finding.code {
                    "runtime_silent" => "the runtime answers again; no answer for",
                    "stream_down" => "subscribed again; no event stream for",
                    _ => "recovered after",
                };
                let trouble = Trouble::new(finding.code, since, &finding.summary, ends);
                present.insert(key, trouble);
            }
        }
        for problem in &*picture.problems {
            let code = match problem.kind {
                PodProblemKind::Hung => "pods_hung",
                _ => "pods_failing",
            };
            let ends = format!("{} succeeds again after", problem.operation);
            let mut trouble = Trouble::new(code, problem.since, problem, &ends);
            trouble.problem = Some(problem.clone());
            present.insert(("pod", Some(problem.pod.uid.clone())), trouble);
        }
        let kinds = |(what, _): &Key| match *what {
            NOT_READY => (NOT_READY, READY),
            _ => (DEGRADED, RECOVERED),
        };
        let record = |kind: &str, trouble: &Trouble, message: String| {
            let mut record = Record::health(kind, clock.wall_at(now), trouble.code, message);
            let lasted = now.since(trouble.since).as_secs_f64();
            record.seconds = Some(lasted).filter(|_| kind != NOT_READY);
            if let Some(problem) = &trouble.problem {
                record.pod = Some((&problem.pod).into());
                record.id = problem.id.as_ref().map(ToString::to_string);
            }
            record
        };
        let mut records = Vec::new();
        for (key, trouble) in &last {
            let lasted = now.since(trouble.since);
            if let Some(lasting) = present.get_mut(key) {
                lasting.clone_from(trouble);
            } else if trouble.code != "never_listed" || lasted >= SECOND {
                let message = format!("{} {}", trouble.ends, duration(lasted));
                records.push(record(kinds(key).1, trouble, message));
            }
        }
        for (key, trouble) in &present {
            let (kind, lasted) = (kinds(key).0, now.since(trouble.since));
            if last.contains_key(key) || is_first && kind == NOT_READY {
                continue;
            }
            let mut message = trouble.begins.clone();
            if lasted >= SECOND {
                message.push_str(&format!(", for {}", duration(lasted)));
            }
            records.push(record(kind, trouble, message));
        }
        self.0 = Some(present);
        records
    }
}

impl Trouble {
    fn new(code: &'static str, since: Instant, begins: &dyn Display, ends: &str) -> Self {
        Self {
            code,
            since,
            begins: begins.to_string(),
            ends: ends.to_owned(),
            problem: None,
        }
    }
}
