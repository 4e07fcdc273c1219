//! Events of the stream. An event may advance state; it never satisfies a waiter.

use std::collections::BTreeMap;

use super::Reconciler;
use super::timers::{PROVISIONAL, Timer};
use crate::schedule::cause::Cause;
use crate::state::effect::Effect;
use crate::state::order::Position;
use crate::state::record::Record;
use crate::types::event::{Arrival, EventType, RuntimeEvent};
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::Source;
use crate::types::report::{Identity, Report};
use crate::types::time::{Instant, WallTime};

/// Orphans: ids that an event named and whose pod is not known. A complete list begun later shows
/// whether they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Orphans(BTreeMap<Id, Kept>);

/// What an event reported about an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    since: Instant,
    told: EventType,
}

impl Orphans {
    /// The maximum number of orphans. Beyond it, the oldest is dropped; the list shows its id
    /// anyway.
    const MOST: usize = 10_000;

    /// Adds an orphan. Returns whether another one was dropped.
    fn keep(&mut self, id: Id, since: Instant, told: EventType) -> bool {
        let kept = self.0.entry(id).or_insert(Kept { since, told });
        // An unknown event type says less than any other.
        kept.told = match (kept.told, told) {
            (told, EventType::Other(_)) | (EventType::Other(_), told) => told,
            (one, other) => one.max(other),
        };
        if self.0.len() <= Self::MOST {
            return false;
        }
        let oldest = self
            .0
            .iter()
            .min_by_key(|(_, k)| k.since)
            .map(|(id, _)| id.clone());
        oldest.is_some_and(|id| self.0.remove(&id).is_some())
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn take(&mut self, id: &Id) -> Option<Kept> {
        self.0.remove(id)
    }

    /// Drops orphans from before `began`: a complete list that began then did not show them.
    pub(super) fn forget_before(&mut self, began: Instant) {
        self.0.retain(|_, kept| kept.since >= began);
    }
}

impl Reconciler {
    /// An event has arrived.
    pub fn handle_event(&mut self, now: Instant, arrival: Arrival) {
        self.count_event(&arrival.event);
        let plausible = self.stream.arrived(&arrival);
        self.counters.events_implausible += u64::from(!plausible);
        self.runtime_answers(now, arrival.arrived);
        let pod = self.pod_of_event(&arrival.event);
        let context = Context {
            now,
            arrived: arrival.arrived,
            plausible,
            pod,
        };
        self.apply_event(&context, &arrival.event);
        self.pump(now);
    }

    fn count_event(&mut self, event: &RuntimeEvent) {
        self.counters.events.add(event.event);
        self.counters.events_without_sandbox += u64::from(event.sandbox.is_none());
    }

    /// The pod of an event: that of its sandbox status, else the recorded pod of its subject, else
    /// that of the subject's own status.
    fn pod_of_event(&self, event: &RuntimeEvent) -> Option<PodUid> {
        let sandbox = event.sandbox.as_ref();
        let by_sandbox = sandbox.and_then(|s| self.pod_named_by(&s.id, &s.identity));
        let by_index = || {
            self.records
                .get(&event.id)
                .and_then(|r| r.identity.pod.clone())
        };
        let by_status = || {
            let own = event.containers.iter().find(|c| c.id == event.id)?;
            self.pod_named_by(&own.id, &own.identity)
        };
        by_sandbox
            .or_else(by_index)
            .or_else(by_status)
            .or_else(|| sandbox.map(|s| PodUid::from(&s.id)))
    }

