//! Outputs: cache writes, then announcements, pod by pod.

use std::sync::Arc;

use super::apply::{DirtyPod, PodSync};
use super::timers::{TERMINALS, Timer};
use super::{Output, Reconciler};
use crate::state::order::Position;
use crate::state::pod::Pod;
use crate::state::record::Record;
use crate::state::terminal::TerminalRecord;
use crate::types::ids::{Id, Ids, PodUid};
use crate::types::lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
use crate::types::status::{PodView, Text};
use crate::types::time::Instant;

impl Reconciler {
    /// Publishes every pod that the present input made dirty. The cache is written before the
    /// announcement (invariant 9).
    pub(super) fn publish(&mut self, now: Instant) {
        for (uid, dirty) in std::mem::take(&mut self.dirty) {
            let events = self.announcements(now, &uid, &dirty);
            self.write_cache(now, &uid);
            self.keep_terminal_records(now, &uid, &events, &dirty.details);
            self.out.extend(events.into_iter().map(Output::Announce));
        }
        self.check_synced();
    }

    fn write_cache(&mut self, now: Instant, uid: &PodUid) {
        self.watch_ended_pod(now, uid);
        let inspected = self.inspected(uid);
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        if pod.is_gone() {
            let was = pod.published.take();
            self.state_counts.recount(was.as_deref(), None);
            self.pods.remove(uid);
            self.scheduler.forget(uid);
            self.removed_pods.insert(uid.clone(), now);
            if was.is_some() {
                self.out.push_back(Output::Remove { uid: uid.clone() });
                if self.terminals.pod_gone(uid, now) {
                    self.timers
                        .set(now.after(TERMINALS), Timer::ForgetTerminals(uid.clone()));
                }
            }
            return;
        }
        self.removed_pods.remove(uid);
        let status = pod.assemble(uid, &self.records);
        let status = match pod.published.take() {
            Some(old) if *old == status => old,
            old => {
                self.state_counts.recount(old.as_deref(), Some(&status));
                Arc::new(status)
            }
        };
        pod.published = Some(status.clone());
        let view = PodView::new(status, pod.as_of, inspected);
        self.out.push_back(Output::Publish {
            uid: uid.clone(),
            view,
        });
    }

    /// The announcements for the pod, in legal order.
    fn announcements(
        &mut self,
        now: Instant,
        uid: &PodUid,
        dirty: &DirtyPod,
    ) -> Vec<PodLifecycleEvent> {
        let brought = dirty.source.unwrap_or(Source::Inspection);
        let mut events = Vec::new();
        let pod = self.pods.get(uid).map(|pod| &**pod);
        for id in &dirty.ids {
            // If the id occurs twice, the first occurrence announces everything.
            let Some(record) = self.records.get_mut(id) else {
                continue;
            };
            let due = record.announce();
            events.extend(due.map(|what| {
                let source = source_of_event(record, what).unwrap_or(brought);
                event(now, uid, pod, (id, record), what, source)
            }));
        }
        for id in &dirty.changed {
            if let Some(record) = self.records.get(id) {
                let what = LifecycleType::ContainerChanged;
                events.push(event(now, uid, pod, (id, record), what, brought));
            }
        }
        // Changed details beside a waiting announcement are announced with it.
        let syncs = match dirty.sync {
            PodSync::No => false,
            PodSync::Alone => events.is_empty() && !self.holds_back(uid),
            PodSync::Always => true,
        };
        if syncs {
            events.push(self.pod_sync(now, uid, brought));
        }
        events
    }

    /// Whether the announcements of an id of the pod wait for its status.
    fn holds_back(&self, uid: &PodUid) -> bool {
        let members = self.pods.get(uid).into_iter().flat_map(|pod| &pod.members);
        members
            .filter_map(|id| self.records.get(id))
            .any(|r| r.is_held())
    }

    fn pod_sync(&self, now: Instant, uid: &PodUid, source: Source) -> PodLifecycleEvent {
        let pod = self.pods.get(uid).map(|pod| &**pod);
        let (namespace, pod_name) = pod.map_or_else(Default::default, names);
        PodLifecycleEvent {
            event: LifecycleType::PodSync,
            uid: uid.clone(),
            namespace,
            pod_name,
            subject: None,
            source,
            initial: false,
            detected: now,
            happened_at: None,
        }
    }

