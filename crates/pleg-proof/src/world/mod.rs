//! One world: the truth, a runtime that tells of it more or less well, and the machine between
//! them. A discrete event simulation on virtual time; equal plans give equal histories.

mod calls;
mod consumers;
mod goals;
mod kubelet;
mod node;
mod operations;
mod pods;
mod stream;
mod watch;
mod workers;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use pleg_core::{
    Backlog, CallError, CallErrorKind, Cause, Counters, EventType, HeldId, Id, Instant, KnownIds,
    Mode, PodUid, Reconciler, RuntimeEvent, Settings, Ticket, WaiterId,
};

use crate::checks::{Checks, Duties, Input, Losses, Signs, Subscribers};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::history::History;
use crate::laws::{self, Lawful};
use crate::plan::Plan;
use crate::runtime::{self, WALL};
use crate::tally::Path;
use crate::truth::{Happening, Truth};
use crate::weather::{Flavor, SECOND, Weather};

pub use calls::error;
use node::Node;
use stream::Channel;
use workers::{Kubelet, Turn};

/// What happens at some moment.
#[derive(Debug)]
enum Todo {
    /// The node does something.
    Act,
    /// The runtime reads the statuses for an event.
    Tell(Happening),
    /// An event arrives on that stream.
    Arrive(u64, Box<RuntimeEvent>),
    Subscribe,
    /// That stream ends because the runtime does not offer it.
    NotOffered(u64),
    /// That stream is ended by us.
    Renew(u64),
    /// The writer turns to what has arrived.
    Drain,
    /// A list ends that was to say of these ids the state alone.
    List(Call, KnownIds),
    Inspect(Call, Box<(PodUid, Vec<HeldId>)>),
    Read(Call, Id),
    Version(Call),
    /// A pod worker or one of its operations goes on.
    Kubelet(Turn),
    /// A consumer asks for something.
    Ask,
    /// A second has passed.
    Second,
}

/// A call to the runtime under way.
#[derive(Clone, Copy, Debug)]
struct Call {
    ticket: Ticket,
    began: u64,
    ended: u64,
    fails: Option<CallErrorKind>,
}

/// What is to happen, soonest first; at one moment, in the order in which it was put there.
#[derive(Debug)]
struct Planned {
    when: u64,
    sequence: u64,
    what: Todo,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.when, other.sequence).cmp(&(self.when, self.sequence))
    }
}

/// Chance, for each part of the world by itself: what is left out of one part changes nothing in
/// the others.
#[derive(Debug)]
struct Chances {
    node: Dice,
    stream: Dice,
    calls: Dice,
    consumers: Dice,
    kubelet: Dice,
}

#[derive(Debug)]
pub struct World {
    pub machine: Reconciler,
    pub truth: Truth,
    pub checks: Checks,
    pub plan: Plan,
    pub weather: Weather,
    pub now: u64,
    dice: Chances,
    queue: BinaryHeap<Planned>,
    sequence: u64,
    node: Node,
    /// The pod workers, where they operate the pods.
    kubelet: Option<Kubelet>,
    channel: Channel,
    /// The number of the present stream, if one stands.
    stream: Option<u64>,
    streams: u64,
    /// The present stream has delivered something.
    delivered: bool,
    wall_offset: i64,
    waiters: u64,
    acting: bool,
    /// What has arrived and waits for the writer, who is busy until then.
    arrived: Backlog,
    /// How many arrivals wait, and of which removals and ends the writer must be told.
    waiting: usize,
    owed: Vec<(Id, EventType)>,
    busy_until: u64,
    /// Inspections in a row that nothing but their answers asked for.
    chain: u64,
    subscribers: Subscribers,
    duties: Duties,
    signs: Signs,
    losses: Losses,
    counters: Counters,
    /// The wall clock's distance and the streams that were confirmed, for the tally.
    confirmed: bool,
    period: Duration,
}

