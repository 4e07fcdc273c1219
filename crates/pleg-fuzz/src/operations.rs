//! Anything that a driver, two sources and the consumers may do to the reconciler, in any order:
//! contradictory events, reads that are wrong, fail or come twice, requests, cancellations. At the
//! end the cache must equal what exists (section 7 of the design).

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use pleg_core::{
    Arrival, ContainerDetails, Details, EventType, Id, Identity, Instant, Kind, Mode, PodRead,
    PodUid, Report, ReportedState, RuntimeEvent, Settings, StreamChange, StreamEnd, Ticket,
    WaiterId, WallTime,
};

use crate::checks::State;
use crate::harness::{Asked, CONSUMER, Harness, WALL_ORIGIN, failure, inspect, not_found};

const MS: Duration = Duration::from_millis(1);
/// Longer inputs show nothing new.
const MOST_OPERATIONS: usize = 200;
/// So that no tombstone expires, after which an id would be new.
const LONGEST: Duration = Duration::from_secs(300);
/// The longest time until the cache equals what exists: a relist period of 60 s, 12 s to overrule a
/// false removal, backoffs up to 60 s.
const REST: Duration = Duration::from_secs(200);

const PODS: u8 = 2;
const SANDBOXES: u8 = 2;
const CONTAINERS: u8 = 3;
/// Each sandbox and its containers.
const OF_SANDBOX: u8 = 1 + CONTAINERS;
const IDS: u8 = PODS * SANDBOXES * OF_SANDBOX;

/// One of the ids of this world. Its number determines its kind, sandbox and pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(u8);

impl<'a> Arbitrary<'a> for Name {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % IDS))
    }
}

impl Name {
    const fn kind(self) -> Kind {
        if self.0.is_multiple_of(OF_SANDBOX) {
            Kind::Sandbox
        } else {
            Kind::Container
        }
    }

    const fn sandbox(self) -> Self {
        Self(self.0 - self.0 % OF_SANDBOX)
    }

    fn id(self) -> Id {
        format!("i{}", self.0).into()
    }

    fn pod(self) -> PodUid {
        pod(self.0 / (SANDBOXES * OF_SANDBOX))
    }

    fn report(self, shown: ReportedState, code: Option<i32>, bare: bool) -> Report {
        let kind = self.kind();
        let mut identity = Identity::new(kind);
        identity.attempt = u32::from(self.0);
        identity.created_at = WallTime::claimed(WALL_ORIGIN + i64::from(self.0));
        if !bare {
            identity.pod = Some(self.pod());
            identity.sandbox = (kind == Kind::Container).then(|| self.sandbox().id());
            identity.name = (kind == Kind::Container).then(|| "app".into());
        }
        let details = match kind {
            Kind::Sandbox => Details::none(kind),
            Kind::Container => {
                let mut details = ContainerDetails::default();
                details.exit_code = code.filter(|_| shown == ReportedState::Exited);
                details.into()
            }
        };
        let shown = match (kind, shown) {
            (Kind::Sandbox, ReportedState::Created) => ReportedState::Running,
            (_, shown) => shown,
        };
        Report::new(self.id(), shown, identity, details)
    }
}

fn pod(number: u8) -> PodUid {
    format!("u{number}").into()
}

/// One more than exist, so that requests may name an unknown pod.
#[derive(Clone, Copy, Debug)]
struct PodNumber(u8);

impl<'a> Arbitrary<'a> for PodNumber {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % (PODS + 1)))
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum SeenState {
    Created,
    Running,
    Exited,
    Unknown,
}

