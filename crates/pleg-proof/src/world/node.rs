//! The simulated node: random operations on pods, restarts of the runtime, and the events of both.

use pleg_core::{EventType, Id, PodUid};

use super::{Action, World};
use crate::assertions::CheckResult;
use crate::fault_profile::{MS, RuntimeKind, SECOND};
use crate::faults::Fault;
use crate::oracle::Transition;
use crate::runtime;

/// The state of the node. Every fault ends at some instant.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) uids: Vec<PodUid>,
    /// The pod's operation in progress ends then.
    pub(super) busy: Vec<u64>,
    /// The pod's calls hang until then.
    hung: Vec<u64>,
    lists_out: u64,
    /// The runtime is down until then; it refuses or does not answer until then.
    down: u64,
    starting: u64,
    silent_socket: bool,
    /// When it last went down.
    pub(super) restarted: u64,
    pub(super) silent: u64,
    pub(super) second_subscriber: u64,
    /// The status calls of these ids say NotFound until then.
    hidden: Vec<(Id, u64)>,
}

/// How the runtime treats a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Served,
    Refused,
    /// It is served then.
    Later(u64),
}

impl Node {
    pub(super) fn new(pods: usize) -> Self {
        Self {
            // One more, which never exists.
            uids: (0..=pods).map(runtime::uid).collect(),
            busy: vec![0; pods],
            hung: vec![0; pods],
            lists_out: 0,
            down: 0,
            starting: 0,
            silent_socket: false,
            restarted: 0,
            silent: 0,
            second_subscriber: 0,
            hidden: Vec::new(),
        }
    }

    pub(super) fn stop_faults(&mut self, now: u64) {
        self.hung.fill(0);
        (self.lists_out, self.down) = (0, 0);
        self.starting = self.starting.min(now);
        (self.silent, self.second_subscriber) = (0, 0);
        self.hidden.clear();
    }

    pub(super) fn is_hidden(&self, now: u64, id: &Id) -> bool {
        let hidden = self.hidden.iter().find(|(other, _)| other == id);
        hidden.is_some_and(|(_, until)| now < *until)
    }

    pub(super) fn busy_until(&self) -> u64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn all_busy_until(&mut self, end: u64) {
        self.busy.fill(end);
    }

    pub(super) const fn is_up(&self, now: u64) -> bool {
        now >= self.down && now >= self.starting
    }

    /// When the runtime last became available.
    pub(super) const fn up_since(&self) -> u64 {
        self.starting
    }

    pub(super) const fn availability(&self, now: u64) -> Availability {
        if now < self.down {
            Availability::Refused
        } else if now < self.starting {
            if self.silent_socket {
                Availability::Later(self.starting)
            } else {
                Availability::Refused
            }
        } else {
            Availability::Served
        }
    }

    pub(super) const fn lists_out(&self, now: u64) -> bool {
        now < self.lists_out
    }

    pub(super) fn is_hung(&self, now: u64, pod: Option<usize>) -> bool {
        let hung = pod.and_then(|pod| self.hung.get(pod));
        hung.is_some_and(|&until| now < until)
    }
}

impl World {
    pub(super) fn random_step(&mut self) -> CheckResult {
        if !self.workload_running {
            return Ok(());
        }
        let pod = self.rng.node.below(self.plan.pods as u64) as usize;
        if self.kubelet.is_some() {
            self.disturb(pod)?;
        } else if self.node.is_up(self.now) {
            self.operate(pod);
        } else {
            // A runtime that is down performs no operation, but processes still exit.
            let without_event = self.oracle.exit_one(pod, &mut self.rng.node, self.now);
            if !without_event.is_empty() {
                self.checks.coverage.fault(Fault::WhileRuntimeDown);
                self.log_transitions(&without_event);
            }
        }
        if self.inject(Fault::Disconnect, |d| &mut d.stream) && self.stream.is_some() {
            self.disconnect("disconnected")?;
        }
        if self.inject(Fault::ClockStep, |d| &mut d.stream) {
            self.wall_offset += self.rng.stream.pick(&[-5, -2, 2, 90]) * SECOND as i64;
            let offset = self.wall_offset;
            self.checks
                .log(self.now, || format!("clock stepped, off by {offset}"));
        }
        if self.inject(Fault::FalseEvent, |d| &mut d.stream) && !self.oracle.objects.is_empty() {
            let object = self.rng.stream.below(self.oracle.objects.len() as u64) as usize;
            let event = self
                .rng
                .stream
                .pick(&[EventType::Stopped, EventType::Deleted]);
            let false_event = Transition {
                at: self.now,
                object,
                event,
                inside_removal: false,
            };
            self.emit_transitions(vec![false_event]);
        }
        let next = self.now + self.plan.pause(&mut self.rng.node);
        self.at(next, Action::NodeStep);
        Ok(())
    }

