//! The queue for the writer: events and changes of the stream, in order and bounded.
//!
//! [`Backlog`] bounds the events, separately for each stream, because the subscribe of its own
//! stream decides whether an event is plausible (invariant 6). Changes are bounded here: of several
//! failed dials in a row only the last is kept, and of a stream that both began and ended in the
//! queue only the events are kept. Pure; no clock.

use std::collections::VecDeque;

use crate::queues::backlog::Backlog;
use crate::types::event::{Arrival, StreamChange, StreamObservation};
use crate::types::time::Instant;

/// The bounds of a [`StreamQueue`].
#[derive(Clone, Copy, Debug)]
pub struct QueueBounds {
    /// Events of one stream that are not joined.
    pub plain: usize,
    /// Subjects of one stream.
    pub ids: usize,
    /// Changes; exceeded by at most two.
    pub changes: usize,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self {
            plain: 1024,
            ids: 100_000,
            changes: 8,
        }
    }
}

/// Whether an event was lost that no later list is certain to cover. If so, the stream must be ended
/// and subscribed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Kept {
    /// No.
    All,
    /// Yes.
    NotAll,
}

/// How many events had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Events that have arrived.
    pub arrived: u64,
    /// Events that were taken from the queue.
    pub taken: u64,
    /// Events that were dropped.
    pub lost: u64,
    /// Events that wait.
    pub held: u64,
}

impl QueueCounts {
    /// Events that were joined with another one: they were neither taken nor lost, and do not wait.
    pub const fn joined(&self) -> u64 {
        self.arrived
            .saturating_sub(self.taken + self.lost + self.held)
    }
}

/// The queue of observations between the reader of the event stream and the writer.
#[derive(Clone, Debug)]
pub struct StreamQueue {
    bounds: QueueBounds,
    /// Events that arrived before the oldest queued change.
    events: Backlog,
    /// The queued changes, each with the events that arrived after it.
    changes: VecDeque<(StreamChange, Backlog)>,
    counts: QueueCounts,
}

impl StreamQueue {
    /// An empty queue.
    pub fn new(bounds: QueueBounds) -> Self {
        let events = Backlog::new(bounds.plain, bounds.ids);
        Self {
            bounds,
            events,
            changes: VecDeque::new(),
            counts: QueueCounts::default(),
        }
    }

    /// Drops everything in the queue.
    pub fn clear(&mut self) {
        let mut counts = self.counts;
        counts.lost += self.events_held() as u64;
        *self = Self {
            counts,
            ..Self::new(self.bounds)
        };
    }

    /// An event arrived.
    pub fn event(&mut self, arrival: Arrival) -> Kept {
        self.counts.arrived += 1;
        let events = self
            .changes
            .back_mut()
            .map_or(&mut self.events, |(_, events)| events);
        events.push(arrival);
        let lost = events.take_lost();
        self.counts.lost += lost;
        // If the subscribe is still queued, the writer has not begun the list that follows it, and
        // that list will show what was lost.
        let known_to_the_writer = self.changes.is_empty();
        if lost > 0 && known_to_the_writer {
            Kept::NotAll
        } else {
            Kept::All
        }
    }

    /// The stream began or ended.
    pub fn change(&mut self, change: StreamChange) {
        let ends = self
            .changes
            .iter()
            .rev()
            .take_while(|(c, _)| is_end(c))
            .count();
        if is_end(&change) && ends >= 2 {
            // The first end is that of a stream; the others are failed dials.
            self.changes.pop_back();
        }
        let subscribed = !is_end(&change);
        self.changes
            .push_back((change, Backlog::new(self.bounds.plain, self.bounds.ids)));
        if subscribed && self.changes.len() > self.bounds.changes {
            self.dissolve_the_oldest_stream();
        }
    }

    /// The next observation for the writer.
    pub fn pop(&mut self) -> Option<StreamObservation> {
        if let Some(arrival) = self.events.pop() {
            self.counts.taken += 1;
            return Some(StreamObservation::Event(arrival));
        }
        let (change, events) = self.changes.pop_front()?;
        self.events = events;
        Some(StreamObservation::Change(change))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.changes.is_empty()
    }

