//! The event stream: events, subscribes and ends.

use pleg_core::{Arrival, EventType, Report, RuntimeEvent, StreamChange, StreamEnd};

use super::Script;

impl Script {
    pub(crate) fn subscribe(&mut self) {
        let (at, wall) = (self.now(), self.wall());
        self.machine
            .handle_stream(at, StreamChange::Subscribed { at, wall });
        self.drain();
    }

    pub(crate) fn stream_ends(&mut self, why: StreamEnd) {
        let at = self.now();
        self.machine.handle_stream(
            at,
            StreamChange::Ended {
                at,
                why,
                retry_at: at,
            },
        );
        self.drain();
    }

    pub(crate) fn event(
        &mut self,
        event: EventType,
        id: &str,
        sandbox: Option<Report>,
        containers: &[Report],
    ) {
        self.stamped(0, event, id, sandbox, containers);
    }

    /// An event with a timestamp this many milliseconds from now.
    pub(crate) fn stamped(
        &mut self,
        ms: i64,
        event: EventType,
        id: &str,
        sandbox: Option<Report>,
        containers: &[Report],
    ) {
        let mut event = RuntimeEvent::new(id, event);
        event.created_at = self.wall().as_nanos() + ms * 1_000_000;
        event.sandbox = sandbox;
        event.containers = containers.to_vec();
        self.deliver(event);
    }

    /// An event as it is, with any timestamp.
    pub(crate) fn deliver(&mut self, event: RuntimeEvent) {
        let (arrived, wall) = (self.now(), self.wall());
        self.machine.handle_event(
            arrived,
            Arrival {
                event,
                arrived,
                wall,
            },
        );
        self.drain();
        self.pass(1);
    }
}