    /// A random operation of one pod.
    fn operate(&mut self, pod: usize) {
        let start = self.now.max(self.node.busy[pod]);
        let (transitions, end) = self.oracle.random_step(pod, &mut self.rng.node, start);
        self.node.busy[pod] = end;
        self.emit_transitions(transitions);
    }

    pub(super) fn log_transitions(&mut self, transitions: &[Transition]) {
        for transition in transitions {
            let id = &self.oracle.objects[transition.object].id;
            self.checks.trace.log(transition.at, || {
                format!("   oracle: {:?} {id}", transition.event)
            });
        }
    }

    pub(super) fn emit_transitions(&mut self, transitions: Vec<Transition>) {
        self.log_transitions(&transitions);
        for transition in transitions {
            let object = &self.oracle.objects[transition.object];
            if transition.event == EventType::Stopped && object.code == 137 {
                self.checks.coverage.fault(Fault::LateOom);
            }
            if runtime::emits_event(self.plan.runtime, &self.oracle, &transition) {
                // The statuses are read at the transition or a little later.
                let at = transition.at + self.rng.node.between(0, MS / 2);
                self.at(at, Action::Emit(transition));
            }
        }
        let failed = std::mem::take(&mut self.oracle.failed_starts);
        self.checks.coverage.faults[Fault::StartError as usize] += failed;
    }

    /// The runtime reads the statuses for an event and sends it.
    pub(super) fn send_transition(&mut self, transition: &Transition) -> CheckResult {
        if !self.node.is_up(self.now) {
            self.checks.coverage.fault(Fault::WhileRuntimeDown);
            return Ok(());
        }
        let stale = self.inject(Fault::Stale, |d| &mut d.stream);
        let (mut snapshot, mut pause) = (self.now, 0);
        if stale {
            snapshot = self.now.saturating_sub(self.rng.stream.between(0, 20) * MS);
            pause = self.rng.stream.between(0, 300) * MS;
        }
        let stamped = self.wall() + pause as i64;
        let subject = &self.oracle.objects[transition.object];
        let what = (subject, transition.event);
        let mut event = runtime::event(&self.oracle, self.plan.runtime, what, snapshot, stamped);
        let (rng, coverage) = (&mut self.rng.stream, &mut self.checks.coverage);
        runtime::apply_event_faults(&mut event, rng, &self.fault_profile, coverage);
        self.send(event, pause);
        Ok(())
    }

    /// Injects the faults that occur per second.
    pub(super) fn inject_timed_faults(&mut self) -> CheckResult {
        let now = self.now;
        let until = |rng: &mut crate::rng::Rng, low, high| now + rng.between(low, high) * MS;
        if self.inject(Fault::Restart, |d| &mut d.node) {
            self.restart((100, 6000))?;
        }
        if self.node.is_up(now) && self.inject(Fault::Outage, |d| &mut d.node) {
            self.restart((10_000, 60_000))?;
        }
        if self.inject(Fault::SilentStream, |d| &mut d.node) {
            self.node.silent = until(&mut self.rng.node, 2000, 15_000);
            self.checks
                .log(now, || "the stream falls silent".to_owned());
        }
        if self.inject(Fault::SecondSubscriber, |d| &mut d.node) {
            self.node.second_subscriber = until(&mut self.rng.node, 1000, 10_000);
            self.checks
                .log(now, || "a second subscriber subscribes".to_owned());
        }
        if self.inject(Fault::HungPod, |d| &mut d.node) {
            let pod = self.rng.node.below(self.plan.pods as u64) as usize;
            self.node.hung[pod] = until(&mut self.rng.node, 1000, 12_000);
            for pod in self.pods_of(pod) {
                let uid = self.uid(pod);
                self.checks.no_longer_urgent(Some(&uid));
                self.checks.log(now, || format!("{uid} hangs"));
            }
        }
        if self.inject(Fault::AllPodsHung, |d| &mut d.node) {
            let over = until(&mut self.rng.node, 1000, 8000);
            self.node.hung.fill(over);
            self.checks.no_longer_urgent(None);
            self.checks.log(now, || "all pods hang".to_owned());
        }
        if self.inject(Fault::ListOutage, |d| &mut d.node) {
            self.node.lists_out = until(&mut self.rng.node, 3000, 20_000);
            self.checks.log(now, || "no list answers".to_owned());
        }
        if self.inject(Fault::StatusHidden, |d| &mut d.node) {
            self.hide_status();
        }
        if self.stream.is_some() && self.inject(Fault::ReaderPanics, |d| &mut d.node) {
            self.disconnect("the reader panics")?;
        }
        if self.inject(Fault::Resize, |d| &mut d.node) {
            let pod = self.rng.node.below(self.plan.pods as u64) as usize;
            let pod = self.pod_at(pod);
            if let Some(id) = self.oracle.resize(pod, &mut self.rng.node, now) {
                self.checks
                    .log(now, || format!("   oracle: {id} is resized"));
            }
        }
        if self.inject(Fault::Burst, |d| &mut d.node) && self.node.is_up(now) {
            self.checks.log(now, || "a storm".to_owned());
            for pod in 0..self.plan.pods {
                for _ in 0..self.rng.node.between(1, 6) {
                    if self.kubelet.is_some() {
                        self.disturb(pod)?;
                    } else {
                        self.operate(pod);
                    }
                }
            }
            let busy = until(&mut self.rng.node, 0, 4000);
            self.busy_until = self.busy_until.max(busy);
            self.checks.no_longer_urgent(None);
        }
        Ok(())
    }

