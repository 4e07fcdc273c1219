//! The recent records, bounded in number and length: for views, for `/debug/events` and for `/debug/live`.

use super::*;

/// The maximum number of records. With texts of the maximum length they need 6 MB, with usual ones 0.7 MB.
const MOST_RECORDS: usize = 2_000;
/// The maximum number of bytes of records in one response: there may be many clients.
const PAGE_BYTES: usize = 64 << 10;
/// The rate of events is an average over this number of seconds.
const RATE_SECONDS: u64 = 10;

#[derive(Clone, Debug)]
pub(crate) struct Feed {
    /// The start of the feed. It identifies the agent's process: each process numbers its records from 1.
    pub(super) began_at: WallTime,
    records: VecDeque<(WallTime, Record)>,
    next: u64,
    complete_since: WallTime,
    began: Instant,
    /// For each of the last seconds, the number of its events. A second without events has no entry.
    rates: BTreeMap<u64, u64>,
}

/// Records as JSON, one object per line.
pub(crate) struct Lines {
    pub(crate) head: Page,
    pub(crate) lines: Vec<u8>,
}

impl Lines {
    /// The body of `/debug/events`: `head` as one line of JSON, then one line for each record.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        [json::line(&self.head), self.lines].concat()
    }
}

impl Feed {
    pub(super) fn new(began: Instant, at: WallTime) -> Self {
        Self {
            began_at: at,
            records: VecDeque::new(),
            next: 1,
            complete_since: at,
            began,
            rates: BTreeMap::new(),
        }
    }

    /// Adds a record, and numbers it. `Synced` gets no number, so `/debug/events` leaves it out.
    pub(super) fn add(&mut self, now: Instant, at: WallTime, record: &Record) {
        if record.is_event() {
            *self.rates.entry(second(now)).or_default() += 1;
            if self.rates.len() as u64 > RATE_SECONDS + 1 {
                self.rates.pop_first();
            }
        }
        let mut record = shortened(record);
        if record.r#type != SYNCED {
            record.seq = Some(self.next);
            self.next += 1;
        }
        self.records.push_back((at, record));
        if self.records.len() > MOST_RECORDS
            && let Some((oldest, _)) = self.records.pop_front()
        {
            self.complete_since = oldest;
        }
    }

    /// The records with a number above `after` that are not older than `since`, as many as one response may hold.
    pub(crate) fn lines(&self, now: WallTime, since: Option<WallTime>, after: u64) -> Lines {
        let records = self.records.iter();
        let numbered = records.filter_map(|(at, record)| Some((*at, record.seq?, record)));
        let first = numbered.clone().next();
        let first = first.map_or(self.next, |(_, number, _)| number);
        let (mut lines, mut last) = (Vec::new(), after.max(first - 1));
        for (at, number, record) in numbered {
            if number > after && since.is_none_or(|since| at >= since) {
                let line = json::line(record);
                if !lines.is_empty() && lines.len() + line.len() > PAGE_BYTES {
                    break;
                }
                lines.extend(line);
            }
            last = last.max(number);
        }
        let head = Page {
            time: utc(now),
            agent: utc(self.began_at).to_string(),
            complete_since: utc(self.complete_since),
            missed: match after {
                0 => 0,
                after => (first - 1).saturating_sub(after),
            },
            last,
            more: last < self.next - 1,
        };
        Lines { head, lines }
    }

    pub(super) fn page(&self, now: Instant, query: &Query) -> FeedPage {
        FeedPage {
            records: self.newest(query.records, |record| query.matches_record(record)),
            events_per_second: self.events_per_second(now),
            complete_since: utc(self.complete_since).to_string(),
        }
    }

    /// The mean over the last [`RATE_SECONDS`], or since the start. Leaves out the present second: it is not over yet.
    fn events_per_second(&self, now: Instant) -> f64 {
        let now = second(now);
        let lasted = now.saturating_sub(second(self.began));
        let lasted = lasted.clamp(1, RATE_SECONDS);
        let counts = self.rates.range(now.saturating_sub(RATE_SECONDS)..now);
        counts.map(|(_, count)| count).sum::<u64>() as f64 / lasted as f64
    }

    pub(super) fn history(&self, uid: &str, most: usize) -> Vec<Record> {
        let is_of = |record: &Record| record.pod.as_ref().is_some_and(|pod| pod.uid == uid);
        self.newest(most, is_of)
    }

    fn newest(&self, most: usize, matches: impl Fn(&Record) -> bool) -> Vec<Record> {
        let records = self.records.iter().map(|(_, record)| record);
        let newest = records.rev().filter(|record| matches(record));
        let mut records: Vec<Record> = newest.take(most).cloned().collect();
        records.reverse();
        records
    }
}

