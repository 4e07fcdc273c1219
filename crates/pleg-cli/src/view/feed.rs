//! The recent records, bounded in number and length.

use std::collections::VecDeque;

use pleg::core::{Instant, WallTime};

use super::{FeedPage, Query, long, name};
use crate::json::utc;
use crate::record::Record;

/// The most records that are kept. With texts as long as they may be, they need 6 MB, and 0.7 MB with usual ones.
const MOST_RECORDS: usize = 2_000;
/// The number of seconds over which the rate is averaged.
const RATE_SECONDS: usize = 10;

/// The recent records, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    records: VecDeque<Record>,
    /// Everything since then is kept.
    complete_since: String,
    began: Instant,
    rate: Rate,
}

impl Feed {
    pub(super) fn new(began: Instant, at: WallTime) -> Self {
        Self {
            records: VecDeque::new(),
            complete_since: utc(at).to_string(),
            began,
            rate: Rate::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, record: &Record) {
        if record.is_event() {
            self.rate.add(now);
        }
        self.records.push_back(shortened(record));
        if self.records.len() > MOST_RECORDS
            && let Some(oldest) = self.records.pop_front()
        {
            self.complete_since = oldest.time;
        }
    }

    /// The newest records that match.
    pub(super) fn page(&self, now: Instant, query: &Query) -> FeedPage {
        FeedPage {
            records: self.newest(query.records, |record| query.matches_record(record)),
            events_per_second: self.rate.per_second(self.began, now),
            complete_since: self.complete_since.clone(),
        }
    }

    /// The newest records of a pod, oldest first.
    pub(super) fn history(&self, uid: &str, most: usize) -> Vec<Record> {
        self.newest(most, |record| {
            record.pod.as_ref().is_some_and(|pod| pod.uid == uid)
        })
    }

    fn newest(&self, most: usize, matches: impl Fn(&Record) -> bool) -> Vec<Record> {
        let newest = self.records.iter().rev().filter(|record| matches(record));
        let mut records: Vec<Record> = newest.take(most).cloned().collect();
        records.reverse();
        records
    }
}

/// The record, with texts that are as long as they may be.
fn shortened(record: &Record) -> Record {
    let mut record = record.clone();
    if let Some(pod) = &mut record.pod {
        for text in [&mut pod.uid, &mut pod.namespace, &mut pod.name] {
            *text = name(text);
        }
    }
    for text in [&mut record.id, &mut record.name].into_iter().flatten() {
        *text = name(text);
    }
    for text in [&mut record.reason, &mut record.message] {
        *text = text.as_deref().and_then(long);
    }
    record
}

/// Counts of the present second and of the last [`RATE_SECONDS`].
#[derive(Clone, Copy, Debug, Default)]
struct Rate([(u64, u64); RATE_SECONDS + 1]);

impl Rate {
    fn add(&mut self, now: Instant) {
        let second = now.since(Instant::ORIGIN).as_secs();
        let slot = &mut self.0[usize::try_from(second).unwrap_or(0) % (RATE_SECONDS + 1)];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += 1;
    }

    /// Without the present second, which is not over, and without the time before `began`.
    fn per_second(&self, began: Instant, now: Instant) -> f64 {
        let second = now.since(Instant::ORIGIN).as_secs();
        let lasted = second.saturating_sub(began.since(Instant::ORIGIN).as_secs());
        let last = second.saturating_sub(RATE_SECONDS as u64)..second;
        let counts = self.0.iter().filter(|(at, _)| last.contains(at));
        counts.map(|(_, count)| count).sum::<u64>() as f64
            / lasted.clamp(1, RATE_SECONDS as u64) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Pod;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> WallTime {
        WallTime::from_nanos(1_700_000_000_000_000_000).after(Duration::from_secs(seconds))
    }

    fn event(n: u64, pod: &str) -> Record {
        Record {
            pod: Some(Pod {
                uid: format!("uid-{pod}"),
                namespace: "shop".to_owned(),
                name: pod.to_owned(),
            }),
            source: Some("stream".to_owned()),
            ..Record::new("ContainerDied", wall(n))
        }
    }

    #[test]
    fn records_are_bounded_in_number_and_length() {
        let mut feed = Feed::new(at(0), wall(0));
        for n in 1..=2_100 {
            let mut record = event(n, "web");
            record.message = Some("x".repeat(1 << 16));
            feed.add(at(n), &record);
        }
        assert_eq!(feed.records.len(), MOST_RECORDS);
        assert_eq!(feed.complete_since, utc(wall(100)).to_string());
        let messages = feed.records.iter().filter_map(|r| r.message.as_deref());
        assert_eq!(messages.map(|m| m.chars().count()).max(), Some(1024));
    }

    #[test]
    fn page_has_the_newest_that_match() {
        let mut feed = Feed::new(at(0), wall(0));
        for n in 1..=10 {
            feed.add(at(n), &event(n, if n % 2 == 0 { "even" } else { "odd" }));
        }
        feed.add(at(11), &Record::new("Degraded", wall(11)));
        let query = Query {
            search: "EVEN".to_owned(),
            records: 3,
            ..Query::default()
        };
        let page = feed.page(at(11), &query);
        let times: Vec<_> = page.records.iter().map(|r| &*r.time).collect();
        let expected = [8, 10, 11].map(|n| utc(wall(n)).to_string());
        assert_eq!(times, expected, "records about the node match");
        assert_eq!(feed.history("uid-odd", 2).len(), 2);
        assert_eq!(feed.history("uid-none", 2).len(), 0);
    }

    #[test]
    fn rate_is_of_the_last_seconds() {
        let mut feed = Feed::new(at(0), wall(0));
        for n in 0..20_000 {
            let now = Instant::from_origin(Duration::from_millis(100_000 + n));
            feed.add(now, &event(n, "web"));
        }
        let rate = |now| feed.page(now, &Query::default()).events_per_second;
        let rates = [at(120), at(125), at(130)].map(rate);
        assert_eq!(rates, [1_000.0, 500.0, 0.0]);
    }
}
