//! Applying what was observed of one id to its record, and noting what that did to its pod.

use std::collections::BTreeSet;

use super::Reconciler;
use super::timers::{EXIT_REASON, Timer};
use crate::belief::{Call, Verdict};
use crate::desk::Cause;
use crate::ids::{Id, Kind, PodUid};
use crate::lifecycle::Source;
use crate::observed::{Identity, Report, Shown, Ticket};
use crate::order::Position;
use crate::record::{Effect, Record};
use crate::time::Instant;

/// What one input did to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Touched {
    /// Ids of which there may be something to announce, in the order in which they were met.
    pub(super) ids: Vec<Id>,
    /// Ids of which a ContainerChanged is to be announced.
    pub(super) changed: BTreeSet<Id>,
    /// A detail really changed, or somebody asked for a PodSync.
    pub(super) sync: bool,
    /// A ContainerChanged that brings a PodSync with it.
    pub(super) sync_too: bool,
    /// Who brought it.
    pub(super) source: Option<Source>,
}

/// A read that is being applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAt {
    pub(super) call: Call,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// The list whose verdict hangs on what this read finds first.
    pub(super) list: Option<Ticket>,
    /// Whether the read audits the stream.
    pub(super) audits: bool,
}

/// What applying a read to an id came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// As it was believed.
    AsBelieved,
    /// It moved the id, or contradicted what was believed, or came too late.
    Otherwise,
}

impl Reconciler {
    pub(super) fn touch(&mut self, uid: &PodUid, source: Source) -> &mut Touched {
        let touched = self.touched.entry(uid.clone()).or_default();
        touched.source = Some(source);
        touched
    }

    /// The pod that an answer names for an id: a sandbox's metadata uid or its own id; for a
    /// container its sandbox's pod, else its label's.
    pub(super) fn pod_named_by(
        &self,
        id: &Id,
        identity: &Identity,
        event_pod: Option<&PodUid>,
    ) -> PodUid {
        match identity.kind {
            Kind::Sandbox => identity.pod.clone().unwrap_or_else(|| PodUid::from(id)),
            Kind::Container => {
                let sandbox = identity.sandbox.as_ref();
                sandbox
                    .and_then(|s| self.records.get(s))
                    .and_then(|r| r.identity.pod.clone())
                    .or_else(|| identity.pod.clone())
                    .or_else(|| event_pod.cloned())
                    .unwrap_or_else(|| PodUid::from(sandbox.unwrap_or(id)))
            }
        }
    }

    /// Starts to hold an id. It is not in any position yet.
    pub(super) fn learn(&mut self, now: Instant, id: &Id, mut identity: Identity, uid: &PodUid) {
        identity.pod = Some(uid.clone());
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.named(identity.namespace.as_ref(), identity.pod_name.as_ref());
        pod.members.insert(id.clone());
        self.departed.remove(uid);
        self.records.insert(id.clone(), Record::new(identity, now));
    }

    /// Applies one answer of a read to the id that it is about; learns the id if it is new.
    pub(super) fn read_report(&mut self, now: Instant, read: ReadAt, report: &Report) -> Found {
        let id = &report.id;
        let new = !self.records.contains_key(id);
        if new {
            let uid = self.pod_named_by(id, &report.identity, None);
            self.learn(now, id, report.identity.clone(), &uid);
        }
        let Some(uid) = self.pod_of(id, report) else {
            return Found::Otherwise;
        };
        if let Some(pod) = self.pods.get_mut(&uid) {
            let said = &report.identity;
            pod.named(said.namespace.as_ref(), said.pod_name.as_ref());
        }
        let Some(position) = Position::shown(report.identity.kind, report.shown) else {
            return self.read_unknown(now, read, &uid, report);
        };
        self.deny_lazily(id, read, position);
        let Some(record) = self.records.get_mut(id) else {
            return Found::Otherwise;
        };
        record.provisional = false;
        let mut effect = record.read(position, read.call, read.began, now);
        if effect.denied == Some(Verdict::Overruled) {
            self.overrule(now, &uid, id, position, read.call);
        }
        if let Some(record) = self.records.get_mut(id) {
            let said = match read.call {
                Call::List => record.details_from_row(report),
                Call::Inspection => record.details_from_read(report, read.began),
            };
            effect.details |= said.details;
            effect.late_exit |= said.late_exit;
        }
        if let Some(to) = effect.advanced {
            self.claim(read, id, to, new);
            if read.call == Call::List {
                // Announced after the pod's first inspection, so that Died has its exit code.
                let number = self.number;
                if let Some(record) = self.records.get_mut(id) {
                    record.held_since = Some(number);
                }
                self.want(now, &uid, Cause::Changed);
            }
        }
        self.note(now, &uid, id, effect, source_of(read.call));
        if effect.advanced.is_none() && effect.denied.is_none() {
            Found::AsBelieved
        } else {
            Found::Otherwise
        }
    }