    /// The number of observations that wait.
    pub fn len(&self) -> usize {
        self.events_held() + self.changes.len()
    }

    /// Since when the next observation waits.
    pub fn oldest(&self) -> Option<Instant> {
        let change = || self.changes.front().map(|(change, _)| change.at());
        self.events.oldest().or_else(change)
    }

    /// How many events had which outcome so far.
    pub fn counts(&self) -> QueueCounts {
        QueueCounts {
            held: self.events_held() as u64,
            ..self.counts
        }
    }

    fn events_held(&self) -> usize {
        self.events.len()
            + self
                .changes
                .iter()
                .map(|(_, events)| events.len())
                .sum::<usize>()
    }

    /// Drops the changes of the oldest stream that both began and ended in the queue, and moves its
    /// events to the next stream. There their timestamps are before the subscribe, so no unknown id
    /// is recorded from them, which is safe.
    fn dissolve_the_oldest_stream(&mut self) {
        let mut begins = (0..self.changes.len()).filter(|&n| !is_end(&self.changes[n].0));
        let (Some(oldest), Some(next)) = (begins.next(), begins.next()) else {
            return;
        };
        let mut events = Backlog::new(self.bounds.plain, self.bounds.ids);
        for n in [oldest, next] {
            while let Some(arrival) = self.changes[n].1.pop() {
                events.push(arrival);
            }
        }
        self.counts.lost += events.take_lost();
        self.changes[next].1 = events;
        self.changes.drain(oldest..next);
    }
}

const fn is_end(change: &StreamChange) -> bool {
    matches!(change, StreamChange::Ended { .. })
}

#[cfg(test)]
mod tests {
    use crate::types::event::{EventType, RuntimeEvent, StreamEnd};
    use crate::types::time::WallTime;

    use super::*;

    const SMALL: QueueBounds = QueueBounds {
        plain: 2,
        ids: 3,
        changes: 8,
    };

    fn arrival(at: u64, id: &str, event: EventType) -> Arrival {
        Arrival {
            event: RuntimeEvent::new(id, event),
            arrived: Instant::from_nanos(at),
            wall: WallTime::from_nanos(0),
        }
    }

    fn subscribed(at: u64) -> StreamChange {
        StreamChange::Subscribed {
            at: Instant::from_nanos(at),
            wall: WallTime::from_nanos(0),
        }
    }

    fn ended(at: u64) -> StreamChange {
        let at = Instant::from_nanos(at);
        StreamChange::Ended {
            at,
            why: StreamEnd::Ended(None),
            retry_at: at,
        }
    }

    /// Containers stop, each named by one letter.
    fn stopped(queue: &mut StreamQueue, at: u64, ids: &str) -> Vec<Kept> {
        let mut event = |id: char| queue.event(arrival(at, &id.to_string(), EventType::Stopped));
        ids.chars().map(&mut event).collect()
    }

    /// What the writer would get: `+n` and `-n` for changes, the subject of each event.
    fn drain(queue: &mut StreamQueue) -> Vec<String> {
        let told = |observation| match observation {
            StreamObservation::Change(StreamChange::Subscribed { at, .. }) => {
                format!("+{}", at.as_nanos())
            }
            StreamObservation::Change(StreamChange::Ended { at, .. }) => {
                format!("-{}", at.as_nanos())
            }
            StreamObservation::Event(arrival) => arrival.event.id.to_string(),
        };
        std::iter::from_fn(|| queue.pop().map(told)).collect()
    }

    #[test]
    fn changes_and_events_keep_their_order_and_streams_their_own_events() {
        let mut queue = StreamQueue::new(SMALL);
        queue.change(subscribed(1));
        // Joined within a stream, never across two.
        for at in [2, 3, 4, 5] {
            assert_eq!(queue.event(arrival(at, "a", EventType::Started)), Kept::All);
        }
        queue.change(ended(6));
        queue.change(subscribed(7));
        assert_eq!(queue.event(arrival(8, "a", EventType::Started)), Kept::All);
        assert_eq!(
            (queue.len(), queue.oldest()),
            (7, Some(Instant::from_nanos(1)))
        );
        assert_eq!(drain(&mut queue), ["+1", "a", "a", "a", "-6", "+7", "a"]);
        assert_eq!((queue.counts().taken, queue.counts().arrived), (4, 5));
    }

