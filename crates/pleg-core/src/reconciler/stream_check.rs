//! Checks whether the stream delivers what it should: reads check it, and it checks itself
//! (invariant 10).

use std::time::Duration;

use super::apply::ReadAt;
use super::timers::Timer;
use super::{Output, Reconciler};
use crate::schedule::pending::Settled;
use crate::schedule::profile::EventProfile;
use crate::state::order::Position;
use crate::state::reports::ExpectedEvent;
use crate::types::event::{EventType, RuntimeEvent};
use crate::types::ids::{Id, Kind};
use crate::types::lifecycle::Source;
use crate::types::report::Report;
use crate::types::time::Instant;

/// How long an event that a later event proves missing may stay pending before a relist.
const RELIST_AFTER: Duration = Duration::from_secs(1);
/// When to check again whether the reader has handed over the queued events.
const BEHIND: Duration = Duration::from_millis(100);
/// When to check again whether the status of an exited container was read. This needs no bound: the
/// status is read again until it succeeds or the id is gone.
const UNREAD: Duration = Duration::from_secs(1);
/// After this many misses in a row without any event, the stream counts as silent.
const SILENT_AFTER: u32 = 3;
/// The minimum time between two ends of silent streams. It doubles each time.
const RESUBSCRIBE_FIRST: Duration = Duration::from_secs(60);
const RESUBSCRIBE_MOST: Duration = Duration::from_secs(3600);

/// Misses since the last event of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Silence {
    misses: u32,
    last_event: Option<Instant>,
    /// A silent stream may be ended from this instant on.
    renew_from: Option<Instant>,
    renewed: u32,
}

impl Reconciler {
    /// The runtime's version is known, and with it what its stream can be expected to report.
    pub fn handle_profile(&mut self, now: Instant, profile: EventProfile) {
        self.profile = profile;
        self.pump(now);
    }

    /// A read shows an id at a position that it did not have when the read began: an event with
    /// this id as its subject should report that, or should have reported it.
    pub(super) fn expect_event(&mut self, read: ReadAt, id: &Id, at: Position, first_seen: bool) {
        if !read.checks_stream {
            return;
        }
        let Some(record) = self.records.get(id) else {
            return;
        };
        // A sandbox first seen NotReady may never have been ready.
        let never_ready = first_seen && record.kind() == Kind::Sandbox && at == Position::Exited;
        if let Some(event) = ExpectedEvent::of_position(record.kind(), at)
            && !never_ready
        {
            self.insert_pending(id, event, read.ended);
        }
    }