    /// Applies the type to the subject, then every status, each a join.
    fn apply_event(&mut self, context: &Context, event: &RuntimeEvent) {
        let now = context.now;
        let kind = self.kind_of_subject(event);
        let own = own_report(event);
        let deleted = event.event == EventType::Deleted;
        // CRI-O up to 1.27.0 sent DELETED for a stop: an id that the event's own statuses still
        // show was not removed. containerd ≥ 2 sends a sandbox's DELETED with its status, NotReady;
        // only a Ready status contradicts the DELETED.
        let contradicts = deleted
            && match kind {
                Some(Kind::Sandbox) => {
                    own.is_some_and(|r| r.shown == crate::types::report::ReportedState::Running)
                }
                _ => own.is_some(),
            };
        if deleted && kind == Some(Kind::Sandbox) {
            self.stream.sandbox_deleted();
        }
        let before = self.records.get(&event.id).map(|r| r.position());
        let mut hint = contradicts || self.apply_subject(context, event, kind);
        for report in event.sandbox.iter().chain(&event.containers) {
            hint |= self.apply_report(context, event, report);
        }
        // The label of the subject may name another pod than its sandbox's.
        let subject = self.records.get(&event.id);
        if let Some(sandbox) = event.sandbox.as_ref().filter(|s| s.id != event.id)
            && subject.is_some_and(|r| r.identity.pod != context.pod)
            && let Some(pod) = self.records.pod_of_sandbox(&sandbox.id).cloned()
        {
            let id = &event.id;
            self.move_to_pod(now, (id, Some(&sandbox.id)), &pod, Source::Stream);
        }
        let reported = (event, context.arrived, context.plausible);
        self.subject_reported(now, reported, kind.unwrap_or(Kind::Container), before);
        let missing = self.is_incomplete(event, kind, own);
        self.counters.events_incomplete += u64::from(missing);
        let Some(uid) = &context.pod else { return };
        if missing {
            self.request_inspection(now, uid, Cause::Incomplete);
            self.hold_exit_without_code(event);
        } else if hint && self.relist.complete().is_none() {
            // At a subscribe a runtime replays the events that it held. Before the first complete
            // list, that list covers them, so no inspection is needed.
            self.list_soon(now);
        } else if hint {
            self.request_inspection(now, uid, Cause::Hint);
        }
    }

    /// Applies the event's type to its subject. Returns whether the event is only a hint.
    fn apply_subject(
        &mut self,
        context: &Context,
        event: &RuntimeEvent,
        kind: Option<Kind>,
    ) -> bool {
        let (now, id) = (context.now, &event.id);
        let known_kind = kind.unwrap_or(Kind::Container);
        let told = Position::of_event(known_kind, event.event);
        let is_known = self.records.contains_key(id);
        if !is_known && context.pod.is_none() && told != Some(Position::Removed) {
            self.counters.orphans += 1;
            self.keep_orphan(now, id, event.event);
            return false;
        }
        let Some(told) = told else {
            return true;
        };
        if !is_known {
            let own = own_report(event);
            let mut identity = own.map_or(Identity::new(known_kind), |r| r.identity.clone());
            if told == Position::Removed {
                // The removal of an id that was never announced is not announced either.
                identity.pod = context.pod.clone();
                let mut record = Record::tombstone(identity, now);
                record.label_unknown = own.is_none();
                self.records.insert(id.clone(), record);
                self.insert_tombstone(now, id);
                self.move_containers_of(now, id, Source::Stream);
                return false;
            }
            let Some(uid) = context.pod.clone().filter(|_| context.plausible) else {
                return true;
            };
            self.learn(now, id, identity, &uid, Source::Stream);
            if let Some(record) = self.records.get_mut(id) {
                record.label_unknown = own.is_none();
            }
            let settled =
                own.is_some() && matches!(event.event, EventType::Created | EventType::Started);
            self.settle_or_watch(now, id, settled);
        }
        if known_kind == Kind::Container
            && let Some(sandbox) = &event.sandbox
            && let Some(record) = self.records.get_mut(id)
            && record.identity.sandbox.is_none()
            && let Some(uid) = record.identity.pod.clone()
        {
            // A container status does not name its sandbox, but an event has only one sandbox
            // status: that of its subject's sandbox.
            record.identity.sandbox = Some(sandbox.id.clone());
            self.mark_dirty(&uid, Source::Stream);
            self.await_sandbox(id);
        }
        self.join_from_event(context, id, told, None);
        if told == Position::Removed
            && let Some(record) = self.records.get_mut(id)
        {
            record.removed_at(WallTime::claimed(event.created_at));
        }
        false
    }

