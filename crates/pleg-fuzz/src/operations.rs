//! Anything that a driver, two sources and the consumers may do to the reconciler, in any order:
//! contradictory events, reads that are wrong, fail or come twice, requests, cancellations. At the
//! end the cache must equal what exists (section 7 of the design). [`operation_types`] defines the
//! operations.

mod operation_types;

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use pleg_core::{
    Arrival, EventType, Id, Instant, Kind, Mode, PodRead, PodUid, Report, ReportedState,
    RuntimeEvent, Settings, StreamChange, StreamEnd, Ticket, WaiterId,
};

use crate::checks::State;
use crate::harness::{CONSUMER, Harness, RequestedRead, failure, inspect, not_found};
use operation_types::{
    Answer, Config, EventKind, OF_SANDBOX, ObjectNumber, Operation, Pause, Seen, Stamp, pod,
};

const MS: Duration = Duration::from_millis(1);
/// Longer inputs show nothing new.
const MOST_OPERATIONS: usize = 200;
/// So that no tombstone expires, after which an id would be new.
const LONGEST: Duration = Duration::from_secs(300);
/// The longest time until the cache equals what exists: a relist period of 60 s, 12 s to overrule a
/// false removal, backoffs up to 60 s.
const REST: Duration = Duration::from_secs(200);

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
    if config.one_slot {
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
    exists: BTreeMap<ObjectNumber, Report>,
    waiters: u64,
    passed: Duration,
    subscribed: bool,
}

