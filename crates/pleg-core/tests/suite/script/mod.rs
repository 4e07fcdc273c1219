//! A scripted reconciler for minimal tests: nothing happens by itself, every read waits until it is
//! answered, and time is in milliseconds. Reads are answered by hand, or from a model of the node
//! (`node`, `settle`, `run`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    Arrival, CallError, CallErrorKind, ContainerDetails, Details, EventType, HeldId, Id, Identity,
    Inspection, Instant, Kind, KnownIds, LifecycleType, List, Output, PodLifecycleEvent, PodStatus,
    PodUid, PodView, Reconciler, Report, ReportedState, Rows, RuntimeEvent, Settings, StatusRead,
    StreamChange, StreamEnd, TerminalRecord, Ticket, Version, WaiterId, WallTime,
};

use crate::support::list_row;

const WALL: i64 = 1_700_000_000_000_000_000;

#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) machine: Reconciler,
    now: u64,
    /// The model of the node, for the reads that `settle` answers.
    pub(crate) node: Vec<Report>,
    /// How far the local wall clock has stepped, in milliseconds.
    pub(crate) stepped: i64,
    lists: VecDeque<(Ticket, u64, KnownIds)>,
    inspections: VecDeque<Asked>,
    readings: VecDeque<(Ticket, Id)>,
    /// The ids that the inspection requests named.
    pub(crate) held: Vec<Vec<HeldId>>,
    versions: VecDeque<Ticket>,
    /// What was announced: type, id (or pod), incarnation, exit code.
    pub(crate) announced: Vec<(LifecycleType, String, u32, Option<i32>)>,
    pub(crate) events: Vec<PodLifecycleEvent>,
    pub(crate) answers: Vec<(WaiterId, Result<PodView, CallError>)>,
    pub(crate) published: Vec<PodView>,
    pub(crate) withdrawn: Vec<PodUid>,
    /// How many events had been announced before `Synced`.
    pub(crate) synced_after: Option<usize>,
    /// Pods whose end a list has confirmed.
    pub(crate) swept: Vec<PodUid>,
    pub(crate) cancelled: Vec<Ticket>,
    /// The terminal records last published, of any pod.
    pub(crate) ends: Vec<TerminalRecord>,
    /// The terminal records of each pod.
    pub(crate) ends_of: BTreeMap<PodUid, Vec<TerminalRecord>>,
    cache: BTreeMap<PodUid, PodView>,
    pub(crate) swept_as_of: Option<Instant>,
    /// Ids that `node` shows and whose status call returns NotFound.
    pub(crate) hidden: Vec<Id>,
    /// Lists are answered with all rows fully decoded, whatever the request named.
    pub(crate) decodes_all_rows: bool,
    waiters: u64,
}

