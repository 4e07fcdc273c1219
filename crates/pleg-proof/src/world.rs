//! One world: the truth, a runtime that tells of it more or less well, and the machine between
//! them. A discrete event simulation; equal seeds give equal histories.

mod calls;

use std::collections::{BTreeMap, VecDeque};

use pleg_core::{
    Arrival, Backlog, CallError, CallErrorKind, EventType, Id, Instant, Kind, List, Output, PodUid,
    Reading, Reconciler, Report, RuntimeEvent, Settings, StreamChange, StreamEnd, Ticket, WallTime,
};

use crate::checks::Checks;
use crate::dice::Dice;
use crate::runtime::{self, WALL};
use crate::truth::{Happening, Truth};
use crate::weather::{Flavor, MS, SECOND, Weather};

pub const PODS: usize = 3;

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
    /// The writer turns to what has arrived.
    Drain,
    List {
        ticket: Ticket,
        began: u64,
        ended: u64,
    },
    Inspect {
        ticket: Ticket,
        uid: PodUid,
        held: Vec<(Id, Kind)>,
        began: u64,
        ended: u64,
    },
    Read {
        ticket: Ticket,
        id: Id,
        began: u64,
        ended: u64,
    },
    /// A consumer asks for something.
    Ask,
}

/// What the world came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    pub events: u64,
    pub inspections: u64,
    pub lists: u64,
}

#[derive(Debug)]
pub struct World {
    pub machine: Reconciler,
    pub truth: Truth,
    pub checks: Checks,
    pub weather: Weather,
    pub tally: Tally,
    pub now: u64,
    flavor: Flavor,
    dice: Dice,
    queue: BTreeMap<(u64, u64), Todo>,
    sequence: u64,
    /// The number of the present stream, if one stands.
    stream: Option<u64>,
    streams: u64,
    /// What was told while nobody listened.
    backlog: VecDeque<RuntimeEvent>,
    wall_offset: i64,
    waiters: u64,
    acting: bool,
    node_busy_until: u64,
    missed: [u64; 4],
    /// What has arrived and waits for the writer, who is busy until then.
    arrived: Backlog,
    busy_until: u64,
    /// Inspections in a row that nothing but their answers asked for.
    chain: u64,
    /// When the last lists were asked for.
    lists: VecDeque<u64>,
    relists: u64,
}

