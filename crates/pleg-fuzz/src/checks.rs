//! Checks that hold for every output, whatever the input: a record of what was requested, read, cached,
//! announced and answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pleg_core::{
    CallError, ContainerState, Id, Instant, LifecycleType, Output, PodLifecycleEvent, PodStatus,
    PodUid, PodView, SandboxState, Settings, StateCounts, TerminalRecord, Ticket, WaiterId,
};

/// The states of an id, whatever its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Created,
    Running,
    Exited,
}

/// A waiter for a pod.
#[derive(Debug)]
struct Waiter {
    uid: PodUid,
    after: Instant,
    at: Instant,
    /// The highest ticket when it was added.
    newest: Ticket,
}

#[derive(Debug)]
pub(crate) struct Checks {
    most_in_flight: usize,
    cache: BTreeMap<PodUid, PodView>,
    newest: Ticket,
    list: Option<Ticket>,
    inspections: BTreeMap<Ticket, PodUid>,
    /// Starts of complete lists, and of complete inspections per pod.
    lists: BTreeSet<Instant>,
    inspected: BTreeMap<PodUid, BTreeSet<Instant>>,
    /// The last failed list; pods that are read by complete lists get its error.
    list_failed: Ticket,
    /// Starts of reads that may have returned a status.
    status_reads: BTreeSet<Instant>,
    /// The newest inspection of a pod that failed or was cancelled.
    failed: BTreeMap<PodUid, Ticket>,
    waiting: BTreeMap<WaiterId, Waiter>,
    list_waiters: BTreeSet<WaiterId>,
    /// The announcements per incarnation of an id.
    announced: BTreeMap<Id, BTreeMap<u32, Vec<LifecycleType>>>,
    /// Whether the current input may answer waiters.
    answers: bool,
    /// Whether the pods that existed at the start have been announced.
    synced: bool,
}

