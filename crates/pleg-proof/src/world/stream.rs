//! From the runtime to the writer: the runtime's own queue and its subscribers, the wire, and the
//! product's queue between the reader and the writer.

use std::collections::VecDeque;

use pleg_core::{
    Arrival, CallErrorKind, EventType, Instant, Kept, Report, RuntimeEvent, StreamChange,
    StreamEnd, StreamObservation, WallTime,
};

use super::node::Availability;
use super::{Action, World, calls::format_reports};
use crate::assertions::{self, CheckResult};
use crate::checks::Input;
use crate::coverage::{CoverPoint, Coverage};
use crate::fault_profile::{MS, RuntimeKind, SECOND};
use crate::faults::Fault;
use crate::rng::Rng;
use crate::runtime::error;

/// The event queue of a runtime.
#[derive(Debug)]
pub(super) struct Channel {
    runtime: RuntimeKind,
    most: usize,
    /// containerd 2 discards held events after this time.
    hold: u64,
    /// Events held for the next subscriber, and when they were sent.
    held: VecDeque<(u64, RuntimeEvent)>,
    /// Subscribers that are gone without the runtime knowing.
    dead_subscribers: u32,
    /// There was a subscriber since the runtime started.
    served: bool,
}

impl Channel {
    /// A small queue with a short hold time, or both as in the real runtime.
    pub(super) const fn new(runtime: RuntimeKind, most: usize) -> Self {
        Self {
            runtime,
            most,
            hold: if most < 1000 { SECOND } else { 300 * SECOND },
            held: VecDeque::new(),
            dead_subscribers: 0,
            served: false,
        }
    }

    pub(super) fn stop_faults(&mut self) {
        self.dead_subscribers = 0;
    }

    pub(super) fn restarted(&mut self) {
        self.held.clear();
        (self.dead_subscribers, self.served) = (0, false);
    }

    pub(super) const fn subscriber_died(&mut self) {
        self.dead_subscribers += 1;
    }

    /// Sends an event. Returns it if the tested subscriber gets it. The flags: whether that one is
    /// subscribed, and whether there is a second subscriber.
    fn offer(
        &mut self,
        event: RuntimeEvent,
        now: u64,
        (is_subscribed, second_subscriber): (bool, bool),
        rng: &mut Rng,
        coverage: &mut Coverage,
    ) -> Option<RuntimeEvent> {
        match self.runtime {
            RuntimeKind::Containerd17 => {
                // Subscribers compete, and dead ones take their share.
                if self.dead_subscribers > 0 {
                    self.dead_subscribers -= 1;
                    coverage.fault(Fault::TakenByDeadSubscriber);
                    return None;
                }
                if second_subscriber && (!is_subscribed || rng.percent(50)) {
                    coverage.fault(Fault::TakenBySecondSubscriber);
                    return None;
                }
            }
            RuntimeKind::Containerd2 => {
                if !is_subscribed && self.dead_subscribers > 0 {
                    if rng.percent(50) {
                        coverage.fault(Fault::TakenByDeadSubscriber);
                        return None;
                    }
                    self.dead_subscribers = 0;
                }
                self.dead_subscribers = 0;
            }
            _ if !is_subscribed && self.served => {
                coverage.fault(Fault::SentWithoutSubscriber);
                return None;
            }
            _ => {}
        }
        if is_subscribed {
            return Some(event);
        }
        if self.runtime != RuntimeKind::Containerd2 && self.held.len() >= self.most {
            coverage.fault(Fault::QueueFull);
            return None;
        }
        self.held.push_back((now, event));
        None
    }

    /// Delivers the held events to a new subscriber.
    fn subscribed(&mut self, now: u64, coverage: &mut Coverage) -> Vec<RuntimeEvent> {
        self.served = true;
        let mut replayed = Vec::new();
        for (sent_at, event) in self.held.drain(..) {
            if self.runtime == RuntimeKind::Containerd2 && sent_at + self.hold < now {
                coverage.fault(Fault::BufferedTooLong);
            } else {
                coverage.fault(Fault::Replayed);
                replayed.push(event);
            }
        }
        replayed
    }
}