impl World {
    fn perform(&mut self, operation: Operation) {
        match operation {
            Operation::Exists(object, Some(state), code) => {
                let report = object.report(state.into(), Some(code.into()), false);
                self.exists.insert(object, report);
            }
            Operation::Exists(object, None, _) => {
                self.exists.remove(&object);
            }
            Operation::TrueEvent(object, what) => self.true_event(object, what),
            Operation::Event {
                subject,
                what,
                stamp,
                sandbox,
                containers,
            } => {
                // These events always name the true pod and sandbox of an object, because identity
                // is recorded once.
                let ours = subject.sandbox();
                let fits = |s: &Seen, kind| s.object.kind() == kind && s.object.sandbox() == ours;
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
                self.harness
                    .input(|reconciler, now| reconciler.handle_backlog(now, behind));
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
                    if let Some(read) = self.harness.reads.pop_front() {
                        self.harness.answer(read, &exists);
                    }
                }
            }
            other => self.ask(&other),
        }
    }

    // --- the sources ---

    /// A complete true event, as containerd sends it.
    fn true_event(&mut self, object: ObjectNumber, what: EventKind) {
        let sandbox = self.exists.get(&object.sandbox()).cloned();
        let first = object.sandbox().0;
        let containers = (1..OF_SANDBOX).map(|n| ObjectNumber(first + n));
        let containers = containers.filter_map(|n| self.exists.get(&n).cloned());
        let containers = containers.collect();
        self.event(object, what, Stamp::Now, sandbox, containers);
    }

    fn event(
        &mut self,
        subject: ObjectNumber,
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
            .input(|reconciler, now| reconciler.handle_event(now, arrival.clone()));
    }

    fn subscribe(&mut self) {
        if self.polling {
            return;
        }
        self.subscribed = true;
        let (at, wall) = (self.harness.now(), self.harness.wall());
        let change = StreamChange::Subscribed { at, wall };
        self.harness
            .input(|reconciler, now| reconciler.handle_stream(now, change.clone()));
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
        let retry_at = at.after(retry.duration());
        let change = StreamChange::Ended { at, why, retry_at };
        self.harness
            .input(|reconciler, now| reconciler.handle_stream(now, change.clone()));
    }

    fn pass(&mut self, pause: Pause) {
        let time = pause.duration().min(LONGEST.saturating_sub(self.passed));
        self.passed += time;
        self.harness.pass(time);
    }

    fn answer(&mut self, which: u8, answer: &Answer, late: bool) {
        if self.harness.reads.is_empty() {
            return;
        }
        let which = usize::from(which) % self.harness.reads.len();
        let Some(read) = self.harness.reads.remove(which) else {
            return;
        };
        let exists = match answer {
            Answer::True => self.all(),
            // These are two arms because the arrays differ in length.
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
        match read {
            RequestedRead::List(ticket, at) => {
                let rows = exists.into_iter().map(list_row).collect();
                let (began, rows) = (began(at), error.map_or(Ok(rows), Err));
                harness.list(ticket, began, rows);
            }
            RequestedRead::Inspect(ticket, at, uid, held) => {
                let began = began(at);
                let answer = inspect(&exists, &uid, &held);
                harness.inspection(ticket, began, answer, error);
            }
            RequestedRead::Read(ticket, at, id) => {
                let began = began(at);
                let found = exists.into_iter().find(|r| r.id == id);
                let report = found.ok_or_else(|| error.unwrap_or_else(not_found));
                harness.status_read(ticket, began, report);
            }
            RequestedRead::Version(ticket) => harness.version(ticket, error.map_or(Ok(()), Err)),
        }
    }

    fn again(&mut self, ticket: Ticket, list: bool) {
        let has_ticket = |read: &RequestedRead| match read {
            RequestedRead::List(t, _)
            | RequestedRead::Inspect(t, ..)
            | RequestedRead::Read(t, ..)
            | RequestedRead::Version(t) => *t == ticket,
        };
        if self.harness.reads.iter().any(has_ticket) {
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
                self.harness.checks.waiter_added(waiter, &uid, after, now);
                self.harness
                    .act(|reconciler, now| reconciler.wait(now, waiter, &uid, after));
            }
            Operation::Relist(number) => {
                let uid = pod(number.0);
                self.harness.checks.waiter_added(waiter, &uid, now, now);
                self.harness
                    .act(|reconciler, now| reconciler.relist(now, waiter, &uid));
            }
            Operation::Reinspect(number) => {
                let uid = pod(number.0);
                self.harness.checks.waiter_added(waiter, &uid, now, now);
                self.harness
                    .act(|reconciler, now| reconciler.reinspect(now, waiter, &uid));
            }
            Operation::RelistNow => {
                self.harness.checks.list_waiter_added(waiter);
                self.harness
                    .input(|reconciler, now| reconciler.relist_now(now, waiter));
            }
            Operation::Cancel(which) => {
                let waiter = WaiterId::new(which.into());
                self.harness.checks.cancelled(waiter);
                self.harness
                    .input(|reconciler, _| reconciler.cancel(waiter));
            }
            Operation::Acknowledge(object) => {
                self.harness.input(|reconciler, _| {
                    reconciler.acknowledge(CONSUMER, &object.id(), u32::MAX);
                });
            }
            _ => {}
        }
    }

    // --- the end ---

    fn check_convergence(&mut self) {
        self.harness
            .input(|reconciler, now| reconciler.handle_backlog(now, false));
        // UNKNOWN is a fault, too, and it cannot contradict a state.
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
            .map(|(object, report)| {
                let state = match report.shown {
                    ReportedState::Created => Some(State::Created),
                    ReportedState::Running => Some(State::Running),
                    ReportedState::Exited | ReportedState::Unknown => Some(State::Exited),
                };
                (object.id(), (object.pod(), state))
            })
            .collect();
        assert_eq!(
            self.harness.checks.shown(),
            real,
            "the cache differs from what exists"
        );
    }

    fn all(&self) -> Vec<Report> {
        self.exists.values().cloned().collect()
    }
}

/// A container's row always names its sandbox.
fn list_row(mut report: Report) -> Report {
    if report.identity.kind == Kind::Container {
        let number = report.id.as_str().trim_start_matches('i').parse::<u8>();
        report.identity.sandbox = number.ok().map(|n| ObjectNumber(n).sandbox().id());
    }
    report
}

/// A list shows an id at most once.
fn unique(seen: &[Option<Seen>]) -> Vec<Report> {
    let by_object: BTreeMap<ObjectNumber, Seen> =
        seen.iter().flatten().map(|s| (s.object, *s)).collect();
    by_object.into_values().map(Seen::report).collect()
}
