//! The core must publish each change within 11 s of its first successful read of rows after the change, or within
//! 11 s of the first event about the change that arrived, if that was earlier.

use std::collections::BTreeMap;

use pleg_core::{EventType, RuntimeEvent};
use pleg_node_model::{Id, Label, Node, Object, State};

use super::ReadOfRows;
use super::announcements::ById;
use crate::world::SECOND;

/// The longest time after which the core repeats a failed call: a minute, and a second for the call itself.
const BACKOFF: u64 = 61 * SECOND;

/// For each object, the instant at which its latest change became visible to the core.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Freshness {
    seen: ById<Seen>,
    /// By uid: the instant of the last failed call about this pod.
    pods: BTreeMap<String, u64>,
    /// The instant of the last failed call that is not about a single pod.
    node: Option<u64>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Seen {
    /// The instant of the object's latest change.
    change: u64,
    rows: Option<u64>,
    event: Option<u64>,
}

impl Freshness {
    pub(super) fn failed(&mut self, now: u64, pod: Option<&str>) {
        match pod {
            Some(pod) => _ = self.pods.insert(pod.to_owned(), now),
            None => self.node = Some(now),
        }
    }

    /// Returns true if no call about this pod or about the whole node has failed since the world began.
    pub(super) fn is_untroubled(&self, pod: &str) -> bool {
        self.node.is_none() && !self.pods.contains_key(pod)
    }

    /// Records that a list showed the latest change of each object that it contains, if statuses showed this change
    /// too. (If a status lags behind its row, the core accepts the status, and reads it again only after a relist.)
    pub(super) fn read_of_rows(&mut self, read: &ReadOfRows<'_>, node: &Node) {
        let shows = |o: &&Object| {
            // If the label has another pod's uid, lists of that pod show the object, but the core need not publish it.
            let is_own = |uid: &str| o.label == Label::Right && *o.pod.uid == *uid;
            let is_listed = read.pod.is_none_or(is_own);
            let last = o.history.last();
            let is_shown = |at: u64| at <= read.taken;
            is_listed && last.is_some_and(|c| is_shown(c.in_lists) && is_shown(c.in_statuses))
        };
        for o in node.objects().filter(shows) {
            let seen = self.seen(&o.id, o.since());
            seen.rows.get_or_insert(read.answered);
        }
    }

    /// Records that an event has arrived, if it is about the latest change of its object.
    pub(super) fn delivered(&mut self, now: u64, event: &RuntimeEvent, node: &Node) {
        let state = match event.event {
            EventType::Created => State::Created,
            EventType::Started => State::Running,
            EventType::Stopped => State::Exited,
            EventType::Deleted => State::Removed,
            _ => return,
        };
        if let Some(o) = node.object(event.id.as_str())
            && o.state() == state
        {
            let seen = self.seen(&o.id, o.since());
            seen.event.get_or_insert(now);
        }
    }

    fn seen(&mut self, id: &Id, change: u64) -> &mut Seen {
        let new = Seen {
            change,
            rows: None,
            event: None,
        };
        let seen = self.seen.entry(id.clone()).or_insert(new);
        if seen.change != change {
            *seen = new;
        }
        seen
    }

    /// The instant from which the core has 11 s to publish an object's present state. The text says what it got first.
    pub(super) fn start(&self, o: &Object) -> Option<(u64, &'static str)> {
        let seen = self
            .seen
            .get(&o.id)
            .filter(|seen| seen.change == o.since())?;
        let last = o.history.last()?;
        let visible = last
            .in_lists
            .max(last.in_statuses)
            .max(o.overrides.unknown_until);
        let rows = seen.rows.map(|at| (at, "rows at"));
        let event = seen.event.filter(|_| o.label == Label::Right);
        let event = event.map(|at| (at, "event at"));
        let (first, why) = rows.into_iter().chain(event).min()?;
        let failed = self.pods.get(&*o.pod.uid).copied().max(self.node);
        // After UNKNOWN, the core reads an object again with the back-off of failed calls.
        let unknown = Some(o.overrides.unknown_until).filter(|&until| until > 0);
        let failed = failed.max(unknown);
        let retried = failed.map_or(0, |at| at + BACKOFF);
        Some((first.max(visible).max(retried), why))
    }
}
