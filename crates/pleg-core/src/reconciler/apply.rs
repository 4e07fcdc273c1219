//! Applies an observation of one id to its record, and marks its pod dirty.

use super::Reconciler;
use super::contradictions::StatusCall;
use super::timers::{EXIT_REASON, Timer};
use crate::schedule::cause::Cause;
use crate::state::effect::{DetailsChange, Effect, Transition};
use crate::state::evidence::Call;
use crate::state::order::Position;
use crate::state::record::{Record, source_of};
use crate::types::ids::{Id, Ids, Kind, PodUid};
use crate::types::lifecycle::Source;
use crate::types::report::Report;
use crate::types::time::Instant;

/// The effects of one input on a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DirtyPod {
    /// Ids that may have announcements, in the order in which they were observed.
    pub(super) ids: Vec<Id>,
    /// Ids for which a ContainerChanged is to be announced.
    pub(super) changed: Ids,
    /// Ids whose details changed.
    pub(super) details: Ids,
    /// Whether a PodSync is to be announced.
    pub(super) sync: PodSync,
    /// The source of the observation.
    pub(super) source: Option<Source>,
}

/// Whether a PodSync is to be announced. A later value covers the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PodSync {
    #[default]
    No,
    /// If nothing else of the pod is announced: a detail changed, or it was requested.
    Alone,
    /// Also beside a ContainerChanged.
    Always,
}

impl DirtyPod {
    /// A PodSync is to be announced, unless something else is.
    pub(super) fn announce_sync(&mut self) {
        self.sync = self.sync.max(PodSync::Alone);
    }

    /// An id has moved here from another pod, and with it what is to be announced of it.
    pub(super) fn take_over(&mut self, id: &Id, from: &mut Self) {
        let has_announcements = from.ids.contains(id);
        from.ids.retain(|other| other != id);
        self.ids.extend(has_announcements.then(|| id.clone()));
        if from.changed.remove(id) {
            self.changed.insert(id.clone());
        }
        if from.details.remove(id) {
            self.details.insert(id.clone());
        }
    }

    /// A ContainerChanged and a PodSync are to be announced.
    fn announce_changed_and_sync(&mut self, id: &Id) {
        self.ids.push(id.clone());
        self.changed.insert(id.clone());
        self.sync = PodSync::Always;
    }
}

/// The read that is being applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAt {
    pub(super) call: Call,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// Whether the read checks the stream.
    pub(super) checks_stream: bool,
}

/// The result of applying a read to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The read shows the recorded state.
    AsRecorded,
    /// The read moved the id, contradicted the record, or began too early.
    Otherwise,
}

impl Reconciler {
    pub(super) fn mark_dirty(&mut self, uid: &PodUid, source: Source) -> &mut DirtyPod {
        let dirty = self.dirty.entry(uid.clone()).or_default();
        dirty.source = Some(source);
        dirty
    }

