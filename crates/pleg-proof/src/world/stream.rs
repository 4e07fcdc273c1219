//! The event stream between runtime and core. Faults lose, delay, repeat and falsify its events.

use pleg_core::{
    Arrival, EventProfile, EventType, HintMap, Instant, RuntimeEvent, StreamChange, StreamEnd,
    WallTime,
};
use pleg_node_model::{Delivery, Due, Event};
use std::hash::{Hash, Hasher};

use super::{Act, MS, SECOND, World};
use crate::checker::Fate;
use crate::choose::Dice;
use crate::convert;
use crate::faults::Fault;

/// The time for which containerd 2 stores events without a subscriber.
const STORED_FOR: u64 = 300 * SECOND;

/// The time after a change within which the core expects the event of the change, minus a margin for the delivery.
const EXPECTED_FOR: u64 = 10 * SECOND - 100 * MS;

/// The event stream.
#[derive(Clone, Debug)]
pub(super) struct EventStream {
    pub(super) is_used: bool,
    /// The number of the open stream. `None`: no stream is open.
    open: Option<u64>,
    number: u64,
    /// The instant at which the runtime registers the subscriber. Events that it sends earlier are lost.
    registered_at: u64,
    /// Events that the runtime stores while nobody is subscribed, each with the instant at which it was sent.
    stored: Vec<(u64, RuntimeEvent)>,
    past: Vec<RuntimeEvent>,
    /// Until this instant, another subscriber takes half of the events.
    pub(super) shared_until: u64,
    pub(super) is_mute: bool,
    /// True if the driver takes hints late. Events of one id that arrive meanwhile are merged into one hint.
    is_joined: bool,
    map: HintMap,
    drain_is_due: bool,
}

impl EventStream {
    pub(super) fn new(is_used: bool) -> Self {
        Self {
            is_used,
            open: None,
            number: 0,
            registered_at: 0,
            stored: Vec::new(),
            past: Vec::new(),
            shared_until: 0,
            is_mute: false,
            is_joined: false,
            map: HintMap::default(),
            drain_is_due: false,
        }
    }

    pub(super) fn forget_stored(&mut self) {
        self.stored.clear();
    }
}

/// Leaves these fields out of the hash: `map`, which is empty in small worlds, because there the driver takes each hint
/// at once; `number`, which only names streams; and fields that matter only to faults that no small world has.
impl Hash for EventStream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.open, &self.stored, self.is_mute).hash(state);
    }
}

impl World {
    /// Makes the runtime send `events`; CRI-O may send them later.
    pub(super) fn emit(&mut self, dice: &mut Dice<'_>, events: Vec<Due>) {
        for due in events {
            if self.is_down {
                self.fate(&due, Fate::Lost);
                continue;
            }
            let is_late = self.node.profile().requires_existing;
            if is_late && self.fault(dice, Fault::EventLate) {
                let after = dice.ms(0, self.faults.late_ms);
                self.later(after, Act::Generate(due));
            } else {
                let at = due.at;
                self.make(dice, &due, at);
            }
        }
    }

    /// Makes CRI-O send a late event. It has the statuses of now, not those of the instant of the change.
    pub(super) fn generate(&mut self, dice: &mut Dice<'_>, due: &Due) {
        if self.is_down {
            return self.fate(due, Fate::Lost);
        }
        let at = self.now;
        self.make(dice, due, at);
    }