impl World {
    /// The runtime sends an event, `pause` after it has read the statuses.
    pub(super) fn send(&mut self, event: RuntimeEvent, pause: u64) {
        let (now, is_subscribed) = (self.now, self.stream.is_some());
        let second_subscriber = now < self.node.second_subscriber;
        let (rng, coverage) = (&mut self.rng.stream, &mut self.checks.coverage);
        let offered = is_subscribed.then(|| event.clone());
        let Some(event) = self.channel.offer(
            event,
            now,
            (is_subscribed, second_subscriber),
            rng,
            coverage,
        ) else {
            if let Some(event) = offered {
                self.losses.lose(&event, self.now);
            }
            return;
        };
        let Some(stream) = self.stream else { return };
        if now < self.node.silent || self.inject(Fault::Dropped, |d| &mut d.stream) {
            self.checks.trace.log(now, || {
                format!("   dropped: {:?} {}", event.event, event.id)
            });
            self.losses.lose(&event, self.now);
            return;
        }
        let mut at = now + pause;
        let slowest = *self.fault_profile.delay.end();
        at += self
            .rng
            .stream
            .between(*self.fault_profile.delay.start(), slowest)
            * MS;
        if self.inject(Fault::Late, |d| &mut d.stream) {
            at += self.rng.stream.between(0, 4000) * MS;
        }
        if self.inject(Fault::Reordered, |d| &mut d.stream) {
            at += self.rng.stream.between(1, 30) * MS;
        }
        let event = Box::new(event);
        if self.inject(Fault::Duplicated, |d| &mut d.stream) {
            let again = at + self.rng.stream.between(0, 50) * MS;
            self.at(again, Action::Arrive(stream, event.clone()));
        }
        self.at(at, Action::Arrive(stream, event));
    }

    pub(super) fn subscribe(&mut self) -> CheckResult {
        if self.node.availability(self.now) == Availability::Refused {
            self.checks.coverage.fault(Fault::NotInitialized);
            let why = StreamEnd::Refused(self.unavailable());
            let pause = self.rng.stream.between(50, 1000) * MS;
            return self.stream_ended(why, pause);
        }
        if self.node.availability(self.now) != Availability::Served {
            self.checks.coverage.fault(Fault::SilentSocket);
        }
        self.streams += 1;
        self.stream = Some(self.streams);
        (self.delivered, self.confirmed) = (false, false);
        let at = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks
            .trace
            .log(self.now, || format!("subscribed, wall {wall:?}"));
        if self.never_streams() {
            let over = self.now + self.rng.stream.between(1, 20) * MS;
            self.at(over, Action::NotOffered(self.streams));
        } else {
            let held = self.channel.subscribed(self.now, &mut self.checks.coverage);
            for event in held {
                let at = self.now + self.rng.stream.between(0, 5) * MS;
                self.at(at, Action::Arrive(self.streams, Box::new(event)));
            }
        }
        self.stream_changed(StreamChange::Subscribed { at, wall })
    }

    /// This runtime offers no stream; the next attempt is in a minute.
    pub(super) fn not_offered(&mut self, stream: u64) -> CheckResult {
        if self.stream != Some(stream) {
            return Ok(());
        }
        self.stream = None;
        let why = if self.plan.runtime == RuntimeKind::Unimplemented {
            self.checks.coverage.fault(Fault::Unimplemented);
            StreamEnd::NeverOffered
        } else {
            self.checks.coverage.fault(Fault::Disabled);
            StreamEnd::Disabled
        };
        self.stream_ended(why, 60 * SECOND)
    }

    /// The stream breaks.
    pub(super) fn disconnect(&mut self, why: &'static str) -> CheckResult {
        self.stream = None;
        self.checks.log(self.now, || why.to_owned());
        if self.node.is_up(self.now) {
            self.channel.subscriber_died();
        }
        let call_error = error(CallErrorKind::Unavailable);
        let why = match (self.delivered, self.plan.runtime.is_crio()) {
            (false, _) => StreamEnd::Cut(call_error),
            (true, true) => StreamEnd::Ended(None),
            (true, false) => StreamEnd::Ended(Some(call_error)),
        };
        let pause = self.rng.stream.between(0, 3000) * MS;
        self.stream_ended(why, pause)
    }

    fn stream_ended(&mut self, why: StreamEnd, pause: u64) -> CheckResult {
        let at = self.instant();
        let back = self.now + pause;
        self.losses.ended();
        self.at(back, Action::Subscribe);
        if let Some(point) = CoverPoint::ended(&why) {
            self.checks.coverage.hit(point);
        }
        self.checks
            .trace
            .log(self.now, || format!("stream: {why:?}"));
        let retry_at = Instant::from_nanos(back);
        self.stream_changed(StreamChange::Ended { at, why, retry_at })
    }

    /// The reader queues a change of the stream.
    fn stream_changed(&mut self, change: StreamChange) -> CheckResult {
        self.arrived.change(change);
        if self.waits_for_writer() {
            self.checks.coverage.hit(CoverPoint::ChangeWaits);
            return Ok(());
        }
        self.drain_queue()
    }

