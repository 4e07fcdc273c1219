//! The pod to which an id belongs: that of its sandbox, else that of its label, else its sandbox's id.

use std::collections::BTreeSet;

use super::Reconciler;
use crate::schedule::cause::Cause;
use crate::state::record::Record;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::Source;
use crate::types::report::Identity;
use crate::types::time::Instant;

impl Reconciler {
    /// The pod of an id according to the record and this answer: a sandbox's metadata uid; for a
    /// container its sandbox's pod, else its label's. `None` if no answer has named a pod.
    pub(super) fn pod_named_by(&self, id: &Id, identity: &Identity) -> Option<PodUid> {
        let sandbox = match identity.kind {
            Kind::Sandbox => Some(id),
            Kind::Container => identity.sandbox.as_ref(),
        };
        let of_sandbox = sandbox.and_then(|sandbox| self.records.pod_of_sandbox(sandbox));
        of_sandbox.or(identity.pod.as_ref()).cloned()
    }

    /// An answer names the pod of an id for which a sandbox's id was used as pod uid. The first
    /// valid value is recorded, whenever it arrives (invariant 7): the id moves to that pod, a
    /// sandbox with its containers.
    ///
    /// A container that was found by its label moves, too, when its sandbox is known to belong to
    /// another pod.
    pub(super) fn move_to_pod(
        &mut self,
        now: Instant,
        (id, sandbox): (&Id, Option<&Id>),
        named: &PodUid,
        source: Source,
    ) {
        let stand_in = self.stand_in(id, named);
        let from_label = stand_in.is_none();
        let by_sandbox = || self.pod_by_label(id, sandbox, named);
        let Some(from) = stand_in.or_else(by_sandbox) else {
            return;
        };
        let moving = self.moving_with(id, &from);
        if moving.is_empty() {
            return;
        }
        let mut records_move = false;
        for m in moving {
            records_move |= self.move_member(&m, (&from, named), from_label, source);
        }
        if records_move {
            self.publish_terminal_records(now, &from);
            self.publish_terminal_records(now, named);
        }
        // Earlier answers about either pod did not show where the ids belong.
        self.mark_dirty(&from, source).announce_sync();
        self.mark_dirty(named, source).announce_sync();
        // The inspection that was owed to the old pod.
        self.request_inspection(now, named, Cause::Changed);
        self.move_containers_of(now, id, source);
    }

    /// The id and those of its pod that move with it, as far as they have a record there.
    fn moving_with(&self, id: &Id, from: &PodUid) -> BTreeSet<Id> {
        let members = self.pods.get(from).map(|p| &p.members);
        let all = members.into_iter().flatten().chain([id]);
        let moves = |m: &&Id| {
            self.records.get(*m).is_some_and(|r| {
                let is_of_it = r.identity.sandbox.as_ref() == Some(id);
                // A container status inside an event may not name its sandbox.
                let came_along = *from == PodUid::from(id);
                r.identity.pod.as_ref() == Some(from) && (*m == id || is_of_it || came_along)
            })
        };
        all.filter(moves).cloned().collect()
    }

    /// Moves one id, with what is to be announced of it. Returns whether a terminal record moves, too.
    fn move_member(
        &mut self,
        m: &Id,
        (from, to): (&PodUid, &PodUid),
        from_label: bool,
        source: Source,
    ) -> bool {
        if let Some(mut dirty) = self.dirty.remove(from) {
            self.mark_dirty(to, source).take_over(m, &mut dirty);
            self.dirty.insert(from.clone(), dirty);
        }
        let record_moves = self.terminals.move_to_pod(m, to).is_some();
        let old = self.pods.entry(from.clone()).or_default();
        let (exists, contradicted) = (old.members.remove(m), old.contradicted.remove(m));
        let reappeared = old.reappeared.remove(m);
        let Some(record) = self.records.get_mut(m) else {
            return record_moves;
        };
        record.mislabelled |= from_label && !record.identity.unlabelled;
        record.identity.pod = Some(to.clone());
        if record.is_unlabelled() {
            self.unlabelled.insert(m.clone());
        }
        let pod = self.pods.entry(to.clone()).or_default();
        let said = &record.identity;
        pod.named(said.namespace.as_ref(), said.pod_name.as_ref());
        if exists {
            pod.members.insert(m.clone());
        }
        if let Some(mut shown) = reappeared {
            shown.identity.pod = Some(to.clone());
            pod.reappeared.insert(m.clone(), shown);
        }
        if contradicted {
            pod.contradicted.insert(m.clone());
        }
        record_moves
    }

    /// The id that was used as the pod's uid until now: the id itself, or its sandbox's.
    fn stand_in(&self, id: &Id, named: &PodUid) -> Option<PodUid> {
        let identity = &self.records.get(id)?.identity;
        let pod = identity.pod.as_ref().filter(|pod| *pod != named)?;
        self.stands_in(pod, id, identity).then(|| pod.clone())
    }