    /// Applies one report of a read to its id. Adds a record if the id is new.
    pub(super) fn read_report(&mut self, now: Instant, read: ReadAt, report: &Report) -> Found {
        let id = &report.id;
        let Some(uid) = self.read_identity(now, read, report) else {
            return Found::Otherwise;
        };
        let Some(position) = Position::shown(report.identity.kind, report.shown) else {
            self.note_label(id, &report.identity);
            return self.read_unknown(now, read, &uid, report);
        };
        let Some(record) = self.records.get_mut(id) else {
            return Found::Otherwise;
        };
        if record.note_label(&report.identity) {
            self.unlabelled.insert(id.clone());
        }
        record.provisional = false;
        let new = record.position().is_none();
        let settled = read.call == Call::Inspection && std::mem::take(&mut record.unsettled);
        let mut effect = record.read(position, read.call, read.began, now);
        if new && record.at_start {
            record.set_initial();
        }
        match effect.transition {
            Transition::Overruled => self.overrule(now, &uid, report, position, read.call),
            Transition::Contradicted { .. } => {
                self.reappear(&uid, read, report, StatusCall::of(read.call));
            }
            Transition::None
            | Transition::Same
            | Transition::Advanced(_)
            | Transition::BecameUnknown => {}
        }
        if read.call == Call::List && effect.details != DetailsChange::None {
            // A row cleared an UNKNOWN of an inspection; the details are still owed.
            self.request_inspection(now, &uid, Cause::Changed);
        }
        if let Some(record) = self.records.get_mut(id) {
            effect = effect.and(match read.call {
                Call::List => record.details_from_row(report),
                Call::Inspection => record.details_from_read(report, read.began),
            });
        }
        let later_event = effect.transition == Transition::Same
            && self.is_shown_by_later_event(read, id, position);
        if effect.advanced() || later_event {
            self.expect_event(read, id, position, new);
        }
        if effect.advanced() && read.call == Call::List {
            // Died waits for the exit code.
            self.hold_for_status(id);
            self.request_inspection(now, &uid, Cause::Changed);
        }
        self.apply(now, &uid, id, effect, source_of(read.call));
        if settled {
            self.mark_dirty(&uid, source_of(read.call)).announce_sync();
        }
        match effect.transition {
            Transition::Same => Found::AsRecorded,
            _ => Found::Otherwise,
        }
    }

    /// Adds a record if the id is new, and moves the id to the pod that the answer names. Returns its pod.
    fn read_identity(&mut self, now: Instant, read: ReadAt, report: &Report) -> Option<PodUid> {
        let id = &report.id;
        let named = self.pod_named_by(id, &report.identity);
        if !self.records.contains_key(id) {
            let stand_in = || PodUid::from(report.identity.sandbox.as_ref().unwrap_or(id));
            let uid = named.clone().unwrap_or_else(stand_in);
            self.learn(now, id, report.identity.clone(), &uid, source_of(read.call));
            if let Some(record) = self.records.get_mut(id) {
                record.at_start = read.call == Call::List && self.relist.complete().is_none();
            }
        }
        if let Some(named) = &named {
            let sandbox = report.identity.sandbox.as_ref();
            self.move_to_pod(now, (id, sandbox), named, source_of(read.call));
        }
        if read.call == Call::List {
            self.listed(id, read);
        }
        let uid = self.pod_of(id, named)?;
        self.move_containers_of(now, id, source_of(read.call));
        if let Some(pod) = self.pods.get_mut(&uid) {
            let said = &report.identity;
            pod.named(said.namespace.as_ref(), said.pod_name.as_ref());
        }
        Some(uid)
    }

    /// Announcements of the id wait until its own status was read. They do not wait if the status
    /// of the id fails, or if the pod cannot be listed.
    pub(super) fn hold_for_status(&mut self, id: &Id) {
        if let Some(record) = self.records.get_mut(id)
            && let Some(uid) = &record.identity.pod
        {
            let fails = self.scheduler.is_failing(uid)
                && (record.error.is_some() || self.scheduler.is_unlistable(uid));
            if !fails {
                record.hold();
            }
        }
    }

    /// UNKNOWN in a read: a list row makes the pod dirty once, an inspection is published.
    fn read_unknown(&mut self, now: Instant, read: ReadAt, uid: &PodUid, report: &Report) -> Found {
        let Some(record) = self.records.get_mut(&report.id) else {
            return Found::Otherwise;
        };
        if record.is_removed() {
            // UNKNOWN has no position, so it overrules nothing. But the id exists, which is a
            // contradiction.
            if read.began > record.recorded_since() {
                self.reappear(uid, read, report, StatusCall::of(read.call));
                self.add_contradiction(now, uid, &report.id, None, source_of(read.call));
            }
            return Found::Otherwise;
        }
        record.provisional = false;
        match read.call {
            Call::List => {
                let effect = record.details_from_row(report);
                self.apply(now, uid, &report.id, effect, Source::Relist);
                self.report_unknown(now, uid, &report.id, Source::Relist);
            }
            Call::Inspection => {
                let settled = std::mem::take(&mut record.unsettled);
                let effect = record.set_unknown(read.began);
                let effect = effect.and(record.details_from_read(report, read.began));
                self.apply(now, uid, &report.id, effect, Source::Inspection);
                if settled {
                    self.mark_dirty(uid, Source::Inspection).announce_sync();
                }
            }
        }
        Found::Otherwise
    }