impl World {
    /// # Errors
    /// A law that is broken.
    pub fn new(seed: u64, weather: Weather, history: bool) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let flavor = dice.pick(&[Flavor::Containerd17, Flavor::Containerd2, Flavor::Crio]);
        let now = SECOND;
        let mut settings = Settings::default();
        if dice.percent(30) {
            (settings.inspections, settings.retries) = (1, 1);
            settings.overdue_max = dice.between(1, 2) as usize;
        }
        let machine =
            Reconciler::new(settings, Instant::from_nanos(now)).map_err(|e| e.to_string())?;
        let mut world = Self {
            machine,
            truth: Truth {
                lingering: weather.lingers && flavor != Flavor::Crio,
                ..Truth::default()
            },
            checks: Checks::new(history, weather.lies > 0),
            weather,
            tally: Tally::default(),
            now,
            flavor,
            dice,
            queue: BTreeMap::new(),
            sequence: 0,
            stream: None,
            streams: 0,
            backlog: VecDeque::new(),
            wall_offset: 0,
            waiters: 0,
            acting: true,
            node_busy_until: 0,
            missed: [0; 4],
            arrived: Backlog::new(2, 100),
            busy_until: 0,
            chain: 0,
            lists: VecDeque::new(),
            relists: 0,
        };
        let (name, flavor) = (world.weather.name, world.flavor);
        world
            .checks
            .note(now, || format!("seed {seed}, {name}, {flavor:?}"));
        let first = now + world.dice.between(0, 300 * MS);
        world.at(first, Todo::Subscribe);
        world.at(now, Todo::Act);
        world.at(now, Todo::Ask);
        world.drain(false)?;
        Ok(world)
    }

    fn at(&mut self, when: u64, what: Todo) {
        self.sequence += 1;
        self.queue.insert((when.max(self.now), self.sequence), what);
    }

    /// The node does nothing any more and nobody asks for anything.
    pub fn rest(&mut self) {
        self.acting = false;
    }

    /// From now on every event arrives and every call succeeds.
    pub fn clear_up(&mut self) {
        self.weather = Weather::FAIR;
    }

    /// Everything on the node is stopped and removed.
    pub fn remove_everything(&mut self) {
        let start = self.now.max(self.node_busy_until);
        let (happenings, end) = self.truth.end(PODS, &mut self.dice, start);
        self.node_busy_until = end;
        self.tell_of(happenings);
    }

    /// Runs for so long.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn run(&mut self, nanos: u64) -> Result<(), String> {
        let end = self.now + nanos;
        let bound = self.tally.steps + 200_000;
        loop {
            let todo = self.queue.first_key_value().map(|(key, _)| key.0);
            let timer = self.machine.poll_timeout().map(Instant::as_nanos);
            let Some(next) = [todo, timer].into_iter().flatten().min() else {
                return Err("nothing is to happen any more, not even a list".to_owned());
            };
            if next > end {
                self.now = end;
                return Ok(());
            }
            self.tally.steps += 1;
            if self.tally.steps > bound {
                return Err("livelock: more steps than anything can justify".to_owned());
            }
            self.now = self.now.max(next);
            if timer.is_some_and(|t| t <= self.now) {
                self.chain = 0;
                self.machine.handle_timeout(self.instant());
                self.drain(false)?;
            } else if let Some((_, todo)) = self.queue.pop_first() {
                self.step(todo)?;
            }
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn wall(&self) -> i64 {
        WALL + self.now as i64 + self.wall_offset
    }

    fn step(&mut self, todo: Todo) -> Result<(), String> {
        let now = self.instant();
        if !matches!(todo, Todo::Inspect { .. }) {
            self.chain = 0;
        }
        match todo {
            Todo::Act => self.act()?,
            Todo::Tell(happening) => self.tell(&happening),
            Todo::Arrive(stream, event) => {
                if self.stream == Some(stream) {
                    self.arrive(*event)?;
                }
            }
            Todo::Subscribe => self.subscribe()?,
            Todo::Drain => self.take_in()?,
            Todo::List {
                ticket,
                began,
                ended,
            } => {
                let rows = self.list_rows(began, ended);
                let (began, ended) = (Instant::from_nanos(began), Instant::from_nanos(ended));
                self.checks.note(self.now, || {
                    format!("list {} begun {began:?}: {}", ticket.get(), brief(&rows))
                });
                if let Ok(rows) = &rows {
                    self.checks.list_read(began, rows);
                }
                self.machine.handle_list(
                    now,
                    List {
                        ticket,
                        began,
                        ended,
                        rows,
                    },
                );
                self.drain(true)?;
            }
            Todo::Inspect {
                ticket,
                uid,
                held,
                began,
                ended,
            } => {
                self.inspected(ticket, &uid, &held, began, ended)?;
            }
            Todo::Read {
                ticket,
                id,
                began,
                ended,
            } => {
                let fails = self.dice.percent(self.weather.inspection_fails);
                let at = self.dice.between(began, ended);
                let found = self.truth.life(&id).and_then(|l| runtime::status(l, at));
                let report = match found {
                    Some(report) if !fails => Ok(report),
                    _ => Err(error(CallErrorKind::NotFound)),
                };
                let (began, ended) = (Instant::from_nanos(began), Instant::from_nanos(ended));
                self.checks
                    .note(self.now, || format!("read {id}: {report:?}"));
                if let Ok(report) = &report {
                    self.checks.status_read(report);
                }
                self.machine.handle_reading(
                    now,
                    Reading {
                        ticket,
                        began,
                        ended,
                        report,
                    },
                );
                self.drain(true)?;
            }
            Todo::Ask => self.ask()?,
        }
        Ok(())
    }

    // --- the node ---

    fn act(&mut self) -> Result<(), String> {
        if !self.acting {
            return Ok(());
        }
        let pod = self.dice.below(PODS as u64) as usize;
        let (happenings, end) = self.truth.act(pod, &mut self.dice, self.now);
        self.node_busy_until = end;
        self.tell_of(happenings);
        if self.dice.percent(self.weather.cut) && self.stream.is_some() {
            self.cut()?;
        }
        if self.dice.percent(self.weather.clock_steps) {
            self.wall_offset += self.dice.pick(&[-5, -2, 2, 90]) * SECOND as i64;
        }
        if self.dice.percent(self.weather.lies) && !self.truth.lives.is_empty() {
            let life = self.dice.below(self.truth.lives.len() as u64) as usize;
            let event = self.dice.pick(&[EventType::Stopped, EventType::Deleted]);
            let lie = Happening {
                at: self.now,
                life,
                event,
                inside_removal: false,
            };
            self.tell_of(vec![lie]);
        }
        let pause = if self.dice.percent(20) { 3000 } else { 400 };
        let next = end + self.dice.between(0, pause) * MS;
        self.at(next, Todo::Act);
        Ok(())
    }

    fn tell_of(&mut self, happenings: Vec<Happening>) {
        for happening in happenings {
            let life = &self.truth.lives[happening.life];
            self.checks.note(happening.at, || {
                format!("   truth: {:?} {}", happening.event, life.id)
            });
            if runtime::tells(self.flavor, &self.truth, &happening) {
                // The statuses are read when it has happened, or a little later.
                let at = happening.at + self.dice.between(0, MS / 2);
                self.at(at, Todo::Tell(happening));
            }
        }
    }

    fn tell(&mut self, happening: &Happening) {
        let stale = self.dice.percent(self.weather.stale);
        let snapshot = if stale {
            self.now.saturating_sub(self.dice.between(0, 20) * MS)
        } else {
            self.now
        };
        let pause = if stale {
            self.dice.between(0, 300) * MS
        } else {
            0
        };
        let stamped = self.wall() + pause as i64;
        let subject = &self.truth.lives[happening.life];
        let event = runtime::event(
            &self.truth,
            &mut self.dice,
            &self.weather,
            self.flavor,
            (subject, happening.event),
            snapshot,
            stamped,
        );
        let Some(stream) = self.stream else {
            if self.weather.held {
                self.backlog.push_back(event);
            }
            return;
        };
        if self.dice.percent(self.weather.dropped) {
            self.checks.note(self.now, || {
                format!("   dropped: {:?} {}", event.event, event.id)
            });
            return;
        }
        let times = 1 + u64::from(self.dice.percent(self.weather.doubled));
        for _ in 0..times {
            let mut delay = self
                .dice
                .between(*self.weather.delay.start(), *self.weather.delay.end());
            if self.dice.percent(self.weather.late) {
                delay += self.dice.between(0, 4000);
            }
            let at = self.now + pause + delay * MS;
            self.at(at, Todo::Arrive(stream, Box::new(event.clone())));
        }
    }

    // --- the stream ---

    fn subscribe(&mut self) -> Result<(), String> {
        self.streams += 1;
        self.stream = Some(self.streams);
        let at = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks
            .note(self.now, || format!("subscribed, wall {wall:?}"));
        self.machine
            .handle_stream(at, StreamChange::Subscribed { at, wall });
        let replayed: Vec<_> = self.backlog.drain(..).collect();
        for event in replayed {
            let at = self.now + self.dice.between(0, 5) * MS;
            self.at(at, Todo::Arrive(self.streams, Box::new(event)));
        }
        self.drain(false)
    }

    fn cut(&mut self) -> Result<(), String> {
        self.take_in()?;
        self.stream = None;
        let at = self.instant();
        let back = self.now + self.dice.between(0, 3000) * MS;
        self.at(back, Todo::Subscribe);
        self.checks.note(self.now, || "cut".to_owned());
        let why = StreamEnd::Ended(Some(error(CallErrorKind::Unavailable)));
        let retry_at = Instant::from_nanos(back);
        self.machine
            .handle_stream(at, StreamChange::Ended { at, why, retry_at });
        self.drain(false)
    }

    fn arrive(&mut self, event: RuntimeEvent) -> Result<(), String> {
        self.tally.events += 1;
        let arrived = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks.note(self.now, || {
            let statuses: Vec<Report> = event
                .sandbox
                .iter()
                .chain(&event.containers)
                .cloned()
                .collect();
            format!(
                "event {:?} {} {}",
                event.event,
                event.id,
                brief(&Ok(statuses))
            )
        });
        self.arrived.push(Arrival {
            event,
            arrived,
            wall,
        });
        if self.dice.percent(self.weather.lag) {
            self.busy_until = self
                .busy_until
                .max(self.now + self.dice.between(1, 800) * MS);
        }
        if self.busy_until > self.now {
            self.machine.handle_backlog(arrived, true);
            self.at(self.busy_until, Todo::Drain);
            return Ok(());
        }
        self.take_in()
    }

    fn take_in(&mut self) -> Result<(), String> {
        let now = self.instant();
        while let Some(arrival) = self.arrived.pop() {
            self.checks.told(now, &arrival.event);
            self.machine.handle_event(now, arrival);
            self.drain(false)?;
        }
        self.machine.handle_backlog(now, false);
        Ok(())
    }
}

