//! Checks, from the fate of each event, that the core counts only lost events as missed.

use std::collections::BTreeSet;

use pleg_core::{
    Counters, Details, EventType, Health, Kind, MissedCounts, ReportedState, RuntimeEvent,
    StreamState,
};
use pleg_node_model::{self as model, Id};

use super::announcements::ById;

/// The reason why an event does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// The runtime did not send the event, because the object was gone.
    Suppressed,
    /// The event was lost: the runtime was down, or nobody was subscribed, or a fault removed the event.
    Lost,
}

/// Counts of lost and suppressed events, and the exits that events have shown.
#[derive(Clone, Debug, Hash)]
pub(super) struct Losses {
    without_events: bool,
    lost: u64,
    suppressed: u64,
    /// By id: the exit code of an exit that an event has shown. Replayed events do not count.
    ends: ById<Option<i32>>,
    /// Ids with an event created after the subscription. The core may announce the exit of such an id without a view.
    young: BTreeSet<Id>,
    subscribed: u64,
}

impl Losses {
    pub(super) const fn new(without_events: bool) -> Self {
        Self {
            without_events,
            lost: 0,
            suppressed: 0,
            ends: ById::new(),
            young: BTreeSet::new(),
            subscribed: 0,
        }
    }

    pub(super) const fn subscribed(&mut self, now: u64) {
        self.subscribed = now;
    }

    pub(super) fn fate(&mut self, _: u64, _: &Id, what: model::EventType, fate: Fate) {
        let is_expected = matches!(what, model::EventType::Started | model::EventType::Stopped);
        match fate {
            // If a removal may have suppressed an event, the core counts a STARTED as missed, but not a STOPPED.
            Fate::Suppressed if what == model::EventType::Started => self.lost += 1,
            Fate::Suppressed => self.suppressed += 1,
            Fate::Lost if is_expected => self.lost += 1,
            Fate::Lost => {}
        }
    }

    pub(super) const fn lost_on_the_way(&mut self, _: u64, event: &RuntimeEvent) {
        if matches!(event.event, EventType::Started | EventType::Stopped) {
            self.lost += 1;
        }
    }

    /// Records an event that has arrived. `removed_at`: the instant at which the core announced the id's removal.
    pub(super) fn delivered(
        &mut self,
        now: u64,
        event: &RuntimeEvent,
        wall: i64,
        removed_at: Option<u64>,
    ) {
        let age = wall - event.created_at;
        let is_new = age < (now - self.subscribed).cast_signed();
        let all = event.sandbox.iter().chain(&event.containers);
        let own = all.into_iter().find(|r| r.id == event.id);
        // CRI-O up to 1.27.0 sends DELETED when a container stops, with the container's status.
        let is_stop = own.is_some_and(|own| own.identity.kind == Kind::Container);
        if is_new && (event.event != EventType::Deleted || is_stop) {
            self.young.insert(event.id.as_str().into());
        }
        let Some(own) = own.filter(|own| own.shown == ReportedState::Exited) else {
            return;
        };
        let is_in_time = removed_at.is_none_or(|removed| now < removed + 59 * crate::world::SECOND);
        if !is_new || !is_in_time || event.event == EventType::Deleted {
            return;
        }
        let code = match &own.details {
            Details::Container(details) => details.exit_code,
            Details::Sandbox(_) => None,
        };
        let known = self.ends.entry(event.id.as_str().into()).or_insert(code);
        *known = known.or(code);
    }

    pub(super) fn has_young_event(&self, id: &Id) -> bool {
        self.young.contains(id)
    }

    /// The exit code of an id, if an event has shown the exit. `Some(None)`: the event had no exit code.
    pub(super) fn shown_end(&self, id: &Id) -> Option<Option<i32>> {
        self.ends.get(id).copied()
    }

    /// Checks that the core counts at most the lost events as missed, plus two per contradictory id (`excused`).
    pub(super) fn check(&self, missed: MissedCounts, excused: u64) -> Result<(), String> {
        match missed.total() > self.lost + 2 * excused {
            true => Err(format!("missed {missed:?}, lost {}", self.lost)),
            false => Ok(()),
        }
    }

    /// Checks that the relist period is at least 32 s if the stream has delivered events, and none was lost or missed.
    pub(super) fn check_period(&self, counters: &Counters, health: &Health) -> Result<(), String> {
        let is_proven = matches!(health.stream, StreamState::Subscribed { proven: true, .. });
        let is_good = counters.missed.total() == 0 && self.lost == 0 && is_proven;
        match !self.without_events && is_good && health.period.as_secs() < 32 {
            true => Err(format!("the relist period is {:?}", health.period)),
            false => Ok(()),
        }
    }
}