    fn make(&mut self, dice: &mut Dice<'_>, due: &Due, at: u64) {
        let Some(event) = self.node.event(due, at) else {
            self.coverage.point("event suppressed");
            return self.fate(due, Fate::Suppressed);
        };
        let old = match self.fault(dice, Fault::EventOld) {
            true => dice.ms(0, 20),
            false => 0,
        };
        let stamp = self.node.wall(self.now) + old.cast_signed();
        let mut event = convert::event(&event_or_nil(self, dice, event), stamp);
        if self.fault(dice, Fault::EventWrongType) {
            let wrong = [EventType::Created, EventType::Started, EventType::Other(7)];
            event.event = dice.pick(&wrong);
            self.fate(due, Fate::Lost);
        }
        self.stream.past.push(event.clone());
        let is_taken = self.now < self.stream.shared_until
            && self.node.profile().delivery == Delivery::OneSubscriber
            && dice.chance(500);
        let is_early = self.stream.open.is_some() && self.now < self.stream.registered_at;
        if is_taken || self.stream.is_mute || is_early || self.fault(dice, Fault::EventLost) {
            self.log(|| format!("{due} is lost"));
            return self.fate(due, Fate::Lost);
        }
        self.send(dice, due, event, old);
    }

    fn send(&mut self, dice: &mut Dice<'_>, due: &Due, event: RuntimeEvent, old: u64) {
        let Some(stream) = self.stream.open else {
            if self.node.profile().delivery == Delivery::AllOrLost {
                self.coverage.point("event without a subscriber");
                return self.fate(due, Fate::Lost);
            }
            self.coverage.point("event stored for a subscriber");
            return self.stream.stored.push((self.now, event));
        };
        let after = old + self.delay(dice);
        // No event of a small world is so late that `deliver` needs this instant, which would make equal states differ.
        let since = if self.is_small { u64::MAX } else { due.at };
        if self.fault(dice, Fault::EventTwice) {
            let after = after + self.delay(dice);
            self.later(after, Act::Deliver(stream, event.clone(), since));
        }
        self.later(after, Act::Deliver(stream, event, since));
    }

    fn delay(&mut self, dice: &mut Dice<'_>) -> u64 {
        match self.fault(dice, Fault::EventLate) {
            true => dice.ms(3, self.faults.late_ms.max(3)),
            false => dice.ms(0, 3),
        }
    }

    fn fate(&mut self, due: &Due, fate: Fate) {
        self.checker.fate(self.now, &due.subject, due.what, fate);
    }

    /// Subscribes to events, and tells the core that the stream is open or cannot be opened, as the driver does.
    pub(super) fn open(&mut self, dice: &mut Dice<'_>) {
        if self.stream.open.is_some() {
            return;
        }
        let at = self.at();
        if self.is_down {
            let after = dice.ms(50, 500);
            return self.later(after, Act::Open);
        }
        if !self.node.profile().has_events() {
            self.coverage.point("stream disabled");
            let why = match self.node.profile().delivery {
                Delivery::Unimplemented => StreamEnd::NeverOffered,
                _ => StreamEnd::Disabled,
            };
            let retry_at = Instant::from_nanos(self.now + 60 * SECOND);
            self.core
                .handle_stream(at, StreamChange::Ended { at, why, retry_at });
            return self.later(60 * SECOND, Act::Open);
        }
        self.stream.number += 1;
        self.stream.open = Some(self.stream.number);
        self.stream.is_joined = !self.is_small && dice.chance(500);
        self.stream.is_mute = false;
        self.log(|| "SUBSCRIBED".to_owned());
        let wall = WallTime::from_nanos(self.node.wall(self.now));
        self.checker.subscribed(self.now);
        self.stream.map.subscribed(at);
        let now = self.tick();
        self.core
            .handle_stream(now, StreamChange::Subscribed { at, wall });
        let mut profile = EventProfile::UNKNOWN;
        profile.removal_suppresses_stopped = self.node.profile().requires_existing;
        profile.splits_events_between_subscribers =
            self.node.profile().delivery == Delivery::OneSubscriber;
        self.core.handle_profile(now, profile);
        if self.fault(dice, Fault::LateSubscriber) {
            self.stream.registered_at = self.now + dice.ms(0, 300);
        }
        self.deliver_stored(dice);
    }