impl World {
    /// # Errors
    /// A law that is broken.
    pub fn new(plan: Plan, history: History) -> Lawful<Self> {
        let now = SECOND;
        let mut settings = Settings::default();
        if let Some(overdue) = plan.one_slot {
            (settings.inspections, settings.retries) = (1, 1);
            settings.overdue_max = overdue;
        }
        settings.tombstones_max = plan.tombstones;
        let (period, unready) = plan.patience;
        settings.relist_period_max = Duration::from_secs(period);
        settings.unready_after = Duration::from_secs(unready);
        if plan.flavor == Flavor::Polled {
            settings.mode = Mode::Polling;
        }
        let slots = settings.inspections + settings.retries;
        let duties = Duties::new(now, slots, settings.overdue_max, period * SECOND);
        let mut machine = Reconciler::new(settings, Instant::from_nanos(now))
            .map_err(|e| laws::LIVE.broken(e.to_string()))?;
        machine.handle_profile(Instant::from_nanos(now), plan.flavor.profile());
        let seed = plan.seed;
        let dice = |salt: u64| Dice::new(seed.wrapping_mul(8).wrapping_add(salt));
        let (plain, ids) = plan.backlog;
        let weather = plan.weather.clone();
        let lingers = weather.percent(Fault::Lingers) > 0;
        let no_stream = (plan.flavor != Flavor::Polled).then_some((now, false));
        let mut world = Self {
            machine,
            truth: Truth::new(lingers, plan.flavor.is_crio()),
            checks: Checks::new(history, &weather),
            now,
            dice: Chances {
                node: dice(1),
                stream: dice(2),
                calls: dice(3),
                consumers: dice(4),
                kubelet: dice(5),
            },
            queue: BinaryHeap::new(),
            sequence: 0,
            node: Node::new(plan.pods),
            kubelet: plan.kubelet.acts().then(|| Kubelet::new(plan.pods)),
            channel: Channel::new(plan.flavor, plan.queue),
            stream: None,
            streams: 0,
            delivered: false,
            wall_offset: 0,
            waiters: 0,
            acting: true,
            arrived: Backlog::new(plain, ids),
            waiting: 0,
            owed: Vec::new(),
            busy_until: 0,
            chain: 0,
            subscribers: Subscribers::new(plan.questions.map_or(&[], |_| &[2, 40])),
            duties,
            signs: Signs::new(no_stream),
            losses: Losses::default(),
            counters: Counters::default(),
            confirmed: false,
            period: Duration::ZERO,
            weather,
            plan,
        };
        world.checks.tally.worlds[world.plan.flavor as usize] = 1;
        let said = world.plan.to_string();
        world.checks.note(now, || said);
        if world.plan.flavor != Flavor::Polled {
            let first = now + world.dice.stream.between(0, 300_000_000);
            world.at(first, Todo::Subscribe);
        }
        world.at(now, Todo::Act);
        if world.kubelet.is_some() {
            for place in 0..world.plan.pods {
                world.inherit(place);
                world.new_spec(place);
            }
        }
        if world.plan.questions.is_some() {
            world.at(now, Todo::Ask);
        }
        let first = now + world.dice.node.between(0, SECOND);
        world.at(first, Todo::Second);
        world.checks.handed(Input::Timer);
        world.drain()?;
        Ok(world)
    }

    fn at(&mut self, when: u64, what: Todo) {
        self.sequence += 1;
        self.queue.push(Planned {
            when: when.max(self.now),
            sequence: self.sequence,
            what,
        });
    }

    /// Whether that fault comes now; it is counted.
    fn comes(&mut self, fault: Fault, dice: fn(&mut Chances) -> &mut Dice) -> bool {
        let percent = self.weather.percent(fault);
        let comes = percent > 0 && dice(&mut self.dice).percent(percent);
        if comes {
            self.checks.tally.fault(fault);
        }
        comes
    }

