//! The recent lifecycle events and changes of health, for `/debug/events`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pleg::core::WallTime;

use crate::json;
use crate::record::{Page, Record, SYNCED};

/// The most bytes of records that are kept.
const MOST_BYTES: usize = 512 << 10;
/// The most bytes of one response: there may be many clients.
const PAGE_BYTES: usize = 64 << 10;

/// The recent records, oldest first.
#[derive(Clone, Debug)]
pub(super) struct RecentEvents(Arc<Mutex<Ring>>);

#[derive(Debug)]
struct Ring {
    /// When this agent started, which tells agents apart.
    agent: WallTime,
    records: VecDeque<Kept>,
    bytes: usize,
    /// The number of the next record.
    next: u64,
    /// Everything since then is kept.
    complete_since: WallTime,
}

/// A record as JSON.
#[derive(Debug)]
struct Kept {
    at: WallTime,
    line: Box<[u8]>,
}

impl RecentEvents {
    pub(super) fn new(now: WallTime) -> Self {
        Self(Arc::new(Mutex::new(Ring {
            agent: now,
            records: VecDeque::new(),
            bytes: 0,
            next: 1,
            complete_since: now,
        })))
    }

    /// Adds a record. What existed at the start is not recorded: it is no event.
    pub(super) fn record(&self, at: WallTime, record: &Record) {
        if record.r#type != SYNCED {
            self.add(at, record.clone());
        }
    }

    fn add(&self, at: WallTime, mut record: Record) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.seq = Some(ring.next);
        ring.next += 1;
        let mut line = Vec::new();
        // Writing to a vector does not fail.
        let _ = json::line(&mut line, &record);
        ring.bytes += line.len();
        let line = line.into();
        ring.records.push_back(Kept { at, line });
        while ring.bytes > MOST_BYTES
            && let Some(oldest) = ring.records.pop_front()
        {
            ring.bytes -= oldest.line.len();
            ring.complete_since = oldest.at;
        }
    }

    /// When the agent started that numbers the records.
    pub(super) fn agent(&self) -> String {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json::utc(ring.agent).to_string()
    }

    /// The records that were added later than `since` and after number `after`, as far as one response
    /// may hold.
    pub(super) fn page(&self, now: WallTime, since: Option<WallTime>, after: u64) -> Records {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ring.next - ring.records.len() as u64;
        let mut lines = Vec::new();
        let mut last = after.max(first - 1);
        for (number, kept) in (first..).zip(&ring.records) {
            if number <= after || since.is_some_and(|since| kept.at < since) {
                last = last.max(number);
                continue;
            }
            if !lines.is_empty() && lines.len() + kept.line.len() > PAGE_BYTES {
                break;
            }
            lines.extend_from_slice(&kept.line);
            last = number;
        }
        let head = Page {
            time: json::utc(now),
            agent: json::utc(ring.agent).to_string(),
            complete_since: json::utc(ring.complete_since),
            missed: if after > 0 {
                (first - 1).saturating_sub(after)
            } else {
                0
            },
            last,
            more: last + 1 < ring.next,
        };
        Records { head, lines }
    }
}

/// Records of the ring.
pub(super) struct Records {
    /// What they are.
    pub(super) head: Page,
    /// One JSON object per line.
    pub(super) lines: Vec<u8>,
}

impl Records {
    /// One JSON object per line; the first one says what follows.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        let mut page = Vec::new();
        // Writing to a vector does not fail.
        let _ = json::line(&mut page, &self.head);
        page.append(&mut self.lines);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_nanos(1_700_000_000_000_000_000).after(Duration::from_secs(seconds))
    }

    fn record(message: &str) -> Record {
        Record::health("Degraded", at(0), "test", message.to_owned())
    }

    /// The first line and the numbers of the records.
    fn read(page: Records) -> (Page, Vec<u64>) {
        let page = page.into_bytes();
        let text = std::str::from_utf8(&page).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let number = |line: &str| serde_json::from_str::<Record>(line).unwrap().seq.unwrap();
        let numbers = rest.lines().map(number).collect();
        (serde_json::from_str(head).unwrap(), numbers)
    }

    #[test]
    fn page_has_what_is_newer_than_asked() {
        let events = RecentEvents::new(at(0));
        for n in 1..=5 {
            events.add(at(n), record("x"));
        }
        let (head, numbers) = read(events.page(at(9), None, 0));
        assert_eq!(
            (numbers, head.last, head.more),
            (vec![1, 2, 3, 4, 5], 5, false)
        );
        assert_eq!(head.complete_since.to_string(), head.agent);
        let (head, numbers) = read(events.page(at(9), Some(at(4)), 0));
        assert_eq!((numbers, head.last), (vec![4, 5], 5));
        let (head, numbers) = read(events.page(at(9), None, 5));
        assert_eq!((numbers, head.last, head.missed), (vec![], 5, 0));
        let (head, _) = read(RecentEvents::new(at(0)).page(at(9), None, 0));
        assert_eq!((head.last, head.more), (0, false));
    }

    #[test]
    fn kept_records_and_pages_are_bounded() {
        let events = RecentEvents::new(at(0));
        let text = "x".repeat(1_000);
        for n in 1..=2_000 {
            events.add(at(n), record(&text));
        }
        let (mut after, mut read_numbers) = (1, Vec::new());
        loop {
            let page = events.page(at(9_999), None, after);
            assert!(
                page.lines.len() <= PAGE_BYTES + 1_000,
                "{}",
                page.lines.len()
            );
            let (head, numbers) = read(page);
            if after == 1 {
                assert_eq!(Some(&(head.missed + 2)), numbers.first(), "{head:?}");
                assert!(head.complete_since.to_string() > head.agent);
            }
            after = head.last;
            read_numbers.extend(numbers);
            if !head.more {
                break;
            }
        }
        assert_eq!(read_numbers.last(), Some(&2_000));
        let kept = read_numbers.len();
        assert!((400..=520).contains(&kept), "{kept}");
        assert!(read_numbers.is_sorted_by(|a, b| a + 1 == *b));
    }
}
