//! A scripted stepper: the reconciler, a model of the node from which its reads are answered, and
//! the cache that follows from its outputs. Time is a counter; nothing happens by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Cause, ContainerDetails, Details, Health, HeldId, Id, Identity,
    Inspection, Instant, Kind, LifecycleType, List, Mode, Output, PodLifecycleEvent, PodStatus,
    PodUid, PodView, Reconciler, Report, ReportedState, Resources, SandboxDetails, Settings,
    TerminalRecord, Ticket, WaiterId, WallTime,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A container of a pod as a runtime shows it. Its name is its id.
pub(crate) fn container(pod: &str, id: &str, shown: ReportedState) -> Report {
    report(Kind::Container, pod, id, shown)
}

/// A sandbox of a pod; READY is `Running`, NOTREADY `Exited`.
pub(crate) fn sandbox(pod: &str, id: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, pod, id, shown)
}

fn report(kind: Kind, pod: &str, id: &str, shown: ReportedState) -> Report {
    let name = (kind == Kind::Container).then(|| id.into());
    let mut identity = Identity::new(kind);
    identity.pod = Some(pod.into());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some(pod.into());
    identity.name = name;
    identity.created_at = WallTime::claimed(1_700_000_000_000_000_000);
    Report::new(id, shown, identity, Details::none(kind))
}

/// The same with an exit code in its status.
pub(crate) fn exit_code(mut report: Report, code: i32) -> Report {
    let mut details = ContainerDetails::default();
    details.exit_code = Some(code);
    report.details = details.into();
    report
}

/// The same with addresses in its status.
pub(crate) fn ips(mut report: Report, ips: &[&str]) -> Report {
    let mut details = SandboxDetails::default();
    details.ips = ips.iter().map(|&ip| ip.into()).collect();
    report.details = details.into();
    report
}

/// The same with a memory limit in its status.
pub(crate) fn with_memory_limit(mut report: Report, limit: i64) -> Report {
    let mut resources = Resources::default();
    resources.memory_limit = limit;
    let mut details = ContainerDetails::default();
    details.resources = Some(resources.into());
    report.details = details.into();
    report
}

/// A list row has no details.
pub(crate) fn list_row(report: &Report) -> Report {
    let mut row = report.clone();
    row.details = Details::none(report.identity.kind);
    row
}

/// An error of the runtime.
pub(crate) fn failure(what: &str) -> CallError {
    CallError::new("ContainerStatus", CallErrorKind::Failed, what)
}

/// The model of the node. A list row has no details, a status has all.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) shows: Vec<Report>,
    /// Pods whose inspections fail.
    pub(crate) failing: BTreeMap<PodUid, CallError>,
}

impl Picture {
    fn rows(&self) -> Vec<Report> {
        self.shows.iter().map(list_row).collect()
    }

    fn inspect(&self, uid: &PodUid, held: &[HeldId]) -> (Vec<Report>, Vec<Id>) {
        let of_pod = |r: &&Report| r.identity.pod.as_ref() == Some(uid);
        let shown = |id: &Id| self.shows.iter().any(|r| r.id == *id);
        let gone = held.iter().map(|held| &held.id).filter(|id| !shown(id));
        (
            self.shows.iter().filter(of_pod).cloned().collect(),
            gone.cloned().collect(),
        )
    }
}

/// A requested read that is not answered yet.
pub(crate) enum Asked {
    List {
        ticket: Ticket,
        at: Instant,
    },
    Inspect {
        ticket: Ticket,
        at: Instant,
        uid: PodUid,
        held: Vec<HeldId>,
    },
}

pub(crate) struct Stepper {
    pub(crate) machine: Reconciler,
    pub(crate) now: Instant,
    pub(crate) node: Picture,
    /// Unanswered reads, in the order in which they were requested.
    pub(crate) asked: VecDeque<Asked>,
    /// All requested reads: `list`, or `p1 (changed)`.
    reads: Vec<String>,
    cache: BTreeMap<PodUid, PodView>,
    swept: Option<Instant>,
    pub(crate) ends: BTreeMap<PodUid, Arc<[TerminalRecord]>>,
    announced: Vec<PodLifecycleEvent>,
    said: BTreeMap<(Id, u32), LifecycleType>,
    answers: BTreeMap<WaiterId, Result<PodView, CallError>>,
    waiters: u64,
}

