//! How each action changes the state of a small world.

use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    Arrival, CallErrorKind, Instant, Output, Reconciler, Report, RuntimeEvent, Settings,
    StreamChange, StreamEnd, Ticket, WaiterId, WallTime,
};

use super::checks::{Checks, Input};
use super::kubelet::Worker;
use super::scenario::{ObjectIndex, Snapshot, Stage, Step};
use super::state::{Action, Message, Phase, Read, State, What};
use super::time_shift::EPOCH;
use super::world_model::{WorldModel, when};
use super::worlds::Budget;
use crate::runtime::{error, format_reports};

/// The least time between two instants. Driver threads are never this slow, and all ticks of a
/// run together stay far below the core's shortest interval, 100 ms.
pub const TICK: u64 = 100_000;

/// A state that is being changed, and its trace.
#[derive(Debug)]
pub struct Execution<'a> {
    pub model: &'a WorldModel,
    pub state: State,
    pub trace: Option<Vec<String>>,
    /// The origin of the times in the trace.
    pub since: u64,
}

impl<'a> Execution<'a> {
    /// The initial state: everything is read, and the stream is confirmed.
    pub fn begin(model: &'a WorldModel, trace: bool) -> Self {
        let mut oracle = Snapshot::default();
        let mut checks = Checks::default();
        for &(object, stage) in model.world.scenario.first {
            oracle[object] = stage;
            checks.records[object].reported = stage;
        }
        let now = EPOCH + 1_000_000_000;
        let state = State {
            reconciler: reconciler(now),
            now,
            done: [0; 2],
            oracle,
            streaming: false,
            queue: Vec::new(),
            reads: Vec::new(),
            left: model.world.budget,
            checks,
            workers: Vec::new(),
            phase: Phase::Running,
            waiters: 0,
            late: false,
            violation: None,
        };
        let trace = trace.then(Vec::new);
        let mut execution = Self {
            model,
            state,
            trace,
            since: now,
        };
        execution.drain(Input::Timer);
        execution.act(Action::Subscribe);
        // Until the stream is confirmed and the baseline is read.
        execution.run_without_faults(Duration::from_millis(1500));
        while model.world.listing
            && !execution
                .state
                .reads
                .iter()
                .any(|r| matches!(r.what, What::Node { .. }))
        {
            execution.advance_time();
        }
        if model.world.kubelet {
            execution.state.workers = vec![Worker::default(); model.pods.len()];
        }
        execution.since = execution.state.now;
        execution
    }

