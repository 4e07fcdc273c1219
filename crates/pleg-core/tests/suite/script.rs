//! A node, its event stream, its calls and its consumers, scripted by hand on virtual time.
//!
//! Calls are answered at once. A call that the script [holds](Script::hold) has three instants: its request, its
//! evaluation (when it reads the state of the node) and its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pleg_core::{
    Arrival, CallError, CallErrorKind, Confirmed, EventProfile, EventType, HintMap, Id, Instant,
    Kind, List, Mode, Output, PodLifecycleEvent, PodList, PodUid, PodView, Reconciler, Report,
    Rows, RuntimeEvent, Settings, Statuses, StreamChange, StreamEnd, Version, WaiterId, WallTime,
};

use crate::consumers::find;
use crate::node::{Node, WALL, running};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Relist,
    PodList,
    Statuses,
    Version,
}

pub(crate) use Call::{PodList as PodLists, Relist as Relists, Statuses as StatusCalls};

/// The answer to a call.
enum Answer {
    Relist(List),
    PodList(PodList),
    Statuses(Statuses),
    Version(Version),
}

struct InFlight {
    call: Call,
    output: Output,
    requested: Instant,
    deadline: Instant,
    /// The answer, set once the call is evaluated.
    answer: Option<Answer>,
}

/// A message of the event stream.
#[derive(Clone)]
pub(crate) struct Event {
    raw: RuntimeEvent,
    age: i64,
}

impl Event {
    /// An event about the container or sandbox `id` that names its pod and does not contain its status.
    pub(crate) fn nil(what: EventType, id: &str) -> Self {
        let mut raw = RuntimeEvent::new(id, what);
        let sandbox = running(id).identity.sandbox;
        raw.sandbox = sandbox.map(|sandbox| running(sandbox.as_str()));
        Self { raw, age: 1 }
    }

    /// An event that contains the status `own` of its own container or sandbox.
    pub(crate) fn of(what: EventType, own: Report) -> Self {
        let event = Self::nil(what, own.id.as_str());
        event.with(own)
    }

    /// Adds a status.
    pub(crate) fn with(mut self, status: Report) -> Self {
        match status.identity.kind {
            Kind::Sandbox => self.raw.sandbox = Some(status),
            Kind::Container => self.raw.containers.push(status),
        }
        self
    }

    /// Removes the sandbox status, so that the event does not name the pod.
    pub(crate) fn unnamed(mut self) -> Self {
        self.raw.sandbox = None;
        self
    }

    /// Sets the event's timestamp to `ms` before its arrival.
    pub(crate) const fn aged(mut self, ms: i64) -> Self {
        self.age = ms;
        self
    }
}

pub(crate) struct Script {
    pub(crate) core: Reconciler,
    pub(crate) node: Node,
    now: u64,
    wall: i64,
    hints: HintMap,
    on_hold: BTreeSet<Call>,
    in_flight: Vec<InFlight>,
    waiters: u64,
    pub(crate) answers: BTreeMap<WaiterId, Result<PodView, CallError>>,
    /// The outcomes of relists for which a caller waited.
    pub(crate) listed: Vec<Result<(), CallError>>,
    pub(crate) cache: BTreeMap<PodUid, PodView>,
    pub(crate) announced: Vec<PodLifecycleEvent>,
    pub(crate) calls: Vec<String>,
    pub(crate) deadlines: Vec<(Call, Duration)>,
    pub(crate) is_synced: bool,
    pub(crate) publications: usize,
    pub(crate) resubscribes: usize,
}

impl Script {
    // --------------------------------------------------------------------------------- the start

    /// A generator that has not listed its node yet.
    pub(crate) fn new() -> Self {
        Self::with_settings(|_| ())
    }

    /// A generator without events, which has not listed its node yet.
    pub(crate) fn polling(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with_settings(|settings| {
            settings.mode = Mode::Polling;
            change(settings);
        })
    }

