//! Each change must be published within 11 s of the first successful read of rows after the change, or of the first
//! delivered event about the change.

use std::collections::BTreeMap;

use pleg_core::{EventType, RuntimeEvent};
use pleg_node_model::{Id, Label, Node, Object, State};

use super::ReadOfRows;
use super::announcements::ById;
use crate::world::SECOND;

/// Retries of failed calls are up to a minute apart.
const BACKOFF: u64 = 61 * SECOND;

/// For each object, the instant at which its latest change became visible to the core.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Freshness {
    seen: ById<Seen>,
    /// The last failed call about each pod.
    pods: BTreeMap<String, u64>,
    /// The last failed call about the node.
    node: Option<u64>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Seen {
    /// The instant of the change.
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

    /// True if no call about a pod or about the node has failed.
    pub(super) fn is_untroubled(&self, pod: &str) -> bool {
        self.node.is_none() && !self.pods.contains_key(pod)
    }

    /// Records a read of rows for each listed object whose latest change both lists and statuses showed at that
    /// time. (The core accepts a status that lags behind its row, and reads the status again only at the next relist.)
    pub(super) fn read_of_rows(&mut self, read: &ReadOfRows<'_>, node: &Node) {
        let shows = |o: &&Object| {
            // A list of the pod that a wrong label names shows the object, but need not publish it: it belongs elsewhere.
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

    /// Records that an event of the latest change has arrived.
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

    /// The instant from which the 11 s for the present state of an object count, and the reason.
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
        // An UNKNOWN state is read again with the back-off of failed calls.
        let unknown = Some(o.overrides.unknown_until).filter(|&until| until > 0);
        let failed = failed.max(unknown);
        let retried = failed.map_or(0, |at| at + BACKOFF);
        Some((first.max(visible).max(retried), why))
    }
}
