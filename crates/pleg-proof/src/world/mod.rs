//! One world: the oracle, a runtime that reports it imperfectly, and the reconciler. A discrete event
//! simulation on virtual time; equal plans give equal traces.

mod calls;
mod consumers;
mod desired_state;
mod node;
mod operations;
mod periodic_checks;
mod pods;
mod stream;
mod workers;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Cause, Counters, EventType, HeldId, Id, Instant, KnownIds, Mode,
    PodUid, QueueBounds, Reconciler, RuntimeEvent, Settings, StreamQueue, Ticket, WaiterId,
};

use crate::assertions::{self, CheckResult};
use crate::checks::{Checks, ExpectedHealth, Input, Losses, ReadSchedule, Subscribers};
use crate::coverage::CoverPoint;
use crate::fault_profile::{FaultProfile, RuntimeKind, SECOND};
use crate::faults::Fault;
use crate::oracle::{Oracle, Transition};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::runtime::{self, WALL_ORIGIN};
use crate::trace::Trace;

use crate::runtime::error;
use node::Node;
use stream::Channel;
use workers::{Kubelet, WorkerEvent};

/// A scheduled action.
#[derive(Debug)]
enum Action {
    /// A node operation.
    NodeStep,
    /// The runtime reads the statuses for an event.
    Emit(Transition),
    /// An event arrives on that stream.
    Arrive(u64, Box<RuntimeEvent>),
    Subscribe,
    /// The runtime does not offer that stream.
    NotOffered(u64),
    /// The reconciler ends that stream.
    Renew(u64),
    /// The writer handles its backlog.
    Drain,
    /// A list ends; for these ids it gives only the state.
    List(Call, KnownIds),
    Inspect(Call, Box<(PodUid, Vec<HeldId>)>),
    Read(Call, Id),
    Version(Call),
    /// A step of a pod worker or of one of its operations.
    Kubelet(WorkerEvent),
    /// A consumer request.
    Consumer,
    /// One second has passed.
    Second,
}

/// A call to the runtime in flight.
#[derive(Clone, Copy, Debug)]
struct Call {
    ticket: Ticket,
    began: u64,
    ended: u64,
    fails: Option<CallErrorKind>,
}

/// Actions by time; at the same time, in the order in which they were scheduled.
#[derive(Debug)]
struct Scheduled {
    when: u64,
    sequence: u64,
    what: Action,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.when, other.sequence).cmp(&(self.when, self.sequence))
    }
}

/// One generator per part of the world, so that a change in one part does not change the others.
#[derive(Debug)]
struct Rngs {
    node: Rng,
    stream: Rng,
    calls: Rng,
    consumers: Rng,
    kubelet: Rng,
}

#[derive(Debug)]
pub struct World {
    pub reconciler: Reconciler,
    pub oracle: Oracle,
    pub checks: Checks,
    pub plan: Plan,
    pub fault_profile: FaultProfile,
    pub now: u64,
    rng: Rngs,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    node: Node,
    /// The pod workers, if any.
    kubelet: Option<Kubelet>,
    channel: Channel,
    /// The number of the current stream, if any.
    stream: Option<u64>,
    streams: u64,
    /// The current stream has delivered an event.
    delivered: bool,
    wall_offset: i64,
    waiters: u64,
    workload_running: bool,
    /// Observations that wait for the writer, which is busy until `busy_until`.
    arrived: StreamQueue,
    /// The number of waiting events, and the exits and removals among them.
    waiting: usize,
    must_deliver: Vec<(Id, EventType)>,
    busy_until: u64,
    /// Consecutive inspections caused only by the answers of others.
    inspection_chain: u64,
    subscribers: Subscribers,
    read_schedule: ReadSchedule,
    expected_health: ExpectedHealth,
    losses: Losses,
    counters: Counters,
    /// Whether the stream was confirmed, and the last relist period, for the coverage.
    confirmed: bool,
    period: Duration,
}

