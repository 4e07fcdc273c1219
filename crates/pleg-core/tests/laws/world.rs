//! One world: the truth, a runtime that tells of it more or less well, and the machine between
//! them. A discrete event simulation; equal seeds give equal histories.

use std::collections::{BTreeMap, VecDeque};

use pleg_core::{
    Arrival, CallError, CallErrorKind, EventType, Id, Inspection, Instant, Kind, List, Output,
    PodUid, Reading, Reconciler, Report, RuntimeEvent, Settings, Shown, StreamChange, StreamEnd,
    Ticket, WaiterId, WallTime,
};

use crate::checks::Checks;
use crate::dice::Dice;
use crate::runtime::{self, WALL, uid};
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
}

impl World {
    /// # Errors
    /// A law that is broken.
    pub fn new(seed: u64, weather: Weather, history: bool) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let flavor = dice.pick(&[Flavor::Containerd17, Flavor::Containerd2, Flavor::Crio]);
        let now = SECOND;
        let settings = Settings::default();
        let machine =
            Reconciler::new(settings, Instant::from_nanos(now)).map_err(|e| e.to_string())?;
        let mut world = Self {
            machine,
            truth: Truth::default(),
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
        match todo {
            Todo::Act => self.act()?,
            Todo::Tell(happening) => self.tell(&happening),
            Todo::Arrive(stream, event) => {
                if self.stream == Some(stream) {
                    self.arrive(*event)?;
                }
            }
            Todo::Subscribe => self.subscribe()?,
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
        self.checks.told(arrived, &event);
        self.machine.handle_event(
            arrived,
            Arrival {
                event,
                arrived,
                wall,
            },
        );
        self.drain(false)
    }

    // --- the reads ---

    fn list_rows(&mut self, began: u64, ended: u64) -> Result<Vec<Report>, CallError> {
        if self.dice.percent(self.weather.list_fails) {
            let kind = self
                .dice
                .pick(&[CallErrorKind::Unavailable, CallErrorKind::DeadlineExceeded]);
            return Err(error(kind));
        }
        let sandboxes = self.dice.between(began, ended);
        let containers = self.dice.between(sandboxes, ended);
        let mut rows = runtime::list(&self.truth, sandboxes, containers);
        self.blur(&mut rows);
        Ok(rows)
    }

    fn blur(&mut self, reports: &mut [Report]) {
        for report in reports {
            if self.dice.percent(self.weather.unknown) {
                report.shown = Shown::Unknown;
                report.details = pleg_core::Details::none(report.identity.kind);
            }
        }
    }

    fn inspected(
        &mut self,
        ticket: Ticket,
        uid: &PodUid,
        held: &[(Id, Kind)],
        began: u64,
        ended: u64,
    ) -> Result<(), String> {
        let (mut found, mut gone) =
            runtime::inspect(&self.truth, &mut self.dice, uid, held, (began, ended));
        self.blur(&mut found);
        let mut failure = None;
        if self
            .dice
            .percent(self.weather.partial + self.weather.inspection_fails)
        {
            failure = Some(error(CallErrorKind::Failed));
            gone.clear();
            let dice = &mut self.dice;
            found.retain(|_| dice.percent(50));
        }
        let (began, ended) = (Instant::from_nanos(began), Instant::from_nanos(ended));
        self.checks.note(self.now, || {
            let what = brief(&Ok(found.clone()));
            format!(
                "inspection {} of {uid} begun {began:?}: {what} gone {gone:?} {failure:?}",
                ticket.get()
            )
        });
        self.checks
            .inspected(uid, ticket, began, &found, failure.is_some());
        let inspection = Inspection {
            ticket,
            began,
            ended,
            found,
            gone,
            error: failure,
        };
        self.machine.handle_inspection(self.instant(), inspection);
        self.drain(true)
    }

    // --- the consumers ---

    fn ask(&mut self) -> Result<(), String> {
        if !self.acting {
            return Ok(());
        }
        let next = self.now + self.dice.between(10, 1500) * MS;
        self.at(next, Todo::Ask);
        self.waiters += 1;
        let waiter = WaiterId::new(self.waiters);
        let now = self.instant();
        let pod = uid(self.dice.below(PODS as u64 + 1) as usize);
        let what = self.dice.below(12);
        let after = match what {
            0..=3 => self.now.saturating_sub(self.dice.between(0, 4000) * MS),
            4..=6 => self.now,
            7 | 8 => self.now + self.dice.between(0, 2000) * MS,
            _ => self.now,
        };
        let after = Instant::from_nanos(after);
        self.checks.note(self.now, || {
            format!(
                "waiter {} asks ({what}) for {pod} after {after:?}",
                self.waiters
            )
        });
        match what {
            0..=8 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.wait(now, waiter, &pod, after);
            }
            9 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.relist(now, waiter, &pod);
            }
            10 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.reinspect(now, waiter, &pod);
            }
            _ => self.machine.relist_now(now, waiter),
        }
        self.drain(true)?;
        if self.dice.percent(5) {
            self.checks.cancelled(self.waiters);
            self.machine.cancel(waiter);
            self.drain(false)?;
        }
        Ok(())
    }

    /// A full list is asked for.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn relist(&mut self) -> Result<(), String> {
        self.waiters += 1;
        self.machine
            .relist_now(self.instant(), WaiterId::new(self.waiters));
        self.drain(false)
    }

    /// Does what the machine wants done; `answers` says whether the input may answer anybody.
    fn drain(&mut self, answers: bool) -> Result<(), String> {
        let now = self.now;
        let missed = self.machine.counters().missed;
        if missed != self.missed {
            self.missed = missed;
            self.checks.note(now, || format!("   missed by now: {missed:?}"));
        }
        while let Some(output) = self.machine.poll_output() {
            self.checks
                .note(now, || format!("      -> {}", brief_output(&output)));
            match &output {
                Output::List { ticket, .. } => {
                    self.tally.lists += 1;
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 6 * SECOND);
                    self.at(
                        ended,
                        Todo::List {
                            ticket: *ticket,
                            began,
                            ended,
                        },
                    );
                }
                Output::Inspect {
                    ticket, uid, held, ..
                } => {
                    self.tally.inspections += 1;
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 4 * SECOND);
                    self.checks.inspection_asked(uid, *ticket);
                    let (ticket, uid, held) = (*ticket, uid.clone(), held.clone());
                    self.at(
                        ended,
                        Todo::Inspect {
                            ticket,
                            uid,
                            held,
                            began,
                            ended,
                        },
                    );
                }
                Output::Read { ticket, id, .. } => {
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 2 * SECOND);
                    let (ticket, id) = (*ticket, id.clone());
                    self.at(
                        ended,
                        Todo::Read {
                            ticket,
                            id,
                            began,
                            ended,
                        },
                    );
                }
                _ => self.checks.output(&self.truth, now, &output, answers)?,
            }
        }
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