    /// The pod of an id that is held, also of one whose pod was not known when it was buried.
    fn pod_of(&mut self, id: &Id, report: &Report) -> Option<PodUid> {
        let named = self.pod_named_by(id, &report.identity, None);
        let record = self.records.get_mut(id)?;
        Some(record.identity.pod.get_or_insert(named).clone())
    }

    /// A list shows an id that is believed removed: complete lists since then that did not show
    /// it have supported the removal, though nobody went through all tombstones to note it.
    fn deny_lazily(&mut self, id: &Id, read: ReadAt, shown: Position) {
        let listed_since = self.audit.complete();
        let Some(record) = self.records.get_mut(id).filter(|r| r.is_removed()) else {
            return;
        };
        if read.call == Call::List && shown < Position::Removed {
            if !record.still_listed && listed_since > Some(record.believed_since()) {
                record.confirm_absence(Call::List);
            }
            record.still_listed = true;
        }
    }

    /// UNKNOWN in a read: a list row makes the pod dirty once, an inspection is published.
    fn read_unknown(&mut self, now: Instant, read: ReadAt, uid: &PodUid, report: &Report) -> Found {
        let Some(record) = self.records.get_mut(&report.id).filter(|r| !r.is_removed()) else {
            return Found::Otherwise;
        };
        record.provisional = false;
        match read.call {
            Call::List => {
                record.details_from_row(report);
                self.hint_unknown(now, uid, &report.id);
            }
            Call::Inspection => {
                let mut effect = record.lay_unknown();
                effect.details |= record.details_from_read(report, read.began).details;
                self.note(now, uid, &report.id, effect, Source::Inspection);
            }
        }
        Found::Otherwise
    }