impl World {
    /// # Errors
    /// An invariant is violated.
    pub fn new(plan: Plan, trace: Trace) -> CheckResult<Self> {
        let now = SECOND;
        let mut settings = Settings::default();
        if let Some(overdue) = plan.one_slot {
            (settings.inspections, settings.retries) = (1, 1);
            settings.overdue_max = overdue;
        }
        settings.tombstones_max = plan.tombstones;
        let (period, unready) = plan.list_limits;
        settings.relist_period_max = Duration::from_secs(period);
        settings.unready_after = Duration::from_secs(unready);
        if plan.runtime == RuntimeKind::Polled {
            settings.mode = Mode::Polling;
        }
        let slots = settings.inspections + settings.retries;
        let read_schedule = ReadSchedule::new(now, slots, settings.overdue_max, period * SECOND);
        let mut reconciler = Reconciler::new(settings, Instant::from_nanos(now))
            .map_err(|e| assertions::NO_LIVELOCK.violated(e.to_string()))?;
        reconciler.handle_profile(Instant::from_nanos(now), plan.runtime.profile());
        reconciler.register(consumers::CONSUMER, &"worker".into());
        let seed = plan.seed;
        let rng = |salt: u64| Rng::new(seed.wrapping_mul(8).wrapping_add(salt));
        let (plain, ids) = plan.backlog;
        let fault_profile = plan.fault_profile.clone();
        let listed_after_removal = fault_profile.percent(Fault::ListedAfterRemoval) > 0;
        let mut oracle = Oracle::new(listed_after_removal, plan.runtime.is_crio());
        oracle.wrong_labels = fault_profile.percent(Fault::WrongLabel);
        let no_stream = (plan.runtime != RuntimeKind::Polled).then_some((now, false));
        let mut world = Self {
            reconciler,
            oracle,
            checks: Checks::new(trace, &fault_profile),
            now,
            rng: Rngs {
                node: rng(1),
                stream: rng(2),
                calls: rng(3),
                consumers: rng(4),
                kubelet: rng(5),
            },
            queue: BinaryHeap::new(),
            sequence: 0,
            node: Node::new(plan.pods),
            kubelet: plan.kubelet.has_workers().then(|| Kubelet::new(plan.pods)),
            channel: Channel::new(plan.runtime, plan.queue),
            stream: None,
            streams: 0,
            delivered: false,
            wall_offset: 0,
            waiters: 0,
            workload_running: true,
            arrived: StreamQueue::new(QueueBounds {
                plain,
                ids,
                ..QueueBounds::default()
            }),
            waiting: 0,
            must_deliver: Vec::new(),
            busy_until: 0,
            inspection_chain: 0,
            subscribers: Subscribers::new(plan.request_pause.map_or(&[], |_| &[2, 40])),
            read_schedule,
            expected_health: ExpectedHealth::new(no_stream),
            losses: Losses::default(),
            counters: Counters::default(),
            confirmed: false,
            period: Duration::ZERO,
            fault_profile,
            plan,
        };
        world.checks.coverage.worlds[world.plan.runtime as usize] = 1;
        let plan_text = world.plan.to_string();
        world.checks.log(now, || plan_text);
        if world.plan.runtime != RuntimeKind::Polled {
            let first = now + world.rng.stream.between(0, 300_000_000);
            world.at(first, Action::Subscribe);
        }
        world.at(now, Action::NodeStep);
        if world.kubelet.is_some() {
            for place in 0..world.plan.pods {
                world.inherit(place);
                world.new_spec(place);
            }
        }
        if world.plan.request_pause.is_some() {
            world.at(now, Action::Consumer);
        }
        let first = now + world.rng.node.between(0, SECOND);
        world.at(first, Action::Second);
        world.checks.set_input(Input::Timer);
        world.drain()?;
        Ok(world)
    }

    fn at(&mut self, when: u64, what: Action) {
        self.sequence += 1;
        self.queue.push(Scheduled {
            when: when.max(self.now),
            sequence: self.sequence,
            what,
        });
    }

    /// Decides whether that fault occurs now, and counts it.
    fn inject(&mut self, fault: Fault, rng: fn(&mut Rngs) -> &mut Rng) -> bool {
        let percent = self.fault_profile.percent(fault);
        let inject = percent > 0 && rng(&mut self.rng).percent(percent);
        if inject {
            self.checks.coverage.fault(fault);
        }
        inject
    }