    #[test]
    fn every_event_is_counted_with_one_outcome() {
        let mut queue = StreamQueue::new(SMALL);
        assert!(queue.is_empty());
        assert_eq!(queue.counts().joined(), 0);
        // Two plain events and three ids fit. The second "5" is joined with the first.
        assert_eq!(stopped(&mut queue, 1, "123455"), [Kept::All; 6]);
        assert_eq!(queue.counts().joined(), 1);
        assert_eq!(stopped(&mut queue, 7, "7"), [Kept::NotAll]);
        let full = queue.counts();
        assert_eq!((full.arrived, full.held, full.lost), (7, 5, 1));
        assert!(queue.pop().is_some() && queue.pop().is_some());
        let counts = queue.counts();
        assert_eq!((counts.taken, counts.held, counts.joined()), (2, 3, 1));
        assert!(!queue.is_empty());
        queue.clear();
        let counts = queue.counts();
        assert_eq!((counts.taken, counts.held, counts.lost), (2, 0, 4));
        assert_eq!((counts.arrived, counts.joined()), (7, 1));
        assert!(queue.is_empty());
    }

    #[test]
    fn events_that_the_next_stream_has_no_room_for_are_lost() {
        let bounds = QueueBounds {
            changes: 4,
            ..SMALL
        };
        let mut queue = StreamQueue::new(bounds);
        for (stream, ids) in [(10, "abcde"), (20, "fghij")] {
            queue.change(subscribed(stream));
            assert_eq!(stopped(&mut queue, stream + 1, ids), [Kept::All; 5]);
            queue.change(ended(stream + 2));
        }
        assert_eq!(queue.counts().lost, 0);
        queue.change(subscribed(30));
        assert_eq!((queue.counts().arrived, queue.counts().lost), (10, 5));
        assert_eq!(drain(&mut queue)[0], "+20");
    }

    #[test]
    fn only_the_last_of_several_failed_dials_is_kept() {
        let mut queue = StreamQueue::new(SMALL);
        (1..=1000).for_each(|at| queue.change(ended(at)));
        assert_eq!(drain(&mut queue), ["-1", "-1000"]);
    }

    #[test]
    fn stream_that_ended_in_the_queue_leaves_only_its_events() {
        let mut queue = StreamQueue::new(SMALL);
        assert_eq!(
            queue.event(arrival(0, "first", EventType::Created)),
            Kept::All
        );
        queue.change(ended(1));
        for stream in 1..=1000 {
            queue.change(subscribed(10 * stream));
            let id = if stream % 2 == 0 { "even" } else { "odd" };
            assert_eq!(
                queue.event(arrival(10 * stream + 1, id, EventType::Stopped)),
                Kept::All
            );
            queue.change(ended(10 * stream + 2));
            queue.change(ended(10 * stream + 3));
            assert!(queue.changes.len() <= SMALL.changes + 2);
        }
        let told = drain(&mut queue);
        assert_eq!(told[..3], ["first", "-1", "+9980"]);
        assert_eq!(told.iter().filter(|t| *t == "even").count(), 2 + 1);
        assert_eq!(told.last().map(String::as_str), Some("-10003"));
        assert_eq!(queue.counts().lost, 0);
    }

    #[test]
    fn loss_is_reported_unless_a_subscribe_is_queued() {
        let mut queue = StreamQueue::new(SMALL);
        queue.change(subscribed(1));
        let fill = |queue: &mut StreamQueue, from: u64| -> Vec<Kept> {
            (from..from + 6)
                .map(|at| queue.event(arrival(at, &at.to_string(), EventType::Stopped)))
                .collect()
        };
        assert_eq!(fill(&mut queue, 10), [Kept::All; 6]);
        assert_eq!(queue.counts().lost, 1);
        assert!(matches!(queue.pop(), Some(StreamObservation::Change(_))));
        assert_eq!(fill(&mut queue, 20), [Kept::NotAll; 6]);
        assert_eq!(queue.counts().lost, 7);
        assert_eq!(drain(&mut queue), ["10", "11", "12", "13", "14"]);
    }
}
