//! Two reconcilers that get equal inputs and must give equal outputs. Time passes only on request, and
//! reads wait until they are answered.

use std::collections::VecDeque;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, ConsumerId, HeldId, Id, Inspection, Instant, Kind, List, Output,
    PodCall, PodRead, PodUid, Reconciler, Report, Settings, StatusRead, Ticket, Version, WallTime,
};

use crate::checks::Checks;

/// The wall clock at the origin.
pub(crate) const WALL_ORIGIN: i64 = 1_700_000_000_000_000_000;
/// The consumer that acknowledges terminal records.
pub(crate) const CONSUMER: ConsumerId = ConsumerId::new(1);
/// The most outputs of one input: the worlds here are small.
const MOST_OUTPUTS: usize = 4096;
/// The most reads that may follow from each other at one instant.
const MOST_READS: usize = 256;
/// The most timers that may be due at one instant.
const MOST_TIMEOUTS: usize = 256;

/// A requested read.
#[derive(Clone, Debug)]
pub(crate) enum RequestedRead {
    List(Ticket, Instant),
    Inspect(Ticket, Instant, PodUid, Vec<HeldId>),
    Read(Ticket, Instant, Id),
    Version(Ticket),
}

pub(crate) struct Harness {
    reconciler: Reconciler,
    second: Reconciler,
    now: Instant,
    pub(crate) checks: Checks,
    /// In the order of their requests.
    pub(crate) reads: VecDeque<RequestedRead>,
    logs: bool,
}

