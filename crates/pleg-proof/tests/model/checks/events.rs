//! Checks invariants 2, 6 and 8 on events: which are plausible, and what must be visible at once.

use std::collections::BTreeSet;

use pleg_core::{Arrival, EventType, Id, Kind, Report, ReportedState, RuntimeEvent, WallTime};

use super::cache::seen;
use super::{Checks, Pushed, event_state, hold};
use crate::harness::Violation;
use crate::node::{Node, State};
use crate::reports::MS;

/// Whether events are plausible (invariant 6), by our own two clocks.
#[derive(Debug, Default)]
pub(super) struct Plausible {
    /// Both clocks at the last reading: milliseconds, nanoseconds.
    reading: Option<(u64, i64)>,
    /// Earlier timestamps are implausible.
    from: Option<i64>,
    /// A complete list begun after this ends the doubt about the wall clock.
    stepped: Option<u64>,
}

impl Plausible {
    pub(super) const fn subscribed(&mut self, now: u64, wall: i64) {
        self.reading = Some((now, wall));
        self.from = Some(wall);
        self.stepped = None;
    }

    pub(super) fn listed(&mut self, began: u64) {
        if let (Some(stepped), Some((ms, nanos))) = (self.stepped, self.reading)
            && began > stepped
        {
            self.from = Some(nanos + (began as i64 - ms as i64) * MS as i64);
            self.stepped = None;
        }
    }

    fn arrived(&mut self, arrival: &Arrival) -> bool {
        let now = arrival.arrived.as_nanos() / MS;
        let nanos = arrival.wall.as_nanos();
        if let Some((ms, before)) = self.reading.replace((now, nanos)) {
            let drift = (nanos - before) - (now as i64 - ms as i64) * MS as i64;
            if drift.abs() > 1_000_000_000 {
                (self.from, self.stepped) = (None, Some(now));
            }
        }
        let stamp = arrival.event.created_at;
        self.from.is_some_and(|from| {
            stamp >= from && stamp >= nanos - 300_000_000_000 && stamp <= nanos + 1_000_000_000
        })
    }
}

/// The expected effect of an event.
#[derive(Debug)]
pub struct ExpectedEffect {
    plausible: bool,
    id: Id,
    reported: Option<State>,
    /// Its own statuses still show the id that it reports as deleted.
    contradicts: bool,
    /// The cache showed the subject before, and it was not recorded as removed.
    was_shown: bool,
    /// It was recorded as removed before.
    was_gone: bool,
    /// Nothing named the subject before, and the event names its pod.
    is_new: bool,
    /// Ids in the event that nothing named before.
    unknown_ids: BTreeSet<Id>,
}

impl Checks {
    pub fn subscribed(&mut self, now: u64, wall: WallTime) {
        self.plausible.subscribed(now, wall.as_nanos());
        self.liveness.subscribed(now);
    }

    pub fn cut(&mut self, now: u64) {
        self.liveness.cut(now);
    }

    /// An event goes into the backlog.
    pub fn pushed(&mut self, event: &RuntimeEvent) {
        let reports = event.sandbox.iter().chain(&event.containers);
        self.unlabelled |= reports.into_iter().any(|r| r.identity.unlabelled);
        for what in kept(event) {
            self.in_backlog.insert(what);
        }
    }