    /// Adds terminal records for the announced ends, and updates those whose details became known
    /// later.
    fn keep_terminal_records(
        &mut self,
        now: Instant,
        uid: &PodUid,
        events: &[PodLifecycleEvent],
        details: &Ids,
    ) {
        let mut ends = Ids::default();
        for id in details {
            let record = self.records.get(id);
            if record.is_some_and(|r| self.terminals.holds(id, r.incarnation())) {
                ends.insert(id.clone());
            }
        }
        for event in events {
            let Some(s) = &event.subject else { continue };
            // Removed only updates an existing terminal record: Died always comes before it, and an
            // acknowledged record must not return.
            let is_end = match event.event {
                LifecycleType::ContainerDied => true,
                LifecycleType::ContainerRemoved => {
                    ends.contains(&s.id) || self.terminals.holds(&s.id, s.incarnation)
                }
                _ => false,
            };
            if is_end {
                ends.insert(s.id.clone());
            }
        }
        let mut pods = Vec::new();
        for id in &ends {
            if let Some(record) = self.records.get(id) {
                // Its own pod, in case it moved in this turn.
                let pod = record.identity.pod.as_ref().unwrap_or(uid);
                self.terminals.keep(pod, terminal_record(id, record, now));
                pods.push(pod.clone());
            }
        }
        pods.sort_unstable();
        pods.dedup();
        for pod in pods {
            self.publish_terminal_records(now, &pod);
        }
    }

    /// Publishes the terminal records of a pod. If the pod is gone, they expire after ten minutes.
    pub(super) fn publish_terminal_records(&mut self, now: Instant, uid: &PodUid) {
        let records = self.terminals.of(uid);
        self.out.push_back(Output::Terminals {
            uid: uid.clone(),
            records,
        });
        let gone = self.pods.get(uid).is_none_or(|p| p.is_gone());
        if gone && self.terminals.pod_gone(uid, now) {
            self.timers
                .set(now.after(TERMINALS), Timer::ForgetTerminals(uid.clone()));
        }
    }

    /// The pod was inspected once, or failed once.
    pub(super) fn inspected_once(&mut self, uid: &PodUid) {
        if let Some(waiting) = &mut self.unsynced {
            waiting.remove(uid);
        }
    }

    pub(super) fn check_synced(&mut self) {
        let Some(waiting) = &mut self.unsynced else {
            return;
        };
        // One pod that is still owed its inspection is enough to know.
        while waiting.first().is_some_and(|uid| !self.scheduler.owes(uid)) {
            waiting.pop_first();
        }
        if waiting.is_empty() {
            self.synced = true;
            self.unsynced = None;
            self.out.push_back(Output::Synced);
        }
    }
}

/// The announcement for an id of that pod.
fn event(
    now: Instant,
    uid: &PodUid,
    pod: Option<&Pod>,
    (id, record): (&Id, &Record),
    event: LifecycleType,
    source: Source,
) -> PodLifecycleEvent {
    let own = || {
        let said = &record.identity;
        let (namespace, name) = (said.namespace.clone(), said.pod_name.clone());
        (namespace.unwrap_or_default(), name.unwrap_or_default())
    };
    let (namespace, pod_name) = pod.map_or_else(own, names);
    let started = event == LifecycleType::ContainerStarted;
    let subject = Subject {
        id: id.clone(),
        kind: record.kind(),
        name: record.identity.name.clone().unwrap_or_default(),
        attempt: record.identity.attempt,
        incarnation: record.incarnation(),
        exit_code: record.exit_code().filter(|_| !started),
        reason: if started {
            Text::default()
        } else {
            record.reason()
        },
    };
    PodLifecycleEvent {
        event,
        uid: uid.clone(),
        namespace,
        pod_name,
        subject: Some(subject),
        source,
        initial: record.is_initial(event),
        detected: now,
        happened_at: record.happened_at(event),
    }
}

fn names(pod: &Pod) -> (Text, Text) {
    (pod.namespace.clone(), pod.name.clone())
}

fn terminal_record(id: &Id, record: &Record, now: Instant) -> TerminalRecord {
    TerminalRecord {
        id: id.clone(),
        kind: record.kind(),
        name: record.identity.name.clone().unwrap_or_default(),
        attempt: record.identity.attempt,
        incarnation: record.incarnation(),
        exit_code: record.exit_code(),
        reason: record.reason(),
        finished_at: record.finished_at(),
        detected: now,
        removed: record.is_removed(),
    }
}

/// The source that showed the announced state first.
fn source_of_event(record: &Record, what: LifecycleType) -> Option<Source> {
    match what {
        LifecycleType::ContainerStarted => record.source(Position::Running),
        LifecycleType::ContainerDied => record
            .source(Position::Exited)
            .or_else(|| record.source(Position::Removed)),
        LifecycleType::ContainerRemoved => record.source(Position::Removed),
        LifecycleType::ContainerChanged => record.source(Position::Created),
        LifecycleType::PodSync => None,
    }
}
