//! Lifecycle events of published pods, and of ids that were gone before any read has shown them.

use std::cmp::Reverse;

use crate::announcements::Published;
use crate::output::Output;
use crate::pods::{Applied, Left, Record};
use crate::reconciler::Reconciler;
use crate::types::hint::Hint;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
use crate::types::report::ReportedState;
use crate::types::status::{PodStatus, Text};
use crate::types::time::Instant;

use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};

impl Reconciler {
    /// Announces what has changed of a pod. Returns true if anything was announced, or will be when its exit code is known.
    pub(crate) fn announce(
        &mut self,
        now: Instant,
        uid: &PodUid,
        applied: &Applied,
        source: Source,
    ) -> bool {
        if !self.announcements.has_begun() {
            return true;
        }
        let pod = self.pods.get(uid);
        let mut waits = false;
        let mut names = Names::unknown(uid);
        let mut events = Vec::new();
        if let Some(pod) = pod {
            (names.namespace, names.name) = (pod.namespace.clone(), pod.name.clone());
            let mut records: Vec<_> = pod.records.iter().collect();
            records.sort_by_key(|(_, record)| record.kind());
            for (id, record) in records {
                let all = &mut self.announcements;
                let published = published(record);
                let types = match applied.undone.contains(id) {
                    true => all.undone(id, &published, now),
                    false => all.published(id, &published, now),
                };
                waits |= all.waits(id);
                events.extend(types.into_iter().map(|(what, initial)| PodLifecycleEvent {
                    initial,
                    ..names.event(now, id, record, what, source)
                }));
            }
        }
        // If no id of the pod is left, only the removed ones have its names.
        for (_, record) in &applied.removed {
            names.fill(record);
        }
        // Containers are removed before their sandbox.
        let mut removed: Vec<_> = applied.removed.iter().collect();
        removed.sort_by_key(|(_, record)| Reverse(record.kind()));
        for (id, record) in removed {
            let types = self.announcements.removed(id).into_iter();
            events.extend(types.map(|(what, initial)| PodLifecycleEvent {
                initial,
                ..names.event(now, id, record, what, source)
            }));
        }
        let announces = !events.is_empty();
        for event in events {
            self.expect_late_reason(now, &event);
            self.out.push(Output::Announce(event));
        }
        announces || waits
    }

    /// The reason of an exit with an error, or with an unknown code, may become known late.
    fn expect_late_reason(&mut self, now: Instant, event: &PodLifecycleEvent) {
        if let Some(subject) = &event.subject
            && (event.event, subject.kind) == (ContainerDied, Kind::Container)
            && subject.exit_code != Some(0)
            && !event.initial
        {
            self.probe.exited_with_error(&subject.id, now);
        }
    }

    /// Another detail of the pod has changed.
    pub(crate) fn announce_sync(&mut self, now: Instant, status: &PodStatus, source: Source) {
        self.out.push(Output::Announce(PodLifecycleEvent {
            event: LifecycleType::PodSync,
            uid: status.uid.clone(),
            namespace: status.namespace.clone(),
            pod_name: status.name.clone(),
            subject: None,
            source,
            initial: false,
            detected: now,
            happened_at: None,
        }));
    }

    /// Announces ends whose exit code did not become known in time.
    pub(crate) fn announce_without_code(&mut self, now: Instant) {
        for id in self.announcements.overdue(now) {
            if let Some(uid) = self.pods.pod_of(&id).cloned() {
                self.announce(now, &uid, &Applied::default(), Source::Inspection);
            }
        }
    }

    /// Announces what an event adds to an id that is gone: its exit code, or its whole life if earlier events may have
    /// been replayed and this one was not.
    pub(crate) fn announce_late(&mut self, now: Instant, id: &Id, hint: &Hint) {
        if !self.announcements.has_begun() {
            return;
        }
        if let Some(end) = hint.end()
            && let Some(left) = self.pods.learn_end_of_gone(id, end, now)
        {
            self.announce_gone(now, id, &left, &[ContainerChanged]);
        }
        if hint.is_new
            && let Some(left) = self.pods.gone_is_new(id, now)
        {
            self.announce_gone(now, id, &left, LIFE);
        }
    }

    /// An id has lived and ended between two reads. Events that are older than the stream announce nothing, because the
    /// runtime may have replayed them.
    pub(crate) fn announce_short_life(&mut self, now: Instant, id: &Id, hint: &Hint) {
        let Some(own) = &hint.own else { return };
        let Some(uid) = own.identity.pod.clone() else {
            return;
        };
        let mut record = Record::new(own, true);
        record.see(ReportedState::Exited, now, now);
        let left = Left {
            uid,
            record,
            is_unannounced: !hint.is_new,
        };
        if hint.is_new {
            self.announce_gone(now, id, &left, LIFE);
        }
        self.pods.never_shown(id, left, now);
    }

    fn announce_gone(&mut self, now: Instant, id: &Id, left: &Left, types: &[LifecycleType]) {
        let Left { uid, record, .. } = left;
        let mut names = Names::unknown(uid);
        names.fill(record);
        for &what in types {
            let event = names.event(now, id, record, what, Source::Stream);
            self.out.push(Output::Announce(event));
        }
    }
}

/// What is announced of an id that no read has shown.
const LIFE: &[LifecycleType] = &[ContainerStarted, ContainerDied, ContainerRemoved];

/// The names of a pod.
struct Names<'a> {
    uid: &'a PodUid,
    namespace: Text,
    name: Text,
}

impl<'a> Names<'a> {
    fn unknown(uid: &'a PodUid) -> Self {
        let (namespace, name) = Default::default();
        Self {
            uid,
            namespace,
            name,
        }
    }

    /// Takes the names from the identity of an id, unless they are known.
    fn fill(&mut self, record: &Record) {
        let (namespace, name) = (&record.identity.namespace, &record.identity.pod_name);
        if let (true, Some(namespace), Some(name)) = (self.name.is_empty(), namespace, name) {
            (self.namespace, self.name) = (namespace.clone(), name.clone());
        }
    }

    /// A lifecycle event about an id of the pod.
    fn event(
        &self,
        now: Instant,
        id: &Id,
        record: &Record,
        what: LifecycleType,
        source: Source,
    ) -> PodLifecycleEvent {
        let is_start = what == ContainerStarted;
        let reason = match is_start {
            true => Text::default(),
            false => record.reason(),
        };
        let subject = Subject {
            id: id.clone(),
            kind: record.kind(),
            name: record.identity.name.clone().unwrap_or_default(),
            attempt: record.identity.attempt,
            exit_code: record.exit_code().filter(|_| !is_start),
            reason,
        };
        PodLifecycleEvent {
            event: what,
            uid: self.uid.clone(),
            namespace: self.namespace.clone(),
            pod_name: self.name.clone(),
            subject: Some(subject),
            source,
            initial: false,
            detected: now,
            happened_at: match what {
                ContainerStarted => record.started_at(),
                ContainerDied => record.finished_at(),
                _ => None,
            },
        }
    }
}

/// What is published of a record.
fn published(record: &Record) -> Published {
    Published {
        state: record.state,
        unknown: record.unknown,
        was_started: record.kind() == Kind::Container && record.started_at().is_some(),
        exit_code: record.exit_code(),
        reason: record.reason(),
        code_is_due: record.code_is_due(),
    }
}