    /// An event reaches the reconciler.
    pub fn arriving(&mut self, node: &Node, now: u64, arrival: &Arrival) -> ExpectedEffect {
        let event = &arrival.event;
        self.liveness.event();
        for what in kept(event) {
            self.in_backlog.remove(&what);
        }
        let object = node.object(&event.id);
        let kind = object.map_or(Kind::Container, |l| l.kind);
        let reports = || event.sandbox.iter().chain(&event.containers);
        let own = reports().find(|r| r.id == event.id);
        let contradicts = event.event == EventType::Deleted
            && own.is_some_and(|r| kind == Kind::Container || r.shown == ReportedState::Running);
        let reported = event_state(kind, event.event);
        if !contradicts && reported > object.and_then(|l| l.at(now)) {
            self.misreported_at.insert(event.id.clone(), now);
        }
        let is_unknown = |id: &&Id| !self.named.contains(*id);
        let unknown_ids: BTreeSet<Id> = reports()
            .map(|r| &r.id)
            .chain([&event.id])
            .filter(is_unknown)
            .cloned()
            .collect();
        let new = unknown_ids.contains(&event.id);
        let was_gone = self.is_gone(&event.id);
        if reported == Some(State::Removed) && !contradicts {
            if new {
                self.first_seen_removed.insert(event.id.clone());
            }
            let recorded = self
                .recorded
                .entry(event.id.clone())
                .or_insert((State::Removed, now));
            if recorded.0 < State::Removed {
                *recorded = (State::Removed, now);
            }
        }
        let names_its_pod = event
            .sandbox
            .as_ref()
            .is_some_and(|s| s.identity.pod.is_some());
        let expected = ExpectedEffect {
            plausible: self.plausible.arrived(arrival),
            id: event.id.clone(),
            reported,
            contradicts,
            was_shown: self.shown(&event.id).is_some() && !was_gone,
            was_gone,
            is_new: new && names_its_pod,
            unknown_ids,
        };
        if reported == Some(State::Running) {
            self.seen_running.insert(event.id.clone());
        }
        let named: Vec<Report> = reports().cloned().collect();
        for report in &named {
            self.name(report);
        }
        self.named.insert(event.id.clone());
        expected
    }

    /// The state of an id in the cache, and whether it is UNKNOWN.
    fn shown(&self, id: &Id) -> Option<(Option<State>, bool)> {
        let mut views = self.cache.values();
        views.find_map(|v| seen(&v.status).get(id).map(|s| (s.state, s.unknown)))
    }

    /// Whether it is recorded as removed, though the newest read may show it.
    fn is_gone(&self, id: &Id) -> bool {
        let recorded = self.recorded.get(id);
        recorded.is_some_and(|(state, _)| *state == State::Removed)
    }

    /// The reconciler has applied the event.
    pub fn event_applied(
        &mut self,
        _node: &Node,
        expected: &ExpectedEffect,
    ) -> Result<(), Violation> {
        let now_shown = self.shown(&expected.id);
        if !expected.plausible {
            for id in &expected.unknown_ids {
                hold!(
                    self.shown(id).is_none(),
                    "invariant-6-implausible-not-recorded",
                    "{id} is recorded because of {expected:?}"
                );
            }
        }
        if expected.contradicts && expected.was_shown {
            hold!(
                now_shown.is_some(),
                "invariant-6-shown-is-not-deleted",
                "gone after {expected:?}"
            );
        }
        let Some(reported) = expected.reported.filter(|_| !expected.contradicts) else {
            return Ok(());
        };
        if reported == State::Removed {
            hold!(
                now_shown.is_none() || expected.was_gone,
                "invariant-2-merged-at-once",
                "{now_shown:?} after {expected:?}"
            );
        } else if expected.was_shown {
            // The state may be later, even removed, but not earlier.
            let behind = now_shown.is_some_and(|(s, _)| s < Some(reported));
            hold!(
                !behind,
                "invariant-2-merged-at-once",
                "{now_shown:?} after {expected:?}"
            );
        } else if expected.is_new && expected.plausible {
            hold!(
                now_shown.is_some(),
                "invariant-6-plausible-is-recorded",
                "nothing after {expected:?}"
            );
        }
        Ok(())
    }

    /// Nothing is left in the backlog of the busy writer (invariant 8).
    pub fn drained(&mut self) -> Result<(), Violation> {
        let left = std::mem::take(&mut self.in_backlog);
        hold!(
            left.is_empty(),
            "invariant-8-nothing-skipped",
            "{left:?} went in and did not come out"
        );
        Ok(())
    }
}

/// What must survive joining: the event's type, and every state that it shows.
fn kept(event: &RuntimeEvent) -> Vec<(Id, Pushed)> {
    let subject = (event.id.clone(), Pushed::Event(event.event));
    let reports = event.sandbox.iter().chain(&event.containers);
    let shown = reports.map(|r| (r.id.clone(), Pushed::ReportedState(r.shown)));
    shown.chain([subject]).collect()
}