/// A requested inspection.
#[derive(Clone)]
struct Asked {
    ticket: Ticket,
    uid: PodUid,
    at: u64,
    held: Vec<Id>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let now = 1_000_000_000;
        let mut settings = settings;
        if settings.probe_period == Settings::default().probe_period {
            // Only what a test asks for happens.
            settings.probe_period = Duration::from_secs(24 * 3600);
        }
        let machine = Reconciler::new(settings, Instant::from_nanos(now)).expect("valid settings");
        let mut script = Self {
            machine,
            now,
            node: Vec::new(),
            stepped: 0,
            lists: VecDeque::new(),
            inspections: VecDeque::new(),
            readings: VecDeque::new(),
            held: Vec::new(),
            versions: VecDeque::new(),
            announced: Vec::new(),
            events: Vec::new(),
            answers: Vec::new(),
            published: Vec::new(),
            withdrawn: Vec::new(),
            synced_after: None,
            swept: Vec::new(),
            cancelled: Vec::new(),
            ends: Vec::new(),
            ends_of: BTreeMap::new(),
            cache: BTreeMap::new(),
            swept_as_of: None,
            hidden: Vec::new(),
            decodes_all_rows: false,
            waiters: 0,
        };
        script.drain();
        script
    }

    /// A reconciler whose stream is confirmed, on an empty node.
    pub(crate) fn confirmed() -> Self {
        Self::confirmed_with(Settings::default())
    }

    pub(crate) fn confirmed_with(settings: Settings) -> Self {
        let mut script = Self::with(settings);
        script.list(&[]);
        script.subscribe();
        script.list(&[]);
        script.pass(1_100);
        while script.lists_wanted() > 0 {
            script.list(&[]);
        }
        script
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Time passes and timers run; no read is answered.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        while let Some(due) = self
            .machine
            .poll_timeout()
            .map(Instant::as_nanos)
            .filter(|&d| d <= end)
        {
            self.now = self.now.max(due);
            self.machine.handle_timeout(self.now());
            self.drain();
        }
        self.now = end;
    }

    /// Time passes; every list returns these rows, every inspection returns `found`.
    pub(crate) fn pass_reading(&mut self, ms: u64, rows: &[Report], found: &[Report]) {
        for _ in 0..ms {
            self.pass(1);
            while self.lists_wanted() > 0 {
                self.list(rows);
            }
            while self.inspection_wanted().is_some() {
                self.inspect(found, &[]);
            }
        }
    }

    /// Time passes; every read is answered from the model of the node.
    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        loop {
            self.settle();
            match self.machine.poll_timeout().map(Instant::as_nanos) {
                Some(due) if due <= end => {
                    self.pass(due.saturating_sub(self.now).div_ceil(1_000_000));
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }

    /// Answers every requested read, and those that follow from it, from the model of the node.
    pub(crate) fn settle(&mut self) {
        loop {
            if !self.lists.is_empty() {
                let rows: Vec<_> = self.node.iter().map(list_row).collect();
                self.list(&rows);
            } else if let Some(asked) = self.inspections.front() {
                let of_pod = |r: &&Report| r.identity.pod.as_ref() == Some(&asked.uid);
                let of_pod = self.node.iter().filter(of_pod).cloned();
                let (unsettled, found): (Vec<_>, Vec<_>) =
                    of_pod.partition(|r| self.hidden.contains(&r.id));
                let shown = |id: &Id| self.node.iter().any(|r| r.id == *id);
                let gone: Vec<_> = asked.held.iter().filter(|id| !shown(id)).cloned().collect();
                let gone: Vec<_> = gone.iter().map(Id::as_str).collect();
                self.inspect_unsettled(&found, &gone, &unsettled);
            } else if let Some(id) = self.read_wanted_of() {
                let seen = |r: &&Report| r.id == id && !self.hidden.contains(&id);
                let found = self.node.iter().find(seen).cloned();
                let not_found = || CallError::new("Read", CallErrorKind::NotFound, "");
                self.read_ends(found.ok_or_else(not_found));
            } else {
                return;
            }
        }
    }

    /// `relist_now`.
    pub(crate) fn relist(&mut self) {
        self.ask(Reconciler::relist_now);
    }

    /// The number of ids that the oldest list request names.
    pub(crate) fn known_ids(&self) -> Option<usize> {
        self.lists.front().map(|(_, _, known)| known.len())
    }

    pub(crate) fn lists_wanted(&self) -> usize {
        self.lists.len()
    }

    pub(crate) fn inspection_wanted(&self) -> Option<&PodUid> {
        self.inspections.front().map(|asked| &asked.uid)
    }

    pub(crate) fn inspections_wanted(&self) -> usize {
        self.inspections.len()
    }

    pub(crate) fn subscribe(&mut self) {
        let (at, wall) = (self.now(), self.wall());
        self.machine
            .handle_stream(at, StreamChange::Subscribed { at, wall });
        self.drain();
    }

    pub(crate) fn stream_ends(&mut self, why: StreamEnd) {
        let at = self.now();
        self.machine.handle_stream(
            at,
            StreamChange::Ended {
                at,
                why,
                retry_at: at,
            },
        );
        self.drain();
    }

    pub(crate) fn event(
        &mut self,
        event: EventType,
        id: &str,
        sandbox: Option<Report>,
        containers: &[Report],
    ) {
        self.stamped(0, event, id, sandbox, containers);
    }

    /// An event with a timestamp this many milliseconds from now.
    pub(crate) fn stamped(
        &mut self,
        ms: i64,
        event: EventType,
        id: &str,
        sandbox: Option<Report>,
        containers: &[Report],
    ) {
        let mut event = RuntimeEvent::new(id, event);
        event.created_at = self.wall().as_nanos() + ms * 1_000_000;
        event.sandbox = sandbox;
        event.containers = containers.to_vec();
        self.deliver(event);
    }

    /// An event as it is, with any timestamp.
    pub(crate) fn deliver(&mut self, event: RuntimeEvent) {
        let (arrived, wall) = (self.now(), self.wall());
        self.machine.handle_event(
            arrived,
            Arrival {
                event,
                arrived,
                wall,
            },
        );
        self.drain();
        self.pass(1);
    }

    /// Answers the oldest requested list, which began when it was requested.
    pub(crate) fn list(&mut self, rows: &[Report]) {
        self.list_ends(Ok(rows.to_vec()));
    }

    /// Requests a list and answers it.
    pub(crate) fn relist_shows(&mut self, rows: &[Report]) {
        self.machine.relist_now(self.now(), WaiterId::new(77));
        self.drain();
        self.list(rows);
    }

    pub(crate) fn list_fails(&mut self, kind: CallErrorKind) {
        self.list_ends(Err(CallError::new("List", kind, "")));
    }

    fn list_ends(&mut self, rows: Result<Vec<Report>, CallError>) {
        let (ticket, asked, mut known) = self.lists.pop_front().expect("a list is wanted");
        if self.decodes_all_rows {
            known = KnownIds::default();
        }
        let rows = rows.map(|rows| Rows::of(known, rows));
        self.pass(1);
        let (began, ended) = (Instant::from_nanos(asked + 1000), self.now());
        self.machine.handle_list(
            ended,
            List {
                ticket,
                began,
                ended,
                rows,
            },
        );
        self.drain();
    }

    /// Answers the oldest requested inspection, which began when it was requested.
    pub(crate) fn inspect(&mut self, found: &[Report], gone: &[&str]) {
        self.inspect_unsettled(found, gone, &[]);
    }

    /// The same; the status calls of these rows returned NotFound.
    pub(crate) fn inspect_unsettled(
        &mut self,
        found: &[Report],
        gone: &[&str],
        unsettled: &[Report],
    ) {
        let mut read = Inspection::new(None);
        read.found = found.to_vec();
        read.gone = gone.iter().map(|&id| id.into()).collect();
        read.unsettled = unsettled.to_vec();
        self.inspection_ends(read);
    }

    pub(crate) fn inspection_fails(&mut self, found: &[Report]) {
        let error = CallError::new("Inspect", CallErrorKind::Failed, "");
        let mut read = Inspection::new(Some(error));
        read.found = found.to_vec();
        self.inspection_ends(read);
    }

    /// Answers the oldest requested inspection with this, except for ticket and stamps.
    pub(crate) fn inspected(&mut self, read: Inspection) {
        self.inspection_ends(read);
    }

    fn inspection_ends(&mut self, read: Inspection) {
        let asked = self.inspections.pop_front();
        let Asked { ticket, at, .. } = asked.expect("an inspection is wanted");
        self.pass(1);
        let (began, ended) = (Instant::from_nanos(at + 1000), self.now());
        let inspection = Inspection {
            ticket,
            began,
            ended,
            ..read
        };
        self.machine.handle_inspection(ended, inspection);
        self.drain();
    }

    /// Answers the requested status call.
    pub(crate) fn read(&mut self, report: Report) {
        self.read_ends(Ok(report));
    }

    fn read_ends(&mut self, report: Result<Report, CallError>) {
        let (ticket, _) = self.readings.pop_front().expect("a read is wanted");
        let began = self.now();
        self.pass(1);
        let ended = self.now();
        self.machine.handle_status_read(
            ended,
            StatusRead {
                ticket,
                began,
                ended,
                report,
            },
        );
        self.drain();
    }

    pub(crate) fn reads_wanted(&self) -> usize {
        self.readings.len()
    }

    pub(crate) fn read_wanted_of(&self) -> Option<Id> {
        self.readings.front().map(|(_, id)| id.clone())
    }

    pub(crate) fn read_wanted(&self) -> bool {
        !self.readings.is_empty()
    }

    pub(crate) fn wait(&mut self, pod: &str, after: Instant) -> WaiterId {
        self.ask(|machine, now, waiter| machine.wait(now, waiter, &pod.into(), after))
    }

    pub(crate) fn wait_for_details(&mut self, pod: &str, after: Instant) -> WaiterId {
        self.ask(|machine, now, waiter| {
            machine.wait_for_details(now, waiter, &pod.into(), after);
        })
    }

    /// `request_relist`.
    pub(crate) fn request_relist(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, waiter| machine.relist(now, waiter, &pod.into()))
    }

    /// `request_reinspect`.
    pub(crate) fn request_reinspect(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, waiter| machine.reinspect(now, waiter, &pod.into()))
    }

    fn ask(&mut self, ask: impl FnOnce(&mut Reconciler, Instant, WaiterId)) -> WaiterId {
        self.waiters += 1;
        let waiter = WaiterId::new(self.waiters);
        let now = self.now();
        ask(&mut self.machine, now, waiter);
        self.drain();
        waiter
    }

    /// The answer to that waiter, if there is one.
    pub(crate) fn answer_of(&self, waiter: WaiterId) -> Option<&Result<PodView, CallError>> {
        let answer = self.answers.iter().find(|(w, _)| *w == waiter);
        answer.map(|(_, answer)| answer)
    }

    /// The view in the answer to that waiter.
    pub(crate) fn view_for(&self, waiter: WaiterId) -> PodView {
        let answer = self.answer_of(waiter).expect("it is answered");
        answer.clone().expect("a view")
    }

    /// The view of the pod in the cache.
    pub(crate) fn get(&self, pod: &str) -> PodView {
        let nothing = || PodView::new(nothing(&pod.into()), self.swept_as_of, None);
        self.cache.get(pod).cloned().unwrap_or_else(nothing)
    }

    pub(crate) fn said(&self, what: LifecycleType, id: &str) -> usize {
        self.announced
            .iter()
            .filter(|(w, i, ..)| (*w, i.as_str()) == (what, id))
            .count()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.machine.counters().missed.total()
    }

    /// The last published view.
    pub(crate) fn view(&self) -> &PodView {
        self.published.last().expect("something is published")
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(WALL + self.now as i64 + self.stepped * 1_000_000)
    }

    /// Time passes until a probe requests a status. Returns its id. Lists are answered.
    pub(crate) fn next_probe(&mut self) -> String {
        loop {
            if let Some(id) = self.read_wanted_of() {
                return id.to_string();
            }
            let rows: Vec<_> = self.node.iter().map(list_row).collect();
            while !self.lists.is_empty() {
                self.list(&rows);
            }
            let due = self.machine.poll_timeout().expect("a probe is due");
            let nanos = due.as_nanos().saturating_sub(self.now);
            self.pass(nanos.div_ceil(1_000_000));
        }
    }

    /// The probe is answered from the model of the node.
    pub(crate) fn probe_answers(&mut self) {
        let id = self.read_wanted_of().expect("a status was asked for");
        let found = self.node.iter().find(|r| r.id == id).cloned();
        self.read_ends(Ok(found.expect("it exists")));
    }

    pub(crate) fn probe_fails(&mut self, kind: CallErrorKind) {
        self.read_ends(Err(CallError::new("Read", kind, "")));
    }

    pub(crate) fn versions_wanted(&self) -> usize {
        self.versions.len()
    }

    pub(crate) fn version_answers(&mut self) {
        self.version_ends(Ok(()));
    }

    pub(crate) fn version_fails(&mut self, kind: CallErrorKind) {
        self.version_ends(Err(CallError::new("Version", kind, "")));
    }

    fn version_ends(&mut self, outcome: Result<(), CallError>) {
        let ticket = self.versions.pop_front().expect("Version was called");
        let version = Version {
            ticket,
            ended: self.now(),
            outcome,
        };
        self.machine.handle_version(self.now(), version);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::List { ticket, known, .. } => {
                    self.lists.push_back((ticket, self.now, known));
                }
                Output::Inspect {
                    ticket, uid, held, ..
                } => {
                    self.held.push(held.clone());
                    let (at, held) = (self.now, held.into_iter().map(|held| held.id).collect());
                    self.inspections.push_back(Asked {
                        ticket,
                        uid,
                        at,
                        held,
                    });
                }
                Output::Read { ticket, id, .. } => self.readings.push_back((ticket, id)),
                Output::Version { ticket, .. } => self.versions.push_back(ticket),
                Output::Cancel { ticket } => {
                    self.inspections.retain(|asked| asked.ticket != ticket);
                    self.cancelled.push(ticket);
                }
                Output::Announce(e) => {
                    let (id, n, code) = match &e.subject {
                        Some(s) => (s.id.to_string(), s.incarnation, s.exit_code),
                        None => (e.uid.to_string(), 0, None),
                    };
                    self.announced.push((e.event, id, n, code));
                    self.events.push(e);
                }
                Output::Synced => {
                    assert_eq!(self.synced_after, None, "synced once");
                    self.synced_after = Some(self.events.len());
                }
                Output::Publish { uid, view } => {
                    self.published.push(view.clone());
                    self.cache.insert(uid, view);
                }
                Output::ListApplied { as_of, gone } => {
                    self.swept_as_of = Some(as_of);
                    self.swept.extend(gone.iter().cloned());
                    self.cache
                        .retain(|uid, view| !(gone.contains(uid) && view.status.is_nothing()));
                }
                Output::Refresh { as_of, pods } => {
                    for uid in pods.among(self.cache.keys().cloned()) {
                        let view = self.cache.get_mut(&uid).expect("it was published");
                        view.as_of = view.as_of.max(Some(as_of));
                    }
                }
                Output::Terminals { uid, records } => {
                    self.ends = records.to_vec();
                    self.ends_of.insert(uid, records.to_vec());
                }
                Output::Remove { uid } => {
                    let view = self.cache.get_mut(&uid).expect("it was published");
                    *view = PodView::new(nothing(&uid), view.as_of, view.inspected);
                    self.withdrawn.push(uid);
                }
                Output::Answer { waiter, answer } => self.answers.push((waiter, answer)),
                _ => {}
            }
        }
    }
}

