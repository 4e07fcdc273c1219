//! From the runtime to the writer: the runtime's own queue and its subscribers, the wire, the
//! reader's backlog.

use std::collections::VecDeque;

use pleg_core::{
    Arrival, CallErrorKind, EventType, Instant, Report, RuntimeEvent, StreamChange, StreamEnd,
    WallTime,
};

use super::node::Met;
use super::{Todo, World, calls::brief, calls::error};
use crate::checks::Input;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::laws::{self, Lawful};
use crate::tally::{Path, Tally};
use crate::weather::{Flavor, MS, SECOND};

/// What lies between a runtime and its subscribers.
#[derive(Debug)]
pub(super) struct Channel {
    flavor: Flavor,
    most: usize,
    /// containerd 2 discards what nobody has heard for so long.
    hold: u64,
    /// Held for whoever comes, with when it was told.
    held: VecDeque<(u64, RuntimeEvent)>,
    /// Subscribers that are gone without the runtime's knowing.
    dead: u32,
    /// Somebody has subscribed since the runtime started.
    served: bool,
}

impl Channel {
    /// A small queue, and what is held is soon discarded; or both as they really are.
    pub(super) const fn new(flavor: Flavor, most: usize) -> Self {
        Self {
            flavor,
            most,
            hold: if most < 1000 { SECOND } else { 300 * SECOND },
            held: VecDeque::new(),
            dead: 0,
            served: false,
        }
    }

    pub(super) fn clear_up(&mut self) {
        self.dead = 0;
    }

    pub(super) fn restarted(&mut self) {
        self.held.clear();
        (self.dead, self.served) = (0, false);
    }

    pub(super) const fn lost_one(&mut self) {
        self.dead += 1;
    }

    /// An event is told. Returns it if the live subscriber gets it; `live`: there is one, `rival`:
    /// there is another.
    fn offer(
        &mut self,
        event: RuntimeEvent,
        now: u64,
        (live, rival): (bool, bool),
        dice: &mut Dice,
        tally: &mut Tally,
    ) -> Option<RuntimeEvent> {
        match self.flavor {
            Flavor::Containerd17 => {
                // Readers compete, and the dead stand in the same line.
                if self.dead > 0 {
                    self.dead -= 1;
                    tally.fault(Fault::EatenByTheDead);
                    return None;
                }
                if rival && (!live || dice.percent(50)) {
                    tally.fault(Fault::Stolen);
                    return None;
                }
            }
            Flavor::Containerd2 => {
                if !live && self.dead > 0 {
                    if dice.percent(50) {
                        tally.fault(Fault::EatenByTheDead);
                        return None;
                    }
                    self.dead = 0;
                }
                self.dead = 0;
            }
            _ if !live && self.served => {
                tally.fault(Fault::ToldToNobody);
                return None;
            }
            _ => {}
        }
        if live {
            return Some(event);
        }
        if self.flavor != Flavor::Containerd2 && self.held.len() >= self.most {
            tally.fault(Fault::QueueFull);
            return None;
        }
        self.held.push_back((now, event));
        None
    }

    /// Somebody subscribes and gets what was held.
    fn subscribed(&mut self, now: u64, tally: &mut Tally) -> Vec<RuntimeEvent> {
        self.served = true;
        let mut replayed = Vec::new();
        for (told, event) in self.held.drain(..) {
            if self.flavor == Flavor::Containerd2 && told + self.hold < now {
                tally.fault(Fault::HeldTooLong);
            } else {
                tally.fault(Fault::Replayed);
                replayed.push(event);
            }
        }
        replayed
    }
}

impl World {
    /// The runtime sends an event, `pause` after it has read the statuses.
    pub(super) fn send(&mut self, event: RuntimeEvent, pause: u64) {
        let (now, live) = (self.now, self.stream.is_some());
        let rival = now < self.node.rival;
        let (dice, tally) = (&mut self.dice.stream, &mut self.checks.tally);
        let offered = live.then(|| event.clone());
        let Some(event) = self.channel.offer(event, now, (live, rival), dice, tally) else {
            if let Some(event) = offered {
                self.losses.lose(&event);
            }
            return;
        };
        let Some(stream) = self.stream else { return };
        if now < self.node.silent || self.comes(Fault::Dropped, |d| &mut d.stream) {
            self.checks.history.note(now, || {
                format!("   dropped: {:?} {}", event.event, event.id)
            });
            self.losses.lose(&event);
            return;
        }
        let mut at = now + pause;
        let slowest = *self.weather.delay.end();
        at += self
            .dice
            .stream
            .between(*self.weather.delay.start(), slowest)
            * MS;
        if self.comes(Fault::Late, |d| &mut d.stream) {
            at += self.dice.stream.between(0, 4000) * MS;
        }
        if self.comes(Fault::Swapped, |d| &mut d.stream) {
            at += self.dice.stream.between(1, 30) * MS;
        }
        let event = Box::new(event);
        if self.comes(Fault::Doubled, |d| &mut d.stream) {
            let again = at + self.dice.stream.between(0, 50) * MS;
            self.at(again, Todo::Arrive(stream, event.clone()));
        }
        self.at(at, Todo::Arrive(stream, event));
    }