    /// A list row or an event said UNKNOWN: the pod is inspected for it, once.
    pub(super) fn hint_unknown(&mut self, now: Instant, uid: &PodUid, id: &Id) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if !record.is_removed() && !std::mem::replace(&mut record.unknown.hinted, true) {
            self.touch(uid, Source::Relist);
            self.want(now, uid, Cause::Unknown);
        }
    }

    /// A read moved an id forward, which an event should have told, or tells within 5 s. Not so
    /// for a removal (CRI-O tells none of a pod's own) and for a sandbox whose start was not seen.
    fn claim(&mut self, read: ReadAt, id: &Id, to: Position, new: bool) {
        let Some(kind) = self.records.get(id).map(Record::kind) else {
            return;
        };
        let told = match to {
            Position::Created | Position::Removed => false,
            Position::Running => true,
            Position::Exited => kind == Kind::Container || !new,
        };
        if told && read.audits {
            let judged = self.audit.claim(id, kind, to, read.list, read.ended);
            self.timers.set(judged, Timer::Claim(id.clone(), to));
        }
    }

    /// The reads were right against what was believed: a new incarnation of the id.
    fn overrule(&mut self, now: Instant, uid: &PodUid, id: &Id, to: Position, call: Call) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        record.overrule(to, call, now);
        self.counters.overruled += 1;
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.members.insert(id.clone());
        pod.denied.remove(id);
        self.departed.remove(uid);
        let touched = self.touch(uid, source_of(call));
        touched.ids.push(id.clone());
        if to != Position::Running {
            touched.changed.insert(id.clone());
        }
        if call == Call::List {
            self.want(now, uid, Cause::Changed);
        }
    }

    /// Moves an id forward, if it is not there yet.
    pub(super) fn join(&mut self, now: Instant, id: &Id, to: Position, source: Source) -> Effect {
        let Some(record) = self.records.get_mut(id) else {
            return Effect::default();
        };
        let effect = record.join(to, source, now);
        if let Some(uid) = record.identity.pod.clone() {
            self.note(now, &uid, id, effect, source);
        }
        effect
    }

    /// Notes what an observation did to an id: what is to be announced, and what follows from it.
    pub(super) fn note(
        &mut self,
        now: Instant,
        uid: &PodUid,
        id: &Id,
        effect: Effect,
        source: Source,
    ) {
        match effect.denied {
            Some(Verdict::Stands { ask_again }) => {
                self.contradicted(now, uid, id, ask_again, source);
            }
            Some(Verdict::Stale | Verdict::Overruled) | None => self.agreed(uid, id, effect),
        }
        if effect == Effect::default() {
            return;
        }
        let touched = self.touch(uid, source);
        touched.sync |= effect.details;
        if effect.advanced.is_some() || effect.became_unknown || effect.late_exit {
            touched.ids.push(id.clone());
        }
        if effect.became_unknown || effect.late_exit {
            touched.changed.insert(id.clone());
            touched.sync_too = true;
        }
        if effect.advanced == Some(Position::Removed) {
            self.removed(now, uid, id);
        }
    }

    /// A read contradicts what is believed, and it is not decided: the later state stands, and
    /// the reads are asked again.
    fn contradicted(
        &mut self,
        now: Instant,
        uid: &PodUid,
        id: &Id,
        ask_again: Instant,
        source: Source,
    ) {
        self.counters.contradictions += 1;
        self.pods
            .entry(uid.clone())
            .or_default()
            .denied
            .insert(id.clone());
        if source == Source::Relist && ask_again > now {
            self.audit.by(ask_again);
        }
        if ask_again > now {
            self.recheck_at(uid, ask_again);
        }
    }

    /// A read or an event agrees with what is believed.
    fn agreed(&mut self, uid: &PodUid, id: &Id, effect: Effect) {
        if effect.denied.is_some() {
            return;
        }
        let still = self.records.get(id).is_some_and(Record::is_denied);
        if !still && let Some(pod) = self.pods.get_mut(uid) {
            pod.denied.remove(id);
        }
    }

    /// An id is gone: it stays as its tombstone.
    fn removed(&mut self, now: Instant, uid: &PodUid, id: &Id) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.members.remove(id);
            if pod.members.is_empty() {
                self.departed.insert(uid.clone(), now);
            }
        }
        let trust = self.stream.trust(now);
        self.audit.removed(id, trust);
        self.bury(now, id);
    }

    /// Lays the tombstone of an id that is believed removed.
    pub(super) fn bury(&mut self, now: Instant, id: &Id) {
        let drained = self.stream.drained(now);
        if let Some(record) = self.records.get_mut(id) {
            record.buried = drained;
            self.graves.lay(drained, id.clone());
        }
    }

    /// Lets go of tombstones that have lived long enough, or are too many.
    pub(super) fn clear_graves(&mut self, now: Instant) {
        let drained = self.stream.drained(now);
        let (age, most) = (self.settings.tombstone_age, self.settings.tombstones_max);
        while let Some((laid, id, dropped)) = self.graves.pop(drained, age, most) {
            let Some(record) = self.records.get(&id) else {
                continue;
            };
            if !record.is_removed() || record.buried != laid {
                continue;
            }
            if record.still_listed && !dropped {
                self.bury(now, &id);
                continue;
            }
            self.counters.tombstones_dropped += u64::from(dropped);
            let uid = record.identity.pod.clone();
            self.records.remove(&id);
            if let Some(pod) = uid.and_then(|uid| self.pods.get_mut(&uid)) {
                pod.denied.remove(&id);
            }
        }
    }

    /// An exit was learned from an event: its reason may arrive late.
    pub(super) fn watch_exit_reason(&mut self, now: Instant, id: &Id) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        if record.kind() == Kind::Container && record.exit_code().is_some_and(|code| code != 0) {
            self.timers
                .set(now.after(EXIT_REASON), Timer::ExitReason(id.clone()));
        }
    }

    /// The state that an UNKNOWN report leaves to be asked for.
    pub(super) const fn is_unknown(report: &Report) -> bool {
        matches!(report.shown, Shown::Unknown)
    }
}

pub(super) const fn source_of(call: Call) -> Source {
    match call {
        Call::List => Source::Relist,
        Call::Inspection => Source::Inspection,
    }
}