    /// Applies one status of an event. Returns whether it is only a hint.
    fn apply_report(&mut self, context: &Context, event: &RuntimeEvent, report: &Report) -> bool {
        if self.is_repetition(context, report) {
            return false;
        }
        let (now, id) = (context.now, &report.id);
        let is_subject = *id == event.id;
        let settles = is_subject && matches!(event.event, EventType::Created | EventType::Started);
        let named = self.pod_named_by(id, &report.identity);
        if let Some(record) = self.records.get_mut(id) {
            if settles {
                record.provisional = false;
            }
            if record.identity.pod.is_none() {
                // It was removed before its pod was known.
                record.identity.pod = named;
                self.move_containers_of(now, id, Source::Stream);
                return false;
            }
        } else {
            // The pod of the event may be that of its subject's label. A container leaves it when its
            // sandbox is known, a sandbox would not.
            let unnamed = match report.identity.kind {
                Kind::Sandbox => Some(PodUid::from(id)),
                Kind::Container => context.pod.clone(),
            };
            let Some(uid) = named.clone().or(unnamed) else {
                // A container without a sandbox and without a label: only a list shows its pod.
                self.keep_orphan(now, id, EventType::Other(0));
                return false;
            };
            if !context.plausible {
                return true;
            }
            self.learn(now, id, report.identity.clone(), &uid, Source::Stream);
            if let Some(record) = self.records.get_mut(id) {
                record.at_start = !is_subject && self.relist.complete().is_none();
            }
            self.settle_or_watch(now, id, settles);
        }
        if let Some(named) = &named {
            self.move_to_pod(
                now,
                (id, report.identity.sandbox.as_ref()),
                named,
                Source::Stream,
            );
        }
        self.note_label(id, &report.identity);
        match Position::shown(report.identity.kind, report.shown) {
            Some(shown) => self.join_from_event(context, id, shown, Some(report)),
            None => self.unknown_from_event(context, report),
        }
        false
    }

    fn unknown_from_event(&mut self, context: &Context, report: &Report) {
        let (now, id) = (context.now, &report.id);
        if let Some(record) = self.records.get_mut(id)
            && let Some(uid) = record.identity.pod.clone()
        {
            let effect = record.details_from_event(report, context.arrived);
            self.apply(now, &uid, id, effect, Source::Stream);
            self.report_unknown(now, &uid, id, Source::Stream);
        }
    }

    /// Most statuses in events repeat the record: the same state, uncontradicted, in the same pod.
    /// For those only the arrival is recorded.
    pub(super) fn is_repetition(&mut self, context: &Context, report: &Report) -> bool {
        let record = self.records.get_mut(&report.id);
        let repeated = record.filter(|record| record.is_repeated_by(report));
        repeated
            .map(|record| record.repeated(context.arrived))
            .is_some()
    }

    /// An event shows an id at a position, by its type or by a status. The details of a status are
    /// merged, too.
    fn join_from_event(
        &mut self,
        context: &Context,
        id: &Id,
        to: Position,
        status: Option<&Report>,
    ) {
        let (now, arrived) = (context.now, context.arrived);
        if let Some(record) = self.records.get_mut(id) {
            let said = status.map(|status| record.details_from_event(status, arrived));
            let (new, reached) = (record.position().is_none(), record.position() <= Some(to));
            // An event from before the subscribe that reports a state which is already over causes
            // no announcement: a container that had exited before is not announced as started.
            let joined = (context.plausible || reached)
                .then(|| record.join(to, Source::Stream, arrived, now));
            if new && status.is_some() && record.at_start {
                record.set_initial();
            }
            if joined.is_some_and(|effect| effect.advanced()) {
                // A waiting announcement of a list row comes first, in lifecycle order.
                record.release();
            }
            let pod = record.identity.pod.clone();
            let effect = said.into_iter().chain(joined).reduce(Effect::and);
            if let (Some(uid), Some(effect)) = (pod, effect) {
                self.apply(now, &uid, id, effect, Source::Stream);
            }
        }
    }

