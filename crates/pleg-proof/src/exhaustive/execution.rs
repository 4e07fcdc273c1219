//! One state of a small world, and how each action changes it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    Arrival, CallErrorKind, HeldId, Instant, KnownIds, Output, Reconciler, Report, RuntimeEvent,
    Settings, StreamChange, StreamEnd, Ticket, WaiterId, WallTime,
};

use super::book::{Book, By};
use super::cast::{Cast, when};
use super::reads::{brief, error};
use super::script::{Snapshot, Stage, Step, Who};
use super::shift::{EPOCH, Shifted};
use super::worlds::Budget;

/// The least that lies between two instants. Threads of a driver are never this slow; all the
/// ticks of a run together stay far below the least of the core's own times, 100 ms.
pub const TICK: u64 = 100_000;

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next step of a script.
    Step { script: usize },
    /// An event arrives: the first that waits or the second; with the statuses from when it
    /// happened or, late, from now; once more after all that waits, or not.
    Deliver {
        second: bool,
        late: bool,
        again: bool,
    },
    /// The first event that waits is lost.
    Drop,
    /// An event that was never true arrives.
    Lie { who: Who, to: Stage },
    /// The stream is cut.
    Cut,
    /// It is subscribed to again.
    Subscribe,
    /// A read ends. It saw the sandboxes (or the lists, of an inspection) and the containers (or
    /// the statuses) as they were at those of the moments since it began.
    Land {
        read: usize,
        first: usize,
        then: usize,
    },
    /// A list ends and shows somebody so, who is not so.
    LandLying { read: usize, who: Who, as_: Stage },
    /// A read fails; an inspection may have read every status before it did.
    Fail { read: usize, partial: bool },
    /// Somebody asks for what is newer than now.
    Ask { pod: usize },
    /// Time passes until the machine's next timer.
    Jump,
    /// Everything has happened: no fault any more, and nobody asks.
    Rest,
    /// What is owed is done, in order and without a fault, and the laws of rest are checked.
    Settle,
}

/// A message on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub step: Step,
    /// What was true when it happened, and when that was.
    pub seen: Snapshot,
    pub at: u64,
}

/// A read that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    pub ticket: Ticket,
    pub what: What,
    pub began: u64,
    /// By then it has ended or failed.
    pub deadline: u64,
    /// What was true at each moment since then that matters to it.
    pub seen: Vec<Snapshot>,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Node { known: KnownIds },
    Pod { pod: usize, held: Vec<HeldId> },
    One { who: Who },
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Playing,
    Resting,
    Settled,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub machine: Reconciler,
    /// What the read side remembers of the last list.
    pub now: u64,
    /// How far each script has come.
    pub done: [u8; 2],
    pub truth: Snapshot,
    pub streaming: bool,
    pub queue: Vec<Message>,
    pub reads: Vec<Read>,
    pub left: Budget,
    pub book: Book,
    pub phase: Phase,
    waiters: u64,
    /// Something took so long that a loss may be seen where there was none.
    pub late: bool,
    /// The law that is broken.
    pub broken: Option<Arc<str>>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, inner: &mut H) {
        let mut h = Shifted {
            inner,
            now: self.now,
        };
        let Self {
            machine,
            now: _,
            done,
            truth,
            streaming,
            queue,
            reads,
            left,
            book,
            phase,
            waiters,
            late,
            broken,
        } = self;
        if *phase == Phase::Settled {
            // How it came to rest does not matter any more.
            return broken.hash(&mut h);
        }
        (machine, done, truth, streaming, queue).hash(&mut h);
        (reads, left, book, phase, waiters, late, broken).hash(&mut h);
    }
}

/// A state that is being changed, and the tale of it.
#[derive(Debug)]
pub struct Play<'a> {
    pub cast: &'a Cast,
    pub state: State,
    pub tale: Option<Vec<String>>,
    /// What the tale counts its time from.
    pub since: u64,
}

impl<'a> Play<'a> {
    /// The first state: a machine that has read what is there, with a confirmed stream.
    pub fn begin(cast: &'a Cast, tale: bool) -> Self {
        let mut truth = Snapshot::default();
        let mut book = Book::default();
        for &(who, stage) in cast.world.tale.first {
            truth[who] = stage;
            book.noted[who].heard = stage;
        }
        let now = EPOCH + 1_000_000_000;
        let state = State {
            machine: machine(now),
            now,
            done: [0; 2],
            truth,
            streaming: false,
            queue: Vec::new(),
            reads: Vec::new(),
            left: cast.world.budget,
            book,
            phase: Phase::Playing,
            waiters: 0,
            late: false,
            broken: None,
        };
        let tale = tale.then(Vec::new);
        let mut play = Self {
            cast,
            state,
            tale,
            since: now,
        };
        play.drain(By::Time);
        play.act(Action::Subscribe);
        // Until the call has stood for a second and the baseline is read.
        play.run_fairly(Duration::from_millis(1500));
        while cast.world.listing
            && !play
                .state
                .reads
                .iter()
                .any(|r| matches!(r.what, What::Node { .. }))
        {
            play.jump();
        }
        play.since = play.state.now;
        play
    }