    pub(super) fn subscribe(&mut self) -> Lawful {
        if self.node.met(self.now) == Met::Refused {
            self.checks.tally.fault(Fault::NotInitialized);
            let why = StreamEnd::Refused(self.unavailable());
            let pause = self.dice.stream.between(50, 1000) * MS;
            return self.stream_ended(why, pause);
        }
        if self.node.met(self.now) != Met::Served {
            self.checks.tally.fault(Fault::SilentSocket);
        }
        self.streams += 1;
        self.stream = Some(self.streams);
        (self.delivered, self.confirmed) = (false, false);
        self.signs.no_stream = None;
        self.losses.subscribed(self.now);
        let at = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks.tally.path(Path::StreamUp);
        self.checks
            .history
            .note(self.now, || format!("subscribed, wall {wall:?}"));
        self.checks.handed(Input::Stream);
        self.duties.allow_one(self.now);
        self.machine
            .handle_stream(at, StreamChange::Subscribed { at, wall });
        if self.never_streams() {
            let over = self.now + self.dice.stream.between(1, 20) * MS;
            self.at(over, Todo::NotOffered(self.streams));
        } else {
            let held = self.channel.subscribed(self.now, &mut self.checks.tally);
            for event in held {
                let at = self.now + self.dice.stream.between(0, 5) * MS;
                self.at(at, Todo::Arrive(self.streams, Box::new(event)));
            }
        }
        self.drain()
    }

    /// This runtime offers no stream; it is asked again in a minute.
    pub(super) fn not_offered(&mut self, stream: u64) -> Lawful {
        if self.stream != Some(stream) {
            return Ok(());
        }
        self.stream = None;
        let why = if self.plan.flavor == Flavor::Unimplemented {
            self.checks.tally.fault(Fault::Unimplemented);
            StreamEnd::NeverOffered
        } else {
            self.checks.tally.fault(Fault::Disabled);
            StreamEnd::Disabled
        };
        self.stream_ended(why, 60 * SECOND)
    }

    /// The stream breaks.
    pub(super) fn cut(&mut self, why: &'static str) -> Lawful {
        self.take_in()?;
        self.stream = None;
        self.checks.note(self.now, || why.to_owned());
        if self.node.is_up(self.now) {
            self.channel.lost_one();
        }
        let broken = error(CallErrorKind::Unavailable);
        let why = match (self.delivered, self.plan.flavor.is_crio()) {
            (false, _) => StreamEnd::Cut(broken),
            (true, true) => StreamEnd::Ended(None),
            (true, false) => StreamEnd::Ended(Some(broken)),
        };
        let pause = self.dice.stream.between(0, 3000) * MS;
        self.stream_ended(why, pause)
    }

    fn stream_ended(&mut self, why: StreamEnd, pause: u64) -> Lawful {
        let at = self.instant();
        let back = self.now + pause;
        self.losses.ended();
        self.at(back, Todo::Subscribe);
        if let Some(path) = Path::ended(&why) {
            self.checks.tally.path(path);
        }
        if !matches!(why, StreamEnd::Refused(_)) {
            self.duties.distrust(self.now, "the stream is lost");
        }
        self.signs.no_stream = Some((self.now, true));
        self.checks
            .history
            .note(self.now, || format!("stream: {why:?}"));
        let retry_at = Instant::from_nanos(back);
        self.checks.handed(Input::Stream);
        self.machine
            .handle_stream(at, StreamChange::Ended { at, why, retry_at });
        self.drain()
    }

    pub(super) fn arrive(&mut self, event: RuntimeEvent) -> Lawful {
        self.checks.tally.events += 1;
        self.delivered = true;
        let arrived = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks.history.note(self.now, || {
            let statuses = event.sandbox.iter().chain(&event.containers);
            let statuses: Vec<Report> = statuses.cloned().collect();
            let said = brief(&Ok(statuses));
            format!("event {:?} {} {said}", event.event, event.id)
        });
        if self.comes(Fault::BusyWriter, |d| &mut d.stream) {
            let busy = self.now + self.dice.stream.between(1, 800) * MS;
            self.busy_until = self.busy_until.max(busy);
            self.checks.no_longer_urgent(None);
        }
        let behind = self.busy_until > self.now;
        if behind && matches!(event.event, EventType::Stopped | EventType::Deleted) {
            self.owed.push((event.id.clone(), event.event));
        }
        self.arrived.push(Arrival {
            event,
            arrived,
            wall,
        });
        self.waiting += 1;
        let lost = self.arrived.take_lost();
        if lost > 0 {
            let (waiting, (_, ids)) = (self.waiting, self.plan.backlog);
            laws::DRAINED.holds(waiting > ids, || {
                format!("{lost} lost of {waiting} that waited, {ids} ids may")
            })?;
            self.checks.tally.path(Path::BacklogOverflowed);
            self.owed.clear();
            return self.cut("too far behind");
        }
        if behind {
            if self.signs.behind.is_none() {
                self.signs.behind = Some(self.now);
                self.at(self.busy_until, Todo::Drain);
            }
            self.machine.handle_backlog(arrived, true);
            return Ok(());
        }
        self.take_in()
    }

    /// The writer takes in what has arrived.
    pub(super) fn take_in(&mut self) -> Lawful {
        if self.waiting == 0 {
            return Ok(());
        }
        let now = self.instant();
        let mut taken = 0;
        while let Some(arrival) = self.arrived.pop() {
            taken += 1;
            if !self.owed.is_empty() {
                let told = (&arrival.event.id, arrival.event.event);
                self.owed.retain(|(id, what)| (id, *what) != told);
            }
            self.checks.told(&self.truth, now, &arrival.event);
            self.losses.arrive(&arrival.event, self.now);
            self.checks.handed(Input::Event);
            self.machine.handle_event(now, arrival);
            self.drain()?;
        }
        let joined = self.waiting.saturating_sub(taken) as u64;
        self.checks.tally.paths(Path::JoinedInBacklog, joined);
        self.waiting = 0;
        self.signs.behind = None;
        let owed = std::mem::take(&mut self.owed);
        laws::DRAINED.holds(owed.is_empty(), || {
            format!("{owed:?} arrived and did not reach the writer")
        })?;
        self.machine.handle_backlog(now, false);
        Ok(())
    }
}
