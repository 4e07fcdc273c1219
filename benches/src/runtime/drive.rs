//! Applies the changes of a plan at a fixed rate. A slow subject does not reduce the rate, except when
//! its channel is full (open loop).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pleg_core::Instant;
use tokio::sync::mpsc::error::TrySendError;

use super::{Settings, Shared, lock};
use crate::node::{Changes, ExpectedPod, Plan, PlannedChange, Pods, apply};
use crate::protocol::{Play, Played, PodChange, RuntimeAnswer};
use crate::random::Random;

/// The resolution of the timer. An event that is later than this was delayed by a slow subscriber; its
/// timestamp is the time at which it was due (otherwise: coordinated omission).
const TIMER_RESOLUTION: Duration = Duration::from_millis(2);

pub(super) struct Driver {
    shared: Arc<Shared>,
    settings: Settings,
    plan: Plan,
    played: u64,
    history: History,
}

/// The changes of the last plan.
#[derive(Default)]
struct History {
    before: Pods,
    events: Vec<PlannedChange>,
    /// The time of each change.
    timestamps: Vec<i64>,
}

/// Delayed events by due time and index, as encoded at the time of the change.
type Delayed = BTreeMap<(Instant, usize), Bytes>;

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, settings: &Settings) -> Self {
        Self {
            shared,
            settings: settings.clone(),
            plan: Plan::default(),
            played: 0,
            history: History::default(),
        }
    }

    pub(super) fn plan(&mut self, changes: Changes) -> RuntimeAnswer {
        self.played += 1;
        let seed = self.settings.seed ^ (self.played << 32);
        let before = lock(&self.shared.table).pods().clone();
        self.plan = Plan::new(changes, &before, seed);
        self.history = History {
            before,
            ..History::default()
        };
        RuntimeAnswer::Planned {
            events: self.plan.events.len() as u64,
            expected: crate::node::expected_pods(&self.plan.after),
        }
    }

    /// Applies the whole plan at once, without events.
    pub(super) fn apply_without_events(&mut self) {
        let now = self.shared.now();
        let mut table = lock(&self.shared.table);
        for planned in self.plan.events.drain(..) {
            table.apply(&planned, now);
            self.history.timestamps.push(now);
            self.history.events.push(planned);
        }
    }

    pub(super) fn history(&self) -> RuntimeAnswer {
        let mut pods = self.history.before.clone();
        let (mut before, mut changes) = (BTreeMap::new(), Vec::new());
        let events = self.history.events.iter();
        for (PlannedChange { pod, change, .. }, &at) in events.zip(&self.history.timestamps) {
            let was = pods.get(pod).map(ExpectedPod::of);
            apply(&mut pods, *pod, change, at);
            let now = pods.get(pod).map(ExpectedPod::of);
            let Some(of) = was.as_ref().or(now.as_ref()) else {
                continue;
            };
            let removed = ExpectedPod::removed(&of.uid);
            before
                .entry(*pod)
                .or_insert_with(|| was.clone().unwrap_or_else(|| removed.clone()));
            changes.push(PodChange {
                at,
                pod: now.unwrap_or(removed),
            });
        }
        RuntimeAnswer::History {
            before: before.into_values().collect(),
            changes,
        }
    }

    pub(super) async fn play(&mut self, play: Play) -> RuntimeAnswer {
        let Play { rate, faults, .. } = play;
        let cut_every = (play.cut_every > 0).then(|| Duration::from_millis(play.cut_every));
        let events = std::mem::take(&mut self.plan.events);
        let mut timestamps = Vec::with_capacity(events.len());
        let mut random = Random::new(self.settings.seed ^ 0xfa017);
        let mut faulty = |per_million: u32| random.below(1_000_000) < per_million as usize;
        let mut delays = Random::new(self.settings.seed ^ 0x1a7e);
        let mut late_by = |most: u32| delays.below(most as usize + 1) as u64;
        let (mut late, mut played) = (Delayed::new(), Played::default());
        let start = self.shared.clock.now();
        let mut cut = cut_every.map(|every| start.after(every));
        for (n, planned) in events.iter().enumerate() {
            // An event that is on time may have a later timestamp than the next one, which was due.
            let now = self.due(start, n, rate).await;
            let now = now.max(played.last);
            timestamps.push(now);
            lock(&self.shared.table).apply(planned, now);
            played.last = now;
            if n == 0 {
                played.first = now;
            }
            if let Some(due) = cut.filter(|due| self.shared.clock.now() >= *due) {
                self.shared.cut();
                cut = cut_every.map(|every| due.after(every));
            }
            let by = self.shared.clock.now();
            self.send_delayed(&mut late, by, &mut played).await;
            if !planned.reported || faulty(faults.dropped) {
                continue;
            }
            let event = planned.event.fill(&timestamps);
            if faulty(faults.late) {
                let by = Duration::from_millis(late_by(faults.late_ms));
                late.insert((self.shared.clock.now().after(by), n), event);
                continue;
            }
            let times = if faulty(faults.duplicated) { 2 } else { 1 };
            for _ in 0..times {
                self.send(event.clone(), &mut played).await;
            }
        }
        while let Some((&(due, _), _)) = late.first_key_value() {
            self.shared.clock.sleep_until(due).await;
            self.send_delayed(&mut late, due, &mut played).await;
        }
        (self.history.events, self.history.timestamps) = (events, timestamps);
        RuntimeAnswer::Played(played)
    }

    /// Waits until event `n` is due. Returns the time of its change.
    async fn due(&self, start: Instant, n: usize, rate: f64) -> i64 {
        let clock = self.shared.clock;
        if rate > 0.0 {
            let due = start.after(Duration::from_secs_f64(n as f64 / rate));
            let on_time = clock.now() < due;
            clock.sleep_until(due).await;
            let late = clock.now().since(due);
            if !on_time && late > TIMER_RESOLUTION {
                return self.shared.now() - i64::try_from(late.as_nanos()).unwrap_or(i64::MAX);
            }
        }
        self.shared.now()
    }

    /// Sends the delayed events that are due at `by`.
    async fn send_delayed(&self, late: &mut Delayed, by: Instant, played: &mut Played) {
        while let Some(first) = late.first_entry()
            && first.key().0 <= by
        {
            self.send(first.remove(), played).await;
        }
    }

    async fn send(&self, frame: Bytes, played: &mut Played) {
        let began = self.shared.clock.now();
        played.dropped += publish(&self.shared, frame).await;
        let blocked = self.shared.clock.now().nanos_since(began);
        played.blocked = played.blocked.max(blocked);
        played.sent += 1;
    }
}

/// Sends a frame to every subscriber. Waits for a subscriber that does not read, or drops the frame if
/// the queue is full. Returns the number of dropped frames. Removes closed subscribers.
pub(super) async fn publish(shared: &Shared, frame: Bytes) -> u64 {
    let subscribers = lock(&shared.subscribers).clone();
    let mut dropped = 0;
    for subscriber in subscribers {
        let frame = Ok(frame.clone());
        let is_closed = if shared.dropping {
            match subscriber.try_send(frame) {
                Ok(()) => false,
                Err(TrySendError::Full(_)) => {
                    dropped += 1;
                    false
                }
                Err(TrySendError::Closed(_)) => true,
            }
        } else {
            subscriber.send(frame).await.is_err()
        };
        if is_closed {
            lock(&shared.subscribers).retain(|s| !s.is_closed());
        }
    }
    if shared.dropping {
        // This path never waits, so it must yield to the tasks that empty the queues.
        tokio::task::yield_now().await;
    }
    dropped
}