    /// A list row or an event reported UNKNOWN: the pod is inspected once.
    pub(super) fn report_unknown(&mut self, now: Instant, uid: &PodUid, id: &Id, source: Source) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if !record.is_removed() && record.report_unknown() {
            self.mark_dirty(uid, source);
            self.request_inspection(now, uid, Cause::Unknown);
        }
    }

    /// Moves an id forward, if it is not there yet.
    pub(super) fn join(
        &mut self,
        now: Instant,
        id: &Id,
        to: Position,
        source: Source,
        evidence: Instant,
    ) -> Effect {
        let Some(record) = self.records.get_mut(id) else {
            return Effect::default();
        };
        let effect = record.join(to, source, evidence, now);
        if let Some(uid) = record.identity.pod.clone() {
            self.apply(now, &uid, id, effect, source);
        }
        effect
    }

    /// Applies what follows from the effect of an observation: what is announced and published, which
    /// reads are requested, and which timers are set.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        uid: &PodUid,
        id: &Id,
        effect: Effect,
        source: Source,
    ) {
        self.apply_transition(now, uid, id, effect.transition, source);
        if effect.details != DetailsChange::None {
            self.await_sandbox(id);
        }
        match effect.details {
            DetailsChange::None => {}
            // A consumer can do nothing with a container whose name it does not know.
            DetailsChange::Changed => {
                let dirty = self.mark_dirty(uid, source);
                dirty.announce_sync();
                dirty.details.insert(id.clone());
            }
            DetailsChange::LateExitCode => {
                let dirty = self.mark_dirty(uid, source);
                dirty.announce_changed_and_sync(id);
                dirty.details.insert(id.clone());
            }
        }
        if effect.disputed {
            if let Some(record) = self.records.get_mut(id) {
                record.disputed = true;
            }
            self.mark_dirty(uid, source);
            self.request_inspection(now, uid, Cause::Disputed);
        }
    }

    fn apply_transition(
        &mut self,
        now: Instant,
        uid: &PodUid,
        id: &Id,
        transition: Transition,
        source: Source,
    ) {
        match transition {
            // `overrule` has applied it, before the details of the new incarnation were merged.
            Transition::None | Transition::Overruled => {}
            Transition::Same => self.drop_contradiction(uid, id, source),
            Transition::Advanced(to) => {
                self.drop_contradiction(uid, id, source);
                self.mark_dirty(uid, source).ids.push(id.clone());
                match to {
                    Position::Created | Position::Running => {}
                    Position::Exited => self.watch_exit_reason(now, id),
                    Position::Removed => self.removed(now, uid, id),
                }
            }
            Transition::BecameUnknown => self.mark_dirty(uid, source).announce_changed_and_sync(id),
            Transition::Contradicted { ask_again } => {
                self.add_contradiction(now, uid, id, ask_again, source);
            }
        }
    }

    /// A container has ended: its reason may arrive late, whoever saw the end first. So may its
    /// code; whether it was a failure is known by then. What had ended at the start has the reason
    /// that it will have.
    fn watch_exit_reason(&mut self, now: Instant, id: &Id) {
        let is_awaited = |r: &Record| r.kind() == Kind::Container && !r.had_ended_at_start();
        if self.records.get(id).is_some_and(|r| is_awaited(r)) {
            self.timers
                .set(now.after(EXIT_REASON), Timer::ExitReason(id.clone()));
        }
    }
}