    /// Whether that uid is not the pod's, but the id of its sandbox, or of a container without one.
    fn stands_in(&self, uid: &PodUid, id: &Id, identity: &Identity) -> bool {
        let own = identity.sandbox.as_ref().unwrap_or(id);
        uid.as_str() == own.as_str() || self.records.contains_key(uid.as_str())
    }

    /// Whether lists of that pod, which select by the label with its uid, show the id if it exists.
    pub(super) fn is_listed_by(&self, uid: &PodUid, id: &Id, record: &Record) -> bool {
        record.identity.pod.as_ref() == Some(uid)
            && !record.is_unlabelled()
            && !self.stands_in(uid, id, &record.identity)
    }

    /// The pod to which a container belonged until now, if its sandbox belongs to `named`.
    fn pod_by_label(&self, id: &Id, sandbox: Option<&Id>, named: &PodUid) -> Option<PodUid> {
        let identity = &self.records.get(id)?.identity;
        let sandbox = sandbox.or(identity.sandbox.as_ref())?;
        let of_sandbox = self.records.get(sandbox)?.identity.pod.as_ref();
        let is_its = identity.kind == Kind::Container
            && of_sandbox == Some(named)
            && *named != PodUid::from(sandbox);
        let pod = identity.pod.as_ref().filter(|pod| *pod != named);
        pod.filter(|_| is_its).cloned()
    }

    /// Adds a record for a new id, without a position.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        id: &Id,
        mut identity: Identity,
        uid: &PodUid,
        source: Source,
    ) {
        let mislabelled = identity.pod.as_ref().is_some_and(|named| named != uid);
        identity.pod = Some(uid.clone());
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.named(identity.namespace.as_ref(), identity.pod_name.as_ref());
        pod.members.insert(id.clone());
        // The pod and its ids share one copy of these texts.
        for (own, of_pod) in [
            (&mut identity.namespace, &pod.namespace),
            (&mut identity.pod_name, &pod.name),
        ] {
            if own.as_ref() == Some(of_pod) {
                *own = Some(of_pod.clone());
            }
        }
        let sandbox = identity.sandbox.as_ref();
        if let Some((sandbox, _)) = sandbox.and_then(|s| self.records.get_key_value(s)) {
            identity.sandbox = Some(sandbox.clone());
        }
        let mut record = Record::new(identity, now);
        record.reports = self.unrecorded.take(id);
        record.mislabelled = mislabelled;
        if record.is_unlabelled() {
            self.unlabelled.insert(id.clone());
        }
        self.records.insert(id.clone(), record);
        self.await_sandbox(id);
        self.move_containers_of(now, id, source);
    }

    /// Notes whether the lists of its pod show the id, which the label in an answer decides.
    pub(super) fn note_label(&mut self, id: &Id, identity: &Identity) {
        let record = self.records.get_mut(id);
        if record.is_some_and(|record| record.note_label(identity)) {
            self.unlabelled.insert(id.clone());
        }
    }

    /// A container moves to its sandbox's pod as soon as an answer has named it.
    pub(super) fn await_sandbox(&mut self, id: &Id) {
        if let Some(record) = self.records.get(id)
            && !record.is_removed()
            && let Some(sandbox) = &record.identity.sandbox
            && self.records.pod_of_sandbox(sandbox).is_none()
        {
            let waiting = self.awaiting_sandbox.entry(sandbox.clone()).or_default();
            waiting.insert(id.clone());
        }
    }

    /// A container was removed.
    pub(super) fn forget_awaited_sandbox(&mut self, id: &Id, sandbox: &Id) {
        if let Some(waiting) = self.awaiting_sandbox.get_mut(sandbox) {
            waiting.remove(id);
            if waiting.is_empty() {
                self.awaiting_sandbox.remove(sandbox);
            }
        }
    }

    /// Moves the containers that await the pod of this sandbox, if an answer has named it.
    pub(super) fn move_containers_of(&mut self, now: Instant, sandbox: &Id, source: Source) {
        if self.awaiting_sandbox.contains_key(sandbox)
            && let Some(pod) = self.records.pod_of_sandbox(sandbox).cloned()
        {
            for container in self.awaiting_sandbox.remove(sandbox).into_iter().flatten() {
                self.move_to_pod(now, (&container, Some(sandbox)), &pod, source);
            }
        }
    }

    /// The pod of an id that is held, also of one whose pod was not known when it was removed.
    pub(super) fn pod_of(&mut self, id: &Id, named: Option<PodUid>) -> Option<PodUid> {
        let record = self.records.get_mut(id)?;
        let uid = named.unwrap_or_else(|| PodUid::from(id));
        Some(record.identity.pod.get_or_insert(uid).clone())
    }
}