    pub(crate) fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        change(&mut settings);
        let now = 1_000_000;
        Self {
            core: Reconciler::new(settings, Instant::from_nanos(now)).unwrap(),
            node: Node::default(),
            now,
            wall: WALL + 3_600_000_000_000,
            hints: HintMap::default(),
            on_hold: BTreeSet::new(),
            in_flight: Vec::new(),
            waiters: 0,
            answers: BTreeMap::new(),
            listed: Vec::new(),
            cache: BTreeMap::new(),
            announced: Vec::new(),
            calls: Vec::new(),
            deadlines: Vec::new(),
            is_synced: false,
            publications: 0,
            resubscribes: 0,
        }
    }

    /// A quiet node with the pod "p", its sandbox "s" and the running `containers`. The stream was opened 20 s ago.
    pub(crate) fn with(containers: &[&str]) -> Self {
        let mut t = Self::new();
        t.node.start("s");
        containers.iter().for_each(|id| t.node.start(id));
        t.settle();
        t.subscribe();
        t.pass(20_000);
        t.forget();
        t
    }

    /// A generator without events that has just listed the pod "p" with the running containers `containers`.
    pub(crate) fn polled(containers: &[&str]) -> Self {
        let mut t = Self::polling(|_| ());
        t.node.start("s");
        containers.iter().for_each(|id| t.node.start(id));
        t.settle();
        t.forget();
        t
    }

    /// Forgets the announcements and the calls so far.
    pub(crate) fn forget(&mut self) {
        self.announced.clear();
        self.calls.clear();
        self.deadlines.clear();
    }

    // -------------------------------------------------------------------------------- the stream

    pub(crate) fn subscribe(&mut self) {
        let at = self.tick();
        let wall = WallTime::from_nanos(self.wall);
        self.hints.subscribed(at);
        let change = StreamChange::Subscribed { at, wall };
        self.core.handle_stream(at, change);
        self.set_profile(|profile| profile.removal_suppresses_stopped = false);
    }

    /// Sets the event profile of containerd 2, changed by `change`.
    pub(crate) fn set_profile(&mut self, change: impl FnOnce(&mut EventProfile)) {
        let mut profile = EventProfile::UNKNOWN;
        profile.removal_suppresses_stopped = false;
        change(&mut profile);
        self.core.handle_profile(self.now(), profile);
        self.settle();
    }

    pub(crate) fn lose_stream(&mut self) {
        let at = self.tick();
        let (why, retry_at) = (StreamEnd::Ended(None), at);
        let change = StreamChange::Ended { at, why, retry_at };
        self.core.handle_stream(at, change);
        self.settle();
    }

    /// Sends an event about the container or sandbox `id`, with its current status if it exists.
    pub(crate) fn event(&mut self, what: EventType, id: &str) {
        let event = Event::nil(what, id);
        self.send(match self.node.status_now(id) {
            Some(status) => event.with(status),
            None => event,
        });
    }

    /// A container or sandbox starts, and an event reports it.
    pub(crate) fn starts(&mut self, id: &str) {
        self.node.start(id);
        self.event(EventType::Started, id);
    }

    /// A container or sandbox ends, and an event reports it.
    pub(crate) fn exits(&mut self, id: &str, code: impl Into<Option<i32>>) {
        self.node.exit(id, code);
        self.event(EventType::Stopped, id);
    }

    /// A container or sandbox is removed, and an event reports it.
    pub(crate) fn removes(&mut self, id: &str) {
        self.node.remove(id);
        self.event(EventType::Deleted, id);
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.queue(event);
        self.take_hints();
        self.settle();
    }

    /// The event arrives. The reconciler gets it before the next answer, or together with the next event.
    pub(crate) fn queue(&mut self, event: Event) {
        let Event { mut raw, age } = event;
        let arrived = self.tick();
        raw.created_at = self.wall - age * 1_000_000;
        let wall = WallTime::from_nanos(self.wall);
        self.hints.push(Arrival {
            event: raw,
            arrived,
            wall,
        });
    }

    fn take_hints(&mut self) {
        if !self.hints.is_empty() {
            let (hints, lost) = self.hints.take();
            self.core.handle_hints(self.now(), hints, lost);
        }
    }

    // ---------------------------------------------------------------------------------- the time

    pub(crate) const fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(crate) const fn new_waiter(&mut self) -> WaiterId {
        self.waiters += 1;
        WaiterId::new(self.waiters)
    }

    fn tick(&mut self) -> Instant {
        self.advance(self.now + 1_000);
        self.now()
    }

    fn advance(&mut self, to: u64) {
        self.wall += i64::try_from(to - self.now).unwrap();
        self.now = to;
    }

    /// Lets time pass and handles timeouts; a call that is unanswered at its deadline fails.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        self.settle();
        for _ in 0..1_000_000 {
            let deadlines = self.in_flight.iter().map(|call| call.deadline);
            let due = deadlines.chain(self.core.poll_timeout()).min();
            let Some(due) = due.filter(|due| due.as_nanos() <= end) else {
                self.advance(end.max(self.now));
                self.core.handle_timeout(self.now());
                return self.settle();
            };
            self.advance(due.as_nanos().max(self.now + 1_000));
            let now = self.now();
            while let Some(late) = self.in_flight.iter().position(|c| c.deadline <= now) {
                self.expire(late);
            }
            self.core.handle_timeout(now);
            self.settle();
        }
        panic!("the core is never idle");
    }

    // --------------------------------------------------------------------------------- the calls

    /// Calls of this kind are not answered until the script answers them.
    pub(crate) fn hold(&mut self, call: Call) {
        self.on_hold.insert(call);
    }

    /// Answers the unanswered calls, except those that hang. From now on, calls are answered at once again.
    pub(crate) fn release(&mut self) {
        self.on_hold.clear();
        while let Some(index) = self.in_flight.iter().position(|c| !self.hangs(&c.output)) {
            self.end(index);
            self.settle();
        }
    }

    /// Evaluates the oldest call of this kind that is not evaluated yet: its answer will show the node as it is now.
    pub(crate) fn evaluate(&mut self, call: Call) {
        let is_next = |c: &InFlight| c.call == call && c.answer.is_none();
        let index = self.in_flight.iter().position(is_next).unwrap();
        self.in_flight[index].answer = Some(self.look(&self.in_flight[index], None));
    }

    /// A worker waits for a status of the pod "p" newer than now. The call of the kind `call` in the read for this
    /// worker shows the node as it is now, and stays unanswered.
    pub(crate) fn slow_read(&mut self, call: Call) -> WaiterId {
        self.hold(call);
        let waiter = self.read();
        self.evaluate(call);
        waiter
    }

    /// Starts a relist that shows the node as it is now, and holds its answer.
    pub(crate) fn slow_relist(&mut self) {
        self.hold(Call::Relist);
        self.relist();
        self.evaluate(Call::Relist);
    }

    /// Waits until a runtime probe reads this id's status. The answer, which is held, will show the node as it is then.
    pub(crate) fn slow_probe(&mut self, id: &str) {
        self.hold(Call::Statuses);
        self.await_call(&format!("status {id}"));
        self.evaluate(Call::Statuses);
    }

    fn oldest(&self, call: Call) -> usize {
        let oldest = self.in_flight.iter().position(|c| c.call == call);
        oldest.expect("no such call is in flight")
    }

    /// Answers the oldest unanswered call of this kind. If it was not evaluated, it shows the node as it is now.
    pub(crate) fn answer(&mut self, call: Call) {
        self.end(self.oldest(call));
        self.settle();
    }

    /// Answers the newest unanswered call of this kind.
    pub(crate) fn answer_newest(&mut self, call: Call) {
        let newest = self.in_flight.iter().rposition(|c| c.call == call);
        self.end(newest.unwrap());
        self.settle();
    }

    /// The oldest unanswered call of this kind fails.
    pub(crate) fn fail(&mut self, call: Call) {
        self.fail_call(self.oldest(call), CallErrorKind::Failed);
        self.settle();
    }

    fn fail_call(&mut self, index: usize, kind: CallErrorKind) {
        let answer = self.look(&self.in_flight[index], Some(kind));
        self.in_flight[index].answer = Some(answer);
        self.end(index);
    }

    /// The number of calls of this kind in flight.
    pub(crate) fn in_flight(&self, call: Call) -> usize {
        self.in_flight.iter().filter(|c| c.call == call).count()
    }

    /// Performs all outputs of the reconciler: makes its calls, and writes the cache.
    pub(crate) fn settle(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::List { deadline, .. } => self.request(Call::Relist, output, deadline),
                Output::ListPod { deadline, .. } => self.request(Call::PodList, output, deadline),
                Output::ReadStatuses { deadline, .. } => {
                    self.request(Call::Statuses, output, deadline);
                }
                Output::Version { deadline, .. } => self.request(Call::Version, output, deadline),
                Output::Announce(event) => {
                    self.check_cache(&event);
                    self.announced.push(event);
                }
                Output::Publish { uid, view } => {
                    self.publications += 1;
                    self.cache.insert(uid, view);
                }
                Output::Refresh { as_of, pods } => self.refresh(as_of, &pods),
                Output::ListApplied { gone, .. } => {
                    for uid in gone {
                        let view = self.cache.remove(&uid).expect("it was published");
                        assert!(!view.status.exists());
                    }
                }
                Output::Listed { outcome, .. } => self.listed.push(outcome),
                Output::Answer { waiter, answer } => {
                    assert!(self.answers.insert(waiter, answer).is_none());
                }
                Output::Synced => self.is_synced = true,
                Output::Resubscribe => self.resubscribes += 1,
                _ => {}
            }
        }
    }

    fn refresh(&mut self, as_of: Instant, pods: &Confirmed) {
        let pods = match pods {
            Confirmed::All => self.cache.keys().cloned().collect(),
            Confirmed::These(pods) => pods.clone(),
        };
        for uid in pods {
            let view = self.cache.get_mut(&uid).expect("it is published");
            if view.status.exists() {
                view.as_of = view.as_of.max(Some(as_of));
            }
        }
    }

    /// Checks that the cache was written before the announcement.
    fn check_cache(&self, event: &PodLifecycleEvent) {
        let Some(subject) = &event.subject else {
            return;
        };
        let view = self.cache.get(&event.uid);
        let shown = view.and_then(|view| find(&view.status, subject.id.as_str()));
        let cached = shown.as_deref().unwrap_or("none");
        match event.event.as_str() {
            "ContainerRemoved" => assert_eq!(cached, "none", "{event:?}"),
            "ContainerDied" => assert!(!["Running", "Ready"].contains(&cached), "{event:?}"),
            _ => {}
        }
    }

    fn request(&mut self, call: Call, output: Output, deadline: Duration) {
        self.calls.push(match &output {
            Output::ListPod { uid, .. } => format!("list {uid}"),
            Output::ReadStatuses { ids, .. } => {
                let ids = ids.iter().map(|(id, _)| id.as_str());
                ids.fold("status".to_owned(), |all, id| all + " " + id)
            }
            Output::Version { .. } => "version".to_owned(),
            _ => "relist".to_owned(),
        });
        self.deadlines.push((call, deadline));
        let requested = self.tick();
        let is_answered = !self.on_hold.contains(&call) && !self.hangs(&output);
        self.in_flight.push(InFlight {
            call,
            output,
            requested,
            deadline: requested.after(deadline),
            answer: None,
        });
        if is_answered {
            self.end(self.in_flight.len() - 1);
        }
    }

    fn hangs(&self, output: &Output) -> bool {
        let hangs = |fault| fault == Some(CallErrorKind::DeadlineExceeded);
        match output {
            Output::List { .. } => hangs(self.node.relists_fail),
            Output::ListPod { .. } => hangs(self.node.pod_lists_fail),
            Output::ReadStatuses { ids, .. } => {
                ids.iter().any(|(id, _)| hangs(self.node.status_fault(id)))
            }
            _ => hangs(self.node.versions_fail),
        }
    }

    /// The call was not answered before its deadline.
    fn expire(&mut self, index: usize) {
        let call = &self.in_flight[index].call;
        if *call == Call::Statuses && !self.on_hold.contains(call) {
            // Of several status calls, only those that hang fail.
            return self.end(index);
        }
        self.fail_call(index, CallErrorKind::DeadlineExceeded);
    }

    /// The answer to the call: `error` if given, or else what the node shows or fails with now.
    fn look(&self, call: &InFlight, error: Option<CallErrorKind>) -> Answer {
        let (began, ended) = (call.requested, self.now());
        let outcome = |fault: Option<CallErrorKind>| match error.or(fault) {
            Some(kind) => Err(CallError::new("Call", kind, "")),
            None => Ok(()),
        };
        match &call.output {
            Output::List { ticket, known, .. } => Answer::Relist(List {
                ticket: *ticket,
                began,
                ended,
                rows: outcome(self.node.relists_fail)
                    .map(|()| Rows::of(known.clone(), self.node.rows())),
            }),
            Output::ListPod { ticket, uid, .. } => Answer::PodList(PodList {
                ticket: *ticket,
                began,
                rows: outcome(self.node.pod_lists_fail).map(|()| self.node.rows_of(uid)),
            }),
            Output::ReadStatuses { ticket, ids, .. } => {
                let status = |id: &Id| outcome(None).and_then(|()| self.node.status(id));
                let answers = ids.iter().map(|(id, _)| (id.clone(), status(id)));
                Answer::Statuses(Statuses {
                    ticket: *ticket,
                    began,
                    answers: answers.collect(),
                })
            }
            Output::Version { ticket, .. } => Answer::Version(Version {
                ticket: *ticket,
                outcome: outcome(self.node.versions_fail),
            }),
            other => panic!("{other:?} is no call"),
        }
    }

    /// The call ends. The reconciler gets the events that have arrived before it gets the answer.
    fn end(&mut self, index: usize) {
        let mut call = self.in_flight.remove(index);
        let answer = call.answer.take();
        let answer = answer.unwrap_or_else(|| self.look(&call, None));
        let now = self.tick();
        self.take_hints();
        match answer {
            Answer::Relist(list) => self.core.handle_list(now, list),
            Answer::PodList(list) => self.core.handle_pod_list(now, list),
            Answer::Statuses(statuses) => self.core.handle_statuses(now, statuses),
            Answer::Version(version) => self.core.handle_version(now, version),
        }
    }
}
