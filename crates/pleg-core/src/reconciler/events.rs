//! What the stream hands over: events. An event may advance state; it never satisfies a waiter.

use std::collections::BTreeMap;

use super::Reconciler;
use super::timers::{PROVISIONAL, Timer};
use crate::ids::{Id, Kind, PodUid};
use crate::lifecycle::Source;
use crate::observed::{Arrival, EventType, Identity, Report, RuntimeEvent};
use crate::order::Position;
use crate::record::{Effect, Record};
use crate::scheduler::Cause;
use crate::time::{Instant, WallTime};

/// Ids that an event named and of which no pod is known. A complete list begun later shows them
/// or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Orphans(BTreeMap<Id, Kept>);

/// What an event told of an id whose pod is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    since: Instant,
    told: EventType,
}

impl Orphans {
    /// More than this, and the oldest news gives way; the list tells of its id anyway.
    const MOST: usize = 10_000;

    /// Keeps an id; whether another one had to give way.
    fn keep(&mut self, id: Id, since: Instant, told: EventType) -> bool {
        let kept = self.0.entry(id).or_insert(Kept { since, told });
        // A type that nobody knows says less than any other.
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

    /// What was told of an id that is without a pod.
    pub(super) fn told(&self, id: &Id) -> Option<EventType> {
        self.0.get(id).map(|kept| kept.told)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, id: &Id) -> Option<Kept> {
        self.0.remove(id)
    }

    /// A complete list that began then did not show these.
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
        let slot = match event.event {
            EventType::Created => 0,
            EventType::Started => 1,
            EventType::Stopped => 2,
            EventType::Deleted => 3,
            EventType::Other(_) => 4,
        };
        self.counters.events[slot] += 1;
        self.counters.events_without_sandbox += u64::from(event.sandbox.is_none());
    }

