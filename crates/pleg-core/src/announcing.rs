//! Announces the lifecycle events of published pods and of removed sandboxes and containers.

use std::cmp::Reverse;

use crate::announcements::Published;
use crate::output::Output;
use crate::pods::{Applied, Left, Pod, Record};
use crate::reconciler::Reconciler;
use crate::types::{
    Hint, Id, Instant, Kind, LifecycleType, PodLifecycleEvent, PodStatus, PodUid, ReportedState,
    Source, Subject, Text,
};

use LifecycleType::{ContainerChanged, ContainerDied, ContainerStarted};

impl Reconciler {
    /// Announces a pod's state changes. Returns false if it announces none and none waits: then PodSync is needed.
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
        let mut records: Vec<_> = pod.into_iter().flat_map(Pod::records).collect();
        records.sort_by_key(|(_, record)| record.kind());
        let mut waits = false;
        let mut events = Vec::new();
        for (id, record) in records {
            let published = published(record);
            let types = match applied.undone.contains(id) {
                true => self.announcements.undone(id, &published, now),
                false => self.announcements.published(id, &published, now),
            };
            waits |= self.announcements.waits(id);
            events.extend(types.into_iter().map(|what| (id, record, what)));
        }
        // The removal of a container is announced before the removal of its sandbox.
        let mut removed: Vec<_> = applied.removed.iter().collect();
        removed.sort_by_key(|(_, record)| Reverse(record.kind()));
        for (id, record) in removed {
            let types = self.announcements.removed(id).into_iter();
            events.extend(types.map(|what| (id, record, what)));
        }
        // If the pod has no id left, its name and namespace come from the removed ids.
        let removed = applied.removed.iter().map(|(_, record)| record);
        let names = pod.map(|pod| (pod.namespace.clone(), pod.name.clone()));
        let mut names = names.into_iter().chain(removed.map(names_of));
        let names = names.find(|(_, name)| !name.is_empty()).unwrap_or_default();
        let announces = !events.is_empty();
        for (id, record, (what, initial)) in events {
            // After an exit with a nonzero or unknown code, reads the status again: runtimes may set the reason late.
            if (what, record.kind(), initial) == (ContainerDied, Kind::Container, false)
                && record.exit_code() != Some(0)
            {
                self.probe.exited_with_error(id, now);
            }
            let event = event(now, uid, &names, id, record, what, source);
            let event = PodLifecycleEvent { initial, ..event };
            self.out.push(Output::Announce(event));
        }
        announces || waits
    }

    /// Announces PodSync, for a change that no other lifecycle event reports, or because a caller requested it.
    pub(crate) fn announce_sync(&mut self, now: Instant, status: &PodStatus, source: Source) {
        self.out.push(Output::Announce(PodLifecycleEvent {
            namespace: status.namespace.clone(),
            pod_name: status.name.clone(),
            source,
            ..PodLifecycleEvent::new(LifecycleType::PodSync, status.uid.clone(), None, now)
        }));
    }

    /// Announces Died without an exit code for each id whose announcement has waited too long for the code.
    pub(crate) fn announce_without_code(&mut self, now: Instant) {
        for id in self.announcements.overdue(now) {
            if let Some(uid) = self.pods.pod_of(&id).cloned() {
                self.announce(now, &uid, &Applied::default(), Source::Inspection);
            }
        }
    }

    /// Announces the exit code of a removed id: an event reported the exit code after the removal.
    pub(crate) fn announce_late(&mut self, now: Instant, id: &Id, hint: &Hint) {
        if self.announcements.has_begun()
            && let Some(end) = hint.end()
            && let Some(Left { uid, record }) = self.pods.gone.learn_end(id, end, now)
        {
            let (names, source) = (names_of(&record), Source::Stream);
            let event = event(now, &uid, &names, id, &record, ContainerChanged, source);
            self.out.push(Output::Announce(event));
        }
    }

    /// Announces an id that was created, ended and was removed before any read published it. Ignores events from
    /// before the subscribe call, because the runtime may have replayed them.
    pub(crate) fn announce_short_life(&mut self, now: Instant, id: &Id, hint: &Hint) {
        let own = hint.own.as_ref().filter(|_| hint.is_new);
        if let Some(own) = own.filter(|_| self.announcements.has_begun())
            && let Some(uid) = own.identity.pod.clone()
        {
            let mut record = Record::new(own, true);
            record.see(ReportedState::Exited, now, now);
            let (names, source) = (names_of(&record), Source::Stream);
            let end = Published {
                was_started: true,
                ..published(&record)
            };
            let mut events = self.announcements.published(id, &end, now);
            events.extend(self.announcements.removed(id));
            for (what, initial) in events {
                let event = event(now, &uid, &names, id, &record, what, source);
                self.out
                    .push(Output::Announce(PodLifecycleEvent { initial, ..event }));
            }
            self.pods.gone.insert(id, Left { uid, record }, now);
        }
    }
}

/// The namespace and the name of the record's pod.
fn names_of(record: &Record) -> (Text, Text) {
    let names = [&record.identity.namespace, &record.identity.pod_name];
    let [namespace, name] = names.map(|name| name.clone().unwrap_or_default());
    (namespace, name)
}

/// A lifecycle event about an id.
fn event(
    now: Instant,
    uid: &PodUid,
    (namespace, name): &(Text, Text),
    id: &Id,
    record: &Record,
    what: LifecycleType,
    source: Source,
) -> PodLifecycleEvent {
    let is_start = what == ContainerStarted;
    let subject = Subject {
        id: id.clone(),
        kind: record.kind(),
        name: record.identity.name.clone().unwrap_or_default(),
        attempt: record.identity.attempt,
        exit_code: record.exit_code().filter(|_| !is_start),
        reason: match is_start {
            true => Text::default(),
            false => record.reason(),
        },
    };
    PodLifecycleEvent {
        namespace: namespace.clone(),
        pod_name: name.clone(),
        source,
        happened_at: match what {
            ContainerStarted => record.started_at(),
            ContainerDied | ContainerChanged => record.finished_at(),
            _ => None,
        },
        ..PodLifecycleEvent::new(what, uid.clone(), Some(subject), now)
    }
}

/// The fields of a sandbox's or container's record that decide which lifecycle events are announced.
fn published(record: &Record) -> Published {
    Published {
        state: record.state,
        unknown: record.unknown,
        was_started: record.started_at().is_some(),
        exit_code: record.exit_code(),
        reason: record.reason(),
        code_is_due: record.code_is_due(),
    }
}