    /// Whether only a status inside an event showed the position, and that event did not arrive
    /// before the read began. Such a status does not settle the event about the id itself: the
    /// events of a restarted container carry the status of the dead one.
    pub(super) fn is_shown_by_later_event(&self, read: ReadAt, id: &Id, at: Position) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|r| {
            r.position() == Some(at)
                && r.source(at) == Some(Source::Stream)
                && r.recorded_since() >= read.began
        })
    }

    fn insert_pending(&mut self, id: &Id, event: ExpectedEvent, since: Instant) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if record.reports.expect(event) {
            let due = since.after(self.profile.grace);
            self.pending.insert(id, event, since, due);
            self.timers.set(due, Timer::Pending(id.clone(), event));
        }
    }

    /// An event about this subject was applied. `before` is the position recorded before it, if
    /// any.
    pub(super) fn subject_reported(
        &mut self,
        now: Instant,
        (event, arrived, plausible): (&RuntimeEvent, Instant, bool),
        kind: Kind,
        before: Option<Option<Position>>,
    ) {
        self.silence.misses = 0;
        self.silence.last_event = self.silence.last_event.max(Some(arrived));
        self.silence.renewed = 0;
        if let Some(expected) = ExpectedEvent::of_event(kind, event.event) {
            let settled = self.pending.settle(&event.id, expected);
            if settled == Settled::Missed {
                self.counters.missed_withdrawn += 1;
                self.loss.withdrawn();
            } else if plausible && event.event != EventType::Created {
                self.loss.arrived(now);
            }
            match self.records.get_mut(&event.id) {
                Some(record) => record.reports.set_arrived(expected),
                None => self.unrecorded.insert(&event.id, expected, arrived),
            }
            self.decide_verdicts(now);
        }
        if plausible && self.stream.checks(arrived) {
            self.check_sequence(event, arrived, kind, before);
        }
    }

    /// Some events prove that an earlier one of the same id was not delivered.
    fn check_sequence(
        &mut self,
        event: &RuntimeEvent,
        arrived: Instant,
        kind: Kind,
        before: Option<Option<Position>>,
    ) {
        let was_started = |report: &Report| report.id == event.id && report.was_started();
        let earlier = match (event.event, kind) {
            (EventType::Stopped, Kind::Container)
                if self.profile.promises_started
                    && before.is_none()
                    && event.containers.iter().any(was_started) =>
            {
                Some(ExpectedEvent::ContainerStarted)
            }
            (EventType::Deleted, _)
                if self.profile.promises_stopped
                    && before == Some(Some(Position::Running))
                    && self.records.get(&event.id).is_some_and(|r| r.is_removed()) =>
            {
                ExpectedEvent::of_position(kind, Position::Exited)
            }
            _ => None,
        };
        if let Some(earlier) = earlier {
            self.insert_pending(&event.id, earlier, arrived);
            if self.pending.due(&event.id, earlier).is_some() {
                let relist = Timer::RelistForPending(event.id.clone(), earlier);
                self.timers.set(arrived.after(RELIST_AFTER), relist);
            }
        }
    }

    /// An event that a later event proves missing has been pending for a second.
    pub(super) fn relist_for_pending(&mut self, now: Instant, id: &Id, event: ExpectedEvent) {
        if self.pending.due(id, event).is_some() {
            self.list_soon(now);
        }
    }

    /// A pending event has timed out.
    pub(super) fn decide_pending(&mut self, now: Instant, id: Id, event: ExpectedEvent) {
        if self.pending.due(&id, event).is_none_or(|due| due > now) {
            return;
        }
        let later = if self.stream.is_behind() {
            // The event may have arrived in time and be queued at the reader.
            Some(BEHIND)
        } else {
            // It may be a container that never ran. One that was seen to run is not.
            let may_not_have_run = event == ExpectedEvent::ContainerStopped;
            (may_not_have_run && self.is_end_unread(&id)).then_some(UNREAD)
        };
        if let Some(later) = later {
            let timer = Timer::Pending(id, event);
            self.timers.set(now.after(later), timer);
            return;
        }
        let never_ran = self
            .records
            .get(&id)
            .is_some_and(|r| r.may_never_have_run());
        if never_ran {
            self.pending.void(&id, event);
        } else if let Some(since) = self.pending.miss(&id, event, now) {
            self.counters.missed[event] += 1;
            self.loss.missed(now);
            self.relist.shorten();
            self.end_silent_stream(now, since);
        }
        self.decide_verdicts(now);
    }

    /// Whether a container has exited with an unknown exit code and an inspection is still owed.
    fn is_end_unread(&self, id: &Id) -> bool {
        let unread = |r: &crate::state::record::Record| {
            r.kind() == Kind::Container
                && r.position() == Some(Position::Exited)
                && r.exit_code().is_none()
        };
        let record = self.records.get(id).filter(|r| unread(r));
        let pod = record.and_then(|r| r.identity.pod.as_ref());
        pod.is_some_and(|uid| self.scheduler.owes(uid))
    }

    /// An event was missed, and no event has arrived since it became pending. A stream that stays
    /// silent is ended and subscribed again, like a lost one.
    fn end_silent_stream(&mut self, now: Instant, pending_since: Instant) {
        let silence = &mut self.silence;
        if silence.last_event.is_some_and(|last| last >= pending_since) {
            return;
        }
        silence.misses += 1;
        let may = !self.profile.disconnect_may_crash
            && self.stream.is_subscribed()
            && silence.renew_from.is_none_or(|from| now >= from);
        if silence.misses >= SILENT_AFTER && may {
            silence.misses = 0;
            let pause = crate::schedule::scheduler::doubled(
                RESUBSCRIBE_FIRST,
                silence.renewed,
                RESUBSCRIBE_MOST,
            );
            silence.renew_from = Some(now.after(pause));
            silence.renewed = silence.renewed.saturating_add(1);
            self.counters.streams_renewed += 1;
            self.out.push_back(Output::Resubscribe);
        }
    }

    /// The removal of the id may have suppressed its STOPPED.
    pub(super) fn void_suppressed(&mut self, id: &Id, kind: Kind) {
        if self.profile.removal_suppresses_stopped
            && let Some(stopped) = ExpectedEvent::of_position(kind, Position::Exited)
        {
            self.pending.void(id, stopped);
        }
    }

    /// Decides the verdict of the lists whose pending events have all ended.
    pub(super) fn decide_verdicts(&mut self, now: Instant) {
        let trust = self.trust(now);
        self.relist.decide_verdicts(self.pending.oldest(), trust);
    }

    /// The stream is lost: pending events are voided, because the loss explains them.
    pub(super) fn stream_lost(&mut self) {
        self.pending.void_all();
        self.relist.shorten();
    }
}
