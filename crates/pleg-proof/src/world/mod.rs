//! A simulated node in virtual time: a runtime, pod workers that act on views, and the core (`pleg-core`) under test.
//!
//! A world advances by one action at a time. A [`Choose`] decides on faults, durations and the order of actions.

mod calls;
mod disturb;
mod queue;
mod restart;
mod small;
mod stream;
mod truth;
mod workers;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use pleg_core::{Instant, Mode, Reconciler, Settings};
use pleg_node_model::{Id, Label, Node, Profile};

use crate::checker::Checker;
use crate::choose::{Choose, Dice};
use crate::coverage::Coverage;
use crate::faults::{Fault, Faults};
use crate::worker::Policy;
use calls::{Calls, Sick};
use queue::Queue;
use stream::EventStream;
use workers::PodWorker;

pub(crate) use queue::Act;
pub(crate) use workers::pod_uid;

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// A second.
pub const SECOND: u64 = 1_000 * MS;

/// The longest time for which a small world postpones an action: longer than the core's pause from event to read.
const PATIENCE: u64 = 260 * MS;

/// The start of every world, on the monotonic and the wall clock: a day in 2006. All other numbers in a state are
/// smaller, so a hasher can recognise instants.
pub const EPOCH: u64 = 1 << 60;

/// The phases of a world, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// Faults happen.
    Disturbed,
    /// No faults happen, but containers still exit.
    Calm,
    /// No faults happen, and no container exits by itself.
    Still,
    /// The last 40 s, in which the checker counts pod reads. No faults happen, and no container exits by itself.
    Last,
}

/// A simulated node with a runtime and pod workers, and the core that observes this runtime.
#[derive(Clone, Debug)]
pub struct World {
    now: u64,
    queue: Queue,
    core: Reconciler,
    faults: Faults,
    node: Node,
    pods: Vec<PodWorker>,
    calls: Calls,
    stream: EventStream,
    sick: Sick,
    /// True while the runtime restarts and so refuses every call.
    is_down: bool,
    ids: u64,
    phase: Phase,
    /// The instant at which the present phase ends.
    ends: u64,
    still_for: u64,
    /// True in a small world: due actions may happen in every order, and every duration is the shortest possible.
    is_small: bool,
    /// In a world that is explored in every order: the longest time for which a due action is postponed.
    patience: u64,
    /// In a small world: true if actions may happen between the sandbox list and the container list of one read.
    has_spans: bool,
    has_worker: bool,
    compare_at: u64,
    missed: u64,
    checker: Checker,
    coverage: Coverage,
    trace: Option<Vec<String>>,
}

/// A world in which the checker found a violation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The violation that the checker found.
    pub violation: String,
    /// The faults that can happen in the world, and their chances.
    pub faults: String,
    /// Every action up to the violation. Empty if no trace was requested.
    pub trace: Vec<String>,
}

impl World {
    /// A world whose runtime, faults and pods `choose` decides.
    pub fn random(choose: &mut dyn Choose, with_trace: bool) -> Self {
        let mut dice = Dice::new(choose, false);
        let dice = &mut dice;
        let faults = Faults::random(dice);
        let (profile, version) = profile(dice);
        let is_polling = dice.chance(60);
        let mut world = Self::new(profile, faults, is_polling);
        world.trace = with_trace.then(Vec::new);
        let kind = if is_polling {
            "world in polling mode"
        } else {
            "world with events"
        };
        world.coverage.point(kind);
        let pods = match dice.below(1_000) {
            0..978 => 1 + dice.below(3),
            978..998 => {
                world.coverage.point("world with a crowd of pods");
                18 + dice.below(12)
            }
            _ => {
                world
                    .coverage
                    .point("world with a hundred workers and a slow runtime");
                world.faults.set(Fault::Slow, 500);
                world.checker.set_faults(&world.faults);
                100 + dice.below(50)
            }
        };
        for n in 0..pods {
            let names = 1 + dice.below(2);
            let policies = [Policy::Always, Policy::OnFailure, Policy::Never];
            world
                .pods
                .push(PodWorker::new(n, names, dice.pick(&policies)));
        }
        world.log(|| format!("WORLD {version}, {pods} pods, {}", world_text(is_polling)));
        world.begin(dice);
        world
    }