    pub fn instant(&self) -> Instant {
        Instant::from_nanos(self.state.now)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.state.now.cast_signed())
    }

    pub fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = line(self);
            if let Some(trace) = &mut self.trace {
                trace.push(line);
            }
        }
    }

    pub fn violated(&mut self, what: impl Into<Arc<str>>) {
        self.state.violation.get_or_insert(what.into());
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Step { script } => self.step(script),
            Action::Deliver {
                second,
                late,
                again,
            } => self.deliver(second, late, again),
            Action::Drop => {
                let lost = self.state.queue.remove(0);
                self.state.left.drops -= 1;
                self.state.checks.drops += 1;
                self.state.left.faults -= 1;
                self.log(|p| format!("an event is lost: {}", p.name(lost.step)));
            }
            Action::FalseEvent { object, to } => self.false_event(object, to),
            Action::Cut => self.cut(),
            Action::Subscribe => self.subscribe(),
            Action::Complete { read, first, then } => {
                self.complete(read, (first, then), None, None);
            }
            Action::CompleteFalsely {
                read,
                object,
                stage,
            } => {
                self.state.left.false_lists -= 1;
                self.state.left.faults -= 1;
                let last = self.state.reads[read].seen.len() - 1;
                self.complete(read, (last, last), Some((object, stage)), None);
            }
            Action::CompleteWithout { read, object } => {
                self.state.left.not_found -= 1;
                self.state.left.faults -= 1;
                let last = self.state.reads[read].seen.len() - 1;
                self.complete(read, (last, last), None, Some(object));
            }
            Action::Fail { read, partial } => self.fail(read, partial),
            Action::Wait { pod } => self.wait(pod),
            Action::RunWorker { pod } => self.run_worker(pod),
            Action::Operate { pod } => self.operate(pod),
            Action::Resync { pod } => self.resync(pod),
            Action::DeletePod { pod } => self.delete_pod(pod),
            Action::AdvanceTime => {
                self.state.left.time_jumps -= u8::from(!self.is_due());
                self.advance_time();
            }
            Action::StopFaults => {
                self.state.left = Budget::default();
                self.state.phase = Phase::Stopped;
                self.log(|_| "no fault any more; what is owed is done in order".into());
            }
            Action::Quiesce => self.quiesce(),
        }
    }

    // --- the node ---

    fn step(&mut self, script: usize) {
        let at = usize::from(self.state.done[script]);
        let step = self.model.world.scenario.scripts[script][at];
        self.state.done[script] += 1;
        self.node_step(step);
    }

    /// An object reaches a stage.
    pub fn node_step(&mut self, step: Step) {
        let Step(object, to) = step;
        self.state.oracle[object] = to;
        let (seen, now) = (self.state.oracle, self.state.now);
        for read in &mut self.state.reads {
            let matters = match &read.what {
                What::Node { .. } => true,
                What::Pod { pod, .. } => self.model.pod_of(object) == *pod,
                What::One { object: one } => *one == object,
            };
            if matters {
                read.seen.push(seen);
            }
        }
        if self.state.streaming {
            self.state.queue.push(Message {
                step,
                seen,
                at: now,
            });
        }
        self.log(|p| format!("the node: {}", p.name(step)));
    }

    // --- the stream ---

    fn deliver(&mut self, second: bool, late: bool, again: bool) {
        let message = self.state.queue.remove(usize::from(second));
        self.state.left.reorderings -= u8::from(second);
        self.state.left.duplicates -= u8::from(again);
        self.state.left.stale -= u8::from(late);
        self.state.left.faults -= u8::from(second) + u8::from(again) + u8::from(late);
        if again {
            self.state.queue.push(message);
        }
        let seen = if late {
            self.state.oracle
        } else {
            message.seen
        };
        let event = self.model.event(message.step, &seen, message.at);
        self.deliver_event(message.step, event);
    }

    fn false_event(&mut self, object: ObjectIndex, to: Stage) {
        self.state.left.false_events -= 1;
        self.state.left.faults -= 1;
        self.state.checks.records[object].misreported = true;
        let mut seen = self.state.oracle;
        seen[object] = to;
        let step = Step(object, to);
        let event = self.model.event(step, &seen, self.state.now);
        self.log(|p| format!("a false event: {}", p.name(step)));
        self.deliver_event(step, event);
    }

    fn deliver_event(&mut self, step: Step, event: RuntimeEvent) {
        self.log(|p| {
            let shown = event.sandbox.iter().chain(&event.containers);
            format!(
                "an event reports: {} (with {})",
                p.name(step),
                format_reports(shown)
            )
        });
        let shown: Vec<&Report> = event.sandbox.iter().chain(&event.containers).collect();
        let now = self.state.now;
        self.state
            .checks
            .event_received(self.model, now, step, &shown);
        let (arrived, wall) = (self.instant(), self.wall());
        let arrival = Arrival {
            event,
            arrived,
            wall,
        };
        self.state.reconciler.handle_event(arrived, arrival);
        self.drain(Input::Stream);
    }

    fn cut(&mut self) {
        self.state.left.cuts -= 1;
        self.state.checks.cuts += 1;
        self.state.left.faults -= 1;
        self.state.streaming = false;
        self.state.queue.clear();
        self.log(|_| "the stream is disconnected".into());
        let at = self.instant();
        let why = StreamEnd::Ended(Some(error(CallErrorKind::Unavailable)));
        let change = StreamChange::Ended {
            at,
            why,
            retry_at: at,
        };
        self.state.reconciler.handle_stream(at, change);
        self.drain(Input::Stream);
    }

    fn subscribe(&mut self) {
        self.state.streaming = true;
        self.log(|_| "subscribed".into());
        let (at, wall) = (self.instant(), self.wall());
        let change = StreamChange::Subscribed { at, wall };
        self.state.reconciler.handle_stream(at, change);
        self.drain(Input::Stream);
    }

    // --- consumers and time ---

    fn wait(&mut self, pod: usize) {
        self.state.left.waits -= 1;
        let waiter = self.next_waiter();
        self.log(|p| {
            let (uid, now) = (&p.model.pods[pod], p.when(p.state.now));
            format!("a consumer asks for {uid} as of later than now, {now}")
        });
        let (now, oracle) = (self.state.now, self.state.oracle);
        self.wait_for(waiter, pod, (now, &oracle));
    }

    pub fn next_waiter(&mut self) -> WaiterId {
        self.state.waiters += 1;
        WaiterId::new(self.state.waiters)
    }

    /// Waits for a state newer than that instant and the true state then.
    pub fn wait_for(&mut self, waiter: WaiterId, pod: usize, (after, oracle): (u64, &Snapshot)) {
        self.state.checks.asked(waiter, pod, after, oracle);
        let (now, uid) = (self.instant(), &self.model.pods[pod]);
        let after = Instant::from_nanos(after);
        self.state.reconciler.wait(now, waiter, uid, after);
        self.drain(Input::Request);
    }

    /// Whether a timer of the reconciler is due.
    pub fn is_due(&self) -> bool {
        is_due(&self.state)
    }

    pub fn advance_time(&mut self) {
        let Some(due) = self.state.reconciler.poll_timeout() else {
            return self.violated("invariant 10: nothing is to happen any more, not even a list");
        };
        let passed = due.as_nanos().saturating_sub(self.state.now);
        let waiting = !self.state.queue.is_empty() || !self.state.reads.is_empty();
        self.state.late |= waiting && passed > 0;
        self.state.now += passed;
        self.log(|p| {
            format!(
                "{} ms pass, it is {}",
                passed / 1_000_000,
                p.when(p.state.now)
            )
        });
        let now = self.instant();
        self.state.reconciler.handle_timeout(now);
        self.drain(Input::Timer);
    }

    // --- outputs ---

    /// Checks all outputs and begins the requested reads a tick later.
    pub fn drain(&mut self, input: Input) {
        let mut asked: Vec<(Ticket, What, Duration)> = Vec::new();
        while let Some(output) = self.state.reconciler.poll_output() {
            self.log(|p| format!("        {}", p.model.format_output(&output, p.since)));
            match output {
                Output::List {
                    ticket,
                    deadline,
                    known,
                } => asked.push((ticket, What::Node { known }, deadline)),
                Output::Inspect {
                    ticket,
                    uid,
                    held,
                    deadline,
                    ..
                } => match self.model.pods.iter().position(|p| *p == uid) {
                    Some(pod) => asked.push((ticket, What::Pod { pod, held }, deadline)),
                    None => self.violated(format!("{uid} is inspected and is no pod")),
                },
                Output::Read {
                    ticket,
                    id,
                    deadline,
                    ..
                } => match self.model.index_of(&id) {
                    Some(object) => asked.push((ticket, What::One { object }, deadline)),
                    None => self.violated(format!("{id} is read and is unknown")),
                },
                Output::Cancel { ticket } => self.state.reads.retain(|r| r.ticket != ticket),
                output => {
                    let State { checks, oracle, .. } = &mut self.state;
                    if let Err(violation) = checks.output(self.model, oracle, &output, input) {
                        self.violated(violation);
                    }
                    self.tell_workers(output);
                }
            }
        }
        if !asked.is_empty() {
            self.state.now += TICK;
            let (now, oracle) = (self.state.now, self.state.oracle);
            self.state.checks.read_began(now, &oracle);
            let started = asked.into_iter().map(|(ticket, what, deadline)| Read {
                ticket,
                what,
                began: now,
                deadline: now + deadline.as_nanos() as u64,
                seen: vec![oracle],
            });
            self.state.reads.extend(started);
        }
        self.forget_old_changes();
        let in_flight: Vec<u64> = self.state.reads.iter().map(|r| r.began).collect();
        let listed = self.state.reconciler.health(self.instant()).last_list;
        self.state
            .checks
            .forget(&in_flight, listed.map(Instant::as_nanos));
    }

    pub fn name(&self, Step(object, to): Step) -> String {
        format!("{} {to:?}", self.model.ids[object])
    }

    pub fn when(&self, at: u64) -> String {
        when(at, self.since)
    }
}

/// Whether a timer of the reconciler is due.
pub fn is_due(state: &State) -> bool {
    let due = state.reconciler.poll_timeout();
    due.is_some_and(|t| t.as_nanos() <= state.now)
}

/// Whether time may advance to the next timer: no call outlives its deadline.
pub fn may_advance(state: &State) -> bool {
    let due = state.reconciler.poll_timeout();
    due.is_some_and(|t| state.reads.iter().all(|r| t.as_nanos() < r.deadline))
}

#[allow(clippy::expect_used, reason = "the default settings are valid")]
fn reconciler(now: u64) -> Reconciler {
    let mut settings = Settings::default();
    // Probes would go on for ever.
    settings.probe_period = Duration::from_secs(24 * 3600);
    Reconciler::new(settings, Instant::from_nanos(now)).expect("valid settings")
}