    /// The node does nothing any more and nobody asks for anything.
    pub const fn rest(&mut self) {
        self.acting = false;
        self.truth.reliable = true;
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.resync = false;
        }
    }

    /// From now on every event arrives and every call succeeds.
    pub fn clear_up(&mut self) {
        self.weather = Weather::FAIR;
        self.node.clear_up(self.now);
        self.channel.clear_up();
    }

    /// Runs for so long.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn run(&mut self, nanos: u64) -> Lawful {
        let end = self.now + nanos;
        let seconds = nanos / SECOND + 1;
        let bound = self.checks.tally.steps + seconds * 2_000 * (4 + self.plan.pods as u64);
        loop {
            let todo = self.queue.peek().map(|planned| planned.when);
            let timer = self.machine.poll_timeout().map(Instant::as_nanos);
            let Some(next) = [todo, timer].into_iter().flatten().min() else {
                return Err(laws::LIVE.broken("nothing is to happen any more, not even a list"));
            };
            if next > end {
                self.checks.tally.nanos += end - self.now;
                self.now = end;
                return Ok(());
            }
            self.checks.tally.steps += 1;
            laws::LIVE.holds(
                self.checks.tally.steps <= bound,
                || "more steps than anything can justify",
            )?;
            self.checks.tally.nanos += next.saturating_sub(self.now);
            self.now = self.now.max(next);
            if timer.is_some_and(|t| t <= self.now) {
                self.chain = 0;
                self.checks.handed(Input::Timer);
                self.machine.handle_timeout(self.instant());
                // What was missed is found out by a timer.
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
        WALL + self.now as i64 + self.wall_offset
    }

    fn step(&mut self, todo: Todo) -> Lawful {
        if !matches!(todo, Todo::Inspect(..)) {
            self.chain = 0;
        }
        match todo {
            Todo::Act => self.act(),
            Todo::Tell(happening) => self.tell(&happening),
            Todo::Arrive(stream, event) => {
                if self.stream == Some(stream) {
                    self.arrive(*event)
                } else {
                    Ok(())
                }
            }
            Todo::Subscribe => self.subscribe(),
            Todo::NotOffered(stream) => self.not_offered(stream),
            Todo::Renew(stream) if self.stream == Some(stream) => self.cut("ended by us"),
            Todo::Renew(_) => Ok(()),
            Todo::Drain => self.take_in(),
            Todo::List(call, known) => self.listed(call, known),
            Todo::Inspect(call, subject) => self.inspected(call, &subject.0, &subject.1),
            Todo::Read(call, id) => self.status_read(call, &id),
            Todo::Version(call) => self.version_ended(call),
            Todo::Kubelet(turn) => self.turn(turn),
            Todo::Ask => self.ask(),
            Todo::Second => self.second(),
        }
    }

    fn next_waiter(&mut self) -> WaiterId {
        self.waiters += 1;
        WaiterId::new(self.waiters)
    }

    /// A full list is asked for.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn relist(&mut self) -> Lawful {
        let waiter = self.next_waiter();
        self.duties.allow_one(self.now);
        self.checks.handed(Input::Question);
        self.machine.relist_now(self.instant(), waiter);
        self.drain()
    }

    /// Does what the machine wants done.
    fn drain(&mut self) -> Lawful {
        while let Some(output) = self.machine.poll_output() {
            self.checks.history.note(self.now, || {
                format!("      -> {}", calls::brief_output(&output))
            });
            self.perform(output)?;
        }
        Ok(())
    }

    fn unavailable(&self) -> CallError {
        error(CallErrorKind::Unavailable)
    }

    /// Counts what the machine counted, as it came about.
    fn count(&mut self) {
        let (new, old) = (self.machine.counters(), &self.counters);
        if new == *old {
            return;
        }
        let tally = &mut self.checks.tally;
        for (n, kind) in pleg_core::ExpectedEvent::ALL.into_iter().enumerate() {
            if let Some(path) = Path::missed(kind) {
                tally.paths(path, new.missed[n] - old.missed[n]);
            }
        }
        let since = |new: u64, old: u64| new.saturating_sub(old);
        tally.paths(Path::Overruled, since(new.overruled, old.overruled));
        tally.paths(
            Path::Contradicted,
            since(new.contradictions, old.contradictions),
        );
        let implausible = since(new.events_implausible, old.events_implausible);
        tally.paths(Path::Implausible, implausible);
        let incomplete = since(new.events_incomplete, old.events_incomplete);
        tally.paths(Path::Incomplete, incomplete);
        tally.paths(Path::KeptAside, since(new.orphans, old.orphans));
        let dropped = since(new.tombstones_dropped, old.tombstones_dropped);
        tally.paths(Path::GraveDropped, dropped);
        tally.paths(Path::ExitRead, since(new.exit_reads, old.exit_reads));
        if new.missed != old.missed {
            self.duties.distrust(self.now, "an event was missed");
            let missed = new.missed;
            let now = self.now;
            self.checks
                .note(now, || format!("   missed by now: {missed:?}"));
        }
        self.counters = new;
    }

    /// Everything on the node is stopped and removed.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn remove_everything(&mut self) -> Lawful {
        if self.kubelet.is_some() {
            return self.delete_everything();
        }
        let start = self.now.max(self.node.busy_until());
        let pods = self.plan.pods;
        let (happenings, end) = self.truth.end(pods, &mut self.dice.node, start);
        self.node.all_busy_until(end);
        self.tell_of(happenings);
        Ok(())
    }

    /// The events that were missed, of all kinds.
    pub fn missed(&self) -> u64 {
        self.machine.counters().missed.iter().sum()
    }

    /// The inspections that were made because somebody waited.
    pub fn inspections_for_waiters(&self) -> u64 {
        self.machine.counters().inspections_by_cause[Cause::Waiter as usize]
    }

    fn uid(&self, pod: usize) -> PodUid {
        self.node
            .uids
            .get(pod)
            .cloned()
            .unwrap_or_else(|| runtime::uid(pod))
    }
}
