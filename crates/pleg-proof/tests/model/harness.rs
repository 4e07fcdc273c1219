//! Runs the reconciler: applies one operation after the other, acts as the driver (time, the queue of
//! a busy writer, deadlines of reads), and passes all inputs and outputs to the checks.

use pleg_core::{
    Arrival, CallError, CallErrorKind, ConsumerId, HeldId, Id, Inspection, Kept, KnownIds, List,
    Output, PodUid, QueueBounds, Reconciler, Report, Rows, StatusRead, StreamChange, StreamEnd,
    StreamObservation, StreamQueue, Ticket, Version, WaiterId, WallTime,
};
use pleg_proof::runtime::{format_output, format_reports, mark_unknown};

use super::checks::{Checks, Input};
use super::kubelet::Kubelet;
use super::node::{Node, Transition};
use super::ops::{After, Began, EventForm, Op, Outcome, Pod, Sees};
use super::reports::{self, Moments, instant, wall};

/// A violation: the name of the assertion, and what happened.
pub type Violation = String;

/// A requested read.
#[derive(Clone, Debug)]
pub struct Call {
    pub ticket: Ticket,
    pub asked: u64,
    pub deadline: u64,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    List { known: KnownIds },
    Inspect(PodUid, Vec<HeldId>),
    Read(Id),
    Version,
}

/// The consumer that acknowledges terminal records.
const CONSUMER: ConsumerId = ConsumerId::new(1);

pub struct Harness {
    pub reconciler: Reconciler,
    /// The checks of all inputs and outputs.
    pub checks: Checks,
    pub calls: Vec<Call>,
    pub kubelet: Kubelet,
    now: u64,
    queue: StreamQueue,
    busy: bool,
    waiters: u64,
    last_waiter: Option<WaiterId>,
}

impl Harness {
    pub fn new(node: &Node, keep_history: bool) -> Result<Self, Violation> {
        let settings = node.world.settings();
        let mut reconciler =
            Reconciler::new(settings.clone(), instant(node.now)).map_err(|e| e.to_string())?;
        reconciler.register(CONSUMER, &"worker".into());
        let mut harness = Self {
            reconciler,
            checks: Checks::new(settings, node.now, keep_history),
            calls: Vec::new(),
            kubelet: Kubelet::new(node),
            now: node.now,
            queue: StreamQueue::new(QueueBounds {
                plain: 2,
                ids: 100,
                ..QueueBounds::default()
            }),
            busy: false,
            waiters: 0,
            last_waiter: None,
        };
        harness.drain(node, Input::Time)?;
        Ok(harness)
    }

    /// Applies an operation; `before` is the node as it was, `node` as it is now.
    pub fn apply(&mut self, before: &Node, node: &Node, op: &Op) -> Result<(), Violation> {
        self.checks.note(node.now, || format!("{op:?}"));
        self.pass(node, node.now)?;
        match *op {
            Op::Deliver { n, how, late, .. } => self.deliver(node, &before.wire[n], how, late)?,
            Op::DeliverAll => {
                for transition in &before.wire {
                    self.deliver(node, transition, EventForm::Whole, false)?;
                }
            }
            Op::Cut { .. } => self.cut(node)?,
            Op::Subscribe => self.subscribe(node)?,
            Op::Busy => self.busy = true,
            Op::Drain => self.drain_queue(node)?,
            Op::FinishList {
                outcome,
                began,
                sees,
            } => {
                let list = self
                    .calls
                    .iter()
                    .position(|c| matches!(c.what, What::List { .. }));
                self.finish(node, list, outcome, began, sees)?;
            }
            Op::FinishInspection {
                n,
                outcome,
                began,
                sees,
            } => {
                let is_inspection = |c: &Call| matches!(c.what, What::Inspect(..));
                let calls = self.calls.iter().enumerate();
                let all: Vec<usize> = calls
                    .filter(|(_, c)| is_inspection(c))
                    .map(|(i, _)| i)
                    .collect();
                let which = all.get(n.min(all.len().saturating_sub(1))).copied();
                self.finish(node, which, outcome, began, sees)?;
            }
            Op::FinishRead { outcome } => {
                let read = self
                    .calls
                    .iter()
                    .position(|c| matches!(c.what, What::Read(_)));
                self.finish(node, read, outcome, Began::WhenAsked, Sees::ItsEnd)?;
            }
            Op::Wait(..) | Op::Relist(_) | Op::Reinspect(_) | Op::RelistNow => {
                self.ask(node, op)?;
            }
            Op::CancelLast => {
                if let Some(waiter) = self.last_waiter.take() {
                    self.cancel(waiter);
                }
            }
            Op::Acknowledge(pod, name) => {
                let ended = |l: &&super::node::Object| {
                    l.pod == pod && l.name == Some(name) && l.exited.is_some()
                };
                if let Some(object) = node.objects.iter().rfind(ended) {
                    self.reconciler.acknowledge(CONSUMER, &object.id, u32::MAX);
                }
            }
            Op::Take(n) => self.checks.lagging.take(n)?,
            _ => {}
        }
        self.drain(node, Input::Time)?;
        self.check_now(node)
    }