impl Stepper {
    /// Polling, as upstream's generic PLEG.
    pub(crate) fn polling(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        // Only what a test asks for happens.
        settings.probe_period = Duration::from_secs(24 * 3600);
        settings.mode = Mode::Polling;
        change(&mut settings);
        let now = Instant::from_origin(SECOND);
        let mut stepper = Self {
            machine: Reconciler::new(settings, now).expect("valid settings"),
            now,
            node: Picture::default(),
            asked: VecDeque::new(),
            reads: Vec::new(),
            cache: BTreeMap::new(),
            swept: None,
            ends: BTreeMap::new(),
            announced: Vec::new(),
            said: BTreeMap::new(),
            answers: BTreeMap::new(),
            waiters: 0,
        };
        stepper.take();
        stepper
    }

    /// Performs the outputs, except the reads.
    fn take(&mut self) {
        let at = self.now;
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Publish { uid, view } => _ = self.cache.insert(uid, view),
                Output::Remove { uid } => {
                    let view = self.cache.get_mut(&uid).expect("it was published");
                    *view = PodView::new(nothing(&uid), view.as_of, view.inspected);
                }
                Output::ListApplied { as_of, gone } => {
                    self.swept = Some(as_of);
                    self.cache
                        .retain(|uid, view| !(gone.contains(uid) && view.status.is_nothing()));
                }
                Output::Refresh { as_of, pods } => {
                    for uid in pods.among(self.cache.keys().cloned()) {
                        let view = self.cache.get_mut(&uid).expect("it was published");
                        view.as_of = view.as_of.max(Some(as_of));
                    }
                }
                Output::Terminals { uid, records } => _ = self.ends.insert(uid, records),
                Output::Announce(event) => self.announce(event),
                Output::Answer { waiter, answer } => {
                    let twice = self.answers.insert(waiter, answer);
                    assert!(twice.is_none(), "{waiter:?} was answered twice");
                }
                Output::List { ticket, .. } => {
                    self.reads.push("list".to_owned());
                    self.asked.push_back(Asked::List { ticket, at });
                }
                Output::Inspect {
                    ticket,
                    uid,
                    held,
                    causes,
                    ..
                } => {
                    let causes: Vec<_> = causes.iter().map(Cause::as_str).collect();
                    self.reads.push(format!("{uid} ({})", causes.join(" ")));
                    self.asked.push_back(Asked::Inspect {
                        ticket,
                        at,
                        uid,
                        held,
                    });
                }
                Output::Synced => {}
                other => panic!("not expected while polling: {other:?}"),
            }
        }
    }

    /// Records an announcement. The cache must show it already; an id must die before it is
    /// removed, and announce nothing twice (invariant 9).
    fn announce(&mut self, event: PodLifecycleEvent) {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        if let Some(subject) = &event.subject {
            let status = self.get(event.uid.as_str()).status;
            let ready = |s: &pleg_core::SandboxStatus| s.state == pleg_core::SandboxState::Ready;
            let runs =
                |c: &pleg_core::ContainerStatus| c.state == pleg_core::ContainerState::Running;
            let shown = match subject.kind {
                Kind::Sandbox => status
                    .sandboxes
                    .iter()
                    .find(|s| s.id == subject.id)
                    .map(ready),
                Kind::Container => status
                    .containers
                    .iter()
                    .find(|c| c.id == subject.id)
                    .map(runs),
            };
            match event.event {
                ContainerDied => assert_ne!(shown, Some(true), "{event:?} before the cache"),
                ContainerRemoved => assert_eq!(shown, None, "{event:?} before the cache"),
                _ => {}
            }
            if [ContainerStarted, ContainerDied, ContainerRemoved].contains(&event.event) {
                let of = (subject.id.clone(), subject.incarnation);
                let before = self.said.insert(of, event.event);
                assert!(before < Some(event.event), "{event:?} after {before:?}");
            }
        }
        self.announced.push(event);
    }

    /// Answers the oldest read, which began when it was requested.
    pub(crate) fn answer_next(&mut self) {
        let asked = self.asked.pop_front().expect("nothing is asked for");
        self.now = self.now.after(MS);
        match asked {
            Asked::List { ticket, at } => {
                let list = List {
                    ticket,
                    began: at,
                    ended: self.now,
                    rows: Ok(self.node.rows().into_iter().collect()),
                };
                self.machine.handle_list(self.now, list);
            }
            Asked::Inspect {
                ticket,
                at,
                uid,
                held,
            } => {
                let error = self.node.failing.get(&uid).cloned();
                let (found, gone) = match error {
                    Some(_) => Default::default(),
                    None => self.node.inspect(&uid, &held),
                };
                let inspection = Inspection {
                    ticket,
                    began: at,
                    ended: self.now,
                    found,
                    gone,
                    ..Inspection::new(error)
                };
                self.machine.handle_inspection(self.now, inspection);
            }
        }
        self.take();
    }

    /// Answers the oldest read of that pod before all others.
    pub(crate) fn answer(&mut self, pod: &str) {
        let of_pod =
            |asked: &Asked| matches!(asked, Asked::Inspect { uid, .. } if uid.as_str() == pod);
        let at = self.asked.iter().position(of_pod).expect("not asked for");
        let asked = self.asked.remove(at).expect("it is there");
        self.asked.push_front(asked);
        self.answer_next();
    }

    /// Answers all requested reads, and those that follow, at once.
    pub(crate) fn settle(&mut self) {
        while !self.asked.is_empty() {
            self.answer_next();
        }
    }

    /// Lets time pass up to the next full list, and answers it and all that follows from it.
    pub(crate) fn relist(&mut self) {
        let is_list = |asked: &Asked| matches!(asked, Asked::List { .. });
        for _ in 0..1000 {
            if self.asked.iter().any(is_list) {
                return self.settle();
            }
            let due = self.machine.poll_timeout().expect("a list will be due");
            self.wake(due);
        }
        panic!("no list is ever due");
    }

    /// Lets time pass. Reads that are requested meanwhile are not answered.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.walk(time, false);
    }

    /// Lets time pass. Reads that are requested are answered at once.
    pub(crate) fn run(&mut self, time: Duration) {
        self.walk(time, true);
    }

    fn walk(&mut self, time: Duration, answering: bool) {
        let until = self.now.after(time);
        for _ in 0..100_000 {
            if answering {
                self.settle();
            }
            match self.machine.poll_timeout().filter(|due| *due <= until) {
                Some(due) => self.wake(due),
                None => {
                    self.now = self.now.max(until);
                    return;
                }
            }
        }
        panic!("a timer fires for ever");
    }

    fn wake(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.machine.handle_timeout(self.now);
        self.take();
    }

    /// `newer_than`.
    pub(crate) fn wait(&mut self, pod: &str, after: Instant) -> WaiterId {
        self.ask(|machine, now, id| machine.wait(now, id, &pod.into(), after))
    }

    /// `request_relist`.
    pub(crate) fn request_relist(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, id| machine.relist(now, id, &pod.into()))
    }

    /// `request_reinspect`.
    pub(crate) fn request_reinspect(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, id| machine.reinspect(now, id, &pod.into()))
    }

    fn ask(&mut self, ask: impl FnOnce(&mut Reconciler, Instant, WaiterId)) -> WaiterId {
        self.waiters += 1;
        let id = WaiterId::new(self.waiters);
        ask(&mut self.machine, self.now, id);
        self.take();
        id
    }

    /// The answer to the waiter, if there is one.
    pub(crate) fn answer_of(&self, waiter: WaiterId) -> Option<&Result<PodView, CallError>> {
        self.answers.get(&waiter)
    }

    /// The view in the answer to the waiter.
    pub(crate) fn view_of(&self, waiter: WaiterId) -> PodView {
        let answer = self.answer_of(waiter).expect("no answer yet");
        answer.clone().expect("an answer")
    }

    /// The view in the cache.
    pub(crate) fn get(&self, pod: &str) -> PodView {
        let uid = PodUid::from(pod);
        let none = || PodView::new(nothing(&uid), self.swept, None);
        self.cache.get(&uid).cloned().unwrap_or_else(none)
    }

    pub(crate) fn health(&self) -> Health {
        self.machine.health(self.now)
    }

    /// The announcements since the last call, in order.
    pub(crate) fn announcements(&mut self) -> Vec<PodLifecycleEvent> {
        std::mem::take(&mut self.announced)
    }

    /// The same as `p1 Died c1`, sorted, because the order of pods is undefined. The order within
    /// one id is checked when it is announced.
    pub(crate) fn said(&mut self) -> Vec<String> {
        let mut said: Vec<_> = self.announcements().iter().map(in_short).collect();
        said.sort();
        said
    }

    /// The reads requested since the last call, in order.
    pub(crate) fn reads(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reads)
    }

    /// The inspections among them.
    pub(crate) fn inspections(&mut self) -> Vec<String> {
        let reads = self.reads().into_iter();
        reads.filter(|read| read != "list").collect()
    }
}

/// `p1 Died c1`, `p1 PodSync`.
pub(crate) fn in_short(event: &PodLifecycleEvent) -> String {
    let what = event.event.as_str().trim_start_matches("Container");
    let uid = &event.uid;
    match &event.subject {
        Some(subject) => format!("{uid} {what} {}", subject.id),
        None => format!("{uid} {what}"),
    }
}

fn nothing(uid: &PodUid) -> Arc<PodStatus> {
    Arc::new(PodStatus::nothing(uid.clone()))
}