    /// A world without pods.
    fn new(profile: Profile, faults: Faults, is_polling: bool) -> Self {
        let mut settings = Settings::default();
        if is_polling {
            settings.mode = Mode::Polling;
        }
        let now = EPOCH;
        #[allow(clippy::expect_used, reason = "the default settings are valid")]
        let core = Reconciler::new(settings, Instant::from_nanos(now)).expect("valid settings");
        Self {
            now,
            queue: Queue::default(),
            core,
            checker: Checker::new(&faults, is_polling || !profile.has_events()),
            faults,
            node: Node::new(profile),
            pods: Vec::new(),
            calls: Calls::default(),
            stream: EventStream::new(!is_polling),
            sick: Sick::default(),
            is_down: false,
            ids: 0,
            phase: Phase::Disturbed,
            ends: now,
            still_for: 40 * SECOND,
            is_small: false,
            patience: PATIENCE,
            has_spans: false,
            has_worker: false,
            compare_at: now,
            missed: 0,
            coverage: Coverage::default(),
            trace: None,
        }
    }

    /// Schedules the first actions: the subscription, workers and faults. Runs pods that exist before the core starts.
    fn begin(&mut self, dice: &mut Dice<'_>) {
        if self.stream.is_used {
            let after = dice.ms(0, 50);
            self.later(after, Act::Open);
        }
        for pod in 0..self.pods.len() {
            if !dice.chance(500) {
                self.before_start(dice, pod);
            }
            let after = dice.ms(0, 3_000);
            self.later(after, Act::Wake(pod));
        }
        if dice.chance(10) {
            self.coverage.point("world of one hour");
            self.still_for = 3_600 * SECOND;
        }
        self.ends = self.now + dice.ms(10_000, 30_000);
        self.later(20 * MS, Act::Disturb);
        self.outputs(dice);
    }