fn nothing(uid: &PodUid) -> Arc<PodStatus> {
    Arc::new(PodStatus::nothing(uid.clone()))
}

/// The deadline of the list that the reconciler requests.
pub(crate) fn list_deadline(machine: &mut Reconciler) -> Option<Duration> {
    while let Some(output) = machine.poll_output() {
        if let Output::List { deadline, .. } = output {
            return Some(deadline);
        }
    }
    None
}

pub(crate) fn sandbox(id: &str, pod: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, id, pod, shown)
}

/// A list row of a container in the sandbox "s".
pub(crate) fn container(id: &str, pod: &str, shown: ReportedState) -> Report {
    let mut report = report(Kind::Container, id, pod, shown);
    report.identity.sandbox = Some("s".into());
    report
}

/// A container status, which does not name the sandbox.
pub(crate) fn status(id: &str, pod: &str, shown: ReportedState) -> Report {
    report(Kind::Container, id, pod, shown)
}

pub(crate) fn exited(id: &str, pod: &str, code: i32, reason: &str) -> Report {
    let mut details = ContainerDetails::default();
    details.exit_code = Some(code);
    details.finished_at = Some(WallTime::from_nanos(WALL));
    details.reason = reason.into();
    let mut report = status(id, pod, ReportedState::Exited);
    report.details = details.into();
    report
}

/// A report with id and state only.
pub(crate) fn nameless(mut report: Report) -> Report {
    report.identity = Identity::new(report.identity.kind);
    report.identity.unlabelled = true;
    report
}

fn report(kind: Kind, id: &str, pod: &str, shown: ReportedState) -> Report {
    let mut identity = Identity::new(kind);
    identity.pod = Some(pod.into());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some(pod.into());
    identity.created_at = Some(WallTime::from_nanos(WALL));
    identity.name = (kind == Kind::Container).then(|| id.into());
    Report::new(id, shown, identity, Details::none(kind))
}