    /// The pod that an event is about: its sandbox's, else what the index knows of its subject,
    /// else what the subject's own status says.
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
        // show is not gone. A sandbox's DELETED on containerd ≥ 2 brings its status along, not
        // ready; only a ready one contradicts it.
        let contradicts = deleted
            && match kind {
                Some(Kind::Sandbox) => {
                    own.is_some_and(|r| r.shown == crate::observed::ReportedState::Running)
                }
                _ => own.is_some(),
            };
        if deleted && kind == Some(Kind::Sandbox) {
            self.stream.sandbox_deleted();
        }
        let before = self.records.get(&event.id).map(|r| r.position());
        let mut hint = contradicts;
        if !contradicts {
            hint |= self.apply_subject(context, event, kind);
        }
        for report in event.sandbox.iter().chain(&event.containers) {
            let subject_settles = report.id == event.id
                && matches!(event.event, EventType::Created | EventType::Started);
            hint |= self.apply_report(context, report, subject_settles);
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
            // A runtime replays what it held while nobody listened to whoever subscribes first.
            // Until the node was listed once, the list is the inspection of it all.
            self.list_soon(now);
        } else if hint {
            self.request_inspection(now, uid, Cause::Hint);
        }
    }

    /// What the event's type tells of its subject. Whether the event is a hint only.
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
            self.keep_orphan(now, id, event.event);
            return false;
        }
        let Some(told) = told else {
            return true;
        };
        if is_known && self.is_there_already(id, told) {
            return false;
        }
        if !is_known {
            let own = own_report(event);
            if told == Position::Removed {
                // The end of something of which nothing was said: nothing is said of its end.
                let mut identity =
                    own.map_or(Identity::unknown(known_kind), |r| r.identity.clone());
                identity.pod = context.pod.clone();
                self.records
                    .insert(id.clone(), Record::tombstone(identity, now));
                self.insert_tombstone(now, id);
                return false;
            }
            let Some(uid) = context.pod.clone().filter(|_| context.plausible) else {
                return true;
            };
            let identity = own.map_or(Identity::unknown(known_kind), |r| r.identity.clone());
            self.learn(now, id, identity, &uid);
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
            // A container's status does not say which sandbox it is in, but the one sandbox status
            // of an event is its subject's.
            record.identity.sandbox = Some(sandbox.id.clone());
            self.mark_dirty(&uid, Source::Stream);
        }
        self.join_from_event(context, id, told, None);
        if told == Position::Removed
            && let Some(record) = self.records.get_mut(id)
        {
            record.removed_at(WallTime::claimed(event.created_at));
        }
        false
    }

    /// Whether the subject is where the event tells it to be, undisputed, and all that the event
    /// could add is known of it.
    fn is_there_already(&self, id: &Id, told: Position) -> bool {
        self.records.get(id).is_some_and(|r| {
            let owned = r.kind() == Kind::Sandbox || r.identity.sandbox.is_some();
            r.position() == Some(told) && !r.is_removed() && !r.is_contradicted() && owned
        })
    }

    /// What one status of an event tells. Whether it is a hint only.
    fn apply_report(&mut self, context: &Context, report: &Report, settles: bool) -> bool {
        if self.is_repetition(context, report) {
            return false;
        }
        let (now, id) = (context.now, &report.id);
        let named = self.pod_named_by(id, &report.identity);
        if let Some(record) = self.records.get_mut(id) {
            if settles {
                record.provisional = false;
            }
            if record.identity.pod.is_none() {
                // Removed before anybody could say whose it was.
                return false;
            }
        } else {
            let Some(uid) = named.clone().or_else(|| context.pod.clone()) else {
                // A container without a sandbox and without a label: only a list knows its pod.
                self.keep_orphan(now, id, EventType::Other(0));
                return false;
            };
            if !context.plausible {
                return true;
            }
            self.learn(now, id, report.identity.clone(), &uid);
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
            self.apply_effect(now, &uid, id, effect, Source::Stream);
            self.report_unknown(now, &uid, id, Source::Stream);
        }
    }

    /// Most statuses of most events were told before: they say what is held, undisputed, of the
    /// same pod. For those nothing is to be done but to note that they came.
    fn is_repetition(&mut self, context: &Context, report: &Report) -> bool {
        let Some(record) = self.records.get_mut(&report.id) else {
            return false;
        };
        let pod = report.identity.pod.as_ref();
        let undisputed = |uid| self.pods.get(uid).is_some_and(|pod| !pod.is_disputed());
        if !(record.is_repeated_by(report) && pod.is_some_and(undisputed)) {
            return false;
        }
        record.repeated(context.arrived);
        true
    }

    /// An event tells that an id has come so far, by its type or by a status, of which the details
    /// are taken over, too.
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
            // A state from before what is recorded does not settle whether reads are right.
            let agrees = record.position() <= Some(to);
            // Old news of a state that is over adds nothing to what is to be announced: what had
            // ended before we listened has not started now.
            let joined = (context.plausible || agrees)
                .then(|| record.join(to, Source::Stream, arrived, now));
            let advanced = joined.and_then(|effect| effect.advanced);
            if advanced.is_some() {
                // What a list row had said before is announced with it, in order.
                record.release();
            }
            let pod = record.identity.pod.clone();
            let effect = said.into_iter().chain(joined).reduce(Effect::and);
            if let (Some(uid), Some(effect)) = (pod, effect) {
                if agrees {
                    self.drop_contradiction(&uid, id, Source::Stream);
                }
                self.apply_effect(now, &uid, id, effect, Source::Stream);
            }
        }
    }

    /// An id recorded from an event is settled by its own CREATED or STARTED; otherwise its pod
    /// is inspected a second later, unless something has settled it by then.
    fn settle_or_watch(&mut self, now: Instant, id: &Id, settled: bool) {
        if let Some(record) = self.records.get_mut(id).filter(|_| !settled) {
            record.provisional = true;
            self.timers
                .set(now.after(PROVISIONAL), Timer::Provisional(id.clone()));
        }
    }

    fn keep_orphan(&mut self, now: Instant, id: &Id, told: EventType) {
        self.counters.orphans += 1;
        let gave_way = self.orphans.keep(id.clone(), now, told);
        self.counters.orphans_dropped += u64::from(gave_way);
        self.list_soon(now);
    }

    /// Only a list can tell what an event means; at most one such list a second, or lists that
    /// fail would follow the events.
    pub(super) fn list_soon(&mut self, now: Instant) {
        let at = self
            .relist
            .last_began()
            .map_or(now, |began| began.after(PROVISIONAL).max(now));
        self.relist.by(at);
    }

    /// A list shows an id that was without a pod: what the event told of it is joined.
    pub(super) fn apply_orphan(&mut self, now: Instant, id: &Id, kept: Kept) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        if record.incarnation() > 0 && kept.since < record.recorded_since() {
            // Reads have overruled what was recorded since it arrived, and this with it.
            return;
        }
        let kind = record.kind();
        if let Some(told) = Position::of_event(kind, kept.told) {
            self.join(now, id, told, Source::Stream, kept.since);
        }
    }

    /// An event is complete with a sandbox status and, where its subject is a container, that
    /// container's own status; a DELETED needs neither. Of an id that is gone nothing is missing.
    fn is_incomplete(
        &self,
        event: &RuntimeEvent,
        kind: Option<Kind>,
        own: Option<&Report>,
    ) -> bool {
        let lacks = match event.event {
            EventType::Deleted => return false,
            EventType::Other(_) => return true,
            _ if event.sandbox.is_none() => true,
            EventType::Stopped if kind == Some(Kind::Container) => {
                // STOPPED with a status from before the end, or an unknown one, lacks the exit code.
                own.is_none_or(|r| r.shown != crate::observed::ReportedState::Exited)
            }
            _ => kind == Some(Kind::Container) && own.is_none(),
        };
        let is_gone = || self.records.get(&event.id).is_some_and(|r| r.is_removed());
        lacks && !is_gone()
    }

    /// A known container ended and the event lacks its exit code: Died waits for the read that
    /// was just asked for.
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

    /// Sandbox or container? The event does not say so by itself.
    fn kind_of_subject(&self, event: &RuntimeEvent) -> Option<Kind> {
        if let Some(own) = own_report(event) {
            return Some(own.identity.kind);
        }
        if let Some(record) = self.records.get(&event.id) {
            return Some(record.kind());
        }
        // With a sandbox status of another id, the subject is a container of that sandbox.
        event.sandbox.as_ref().map(|_| Kind::Container)
    }
}

/// What is the same for all that one event says.
struct Context {
    now: Instant,
    arrived: Instant,
    plausible: bool,
    pod: Option<PodUid>,
}

fn own_report(event: &RuntimeEvent) -> Option<&Report> {
    event
        .sandbox
        .iter()
        .chain(&event.containers)
        .find(|r| r.id == event.id)
}