    /// Stops the workload and the consumers.
    pub const fn stop_workload(&mut self) {
        self.workload_running = false;
        self.oracle.reliable = true;
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.resync = false;
        }
    }

    /// Disables all faults.
    pub fn stop_faults(&mut self) {
        self.fault_profile = FaultProfile::NONE;
        self.node.stop_faults(self.now);
        self.channel.stop_faults();
    }

    /// Runs for that time.
    ///
    /// # Errors
    /// An invariant is violated.
    pub fn run(&mut self, nanos: u64) -> CheckResult {
        let end = self.now + nanos;
        let seconds = nanos / SECOND + 1;
        let bound = self.checks.coverage.steps + seconds * 2_000 * (4 + self.plan.pods as u64);
        loop {
            let action = self.queue.peek().map(|planned| planned.when);
            let timer = self.reconciler.poll_timeout().map(Instant::as_nanos);
            let Some(next) = [action, timer].into_iter().flatten().min() else {
                return Err(assertions::NO_LIVELOCK
                    .violated("nothing is to happen any more, not even a list"));
            };
            if next > end {
                self.checks.coverage.nanos += end - self.now;
                self.now = end;
                return Ok(());
            }
            self.checks.coverage.steps += 1;
            assertions::NO_LIVELOCK.holds(
                self.checks.coverage.steps <= bound,
                || "more steps than anything can justify",
            )?;
            self.checks.coverage.nanos += next.saturating_sub(self.now);
            self.now = self.now.max(next);
            if timer.is_some_and(|t| t <= self.now) {
                self.inspection_chain = 0;
                self.checks.set_input(Input::Timer);
                self.reconciler.handle_timeout(self.instant());
                // Timers detect misses.
                self.count();
                self.drain()?;
            } else if let Some(planned) = self.queue.pop() {
                self.step(planned.what)?;
            }
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn wall(&self) -> i64 {
        WALL_ORIGIN + self.now as i64 + self.wall_offset
    }

    fn step(&mut self, action: Action) -> CheckResult {
        if !matches!(action, Action::Inspect(..)) {
            self.inspection_chain = 0;
        }
        match action {
            Action::NodeStep => self.random_step(),
            Action::Emit(transition) => self.send_transition(&transition),
            Action::Arrive(stream, event) => {
                if self.stream == Some(stream) {
                    self.arrive(*event)
                } else {
                    Ok(())
                }
            }
            Action::Subscribe => self.subscribe(),
            Action::NotOffered(stream) => self.not_offered(stream),
            Action::Renew(stream) if self.stream == Some(stream) => self.disconnect("ended by us"),
            Action::Renew(_) => Ok(()),
            Action::Drain => self.drain_queue(),
            Action::List(call, known) => self.finish_list(call, known),
            Action::Inspect(call, subject) => self.finish_inspection(call, &subject.0, &subject.1),
            Action::Read(call, id) => self.finish_status_read(call, &id),
            Action::Version(call) => self.finish_version(call),
            Action::Kubelet(worker_event) => self.worker_event(worker_event),
            Action::Consumer => self.consumer_step(),
            Action::Second => self.every_second(),
        }
    }

    fn next_waiter(&mut self) -> WaiterId {
        self.waiters += 1;
        WaiterId::new(self.waiters)
    }

    /// Requests a complete list.
    ///
    /// # Errors
    /// An invariant is violated.
    pub fn relist(&mut self) -> CheckResult {
        let waiter = self.next_waiter();
        self.read_schedule.allow_list(self.now);
        self.checks.set_input(Input::Request);
        self.reconciler.relist_now(self.instant(), waiter);
        self.drain()
    }

    /// Performs all outputs.
    fn drain(&mut self) -> CheckResult {
        while let Some(output) = self.reconciler.poll_output() {
            self.checks.trace.log(self.now, || {
                format!("      -> {}", runtime::format_output(&output))
            });
            self.perform(output)?;
        }
        Ok(())
    }

    fn unavailable(&self) -> CallError {
        error(CallErrorKind::Unavailable)
    }

    /// Adds the changes of the reconciler's counters to the coverage.
    fn count(&mut self) {
        let (new, old) = (self.reconciler.counters(), &self.counters);
        if new == *old {
            return;
        }
        let coverage = &mut self.checks.coverage;
        for kind in pleg_core::ExpectedEvent::ALL {
            if let Some(point) = CoverPoint::missed(kind) {
                coverage.hit_times(point, new.missed[kind] - old.missed[kind]);
            }
        }
        let since = |new: u64, old: u64| new.saturating_sub(old);
        coverage.hit_times(CoverPoint::Overruled, since(new.overruled, old.overruled));
        coverage.hit_times(
            CoverPoint::Contradicted,
            since(new.contradictions, old.contradictions),
        );
        let implausible = since(new.events_implausible, old.events_implausible);
        coverage.hit_times(CoverPoint::Implausible, implausible);
        let incomplete = since(new.events_incomplete, old.events_incomplete);
        coverage.hit_times(CoverPoint::Incomplete, incomplete);
        coverage.hit_times(CoverPoint::OrphanEvent, since(new.orphans, old.orphans));
        let dropped = since(new.tombstones_dropped, old.tombstones_dropped);
        coverage.hit_times(CoverPoint::TombstoneDropped, dropped);
        coverage.hit_times(CoverPoint::ExitRead, since(new.exit_reads, old.exit_reads));
        if new.missed != old.missed {
            self.read_schedule
                .require_list(self.now, "an event was missed");
            let missed = new.missed;
            let now = self.now;
            self.checks
                .log(now, || format!("   missed by now: {missed:?}"));
        }
        self.counters = new;
    }

    /// Stops and removes everything on the node.
    ///
    /// # Errors
    /// An invariant is violated.
    pub fn remove_everything(&mut self) -> CheckResult {
        if self.kubelet.is_some() {
            return self.delete_everything();
        }
        let start = self.now.max(self.node.busy_until());
        let pods = self.plan.pods;
        let (transitions, end) = self.oracle.remove_all(pods, &mut self.rng.node, start);
        self.node.all_busy_until(end);
        self.emit_transitions(transitions);
        Ok(())
    }

    /// The number of missed events of all kinds.
    pub fn missed(&self) -> u64 {
        self.reconciler.counters().missed.total()
    }

    /// The number of inspections caused by waiters.
    pub fn inspections_for_waiters(&self) -> u64 {
        self.reconciler.counters().inspections_by_cause[Cause::Waiter]
    }

    fn uid(&self, pod: usize) -> PodUid {
        self.node
            .uids
            .get(pod)
            .cloned()
            .unwrap_or_else(|| runtime::uid(pod))
    }
}