    /// Time passes: timers fire, and reads reach their deadlines.
    pub fn pass(&mut self, node: &Node, end: u64) -> Result<(), Violation> {
        loop {
            let timer = self
                .reconciler
                .poll_timeout()
                .map(|t| t.as_nanos().div_ceil(reports::MS));
            let deadline = self.calls.iter().map(|c| c.deadline).min();
            let next = [timer, deadline].into_iter().flatten().min();
            let Some(next) = next.filter(|&t| t <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if timer == Some(next) {
                self.reconciler.handle_timeout(instant(self.now));
                self.drain(node, Input::Time)?;
            } else {
                let which = self.calls.iter().position(|c| Some(c.deadline) == deadline);
                self.finish(
                    node,
                    which,
                    Outcome::TimedOut,
                    Began::WhenAsked,
                    Sees::ItsEnd,
                )?;
            }
            self.checks.check_livelock(self.now)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// The checks that apply at any time.
    pub fn check_now(&mut self, node: &Node) -> Result<(), Violation> {
        let health = self.reconciler.health(instant(self.now));
        self.checks.check_now(node, self.now, &health, &self.calls)
    }

    // --- the stream ---

    pub fn deliver(
        &mut self,
        node: &Node,
        transition: &Transition,
        how: EventForm,
        late: bool,
    ) -> Result<(), Violation> {
        let event = reports::event(node, transition, how, late);
        self.checks.note(self.now, || {
            let with = event.sandbox.iter().chain(&event.containers);
            format!(
                "  event {:?} {} with {}",
                event.event,
                event.id,
                format_reports(with)
            )
        });
        self.checks.pushed(&event);
        let kept = self.queue.event(Arrival {
            event,
            arrived: instant(self.now),
            wall: WallTime::from_nanos(wall(self.now, node.wall_offset)),
        });
        assert_eq!(kept, Kept::All, "there are few ids");
        if self.busy {
            self.reconciler.handle_backlog(instant(self.now), true);
            return Ok(());
        }
        self.drain_queue(node)
    }

    /// The writer handles what is queued.
    pub fn drain_queue(&mut self, node: &Node) -> Result<(), Violation> {
        self.busy = false;
        let now = instant(self.now);
        while let Some(StreamObservation::Event(arrival)) = self.queue.pop() {
            let expected = self.checks.arriving(node, self.now, &arrival);
            self.reconciler.handle_event(now, arrival);
            self.drain(node, Input::Event)?;
            self.checks.event_applied(node, &expected)?;
        }
        self.reconciler.handle_backlog(now, false);
        self.checks.drained()
    }

    pub fn subscribe(&mut self, node: &Node) -> Result<(), Violation> {
        self.drain_queue(node)?;
        let at = instant(self.now);
        let wall = WallTime::from_nanos(wall(self.now, node.wall_offset));
        self.reconciler
            .handle_stream(at, StreamChange::Subscribed { at, wall });
        self.checks.subscribed(self.now, wall);
        self.drain(node, Input::Time)
    }

    fn cut(&mut self, node: &Node) -> Result<(), Violation> {
        self.drain_queue(node)?;
        let at = instant(self.now);
        let why = StreamEnd::Ended(Some(error(CallErrorKind::Unavailable)));
        let retry_at = instant(self.now + 1);
        self.reconciler
            .handle_stream(at, StreamChange::Ended { at, why, retry_at });
        self.checks.cut(self.now);
        self.drain(node, Input::Time)
    }

    // --- the reads ---

    pub fn finish(
        &mut self,
        node: &Node,
        which: Option<usize>,
        outcome: Outcome,
        began: Began,
        sees: Sees,
    ) -> Result<(), Violation> {
        let Some(which) = which else { return Ok(()) };
        let call = self.calls.remove(which);
        let ended = self.now;
        let began = match began {
            Began::WhenAsked => call.asked,
            Began::Halfway => call.asked.midpoint(ended),
            Began::Now => ended,
        };
        let moments = match sees {
            Sees::ItsEnd => Moments {
                first: ended,
                second: ended,
            },
            Sees::ItsBegin => Moments {
                first: began,
                second: began,
            },
            Sees::Torn => Moments {
                first: began,
                second: ended,
            },
        };
        let failure = match outcome {
            Outcome::Whole | Outcome::Unknown => None,
            Outcome::TimedOut => Some(error(CallErrorKind::DeadlineExceeded)),
            Outcome::Failed | Outcome::Partial => Some(error(CallErrorKind::Unavailable)),
        };
        let (now, ticket) = (instant(ended), call.ticket);
        let span = (instant(began), instant(ended));
        let input = match call.what {
            What::List { known } => {
                let mut rows = reports::list(node, moments);
                mark_first_unknown(&mut rows, outcome);
                let rows = failure.map_or(Ok(rows), Err);
                let handed = rows.as_ref().map_err(Clone::clone);
                let handed = handed.map(|rows| Rows::of(known, rows.iter().cloned()));
                self.reconciler.handle_list(
                    now,
                    List {
                        ticket,
                        began: span.0,
                        ended: span.1,
                        rows: handed,
                    },
                );
                self.checks.listed(ticket, began, ended, &rows);
                Input::Read
            }
            What::Inspect(uid, held) => {
                let read = reports::inspect(node, &uid, &held, moments);
                let mut inspection = read.finish(ticket, span.0, span.1);
                mark_first_unknown(&mut inspection.found, outcome);
                match outcome {
                    Outcome::Partial => {
                        let found = std::mem::take(&mut inspection.found);
                        inspection.found = found.into_iter().step_by(2).collect();
                    }
                    Outcome::Failed | Outcome::TimedOut => inspection.found.clear(),
                    _ => {}
                }
                if failure.is_some() {
                    inspection = Inspection {
                        ticket,
                        began: span.0,
                        ended: span.1,
                        found: inspection.found,
                        ..Inspection::new(failure)
                    };
                }
                self.checks.inspected(node, &uid, &inspection);
                self.reconciler.handle_inspection(now, inspection);
                Input::Read
            }
            What::Read(id) => {
                let found = node
                    .object(&id)
                    .filter(|l| !node.is_hidden(l))
                    .and_then(|l| reports::status(l, moments.second));
                let report = match (failure, found) {
                    (None, Some(mut report)) => {
                        mark_first_unknown(std::slice::from_mut(&mut report), outcome);
                        Ok(report)
                    }
                    (failure, _) => Err(failure.unwrap_or(error(CallErrorKind::NotFound))),
                };
                if let Ok(report) = &report {
                    self.checks.status_read(began, report);
                }
                self.reconciler.handle_status_read(
                    now,
                    StatusRead {
                        ticket,
                        began: span.0,
                        ended: span.1,
                        report,
                    },
                );
                Input::OneStatus
            }
            What::Version => {
                let version = Version {
                    ticket,
                    ended: span.1,
                    outcome: failure.map_or(Ok(()), Err),
                };
                self.reconciler.handle_version(now, version);
                Input::Read
            }
        };
        self.drain(node, input)
    }

    // --- the consumers ---

    fn ask(&mut self, node: &Node, op: &Op) -> Result<(), Violation> {
        let waiter = self.next_waiter();
        let now = instant(self.now);
        let (pod, after) = match *op {
            Op::Wait(pod, After::Ago(ms)) => (pod, self.now.saturating_sub(ms)),
            Op::Wait(pod, After::In(ms)) => (pod, self.now + ms),
            Op::Wait(pod, After::Now) | Op::Relist(pod) | Op::Reinspect(pod) => (pod, self.now),
            _ => (Pod::Unknown, self.now),
        };
        let uid = pod.uid();
        self.last_waiter = Some(waiter);
        match op {
            Op::RelistNow => {
                self.checks.asked_for_list(waiter);
                self.reconciler.relist_now(now, waiter);
            }
            Op::Wait(..) => return self.wait(node, waiter, pod, after),
            _ => {
                self.checks.asked(waiter, &uid, after, self.now);
                match op {
                    Op::Relist(_) => self.reconciler.relist(now, waiter, &uid),
                    _ => self.reconciler.reinspect(now, waiter, &uid),
                }
            }
        }
        self.drain(node, Input::Request)
    }

    pub const fn next_waiter(&mut self) -> WaiterId {
        self.waiters += 1;
        WaiterId::new(self.waiters)
    }

    /// Waits for a status of the pod that is newer than `after`.
    pub fn wait(
        &mut self,
        node: &Node,
        waiter: WaiterId,
        pod: Pod,
        after: u64,
    ) -> Result<(), Violation> {
        let uid = pod.uid();
        self.checks.asked(waiter, &uid, after, self.now);
        let now = instant(self.now);
        self.reconciler.wait(now, waiter, &uid, instant(after));
        self.drain(node, Input::Request)
    }

    pub fn cancel(&mut self, waiter: WaiterId) {
        self.checks.cancelled(waiter);
        self.reconciler.cancel(waiter);
    }

    // --- outputs ---

    fn drain(&mut self, node: &Node, input: Input) -> Result<(), Violation> {
        while let Some(output) = self.reconciler.poll_output() {
            self.checks
                .note(self.now, || format!("    -> {}", format_output(&output)));
            self.checks.output(node, self.now, &output, input)?;
            let (ticket, deadline, what) = match output {
                Output::List {
                    ticket,
                    deadline,
                    known,
                } => (ticket, deadline, What::List { known }),
                Output::Inspect {
                    ticket,
                    uid,
                    held,
                    deadline,
                    ..
                } => (ticket, deadline, What::Inspect(uid, held)),
                Output::Read {
                    ticket,
                    id,
                    deadline,
                    ..
                } => (ticket, deadline, What::Read(id)),
                Output::Version { ticket, deadline } => (ticket, deadline, What::Version),
                Output::Cancel { ticket } => {
                    self.calls.retain(|c| c.ticket != ticket);
                    continue;
                }
                output => {
                    self.tell_workers(node, output)?;
                    continue;
                }
            };
            let deadline = self.now + u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
            self.calls.push(Call {
                ticket,
                asked: self.now,
                deadline,
                what,
            });
        }
        Ok(())
    }
}

fn mark_first_unknown(reports: &mut [Report], outcome: Outcome) {
    if outcome == Outcome::Unknown
        && let Some(report) = reports.first_mut()
    {
        mark_unknown(report);
    }
}

fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Test", kind, "as the sequence has it")
}
