//! Which events runtimes send about an id, and which of them have arrived (invariant 10).

use std::fmt;

use crate::state::order::Position;
use crate::types::event::EventType;
use crate::types::ids::Kind;

/// An event that runtimes send, and whose loss reads can detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ExpectedEvent {
    /// A container's STARTED.
    ContainerStarted,
    /// A container's STOPPED.
    ContainerStopped,
    /// A sandbox's CREATED or STARTED.
    SandboxStarted,
    /// A sandbox's STOPPED.
    SandboxStopped,
}

impl fmt::Display for ExpectedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ExpectedEvent {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [
        Self::ContainerStarted,
        Self::ContainerStopped,
        Self::SandboxStarted,
        Self::SandboxStopped,
    ];

    /// A short lower-case name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerStarted => "container_started",
            Self::ContainerStopped => "container_stopped",
            Self::SandboxStarted => "sandbox_started",
            Self::SandboxStopped => "sandbox_stopped",
        }
    }

    /// The event that reports that an id has reached a position. None is expected for a creation,
    /// which some runtimes do not report for a sandbox, or for a removal.
    pub(crate) const fn of_position(kind: Kind, position: Position) -> Option<Self> {
        match (kind, position) {
            (Kind::Container, Position::Running) => Some(Self::ContainerStarted),
            (Kind::Container, Position::Exited) => Some(Self::ContainerStopped),
            (Kind::Sandbox, Position::Running) => Some(Self::SandboxStarted),
            (Kind::Sandbox, Position::Exited) => Some(Self::SandboxStopped),
            (_, Position::Created | Position::Removed) => None,
        }
    }

    /// The expected event that an event of this type and kind of subject is.
    pub(crate) const fn of_event(kind: Kind, event: EventType) -> Option<Self> {
        match (kind, event) {
            (Kind::Container, EventType::Started) => Some(Self::ContainerStarted),
            (Kind::Container, EventType::Stopped) => Some(Self::ContainerStopped),
            (Kind::Sandbox, EventType::Created | EventType::Started) => Some(Self::SandboxStarted),
            (Kind::Sandbox, EventType::Stopped) => Some(Self::SandboxStopped),
            (_, _) => None,
        }
    }
}

/// Which events with an id as their subject have arrived, and which have been pending. Each is
/// pending at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reports(u8);

impl Reports {
    const fn arrived(event: ExpectedEvent) -> u8 {
        match event {
            ExpectedEvent::ContainerStarted | ExpectedEvent::SandboxStarted => 1,
            ExpectedEvent::ContainerStopped | ExpectedEvent::SandboxStopped => 1 << 1,
        }
    }

    /// The event has arrived.
    pub(crate) const fn set_arrived(&mut self, event: ExpectedEvent) {
        self.0 |= Self::arrived(event);
    }

    /// Reads have overruled the recorded state: the events that arrived were not about this
    /// incarnation.
    pub(crate) const fn overruled(&mut self) {
        self.0 &= !0b11;
    }

    /// A read shows the recorded position. So an event with a later position was wrong, and does
    /// not count as the event that is still to come.
    pub(crate) fn shown(&mut self, position: Option<Position>) {
        if position < Some(Position::Exited) {
            self.0 &= !0b10;
        }
        if position < Some(Position::Running) {
            self.0 &= !0b01;
        }
    }

    /// Marks the event as pending. Returns false if it has arrived or was pending before.
    pub(crate) const fn expect(&mut self, event: ExpectedEvent) -> bool {
        let arrived = Self::arrived(event);
        let expected = arrived << 2;
        let first = self.0 & arrived == 0 && self.0 & expected == 0;
        self.0 |= expected;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: ExpectedEvent = ExpectedEvent::ContainerStopped;

    #[test]
    fn event_is_expected_once_and_not_after_it_arrived() {
        let mut reports = Reports::default();
        assert!(reports.expect(EVENT) && !reports.expect(EVENT));
        let mut reports = Reports::default();
        reports.set_arrived(EVENT);
        assert!(!reports.expect(EVENT));
        assert!(reports.expect(ExpectedEvent::ContainerStarted));
    }

    /// The events that are still to come, after a STARTED and a STOPPED arrived and then this
    /// happened.
    fn to_come(then: impl FnOnce(&mut Reports)) -> [bool; 2] {
        let events = [ExpectedEvent::ContainerStarted, EVENT];
        let mut reports = Reports::default();
        for event in events {
            reports.set_arrived(event);
        }
        then(&mut reports);
        events.map(|event| reports.expect(event))
    }

    #[test]
    fn event_of_a_later_position_than_a_read_shows_is_still_to_come() {
        for (position, expected) in [
            (Position::Created, [true, true]),
            (Position::Running, [false, true]),
            (Position::Exited, [false, false]),
            (Position::Removed, [false, false]),
        ] {
            let events = to_come(|reports| reports.shown(Some(position)));
            assert_eq!(events, expected, "{position:?}");
        }
    }

    #[test]
    fn events_of_an_overruled_incarnation_are_still_to_come() {
        assert_eq!(to_come(Reports::overruled), [true, true]);
    }
}