impl Checks {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            most_in_flight: settings.inspections + settings.retries + settings.overdue_max,
            cache: BTreeMap::new(),
            newest: Ticket::default(),
            list: None,
            inspections: BTreeMap::new(),
            lists: BTreeSet::new(),
            inspected: BTreeMap::new(),
            list_failed: Ticket::default(),
            status_reads: BTreeSet::new(),
            failed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            list_waiters: BTreeSet::new(),
            announced: BTreeMap::new(),
            answers: false,
            synced: false,
        }
    }

    // --- inputs ---

    pub(crate) const fn other_input(&mut self) {
        self.answers = false;
    }

    pub(crate) fn list_read(&mut self, ticket: Ticket, began: Instant, complete: bool) {
        self.answers = true;
        if self.list.take_if(|t| *t == ticket).is_none() {
            return;
        }
        if complete {
            self.lists.insert(began);
        } else {
            self.list_failed = ticket;
        }
    }

    pub(crate) fn pod_read(&mut self, ticket: Ticket, began: Instant, complete: bool) {
        self.answers = true;
        self.status_reads.insert(began);
        let Some(uid) = self.inspections.remove(&ticket) else {
            return;
        };
        if complete {
            self.inspected.entry(uid).or_default().insert(began);
        } else {
            self.failed.insert(uid, ticket);
        }
    }

    pub(crate) fn status_read(&mut self, began: Instant) {
        self.answers = true;
        self.status_reads.insert(began);
    }

    /// A request may be answered at once from an earlier read.
    pub(crate) fn waiter_added(&mut self, id: WaiterId, uid: &PodUid, after: Instant, at: Instant) {
        self.answers = true;
        let waiter = Waiter {
            uid: uid.clone(),
            after,
            at,
            newest: self.newest,
        };
        self.waiting.insert(id, waiter);
    }

    pub(crate) fn list_waiter_added(&mut self, waiter: WaiterId) {
        self.list_waiters.insert(waiter);
    }

    pub(crate) fn cancelled(&mut self, waiter: WaiterId) {
        self.waiting.remove(&waiter);
        self.list_waiters.remove(&waiter);
    }

    // --- outputs ---

    pub(crate) fn output(&mut self, now: Instant, output: &Output) {
        match output {
            Output::Publish { uid, view } => self.published(now, uid, view),
            Output::Remove { uid } => {
                let nothing = Arc::new(PodStatus::nothing(uid.clone()));
                let view = self.cache.get_mut(uid).expect("a cached pod");
                *view = PodView::new(nothing, view.as_of, view.inspected);
            }
            Output::ListApplied { as_of, gone } => {
                assert!(
                    self.lists.contains(as_of),
                    "ListApplied as of an instant at which no list began: {as_of:?}"
                );
                for uid in gone {
                    let view = self.cache.remove(uid);
                    let nothing = view.is_none_or(|v| v.status.is_nothing());
                    assert!(
                        nothing,
                        "{uid} is removed from the cache and its status is not empty"
                    );
                }
            }
            Output::Refresh { as_of, pods } => {
                assert!(
                    self.lists.contains(as_of),
                    "Refresh as of an instant at which no list began: {as_of:?}"
                );
                for uid in &pods.among(self.cache.keys().cloned()) {
                    let view = self.cache.get_mut(uid).expect("a cached pod");
                    let nothing = view.status.is_nothing();
                    assert!(!nothing, "{uid} is refreshed and its status is empty");
                    view.as_of = view.as_of.max(Some(*as_of));
                }
            }
            Output::Terminals { uid, records } => terminal_records_bounded(uid, records),
            Output::Announce(event) => self.announced(now, event),
            Output::Answer { waiter, answer } => self.answered(*waiter, answer),
            Output::Listed { waiter, .. } => {
                assert!(
                    self.list_waiters.remove(waiter),
                    "{waiter:?} does not wait for a list"
                );
            }
            Output::List {
                ticket, deadline, ..
            } => {
                assert!(self.list.is_none(), "a second list is requested");
                assert!(!deadline.is_zero());
                self.list = Some(*ticket);
                self.check_ticket(*ticket);
            }
            Output::Inspect { ticket, uid, .. } => {
                let twice = self.inspections.values().any(|u| u == uid);
                assert!(!twice, "{uid} is inspected twice at a time (invariant 11)");
                self.inspections.insert(*ticket, uid.clone());
                let in_flight = self.inspections.len();
                assert!(
                    in_flight <= self.most_in_flight,
                    "{in_flight} inspections in flight"
                );
                self.check_ticket(*ticket);
            }
            Output::Read { ticket, .. } | Output::Version { ticket, .. } => {
                self.check_ticket(*ticket);
            }
            Output::Cancel { ticket } => {
                let uid = self.inspections.remove(ticket);
                self.failed
                    .insert(uid.expect("an inspection in flight"), *ticket);
            }
            Output::Synced => {
                assert!(!self.synced, "synced twice");
                assert!(!self.lists.is_empty(), "synced before a complete list");
                self.synced = true;
            }
            Output::Resubscribe => {}
            other => panic!("an unknown output: {other:?}"),
        }
    }

    fn check_ticket(&mut self, ticket: Ticket) {
        assert!(
            ticket > self.newest,
            "{ticket:?} is not newer than the last ticket"
        );
        self.newest = ticket;
    }

    fn published(&mut self, now: Instant, uid: &PodUid, view: &PodView) {
        assert_eq!(*uid, view.status.uid, "published for another pod");
        self.check_as_of(now, uid, view);
        if let Some(old) = self.cache.get(uid)
            && !old.status.is_nothing()
        {
            assert!(
                view.as_of >= old.as_of,
                "{uid} was as of {:?} and is as of {:?} (invariant 3)",
                old.as_of,
                view.as_of
            );
        }
        let ids: BTreeSet<Id> = states(&view.status).map(|(id, _)| id).collect();
        assert_eq!(
            ids.len(),
            states(&view.status).count(),
            "an id is shown twice in {uid}: {:?}",
            view.status
        );
        self.cache.insert(uid.clone(), view.clone());
    }

    /// The as-of is the start of a complete read (invariant 3).
    fn check_as_of(&self, now: Instant, uid: &PodUid, view: &PodView) {
        let of_pod = |t: &Instant| self.inspected.get(uid).is_some_and(|i| i.contains(t));
        if let Some(as_of) = view.as_of {
            assert!(as_of <= now, "{uid} is as of the future");
            assert!(
                self.lists.contains(&as_of) || of_pod(&as_of),
                "{uid} is as of {as_of:?}, when no complete read began"
            );
        }
        if let Some(inspected) = view.inspected {
            let read = self.status_reads.contains(&inspected);
            assert!(read, "{uid}: no status was read at {inspected:?}");
        }
    }

    fn announced(&mut self, now: Instant, event: &PodLifecycleEvent) {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        assert!(event.detected <= now, "detected in the future: {event:?}");
        let Some(subject) = &event.subject else {
            assert_eq!(event.event, LifecycleType::PodSync, "{event:?}");
            return;
        };
        let of_id = self.announced.entry(subject.id.clone()).or_default();
        let latest = of_id.keys().next_back().copied().unwrap_or_default();
        assert!(
            subject.incarnation >= latest,
            "an earlier incarnation in {event:?}"
        );
        let announced = of_id.entry(subject.incarnation).or_default();
        let rank = |what| match what {
            ContainerStarted => 1,
            ContainerDied => 2,
            ContainerRemoved => 3,
            _ => 0,
        };
        if rank(event.event) > 0 {
            let highest = announced.iter().map(|&e| rank(e)).max().unwrap_or_default();
            assert!(
                rank(event.event) > highest,
                "{event:?} comes after {announced:?} (invariant 9)"
            );
        }
        announced.push(event.event);
        let cached = self.cache.get(&event.uid);
        let shown = cached.and_then(|v| states(&v.status).find(|(id, _)| *id == subject.id));
        match event.event {
            ContainerRemoved => assert!(shown.is_none(), "{event:?}; the cache: {shown:?}"),
            ContainerDied => {
                let alive = shown.is_some_and(|(_, s)| s.is_some_and(|s| s < State::Exited));
                assert!(!alive, "{event:?}; the cache: {cached:?}");
            }
            _ => {}
        }
    }

    fn answered(&mut self, waiter: WaiterId, answer: &Result<PodView, CallError>) {
        let waiter = self.waiting.remove(&waiter).expect("a waiter");
        match answer {
            Ok(view) => {
                assert!(self.answers, "answered without a read (invariant 4)");
                assert_eq!(view.status.uid, waiter.uid, "answered with another pod");
                let as_of = view.as_of.expect("the as-of of an answer");
                let newer = as_of > waiter.after || (as_of == waiter.after && as_of >= waiter.at);
                assert!(
                    newer,
                    "{waiter:?} is answered as of {as_of:?} (invariant 3)"
                );
                self.check_as_of(as_of, &waiter.uid, view);
            }
            Err(_) => {
                let newest = self.failed.get(&waiter.uid);
                let by_list = self.list_failed > waiter.newest;
                let failed = by_list || newest.is_some_and(|&t| t > waiter.newest);
                assert!(failed, "{waiter:?} gets an error, and no read failed");
            }
        }
    }

    // --- between inputs ---

    /// No id is in two pods.
    pub(crate) fn between_inputs(&self, state_counts: &StateCounts) {
        let mut shown = BTreeMap::new();
        let mut counted = (0, 0, 0, 0);
        for (uid, view) in &self.cache {
            for (id, _) in states(&view.status) {
                if let Some(other) = shown.insert(id.clone(), uid) {
                    panic!("{id} is shown in {other} and in {uid}");
                }
            }
            for container in &view.status.containers {
                match container.state {
                    ContainerState::Created => counted.0 += 1,
                    ContainerState::Running => counted.1 += 1,
                    ContainerState::Exited => counted.2 += 1,
                    _ => counted.3 += 1,
                }
            }
        }
        assert_eq!(
            counted,
            (
                state_counts.created,
                state_counts.running,
                state_counts.exited,
                state_counts.unknown
            ),
            "the state counts and the cache differ: {:?}",
            self.cache
        );
    }

    /// Every waiter whose instant has passed is answered.
    pub(crate) fn all_answered(&self, now: Instant) {
        let waiter = self.waiting.values().find(|waiter| waiter.after < now);
        assert!(waiter.is_none(), "a waiter is not answered: {waiter:?}");
        assert!(
            self.list_waiters.is_empty(),
            "a list waiter is not answered"
        );
    }

    /// The ids in the cache and their states; none if unknown.
    pub(crate) fn shown(&self) -> BTreeMap<Id, (PodUid, Option<State>)> {
        let of_pod = |(uid, view): (&PodUid, &PodView)| {
            let uid = uid.clone();
            let shown: Vec<_> = states(&view.status).collect();
            shown
                .into_iter()
                .map(move |(id, state)| (id, (uid.clone(), state)))
        };
        self.cache.iter().flat_map(of_pod).collect()
    }
}