impl Harness {
    pub(crate) fn new(settings: Settings) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let checks = Checks::new(&settings);
        let reconciler = Reconciler::new(settings.clone(), now).expect("settings that are valid");
        let second = Reconciler::new(settings, now).expect("the same settings");
        let mut harness = Self {
            reconciler,
            second,
            now,
            checks,
            reads: VecDeque::new(),
            logs: std::env::var_os("PLEG_FUZZ_LOG").is_some(),
        };
        harness.act(|reconciler, _| reconciler.register(CONSUMER, &"worker".into()));
        harness
    }

    /// Prints what happens if `PLEG_FUZZ_LOG` is set.
    #[allow(clippy::print_stdout, reason = "for debugging")]
    pub(crate) fn log(&self, what: impl FnOnce() -> String) {
        if self.logs {
            println!("{:>14.6} {}", self.now.as_nanos() as f64 / 1e9, what());
        }
    }

    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn wall(&self) -> WallTime {
        WallTime::from_nanos(WALL_ORIGIN).after(self.now.since(Instant::ORIGIN))
    }

    /// An input that is neither the answer of a read nor a request.
    pub(crate) fn input(&mut self, act: impl Fn(&mut Reconciler, Instant)) {
        self.checks.other_input();
        self.act(act);
    }

    /// Any input. The checks already know its kind.
    pub(crate) fn act(&mut self, act: impl Fn(&mut Reconciler, Instant)) {
        act(&mut self.reconciler, self.now);
        act(&mut self.second, self.now);
        self.drain();
    }

    /// Time passes, and timers fire when due.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now.after(time);
        let mut at_once = 0;
        while let Some(due) = self.reconciler.poll_timeout().filter(|&due| due <= until) {
            at_once = if due > self.now { 0 } else { at_once + 1 };
            assert!(at_once < MOST_TIMEOUTS, "too many timers at {due:?}");
            self.now = self.now.max(due);
            self.input(Reconciler::handle_timeout);
        }
        self.now = until;
    }

    fn drain(&mut self) {
        let mut outputs = 0;
        loop {
            let output = self.reconciler.poll_output();
            assert_eq!(
                output,
                self.second.poll_output(),
                "the two reconcilers differ"
            );
            let Some(output) = output else { break };
            outputs += 1;
            assert!(outputs < MOST_OUTPUTS, "too many outputs");
            self.log(|| format!("  > {output:?}"));
            self.checks.output(self.now, &output);
            self.note(output);
        }
        let is_list = |read: &RequestedRead| matches!(read, RequestedRead::List(..));
        let listing = self.reads.iter().any(is_list);
        let due = self.reconciler.poll_timeout();
        assert!(
            listing || due.is_some(),
            "neither a list in flight nor a timer"
        );
        assert_eq!(due, self.second.poll_timeout());
        self.checks.between_inputs(&self.reconciler.state_counts());
        let health = self.reconciler.health(self.now);
        let _ = (health.ready(self.now), health.degraded(self.now));
    }

    fn note(&mut self, output: Output) {
        let now = self.now;
        let read = match output {
            Output::List { ticket, .. } => RequestedRead::List(ticket, now),
            Output::Inspect {
                ticket, uid, held, ..
            } => RequestedRead::Inspect(ticket, now, uid, held),
            Output::Read { ticket, id, .. } => RequestedRead::Read(ticket, now, id),
            Output::Version { ticket, .. } => RequestedRead::Version(ticket),
            Output::Cancel { ticket } => {
                self.reads.retain(|read| match read {
                    RequestedRead::Inspect(t, ..) => *t != ticket,
                    _ => true,
                });
                return;
            }
            _ => return,
        };
        self.reads.push_back(read);
    }

    // --- answers ---

    pub(crate) fn list(
        &mut self,
        ticket: Ticket,
        began: Instant,
        rows: Result<Vec<Report>, CallError>,
    ) {
        self.log(|| format!("list {} begun {began:?}: {rows:?}", ticket.get()));
        self.checks.list_read(ticket, began, rows.is_ok());
        let list = List {
            ticket,
            began,
            ended: self.now,
            rows: rows.map(|rows| rows.into_iter().collect()),
        };
        self.act(|reconciler, now| reconciler.handle_list(now, list.clone()));
    }

    /// The inspection ends; it fails with `error` if there is one.
    pub(crate) fn inspection(
        &mut self,
        ticket: Ticket,
        began: Instant,
        read: PodRead,
        error: Option<CallError>,
    ) {
        let mut inspection = read.finish(ticket, began, self.now);
        if error.is_some() {
            inspection = Inspection {
                ticket,
                began,
                ended: self.now,
                found: inspection.found,
                ..Inspection::new(error)
            };
        }
        self.log(|| format!("{inspection:?}"));
        self.checks
            .pod_read(ticket, began, inspection.error.is_none());
        self.act(|reconciler, now| reconciler.handle_inspection(now, inspection.clone()));
    }

    pub(crate) fn status_read(
        &mut self,
        ticket: Ticket,
        began: Instant,
        report: Result<Report, CallError>,
    ) {
        self.log(|| format!("status {} begun {began:?}: {report:?}", ticket.get()));
        self.checks.status_read(began);
        let status_read = StatusRead {
            ticket,
            began,
            ended: self.now,
            report,
        };
        self.act(|reconciler, now| reconciler.handle_status_read(now, status_read.clone()));
    }

    pub(crate) fn version(&mut self, ticket: Ticket, outcome: Result<(), CallError>) {
        let version = Version {
            ticket,
            ended: self.now,
            outcome,
        };
        self.act(|reconciler, now| reconciler.handle_version(now, version.clone()));
    }

    /// Answers a read as if exactly these objects existed.
    pub(crate) fn answer(&mut self, read: RequestedRead, exists: &[Report]) {
        match read {
            RequestedRead::List(ticket, at) => self.list(ticket, at, Ok(exists.to_vec())),
            RequestedRead::Inspect(ticket, at, uid, held) => {
                let answer = inspect(exists, &uid, &held);
                self.inspection(ticket, at, answer, None);
            }
            RequestedRead::Read(ticket, at, id) => {
                let report = exists.iter().find(|r| r.id == id).cloned();
                self.status_read(ticket, at, report.ok_or_else(not_found));
            }
            RequestedRead::Version(ticket) => self.version(ticket, Ok(())),
        }
    }

    /// Time passes, and all reads succeed.
    pub(crate) fn settle(&mut self, exists: &[Report], time: Duration) {
        let until = self.now.after(time);
        loop {
            let mut at_once = 0;
            while let Some(read) = self.reads.pop_front() {
                at_once += 1;
                assert!(at_once < MOST_READS, "too many reads");
                // A call takes time: its answer is newer than the request.
                self.pass(Duration::from_nanos(1));
                self.answer(read, exists);
            }
            let due = self.reconciler.poll_timeout().filter(|&due| due <= until);
            let Some(due) = due else { break };
            self.pass(due.since(self.now));
        }
        self.checks.all_answered(self.now);
        assert!(self.reconciler.is_idle(), "the reconciler is not idle");
        assert!(self.reconciler == self.second, "the two reconcilers differ");
    }
}

/// The answers to the calls of an inspection, if exactly these objects exist.
pub(crate) fn inspect(exists: &[Report], uid: &PodUid, held: &[HeldId]) -> PodRead {
    let rows = |kind: Kind| {
        let of_pod = |r: &&Report| r.identity.pod.as_ref() == Some(uid);
        let of_kind = exists.iter().filter(move |r| r.identity.kind == kind);
        of_kind.filter(of_pod).cloned().collect()
    };
    let mut read = PodRead::new(held);
    while let Some(call) = read.next_call() {
        let answer = match &call {
            PodCall::Sandboxes => Ok(rows(Kind::Sandbox)),
            PodCall::Containers => Ok(rows(Kind::Container)),
            PodCall::Status(id, _) => {
                let found = exists.iter().find(|r| r.id == *id).cloned();
                found.map(|r| vec![r]).ok_or_else(not_found)
            }
        };
        read.answered(&call, answer);
    }
    read
}

pub(crate) fn not_found() -> CallError {
    CallError::new("ContainerStatus", CallErrorKind::NotFound, "not found")
}

pub(crate) fn failure() -> CallError {
    CallError::new("ListContainers", CallErrorKind::Failed, "it failed")
}