impl From<SeenState> for ReportedState {
    fn from(state: SeenState) -> Self {
        match state {
            SeenState::Created => Self::Created,
            SeenState::Running => Self::Running,
            SeenState::Exited => Self::Exited,
            SeenState::Unknown => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Seen {
    name: Name,
    state: SeenState,
    code: Option<u8>,
    /// It does not name its pod.
    bare: bool,
}

impl Seen {
    fn report(self) -> Report {
        self.name
            .report(self.state.into(), self.code.map(i32::from), self.bare)
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum EventKind {
    Created,
    Started,
    Stopped,
    Deleted,
    Other,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Stamp {
    Now,
    Absurd,
    /// That many seconds ago, or ahead.
    Off(i16),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Pause {
    Millis(u8),
    Tenths(u8),
    Seconds(u8),
}

#[derive(Clone, Debug, Arbitrary)]
enum Answer {
    /// The truth.
    True,
    /// Something false.
    Wrong([Option<Seen>; 3]),
    /// A part, and an error.
    Partial([Option<Seen>; 2]),
    Failed,
}

#[derive(Clone, Debug, Arbitrary)]
enum Operation {
    /// An object is created, changes or is removed.
    Exists(Name, Option<SeenState>, u8),
    /// A true event.
    TrueEvent(Name, EventKind),
    Event {
        subject: Name,
        what: EventKind,
        stamp: Stamp,
        sandbox: Option<Seen>,
        containers: [Option<Seen>; 2],
    },
    Subscribed,
    Ended {
        never_offered: bool,
        retry: Pause,
    },
    Backlog(bool),
    Pass(Pause),
    /// Answers one of the reads in flight.
    Answer {
        which: u8,
        answer: Answer,
        /// It began only now instead of when it was requested.
        late: bool,
    },
    /// Answers a read that was answered already or never requested.
    Again {
        ticket: u8,
        list: bool,
    },
    /// Answers all reads in flight truthfully.
    AnswerAll,
    Wait {
        pod: PodNumber,
        /// Milliseconds from now.
        after: i16,
    },
    Relist(PodNumber),
    Reinspect(PodNumber),
    RelistNow,
    Cancel(u8),
    Acknowledge(Name),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Config {
    polling: bool,
    /// One slot of each kind, so that queues build up.
    narrow: bool,
}

/// Runs the operations in the bytes. Invalid bytes are ignored.
pub fn operations(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(config) = Config::arbitrary(&mut data) else {
        return;
    };
    let mut settings = Settings::default();
    if config.polling {
        settings.mode = Mode::Polling;
    }
    if config.narrow {
        (settings.inspections, settings.retries) = (1, 1);
        settings.overdue_max = 1;
    }
    let mut world = World {
        harness: Harness::new(settings),
        polling: config.polling,
        exists: BTreeMap::new(),
        waiters: 0,
        passed: Duration::ZERO,
        subscribed: false,
    };
    for _ in 0..MOST_OPERATIONS {
        if data.is_empty() {
            break;
        }
        if let Ok(operation) = Operation::arbitrary(&mut data) {
            world.harness.log(|| format!("{operation:?}"));
            world.perform(operation);
        }
    }
    world.check_convergence();
}

struct World {
    harness: Harness,
    polling: bool,
    exists: BTreeMap<Name, Report>,
    waiters: u64,
    passed: Duration,
    subscribed: bool,
}

impl World {
    fn perform(&mut self, operation: Operation) {
        match operation {
            Operation::Exists(name, Some(state), code) => {
                let report = name.report(state.into(), Some(code.into()), false);
                self.exists.insert(name, report);
            }
            Operation::Exists(name, None, _) => {
                self.exists.remove(&name);
            }
            Operation::TrueEvent(name, what) => self.true_event(name, what),
            Operation::Event {
                subject,
                what,
                stamp,
                sandbox,
                containers,
            } => {
                // These events never lie about the pod and sandbox of an object, which is recorded once.
                let ours = subject.sandbox();
                let fits = |s: &Seen, kind| s.name.kind() == kind && s.name.sandbox() == ours;
                let sandbox = sandbox.filter(|s| fits(s, Kind::Sandbox));
                let containers = containers.into_iter().flatten();
                let containers = containers.filter(|s| fits(s, Kind::Container));
                let containers = containers.map(Seen::report).collect();
                self.event(subject, what, stamp, sandbox.map(Seen::report), containers);
            }
            Operation::Subscribed => self.subscribe(),
            Operation::Ended {
                never_offered,
                retry,
            } => self.end_the_stream(never_offered, retry),
            Operation::Backlog(behind) => {
                self.harness.input(|m, now| m.handle_backlog(now, behind));
            }
            Operation::Pass(pause) => self.pass(pause),
            Operation::Answer {
                which,
                answer,
                late,
            } => self.answer(which, &answer, late),
            Operation::Again { ticket, list } => self.again(u64::from(ticket).into(), list),
            Operation::AnswerAll => {
                let exists = self.all();
                for _ in 0..self.harness.reads.len() {
                    if let Some(asked) = self.harness.reads.pop_front() {
                        self.harness.answer(asked, &exists);
                    }
                }
            }
            other => self.ask(&other),
        }
    }

    // --- the sources ---

    /// A complete true event, as containerd sends it.
    fn true_event(&mut self, name: Name, what: EventKind) {
        let sandbox = self.exists.get(&name.sandbox()).cloned();
        let containers = (1..OF_SANDBOX).map(|n| Name(name.sandbox().0 + n));
        let containers = containers.filter_map(|n| self.exists.get(&n).cloned());
        let containers = containers.collect();
        self.event(name, what, Stamp::Now, sandbox, containers);
    }

    fn event(
        &mut self,
        subject: Name,
        what: EventKind,
        stamp: Stamp,
        sandbox: Option<Report>,
        containers: Vec<Report>,
    ) {
        // In polling mode there is no stream.
        if !self.subscribed {
            return;
        }
        let wall = self.harness.wall().as_nanos();
        let what = match what {
            EventKind::Created => EventType::Created,
            EventKind::Started => EventType::Started,
            EventKind::Stopped => EventType::Stopped,
            EventKind::Deleted => EventType::Deleted,
            EventKind::Other => EventType::Other(7),
        };
        let mut event = RuntimeEvent::new(subject.id(), what);
        event.created_at = match stamp {
            Stamp::Now => wall,
            Stamp::Absurd => i64::MIN,
            Stamp::Off(seconds) => wall + i64::from(seconds) * 1_000_000_000,
        };
        event.sandbox = sandbox;
        event.containers = containers;
        let arrival = Arrival {
            event,
            arrived: self.harness.now(),
            wall: self.harness.wall(),
        };
        self.harness
            .input(|m, now| m.handle_event(now, arrival.clone()));
    }

    fn subscribe(&mut self) {
        if self.polling {
            return;
        }
        self.subscribed = true;
        let (at, wall) = (self.harness.now(), self.harness.wall());
        let change = StreamChange::Subscribed { at, wall };
        self.harness
            .input(|m, now| m.handle_stream(now, change.clone()));
    }

    fn end_the_stream(&mut self, never_offered: bool, retry: Pause) {
        if !self.subscribed {
            return;
        }
        self.subscribed = false;
        let at = self.harness.now();
        let why = if never_offered {
            StreamEnd::NeverOffered
        } else {
            StreamEnd::Ended(None)
        };
        let retry_at = at.after(duration(retry));
        let change = StreamChange::Ended { at, why, retry_at };
        self.harness
            .input(|m, now| m.handle_stream(now, change.clone()));
    }

    fn pass(&mut self, pause: Pause) {
        let time = duration(pause).min(LONGEST.saturating_sub(self.passed));
        self.passed += time;
        self.harness.pass(time);
    }

    fn answer(&mut self, which: u8, answer: &Answer, late: bool) {
        if self.harness.reads.is_empty() {
            return;
        }
        let which = usize::from(which) % self.harness.reads.len();
        let Some(asked) = self.harness.reads.remove(which) else {
            return;
        };
        let exists = match answer {
            Answer::True => self.all(),
            Answer::Wrong(seen) => unique(seen),
            Answer::Partial(seen) => unique(seen),
            Answer::Failed => Vec::new(),
        };
        let error = match answer {
            Answer::True | Answer::Wrong(_) => None,
            Answer::Partial(_) | Answer::Failed => Some(failure()),
        };
        let harness = &mut self.harness;
        let began = |at| if late { harness.now() } else { at };
        match asked {
            Asked::List(ticket, at) => {
                let rows = exists.into_iter().map(list_row).collect();
                let (began, rows) = (began(at), error.map_or(Ok(rows), Err));
                harness.list(ticket, began, rows);
            }
            Asked::Inspect(ticket, at, uid, held) => {
                let began = began(at);
                let answer = inspect(&exists, &uid, &held);
                harness.inspection(ticket, began, answer, error);
            }
            Asked::Read(ticket, at, id) => {
                let began = began(at);
                let found = exists.into_iter().find(|r| r.id == id);
                let report = found.ok_or_else(|| error.unwrap_or_else(not_found));
                harness.status_read(ticket, began, report);
            }
            Asked::Version(ticket) => harness.version(ticket, error.map_or(Ok(()), Err)),
        }
    }

    fn again(&mut self, ticket: Ticket, list: bool) {
        let waits = |r: &Asked| match r {
            Asked::List(t, _) | Asked::Inspect(t, ..) | Asked::Read(t, ..) | Asked::Version(t) => {
                *t == ticket
            }
        };
        if self.harness.reads.iter().any(waits) {
            return;
        }
        let now = self.harness.now();
        if list {
            self.harness.list(ticket, now, Ok(Vec::new()));
        } else {
            self.harness
                .inspection(ticket, now, PodRead::new(&[]), None);
        }
    }

    // --- the consumers ---

    fn ask(&mut self, operation: &Operation) {
        let now = self.harness.now();
        self.waiters += 1;
        let waiter = WaiterId::new(self.waiters);
        match *operation {
            Operation::Wait { pod: number, after } => {
                let uid = pod(number.0);
                let by = MS * u32::from(after.unsigned_abs());
                let after = if after < 0 {
                    Instant::from_nanos(now.since(Instant::ORIGIN.after(by)).as_nanos() as u64)
                } else {
                    now.after(by)
                };
                self.harness.checks.asked(waiter, &uid, after, now);
                self.harness.act(|m, now| m.wait(now, waiter, &uid, after));
            }
            Operation::Relist(number) => {
                let uid = pod(number.0);
                self.harness.checks.asked(waiter, &uid, now, now);
                self.harness.act(|m, now| m.relist(now, waiter, &uid));
            }
            Operation::Reinspect(number) => {
                let uid = pod(number.0);
                self.harness.checks.asked(waiter, &uid, now, now);
                self.harness.act(|m, now| m.reinspect(now, waiter, &uid));
            }
            Operation::RelistNow => {
                self.harness.checks.list_waiter_added(waiter);
                self.harness.input(|m, now| m.relist_now(now, waiter));
            }
            Operation::Cancel(which) => {
                let waiter = WaiterId::new(which.into());
                self.harness.checks.cancelled(waiter);
                self.harness.input(|m, _| m.cancel(waiter));
            }
            Operation::Acknowledge(name) => {
                self.harness
                    .input(|m, _| m.acknowledge(CONSUMER, &name.id()));
            }
            _ => {}
        }
    }

    // --- the end ---

    fn check_convergence(&mut self) {
        self.harness.input(|m, now| m.handle_backlog(now, false));
        // UNKNOWN is a fault, too: it cannot contradict a state.
        for report in self.exists.values_mut() {
            if report.shown == ReportedState::Unknown {
                report.shown = ReportedState::Exited;
            }
        }
        let exists = self.all();
        self.harness.settle(&exists, REST);
        let real: BTreeMap<Id, (PodUid, Option<State>)> = self
            .exists
            .iter()
            .map(|(name, report)| {
                let state = match report.shown {
                    ReportedState::Created => Some(State::Created),
                    ReportedState::Running => Some(State::Running),
                    ReportedState::Exited | ReportedState::Unknown => Some(State::Exited),
                };
                (name.id(), (name.pod(), state))
            })
            .collect();
        assert_eq!(
            self.harness.checks.shown(),
            real,
            "the cache is not the oracle"
        );
    }

    fn all(&self) -> Vec<Report> {
        self.exists.values().cloned().collect()
    }
}

/// A container's row always names its sandbox.
fn list_row(mut report: Report) -> Report {
    if report.identity.kind == Kind::Container {
        let name = report.id.as_str().trim_start_matches('i').parse().map(Name);
        report.identity.sandbox = name.ok().map(|name| name.sandbox().id());
    }
    report
}

/// A list shows an id at most once.
fn unique(seen: &[Option<Seen>]) -> Vec<Report> {
    let by_name: BTreeMap<Name, Seen> = seen.iter().flatten().map(|s| (s.name, *s)).collect();
    by_name.into_values().map(Seen::report).collect()
}

fn duration(pause: Pause) -> Duration {
    match pause {
        Pause::Millis(n) => MS * u32::from(n),
        Pause::Tenths(n) => 100 * MS * u32::from(n),
        Pause::Seconds(n) => Duration::from_secs(n.into()),
    }
}