    /// Whether the writer is busy, so that what was queued waits for it.
    fn waits_for_writer(&mut self) -> bool {
        let behind = self.busy_until > self.now;
        if behind {
            if self.expected_health.behind.is_none() {
                self.expected_health.behind = Some(self.now);
                self.at(self.busy_until, Action::Drain);
            }
            self.reconciler.handle_backlog(self.instant(), true);
        }
        behind
    }

    /// The writer is told of a change of the stream.
    fn apply_change(&mut self, change: StreamChange) -> CheckResult {
        match &change {
            StreamChange::Subscribed { .. } => {
                self.expected_health.no_stream = None;
                self.losses.subscribed(self.now);
                self.checks.coverage.hit(CoverPoint::StreamUp);
                self.read_schedule.allow_list(self.now);
            }
            StreamChange::Ended { why, .. } => {
                if !matches!(why, StreamEnd::Refused(_)) {
                    self.read_schedule
                        .require_list(self.now, "the stream is lost");
                }
                self.losses.ended();
                self.expected_health.no_stream = Some((self.now, true));
            }
        }
        self.checks.set_input(Input::Stream);
        self.reconciler.handle_stream(self.instant(), change);
        self.drain()
    }

    pub(super) fn arrive(&mut self, event: RuntimeEvent) -> CheckResult {
        self.checks.coverage.events += 1;
        self.delivered = true;
        let arrived = self.instant();
        let wall = WallTime::from_nanos(self.wall());
        self.checks.trace.log(self.now, || {
            let statuses = event.sandbox.iter().chain(&event.containers);
            let statuses: Vec<Report> = statuses.cloned().collect();
            let reported = format_reports(&Ok(statuses));
            format!("event {:?} {} {reported}", event.event, event.id)
        });
        if self.inject(Fault::BusyWriter, |d| &mut d.stream) {
            let busy = self.now + self.rng.stream.between(1, 800) * MS;
            self.busy_until = self.busy_until.max(busy);
            self.checks.no_longer_urgent(None);
        }
        let behind = self.busy_until > self.now;
        if behind && matches!(event.event, EventType::Stopped | EventType::Deleted) {
            self.must_deliver.push((event.id.clone(), event.event));
        }
        let lost_before = self.arrived.counts().lost;
        let kept = self.arrived.event(Arrival {
            event,
            arrived,
            wall,
        });
        self.waiting += 1;
        let lost = self.arrived.counts().lost - lost_before;
        if lost > 0 {
            let (waiting, (_, ids)) = (self.waiting, self.plan.backlog);
            assertions::NOTHING_SKIPPED.holds(waiting > ids, || {
                format!("{lost} lost of {waiting} that waited, {ids} ids may")
            })?;
            self.checks.coverage.hit(CoverPoint::BacklogOverflowed);
            self.must_deliver.clear();
        }
        if kept == Kept::NotAll {
            return self.disconnect("too far behind");
        }
        if self.waits_for_writer() {
            return Ok(());
        }
        self.drain_queue()
    }

    /// The writer handles what is queued.
    pub(super) fn drain_queue(&mut self) -> CheckResult {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let now = self.instant();
        let mut taken = 0;
        while let Some(observation) = self.arrived.pop() {
            let arrival = match observation {
                StreamObservation::Change(change) => {
                    self.apply_change(change)?;
                    continue;
                }
                StreamObservation::Event(arrival) => arrival,
            };
            taken += 1;
            if !self.must_deliver.is_empty() {
                let delivered = (&arrival.event.id, arrival.event.event);
                self.must_deliver
                    .retain(|(id, what)| (id, *what) != delivered);
            }
            self.checks
                .event_received(&self.oracle, now, &arrival.event);
            self.losses.arrive(&arrival.event, self.now);
            self.checks.set_input(Input::Event);
            self.reconciler.handle_event(now, arrival);
            self.drain()?;
        }
        let joined = self.waiting.saturating_sub(taken) as u64;
        self.checks
            .coverage
            .hit_times(CoverPoint::JoinedInBacklog, joined);
        self.waiting = 0;
        self.expected_health.behind = None;
        let must_deliver = std::mem::take(&mut self.must_deliver);
        assertions::NOTHING_SKIPPED.holds(must_deliver.is_empty(), || {
            format!("{must_deliver:?} arrived and did not reach the writer")
        })?;
        self.reconciler.handle_backlog(now, false);
        Ok(())
    }
}