    /// Delivers the stored events to a new subscriber. With the fault `Replay`, also repeats earlier events.
    fn deliver_stored(&mut self, dice: &mut Dice<'_>) {
        let now = self.now;
        let is_fresh = |at: u64| at + STORED_FOR > now;
        let stored = std::mem::take(&mut self.stream.stored).into_iter();
        let mut events: Vec<_> = stored
            .filter(|&(at, _)| is_fresh(at))
            .map(|(_, e)| e)
            .collect();
        if self.fault(dice, Fault::Replay) {
            let n = dice.below(1 + self.stream.past.len());
            events.extend(self.stream.past.iter().take(n).cloned());
        }
        for event in events {
            let after = dice.ms(0, 30);
            self.later(after, Act::Deliver(self.stream.number, event, u64::MAX));
        }
    }

    /// Ends the event stream. The driver subscribes again later.
    pub(super) fn cut(&mut self, dice: &mut Dice<'_>) {
        if self.stream.open.take().is_none() {
            return;
        }
        self.log(|| "STREAM LOST".to_owned());
        self.drain();
        let at = self.tick();
        let after = dice.ms(10, 1_500);
        let why = StreamEnd::Ended(None);
        let retry_at = Instant::from_nanos(self.now + after);
        self.core
            .handle_stream(at, StreamChange::Ended { at, why, retry_at });
        self.later(after, Act::Open);
    }

    pub(super) fn deliver(
        &mut self,
        dice: &mut Dice<'_>,
        stream: u64,
        event: RuntimeEvent,
        since: u64,
    ) {
        if self.stream.open != Some(stream) {
            return self.checker.lost_on_the_way(self.now, &event);
        }
        // Usually, the fault `Freeze` delayed this event. If a read showed the change first, the core counted a miss.
        if self.now.saturating_sub(since) > EXPECTED_FOR {
            self.checker.lost_on_the_way(self.now, &event);
        }
        let all = event.sandbox.iter().chain(&event.containers);
        let own = all.into_iter().find(|r| r.id == event.id);
        let shown = own.map(|own| own.shown);
        self.log(|| format!("EVENT {:?} {} own {shown:?}", event.event, event.id));
        self.coverage.point(match event.event {
            EventType::Created => "event CREATED",
            EventType::Started => "event STARTED",
            EventType::Stopped => "event STOPPED",
            EventType::Deleted => "event DELETED",
            _ => "event of another type",
        });
        let wall = self.node.wall(self.now);
        self.checker.delivered(self.now, &event, wall, &self.node);
        let (arrived, wall) = (self.at(), WallTime::from_nanos(wall));
        let arrival = Arrival {
            event,
            arrived,
            wall,
        };
        self.stream.map.push(arrival);
        if !self.stream.is_joined {
            return self.drain();
        }
        if !std::mem::replace(&mut self.stream.drain_is_due, true) {
            let after = dice.ms(0, 30);
            self.later(after, Act::Drain);
        }
    }

    /// Passes all hints of the hint map to the core, as the driver does.
    pub(super) fn drain(&mut self) {
        self.stream.drain_is_due = false;
        let (hints, lost) = self.stream.map.take();
        if hints.is_empty() && lost == 0 {
            return;
        }
        let at = self.tick();
        self.core.handle_hints(at, hints, lost);
    }

    /// Chooses faults of the event stream that happen now.
    pub(super) fn disturb_stream(&mut self, dice: &mut Dice<'_>) {
        if self.fault(dice, Fault::Cut) {
            self.cut(dice);
        }
        if self.fault(dice, Fault::SecondSubscriber) {
            self.stream.shared_until = self.now + 100 * MS + dice.ms(0, 10_000);
            self.log(|| "SECOND SUBSCRIBER".to_owned());
        }
        if self.stream.open.is_some() && self.fault(dice, Fault::Mute) {
            self.stream.is_mute = true;
            self.log(|| "MUTE".to_owned());
        }
    }
}

/// Returns `event`. The fault `EventNil` removes its container statuses and, half of the time, its sandbox status.
fn event_or_nil(world: &mut World, dice: &mut Dice<'_>, mut event: Event) -> Event {
    if world.fault(dice, Fault::EventNil) {
        event.containers.clear();
        event.sandbox = event.sandbox.filter(|_| dice.chance(500));
    }
    event
}