fn second(at: Instant) -> u64 {
    at.since(Instant::ORIGIN).as_secs()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{at, died, wall};

    fn event(n: u64, pod: &str) -> Record {
        died(wall(n), "shop", pod, "app", 3)
    }

    #[test]
    fn page_has_the_newest_records_that_match() {
        let mut feed = Feed::new(at(0), wall(0));
        for n in 1..=10 {
            let pod = if n % 2 == 0 { "even" } else { "odd" };
            feed.add(at(n), wall(n), &event(n, pod));
        }
        feed.add(at(11), wall(11), &Record::new("Degraded", wall(11)));
        let query = Query {
            search: "EVEN".to_owned(),
            records: 3,
            ..Query::default()
        };
        let numbers = feed.page(at(11), &query).records.into_iter().map(|r| r.seq);
        assert!(numbers.eq([8, 10, 11].map(Some)), "node records match");
        let history = ["uid-odd", "uid-none"].map(|uid| feed.history(uid, 2).len());
        assert_eq!(history, [2, 0]);
    }

    /// Parses the lines: returns the head, which is the first line, and the numbers of the records after it.
    fn read(lines: Lines) -> (Page, Vec<u64>) {
        let text = String::from_utf8(lines.into_bytes()).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let number = |line: &str| serde_json::from_str::<Record>(line).unwrap().seq.unwrap();
        let numbers = rest.lines().map(number).collect();
        (serde_json::from_str(head).unwrap(), numbers)
    }

    #[test]
    fn lines_contain_only_records_after_the_given_number() {
        let mut feed = Feed::new(at(0), wall(0));
        let (head, _) = read(feed.lines(wall(9), None, 0));
        assert_eq!((head.last, head.more), (0, false));
        feed.add(at(0), wall(0), &Record::new(SYNCED, wall(0)));
        for n in 1..=5 {
            feed.add(at(n), wall(n), &event(n, "web"));
        }
        for (since, after, numbers) in [
            (None, 0, &[1, 2, 3, 4, 5][..]),
            (Some(wall(4)), 0, &[4, 5]),
            (None, 5, &[]),
        ] {
            let (head, read) = read(feed.lines(wall(9), since, after));
            assert_eq!(read, numbers);
            assert_eq!((head.last, head.more, head.missed), (5, false, 0));
            assert_eq!(head.complete_since.to_string(), head.agent);
        }
    }

    #[test]
    fn page_size_is_bounded_and_head_counts_dropped_records() {
        let mut feed = Feed::new(at(0), wall(0));
        let mut long = event(1, "web");
        long.message = Some("x".repeat(1 << 16));
        for n in 1..=2_100 {
            feed.add(at(n), wall(n), &long);
        }
        let (mut after, mut numbers, mut more) = (1, Vec::new(), true);
        while more {
            let page = feed.lines(wall(9_999), None, after);
            assert!(page.lines.len() <= PAGE_BYTES, "{}", page.lines.len());
            let (head, read) = read(page);
            assert_eq!(head.missed, if after == 1 { 99 } else { 0 });
            (after, more) = (head.last, head.more);
            numbers.extend(read);
        }
        assert_eq!(numbers, Vec::from_iter(101..=2_100));
        let message = feed.records[0].1.message.as_deref();
        assert_eq!(message.map(|m| m.chars().count()), Some(1024));
        assert_eq!(feed.complete_since, wall(100));
    }
}