pub fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Test", kind, "as the weather has it")
}

fn brief(rows: &Result<Vec<Report>, CallError>) -> String {
    match rows {
        Ok(rows) => {
            let rows: Vec<String> = rows
                .iter()
                .map(|r| format!("{}:{:?}", r.id, r.shown))
                .collect();
            format!("[{}]", rows.join(" "))
        }
        Err(error) => format!("{error:?}"),
    }
}

fn brief_output(output: &Output) -> String {
    match output {
        Output::Publish { uid, view } => {
            let s = &view.status;
            let sandboxes = s
                .sandboxes
                .iter()
                .map(|x| format!("{}:{:?}", x.id, x.state));
            let containers = s
                .containers
                .iter()
                .map(|x| format!("{}:{:?}", x.id, x.state));
            let all: Vec<String> = sandboxes.chain(containers).collect();
            format!("publish {uid} as of {:?}: {}", view.as_of, all.join(" "))
        }
        Output::Announce(e) => {
            let what = e
                .subject
                .as_ref()
                .map(|s| (&s.id, s.incarnation, s.exit_code));
            format!("announce {} {} {what:?}", e.event, e.uid)
        }
        Output::Answer { waiter, answer } => {
            let answer = answer
                .as_ref()
                .map(|v| (v.as_of, v.status.sandboxes.len(), v.status.containers.len()));
            format!("answer {waiter:?} {answer:?}")
        }
        other => format!("{other:?}"),
    }
}