    /// The status calls of an existing id return NotFound from now on.
    fn hide_status(&mut self) {
        let now = self.now;
        let exist = self.oracle.all_recent().filter(|l| l.exists(now));
        let exist: Vec<&Id> = exist.map(|l| &l.id).collect();
        if exist.is_empty() {
            return;
        }
        let id = self.rng.node.pick(&exist).clone();
        let until = now + self.rng.node.between(50, 12_000) * MS;
        self.checks.log(now, || {
            format!("the status of {id} is not found for a while")
        });
        self.node.hidden.retain(|(_, until)| now < *until);
        self.node.hidden.push((id, until));
    }

    /// Restarts the runtime; it is down for that many milliseconds and then takes time to start.
    fn restart(&mut self, (least, most): (u64, u64)) -> CheckResult {
        let rng = &mut self.rng.node;
        let down = self.now + rng.between(least, most) * MS;
        let starting = down + rng.between(0, 3000) * MS;
        self.node.silent_socket = self.plan.runtime.is_crio() || rng.percent(20);
        (self.node.down, self.node.starting) = (down, starting);
        self.node.restarted = self.now;
        self.checks.no_longer_urgent(None);
        self.checks.log(self.now, || {
            format!("the runtime restarts, up at {:.6}", starting as f64 / 1e9)
        });
        self.channel.restarted();
        if self.stream.is_some() {
            self.disconnect("the runtime is gone")?;
        }
        let rng = &mut self.rng.node;
        if rng.percent(30) {
            let place = rng.below(self.plan.pods as u64) as usize;
            // It ends before the faults stop.
            let gone = down.min(self.now + 6 * SECOND);
            let at = gone.max(self.node.busy[place]);
            let pod = self.pod_at(place);
            let rng = &mut self.rng.node;
            if self.oracle.lose_sandbox(pod, rng, at) {
                self.node.busy[place] = at + MS;
                self.checks.coverage.fault(Fault::SandboxLost);
                let uid = self.uid(pod);
                self.checks
                    .log(self.now, || format!("a sandbox of {uid} will vanish"));
            }
        }
        Ok(())
    }

    /// A running container exits without an event. Returns its index.
    pub fn exit_without_event(&mut self) -> Option<usize> {
        let now = self.now;
        let without_event = (0..self.plan.pods).find_map(|place| {
            let pod = self.pod_at(place);
            let without_event = self.oracle.exit_one(pod, &mut self.rng.node, now);
            without_event.into_iter().next()
        })?;
        // All later events arrive: no dead subscriber of an ended stream takes them (containerd 1.x).
        self.channel.stop_faults();
        self.log_transitions(std::slice::from_ref(&without_event));
        Some(without_event.object)
    }

    /// How often the reader fell too far behind.
    pub fn overflows(&self) -> u64 {
        self.checks.coverage.points[crate::coverage::CoverPoint::BacklogOverflowed as usize]
    }

    /// Whether this runtime never streams.
    pub(super) const fn never_streams(&self) -> bool {
        matches!(
            self.plan.runtime,
            RuntimeKind::CrioDisabled | RuntimeKind::Unimplemented | RuntimeKind::Polled
        )
    }
}