    /// Makes the next action happen, or starts the next phase. Returns false once the world has ended.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn step(&mut self, choose: &mut dyn Choose) -> Result<bool, String> {
        let mut dice = Dice::new(choose, self.is_small);
        let dice = &mut dice;
        let next = match self.is_small {
            true => self.choose_next(dice),
            false => self.earliest(),
        };
        let Some(next) = next else {
            return self.next_phase();
        };
        self.coverage.events += 1;
        match next {
            Some(act) => {
                if let Some(act) = self.thaw(act) {
                    self.act(dice, act);
                }
            }
            None => {
                let at = self.tick();
                self.core.handle_timeout(at);
                self.checker.timer(self.now);
            }
        }
        self.outputs(dice);
        self.observe();
        self.checker.result()?;
        Ok(true)
    }

    /// The earliest action. `Some(None)`: the core's timer is earlier. `None`: nothing else happens in this phase.
    #[allow(
        clippy::option_option,
        reason = "an action, the timer, or the end of the phase"
    )]
    fn earliest(&mut self) -> Option<Option<Act>> {
        let due = self.queue.due().unwrap_or(u64::MAX);
        let timer = self.timer();
        if due.min(timer) > self.ends {
            return None;
        }
        self.now = self.now.max(due.min(timer));
        Some(if timer < due { None } else { self.queue.pop() })
    }

    /// In a small world: chooses one of the due actions, or the next later one. `Some(None)`: the core's timer.
    #[allow(
        clippy::option_option,
        reason = "an action, the timer, or the end of the world"
    )]
    fn choose_next(&mut self, dice: &mut Dice<'_>) -> Option<Option<Act>> {
        let now = self.now;
        let due: Vec<u64> = self.queue.by(now).map(|(at, _)| at).collect();
        let timer = self.timer();
        let next = self.queue.after(now).unwrap_or(u64::MAX).min(timer);
        let patience = due.iter().min().map_or(u64::MAX, |at| at + self.patience);
        let limit = patience.min(self.calls.deadline().unwrap_or(u64::MAX));
        let can_wait = next <= limit && next != u64::MAX;
        if due.is_empty() && !can_wait {
            return None;
        }
        let chosen = dice.below(due.len() + usize::from(can_wait));
        if chosen < due.len() {
            return Some(self.queue.take(chosen));
        }
        self.now = self.now.max(next);
        Some(if next == timer {
            None
        } else {
            self.queue.pop_after(now)
        })
    }

    fn timer(&self) -> u64 {
        let timer = self.core.poll_timeout();
        timer.map_or(u64::MAX, Instant::as_nanos)
    }

    fn act(&mut self, dice: &mut Dice<'_>, act: Act) {
        self.tick();
        match act {
            Act::Exit(id, code) => self.exit(dice, &id, code),
            Act::OomKill(id) => self.oom_kill(dice, &id),
            Act::KillSandbox(id) => self.kill_sandbox(dice, &id),
            Act::ThirdStop(id) => self.third_stop(dice, &id),
            Act::ThirdRemoval(id) => self.third_removal(dice, &id),
            Act::Disturb => self.disturb(dice),
            Act::Restarted => self.restarted(dice),
            Act::Open => self.open(dice),
            Act::Generate(due) => self.generate(dice, &due),
            Act::Deliver(stream, event, since) => self.deliver(dice, stream, event, since),
            Act::Drain => self.drain(),
            Act::Rows(ticket) => self.take_rows(dice, ticket),
            Act::Status(ticket, n) => self.take_status(dice, ticket, n),
            Act::Answer(ticket) => self.answer(dice, ticket),
            Act::Version(ticket, deadline) => self.version(ticket, deadline),
            Act::Cut => self.cut(dice),
            Act::Relist => self.ask_for_relist(),
            Act::Birth(sandbox) => self.birth(dice, &sandbox),
            Act::ThirdRemovePod(sandbox) => self.remove_sandbox(dice, &sandbox),
            Act::ThirdRunPod => drop(self.run_sandbox(dice, 0, 1, Label::Right, true)),
            Act::Kill => self.restart(dice),
            Act::Wake(pod) => self.wait(dice, pod),
            Act::Perform(pod, op) => self.perform(dice, pod, op),
            Act::Effect(op, pod) => self.take_effect(dice, pod, op),
            Act::Done(pod) => self.done(dice, pod),
        }
    }

    /// Logs that the core counted a missed event. Every half second, compares the published views with the true states.
    fn observe(&mut self) {
        let missed = self.core.counters().missed.total();
        if missed != self.missed {
            self.log(|| format!("MISSED {missed} events"));
            self.missed = missed;
            self.coverage.point("missed event");
        }
        if self.now < self.compare_at {
            return;
        }
        self.compare_at = self.now + SECOND / 2;
        let health = self.core.health(self.at());
        self.checker
            .compare(self.now, &self.node, &health, self.is_down);
    }

    fn next_phase(&mut self) -> Result<bool, String> {
        self.now = self.now.max(self.ends);
        match self.phase {
            Phase::Disturbed => {
                self.log(|| "CALM".to_owned());
                self.phase = Phase::Calm;
                self.ends = self.now + 110 * SECOND;
                self.end_disturbance();
            }
            Phase::Calm => {
                self.log(|| "STILL".to_owned());
                self.phase = Phase::Still;
                self.ends = self.now + self.still_for;
                self.queue
                    .retain(|act| !matches!(act, Act::Exit(..) | Act::OomKill(_)));
            }
            Phase::Still => {
                self.phase = Phase::Last;
                self.ends = self.now + 40 * SECOND;
                self.checker.last(self.now, &self.core.counters());
            }
            Phase::Last => {
                self.coverage.nanos = self.now - EPOCH;
                if self.core.counters().undone > 0 {
                    self.coverage.point("removal undone");
                }
                self.check_end();
                self.coverage.budget_used = self.checker.budget_used();
                return self.checker.result().map(|()| false);
            }
        }
        self.checker.result().map(|()| true)
    }

    fn check_end(&mut self) {
        let at = self.at();
        let (counters, health) = (self.core.counters(), self.core.health(at));
        self.checker.end(self.now, &self.node, &counters, &health);
        if self.still_for >= 600 * SECOND {
            let gone = self.node.objects().filter(|o| !o.exists()).count();
            let existing = self.node.objects().count() - gone;
            // For each existing object, the core may store its published state, its announcements and its last event.
            let most = 3 * existing + gone + 4 * self.pods.len() + 8;
            self.checker.footprint(self.core.footprint(), most);
        }
    }

    /// Runs the world to its end.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn run(&mut self, choose: &mut dyn Choose) -> Result<(), Failure> {
        loop {
            match self.step(choose) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(violation) => {
                    return Err(Failure {
                        violation,
                        faults: self.checker.faults().text(),
                        trace: self.trace.take().unwrap_or_default(),
                    });
                }
            }
        }
    }

    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Counts of faults, calls and other situations so far.
    pub const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Every action so far. Empty if no trace was requested.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    // ----------------------------------------------------------------------------------------- helpers

    /// Advances the time by a nanosecond, so that no two actions have the same instant.
    const fn tick(&mut self) -> Instant {
        self.now += 1;
        self.at()
    }

    const fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn later(&mut self, after: u64, act: Act) {
        self.queue.push(self.now + after, act);
    }

    /// Chooses whether a fault happens now, and counts it if it does.
    fn fault(&mut self, dice: &mut Dice<'_>, fault: Fault) -> bool {
        let happens = dice.chance(self.faults.chance(fault));
        if happens {
            self.coverage.fault(fault);
            self.faults.left = self.faults.left.saturating_sub(1);
        }
        happens
    }

    fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let at = (self.now - EPOCH) as f64 / MS as f64;
            trace.push(format!("{at:12.3} {}", line()));
        }
    }

    fn new_id(&mut self, prefix: &str) -> Id {
        self.ids += 1;
        format!("{prefix}{}", self.ids).into()
    }
}