/// At most three of each name, beside the last end of each id that exists (invariant 9).
fn terminal_records_bounded(uid: &PodUid, records: &[TerminalRecord]) {
    let is_past = |record: &TerminalRecord| {
        let ended_again =
            |r: &TerminalRecord| r.id == record.id && r.incarnation > record.incarnation;
        record.removed || records.iter().any(ended_again)
    };
    for record in records {
        let same = |r: &TerminalRecord| (r.kind, &r.name) == (record.kind, &record.name);
        let count = records.iter().filter(|r| same(r) && is_past(r)).count();
        assert!(
            count <= 3,
            "{count} past ends of {uid} are kept: {records:?}"
        );
    }
}

/// The ids in a status and their states; none if unknown.
fn states(status: &PodStatus) -> impl Iterator<Item = (Id, Option<State>)> {
    let sandboxes = status.sandboxes.iter().map(|s| {
        let state = match s.state {
            SandboxState::Ready => Some(State::Running),
            SandboxState::NotReady => Some(State::Exited),
            _ => None,
        };
        (s.id.clone(), state)
    });
    let containers = status.containers.iter().map(|c| {
        let state = match c.state {
            ContainerState::Created => Some(State::Created),
            ContainerState::Running => Some(State::Running),
            ContainerState::Exited => Some(State::Exited),
            _ => None,
        };
        (c.id.clone(), state)
    });
    sandboxes.chain(containers)
}
