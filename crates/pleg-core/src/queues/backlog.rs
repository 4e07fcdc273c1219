//! The queue between the reader of the event stream and the writer (invariant 8).
//!
//! The reader never waits, so the queue must be bounded. Up to a bound it is an ordinary queue.
//! Beyond that, arrivals are joined per subject and event type. Applying the joined arrivals gives
//! the same result as applying all arrivals: every event type of a subject comes out, in lifecycle
//! order, and so does every (id, state) that some status showed, with its exit details. Only ids
//! beyond a hard limit are lost, those without a STOPPED or DELETED first. Lost arrivals are
//! counted, because the caller must then list.
//!
//! Plain data in, plain data out; no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::state::details::{self, Weight};
use crate::types::event::{Arrival, EventType, RuntimeEvent};
use crate::types::ids::Id;
use crate::types::report::Report;
use crate::types::time::Instant;

/// A bounded queue of arrivals that joins what it cannot hold one by one.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    plain: usize,
    ids: usize,
    /// Arrivals that come out next, unjoined.
    next: VecDeque<Arrival>,
    /// Joined arrivals, which come out after `plain`, ordered by the first arrival of their
    /// subject.
    joined: BTreeMap<u64, Life>,
    place_of: HashMap<Id, u64>,
    /// Places in `joined` without a STOPPED or DELETED.
    expendable: BTreeSet<u64>,
    next_place: u64,
    /// The number of arrivals in `joined`.
    in_joined: usize,
    lost: u64,
}

/// The arrivals of one subject: one per [`Slot`], in the order of the slots. Never empty.
type Life = Vec<Arrival>;

impl Backlog {
    /// An empty backlog. It queues `plain` arrivals before it joins any, and joins those of at most
    /// `ids` subjects before it loses any.
    #[must_use]
    pub(crate) fn new(plain: usize, ids: usize) -> Self {
        Self {
            plain,
            ids,
            next: VecDeque::new(),
            joined: BTreeMap::new(),
            place_of: HashMap::new(),
            expendable: BTreeSet::new(),
            next_place: 0,
            in_joined: 0,
            lost: 0,
        }
    }

    /// Adds an arrival. Arrivals must be added in the order in which they arrived.
    pub(crate) fn push(&mut self, arrival: Arrival) {
        if self.joined.is_empty() && self.next.len() < self.plain {
            self.next.push_back(arrival);
            return;
        }
        let slot = Slot::of(&arrival.event);
        let Some(place) = self.place(&arrival.event.id, slot) else {
            self.lost += 1;
            return;
        };
        if slot.is_terminal() {
            self.expendable.remove(&place);
        }
        let life = self.joined.entry(place).or_default();
        match life.binary_search_by_key(&slot, |a| Slot::of(&a.event)) {
            Ok(at) => self.lost += join(&mut life[at], arrival),
            Err(at) => {
                life.insert(at, arrival);
                self.in_joined += 1;
            }
        }
    }

    /// Removes the next arrival.
    pub(crate) fn pop(&mut self) -> Option<Arrival> {
        // All arrivals of a subject leave `joined` together, so that a subject with many events
        // cannot stay at the front for ever.
        if self.next.is_empty()
            && let Some((place, life)) = self.joined.pop_first()
        {
            self.forget(place, &life);
            self.next.extend(life);
        }
        self.next.pop_front()
    }

    /// The number of arrivals in the backlog.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.next.len() + self.in_joined
    }

    /// Whether the backlog is empty.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the next arrival arrived, that is, since when the writer has let it wait.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let in_joined = || {
            self.joined
                .first_key_value()
                .and_then(|(_, life)| life.first())
        };
        self.next.front().or_else(in_joined).map(|a| a.arrived)
    }

    /// How many arrivals were lost since the last call. If any, the events are incomplete, and only
    /// a list begun later is complete.
    #[must_use]
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The place of that subject, existing or new; `None` if there is no room for it.
    fn place(&mut self, id: &Id, slot: Slot) -> Option<u64> {
        if let Some(&place) = self.place_of.get(id) {
            return Some(place);
        }
        let full = self.joined.len() >= self.ids;
        if full && !(slot.is_terminal() && self.lose_the_oldest_expendable()) {
            return None;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.place_of.insert(id.clone(), place);
        self.expendable.insert(place);
        Some(place)
    }

    fn lose_the_oldest_expendable(&mut self) -> bool {
        let Some(&place) = self.expendable.first() else {
            return false;
        };
        if let Some(life) = self.joined.remove(&place) {
            self.forget(place, &life);
            self.lost += life.len() as u64;
        }
        true
    }

    fn forget(&mut self, place: u64, life: &Life) {
        self.expendable.remove(&place);
        self.in_joined -= life.len();
        if let Some(first) = life.first() {
            self.place_of.remove(&first.event.id);
        }
    }
}

/// The key by which arrivals of one subject are joined, in the order in which they come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// An unknown type: a hint.
    Hint,
    Created,
    Started,
    Stopped,
    /// A DELETED whose own statuses still show its subject may be only a hint (invariant 6). It is not joined with
    /// another DELETED, which would then become a hint.
    DeletedButShown,
    Deleted,
}

impl Slot {
    fn of(event: &RuntimeEvent) -> Self {
        match event.event {
            EventType::Created => Self::Created,
            EventType::Started => Self::Started,
            EventType::Stopped => Self::Stopped,
            EventType::Deleted => {
                let mut shown = event.sandbox.iter().chain(&event.containers);
                if shown.any(|r| r.id == event.id) {
                    Self::DeletedButShown
                } else {
                    Self::Deleted
                }
            }
            EventType::Other(_) => Self::Hint,
        }
    }

    const fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::DeletedButShown | Self::Deleted)
    }
}

/// The maximum number of statuses in one joined arrival; far more than a pod has.
const STATUSES: usize = 1024;

/// Joins a later arrival of the same slot into the kept one, and returns whether something was
/// lost.
///
/// The stamps of the kept, earlier arrival stay: `arrived` and `wall` are one reading of two
/// clocks, which the writer compares to detect clock steps. Of `created_at` the older one stays,
/// which is the less plausible one, so that a replayed message does not become plausible by being
/// joined.
fn join(kept: &mut Arrival, later: Arrival) -> u64 {
    let event = &mut kept.event;
    event.created_at = event.created_at.min(later.event.created_at);
    let mut lost = 0;
    let rows = &mut event.containers;
    let mut add = |report: Report| match rows.iter().position(|r| same(r, &report)) {
        Some(at) => renew(&mut rows[at], report),
        None if rows.len() < STATUSES => rows.push(report),
        None => lost = 1,
    };
    if let Some(report) = later.event.sandbox {
        match &mut event.sandbox {
            Some(row) if same(row, &report) => renew(row, report),
            // An event has room for one sandbox status, so the other one is put among the
            // containers. Each status has its own kind.
            row => {
                if let Some(displaced) = row.replace(report) {
                    add(displaced);
                }
            }
        }
    }
    later.event.containers.into_iter().for_each(add);
    lost
}

/// Whether one report can stand for both: the same id in the same state. A report of another state
/// is kept, because the state must not be lost (invariant 8); so is UNKNOWN.
fn same(a: &Report, b: &Report) -> bool {
    a.id == b.id && a.shown == b.shown
}

/// Updates a report with a later one of the same id in the same state.
fn renew(kept: &mut Report, later: Report) {
    kept.identity.fill_from(&later.identity);
    details::merge(&mut kept.details, &later.details, Weight::NewestEvent);
}

#[cfg(test)]
mod tests;
