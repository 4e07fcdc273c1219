//! Changes of health as records: each trouble gets a record when it begins, and one with its duration when it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::core::Instant;
use pleg::runtime::clock::Clock;

use crate::json::utc;
use crate::picture::Picture;
use crate::picture::finding::Severity::{self, Critical};
use crate::record::{DEGRADED, NOT_READY, READY, RECOVERED, Record};
use crate::text::duration;

/// The period of health checks while nothing changes: some troubles begin because time passes, such as a hung call.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// If a trouble began less than this ago, its message has no duration. A shorter wait for the first list has no record.
const SECOND: Duration = Duration::from_secs(1);
/// The codes of the findings about pods whose calls fail, and about pods whose calls hang.
const OF_PODS: [&str; 2] = ["pods_failing", "pods_hung"];

/// The troubles at the last check. Keys: [`NOT_READY`], a finding's code, `pod UID`. `None` before the first check.
#[derive(Debug, Default)]
pub(crate) struct HealthChanges(Option<BTreeMap<String, Trouble>>);

#[derive(Clone, Debug, derive_more::Constructor)]
struct Trouble {
    since: Instant,
    severity: Severity,
    /// The record that says that the trouble has begun, without its duration.
    record: Record,
    /// The message of the record that says that the trouble is over. The duration is appended to the message.
    end: String,
}

impl HealthChanges {
    pub(crate) fn update(&mut self, picture: &Picture, clock: Clock) -> Vec<Record> {
        let (now, is_first) = (picture.now, self.0.is_none());
        let at = clock.wall_at(now);
        let since = |seconds| now.before(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let mut last = self.0.take().unwrap_or_default();
        let mut present: BTreeMap<String, Trouble> = BTreeMap::new();
        let mut add = |key: &str, since, severity, record, end: &str| {
            let trouble = Trouble::new(since, severity, record, end.to_owned());
            present.insert(key.to_owned(), trouble);
        };
        if let Err(why) = &picture.ready {
            let record = Record::health(NOT_READY, at, why.as_str(), why.to_string());
            add(NOT_READY, now, Critical, record, "ready after");
        }
        for finding in &picture.findings {
            let is_shown = finding.severity > Severity::Info || last.contains_key(finding.code);
            // Makes no record of the findings about pods: below, each pod whose calls hang or fail gets its own record.
            if is_shown && !finding.not_ready && !OF_PODS.contains(&finding.code) {
                let end = match finding.code {
                    "runtime_silent" => "the runtime answers again; no answer for",
                    "stream_down" => "subscribed again; no event stream for",
                    _ => "recovered after",
                };
                let record = Record::health(DEGRADED, at, finding.code, finding.summary.clone());
                let since = since(finding.seconds.unwrap_or_default());
                add(finding.code, since, finding.severity, record, end);
            }
        }
        for problem in &picture.problems {
            let code = OF_PODS[usize::from(problem.hangs())];
            let mut record = Record::health(DEGRADED, at, code, problem.text.clone());
            record.pod = Some(problem.of.clone());
            record.id = Some(problem.id.clone()).filter(|id| !id.is_empty());
            let key = format!("pod {}", problem.pod);
            let end = format!("{} succeeds again after", problem.operation);
            add(&key, since(problem.seconds), Critical, record, &end);
        }
        let mut begun = Vec::new();
        for (key, trouble) in &mut present {
            match last.remove(key) {
                Some(known) if known.severity >= trouble.severity => {
                    *trouble = known;
                    continue;
                }
                // A trouble that becomes worse is recorded again.
                Some(known) => trouble.since = known.since,
                None if is_first && key == NOT_READY => continue,
                None => {}
            }
            let (mut record, lasted) = (trouble.record.clone(), now.since(trouble.since));
            record.seconds = (key != NOT_READY).then_some(lasted.as_secs_f64());
            if lasted >= SECOND {
                let message = record.message.get_or_insert_default();
                message.push_str(&format!(", for {}", duration(lasted)));
            }
            begun.push(record);
        }
        let ended = last.into_iter().filter_map(|(key, trouble)| {
            let (lasted, mut record) = (now.since(trouble.since), trouble.record);
            let is_first_list = record.code.as_deref() == Some("never_listed");
            let kind = if key == NOT_READY { READY } else { RECOVERED };
            (record.r#type, record.time) = (kind.to_owned(), utc(at).to_string());
            record.message = Some(format!("{} {}", trouble.end, duration(lasted)));
            record.seconds = Some(lasted.as_secs_f64());
            (!is_first_list || lasted >= SECOND).then_some(record)
        });
        let records = ended.chain(begun).collect();
        self.0 = Some(present);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::finding::Finding;
    use crate::view::tests::{Sample, at};

    #[test]
    fn finding_that_becomes_worse_is_recorded_again() {
        use Severity::Warning;
        let mut changes = HealthChanges::default();
        let mut picture = Sample::new().picture();
        let mut recorded = Vec::new();
        for (n, severity) in (100..).zip([1, 2, 1, 2, 0]) {
            let severity = [None, Some(Warning), Some(Critical)][severity];
            let finding = severity.map(|s| Finding::new("disk_full", "", "").severity(s));
            (picture.now, picture.findings) = (at(n), Vec::from_iter(finding));
            let records = changes.update(&picture, Clock::start()).into_iter();
            recorded.extend(records.map(|r| format!("{n} {} {:?}", r.r#type, r.seconds)));
        }
        let expected = "100 Degraded Some(0.0), 101 Degraded Some(1.0), 104 Recovered Some(4.0)";
        assert_eq!(recorded.join(", "), expected);
    }
}