fn world_text(is_polling: bool) -> &'static str {
    if is_polling { "polling" } else { "with events" }
}

/// Chooses a runtime: its profile, and a text for the trace (its version, or why it sends no events).
fn profile(dice: &mut Dice<'_>) -> (Profile, &'static str) {
    let containerd = ["2.1.0", "1.7.24", "2.4.0"];
    let crio = ["1.36.3", "1.27.0", "1.32.0"];
    match dice.below(20) {
        0..10 => {
            let version = dice.pick(&containerd);
            (Profile::containerd(version), version)
        }
        10..18 => {
            let version = dice.pick(&crio);
            (Profile::crio(version), version)
        }
        18 => (Profile::crio_disabled("1.36.3"), "events disabled"),
        _ => (Profile::unimplemented(), "events unimplemented"),
    }
}

/// Hashes everything that decides how a small world continues: worlds with the same hash continue in the same way.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.queue.hash(state);
        self.core.hash(state);
        self.node.hash(state);
        self.pods.hash(state);
        self.calls.hash(state);
        self.stream.hash(state);
        self.sick.hash(state);
        self.checker.hash(state);
        (self.is_down, self.faults.left, self.phase).hash(state);
    }
}

/// By id of a container or sandbox: the instant until which its status calls hang or fail.
pub(crate) type Until = BTreeMap<Id, u64>;