    pub fn instant(&self) -> Instant {
        Instant::from_nanos(self.state.now)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.state.now.cast_signed())
    }

    pub fn say(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.tale.is_some() {
            let line = line(self);
            if let Some(tale) = &mut self.tale {
                tale.push(line);
            }
        }
    }

    pub fn broken(&mut self, what: impl Into<Arc<str>>) {
        self.state.broken.get_or_insert(what.into());
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
                self.state.book.drops += 1;
                self.state.left.faults -= 1;
                self.say(|p| format!("an event is lost: {}", p.name(lost.step)));
            }
            Action::Lie { who, to } => self.lie(who, to),
            Action::Cut => self.cut(),
            Action::Subscribe => self.subscribe(),
            Action::Land { read, first, then } => self.land(read, first, then, None),
            Action::LandLying { read, who, as_ } => {
                self.state.left.lying_lists -= 1;
                self.state.left.faults -= 1;
                let last = self.state.reads[read].seen.len() - 1;
                self.land(read, last, last, Some((who, as_)));
            }
            Action::Fail { read, partial } => self.fail(read, partial),
            Action::Ask { pod } => self.ask(pod),
            Action::Jump => {
                self.state.left.jumps -= u8::from(!self.is_due());
                self.jump();
            }
            Action::Rest => {
                self.state.left = Budget::default();
                self.state.phase = Phase::Resting;
                self.say(|_| "no fault any more; what is owed is done in order".into());
            }
            Action::Settle => self.settle(),
        }
    }

    // --- the node ---

    fn step(&mut self, script: usize) {
        let at = usize::from(self.state.done[script]);
        let step = self.cast.world.tale.scripts[script][at];
        self.state.done[script] += 1;
        let Step(who, to) = step;
        self.state.truth[who] = to;
        let (seen, now) = (self.state.truth, self.state.now);
        for read in &mut self.state.reads {
            let matters = match &read.what {
                What::Node { .. } => true,
                What::Pod { pod, .. } => self.cast.pod_of(who) == *pod,
                What::One { who: one } => *one == who,
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
        self.say(|p| format!("in truth: {}", p.name(step)));
    }

    // --- the stream ---

    fn deliver(&mut self, second: bool, late: bool, again: bool) {
        let message = self.state.queue.remove(usize::from(second));
        self.state.left.swaps -= u8::from(second);
        self.state.left.doubles -= u8::from(again);
        self.state.left.stale -= u8::from(late);
        self.state.left.faults -= u8::from(second) + u8::from(again) + u8::from(late);
        if again {
            self.state.queue.push(message);
        }
        let seen = if late { self.state.truth } else { message.seen };
        let event = self.cast.event(message.step, &seen, message.at);
        self.arrive(message.step, event);
    }

    fn lie(&mut self, who: Who, to: Stage) {
        self.state.left.lying_events -= 1;
        self.state.left.faults -= 1;
        self.state.book.noted[who].lied = true;
        let mut seen = self.state.truth;
        seen[who] = to;
        let step = Step(who, to);
        let event = self.cast.event(step, &seen, self.state.now);
        self.say(|p| format!("a lie: {}", p.name(step)));
        self.arrive(step, event);
    }

    fn arrive(&mut self, step: Step, event: RuntimeEvent) {
        self.say(|p| {
            let shown = event.sandbox.iter().chain(&event.containers);
            format!("an event tells: {} (with {})", p.name(step), brief(shown))
        });
        let shown: Vec<&Report> = event.sandbox.iter().chain(&event.containers).collect();
        let now = self.state.now;
        self.state.book.told(self.cast, now, step, &shown);
        let (arrived, wall) = (self.instant(), self.wall());
        let arrival = Arrival {
            event,
            arrived,
            wall,
        };
        self.state.machine.handle_event(arrived, arrival);
        self.drain(By::Stream);
    }

    fn cut(&mut self) {
        self.state.left.cuts -= 1;
        self.state.book.cuts += 1;
        self.state.left.faults -= 1;
        self.state.streaming = false;
        self.state.queue.clear();
        self.say(|_| "the stream is cut".into());
        let at = self.instant();
        let why = StreamEnd::Ended(Some(error(CallErrorKind::Unavailable)));
        let change = StreamChange::Ended {
            at,
            why,
            retry_at: at,
        };
        self.state.machine.handle_stream(at, change);
        self.drain(By::Stream);
    }

    fn subscribe(&mut self) {
        self.state.streaming = true;
        self.say(|_| "subscribed".into());
        let (at, wall) = (self.instant(), self.wall());
        let change = StreamChange::Subscribed { at, wall };
        self.state.machine.handle_stream(at, change);
        self.drain(By::Stream);
    }

    // --- the consumers, and time ---

    fn ask(&mut self, pod: usize) {
        self.state.left.waits -= 1;
        self.state.waiters += 1;
        let waiter = WaiterId::new(self.state.waiters);
        let (now, truth) = (self.state.now, self.state.truth);
        self.state.book.asked(waiter, pod, now, &truth);
        self.say(|p| {
            let (uid, now) = (&p.cast.pods[pod], p.when(p.state.now));
            format!("somebody asks for {uid} as of later than now, {now}")
        });
        let (now, uid) = (self.instant(), &self.cast.pods[pod]);
        self.state.machine.wait(now, waiter, uid, now);
        self.drain(By::Question);
    }

    /// Whether a timer of the machine is due.
    pub fn is_due(&self) -> bool {
        is_due(&self.state)
    }

    pub fn jump(&mut self) {
        let Some(due) = self.state.machine.poll_timeout() else {
            return self.broken("law 10: nothing is to happen any more, not even a list");
        };
        let passed = due.as_nanos().saturating_sub(self.state.now);
        let waiting = !self.state.queue.is_empty() || !self.state.reads.is_empty();
        self.state.late |= waiting && passed > 0;
        self.state.now += passed;
        self.say(|p| {
            format!(
                "{} ms pass, it is {}",
                passed / 1_000_000,
                p.when(p.state.now)
            )
        });
        let now = self.instant();
        self.state.machine.handle_timeout(now);
        self.drain(By::Time);
    }

    // --- what comes out ---

    /// Takes what comes out, compares it with the laws, and begins the reads that are asked for,
    /// a tick later.
    pub fn drain(&mut self, by: By) {
        let mut asked: Vec<(Ticket, What, Duration)> = Vec::new();
        while let Some(output) = self.state.machine.poll_output() {
            self.say(|p| format!("        {}", p.cast.tell(&output, p.since)));
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
                } => match self.cast.pods.iter().position(|p| *p == uid) {
                    Some(pod) => asked.push((ticket, What::Pod { pod, held }, deadline)),
                    None => self.broken(format!("{uid} is inspected and is no pod")),
                },
                Output::Read {
                    ticket,
                    id,
                    deadline,
                    ..
                } => match self.cast.who(&id) {
                    Some(who) => asked.push((ticket, What::One { who }, deadline)),
                    None => self.broken(format!("{id} is read and is nobody")),
                },
                Output::Cancel { ticket } => self.state.reads.retain(|r| r.ticket != ticket),
                output => {
                    let State { book, truth, .. } = &mut self.state;
                    if let Err(broken) = book.output(self.cast, truth, &output, by) {
                        self.broken(broken);
                    }
                }
            }
        }
        if !asked.is_empty() {
            self.state.now += TICK;
            let (now, truth) = (self.state.now, self.state.truth);
            self.state.book.begins(now, &truth);
            let begun = asked.into_iter().map(|(ticket, what, deadline)| Read {
                ticket,
                what,
                began: now,
                deadline: now + deadline.as_nanos() as u64,
                seen: vec![truth],
            });
            self.state.reads.extend(begun);
        }
        let under_way: Vec<u64> = self.state.reads.iter().map(|r| r.began).collect();
        let listed = self.state.machine.health(self.instant()).last_list;
        self.state
            .book
            .forget(&under_way, listed.map(Instant::as_nanos));
    }

    pub fn name(&self, Step(who, to): Step) -> String {
        format!("{} {to:?}", self.cast.ids[who])
    }

    pub fn when(&self, at: u64) -> String {
        when(at, self.since)
    }
}

/// Whether a timer of the machine is due.
pub fn is_due(state: &State) -> bool {
    let due = state.machine.poll_timeout();
    due.is_some_and(|t| t.as_nanos() <= state.now)
}

/// Whether time may pass until then: no call outlives its deadline.
pub fn may_jump(state: &State) -> bool {
    let due = state.machine.poll_timeout();
    due.is_some_and(|t| state.reads.iter().all(|r| t.as_nanos() < r.deadline))
}

#[allow(clippy::expect_used, reason = "the default settings are valid")]
fn machine(now: u64) -> Reconciler {
    let mut settings = Settings::default();
    // It would go on for ever.
    settings.probe_period = Duration::from_secs(24 * 3600);
    Reconciler::new(settings, Instant::from_nanos(now)).expect("valid settings")
}