    /// An id recorded from an event is confirmed by its own CREATED or STARTED. Otherwise its pod
    /// is inspected a second later, unless something has confirmed the id by then.
    fn settle_or_watch(&mut self, now: Instant, id: &Id, settled: bool) {
        if let Some(record) = self.records.get_mut(id).filter(|_| !settled) {
            record.provisional = true;
            self.timers
                .set(now.after(PROVISIONAL), Timer::Provisional(id.clone()));
        }
    }

    fn keep_orphan(&mut self, now: Instant, id: &Id, told: EventType) {
        let gave_way = self.orphans.keep(id.clone(), now, told);
        self.counters.orphans_dropped += u64::from(gave_way);
        self.list_soon(now);
    }

    /// Requests a list, because only a list can explain an event. At most one a second: otherwise
    /// failing lists would run at the rate of the events.
    pub(super) fn list_soon(&mut self, now: Instant) {
        let at = self
            .relist
            .last_activity()
            .map_or(now, |began| began.after(PROVISIONAL).max(now));
        self.relist.by(at);
    }

    /// A list shows an orphan: the event about it is joined.
    pub(super) fn apply_orphan(&mut self, now: Instant, id: &Id, kept: Kept) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        if record.incarnation() > 0 && kept.since <= record.recorded_since() {
            // Reads have overruled the record since the event arrived.
            return;
        }
        let kind = record.kind();
        if let Some(told) = Position::of_event(kind, kept.told) {
            self.join(now, id, told, Source::Stream, kept.since);
        }
    }

    /// An event is complete with a sandbox status and, if its subject is a container, that
    /// container's status. A DELETED needs neither. An event about a removed id is always complete.
    fn is_incomplete(
        &self,
        event: &RuntimeEvent,
        kind: Option<Kind>,
        own: Option<&Report>,
    ) -> bool {
        let lacks = match event.event {
            // An unknown type is a hint, whatever the event has.
            EventType::Deleted | EventType::Other(_) => return false,
            _ if event.sandbox.is_none() => true,
            EventType::Stopped if kind == Some(Kind::Container) => {
                // A STOPPED with a status from before the exit, or UNKNOWN, lacks the exit code.
                own.is_none_or(|r| r.shown != crate::types::report::ReportedState::Exited)
            }
            _ => kind == Some(Kind::Container) && own.is_none(),
        };
        let is_gone = || self.records.get(&event.id).is_some_and(|r| r.is_removed());
        lacks && !is_gone()
    }

    /// A known container exited and the event lacks the exit code: Died waits for the inspection
    /// that was just requested.
    fn hold_exit_without_code(&mut self, event: &RuntimeEvent) {
        if event.event == EventType::Stopped
            && let Some(record) = self.records.get(&event.id)
            && record.kind() == Kind::Container
            && record.position() == Some(Position::Exited)
            && record.exit_code().is_none()
            && !record.provisional
        {
            self.hold_for_status(&event.id);
        }
    }

    /// The kind of the subject, which the event does not contain.
    fn kind_of_subject(&self, event: &RuntimeEvent) -> Option<Kind> {
        if let Some(own) = own_report(event) {
            return Some(own.identity.kind);
        }
        if let Some(record) = self.records.get(&event.id) {
            return Some(record.kind());
        }
        // With a sandbox status of another id, the subject is a container in that sandbox.
        event.sandbox.as_ref().map(|_| Kind::Container)
    }
}

/// The context of one event.
pub(super) struct Context {
    pub(super) now: Instant,
    pub(super) arrived: Instant,
    pub(super) plausible: bool,
    pub(super) pod: Option<PodUid>,
}

fn own_report(event: &RuntimeEvent) -> Option<&Report> {
    event
        .sandbox
        .iter()
        .chain(&event.containers)
        .find(|r| r.id == event.id)
}
