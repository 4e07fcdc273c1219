//! What happens on the node, at its own pace: a subject that is slow does not slow it down, but for
//! what waits in its channel (open loop).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pleg_core::Instant;
use tokio::sync::mpsc::error::TrySendError;

use super::{Settings, Shared, lock};
use crate::node::{Plan, Planned, Pods, Truth, Work, apply};
use crate::protocol::{Faults, Happened, RuntimeAnswer};
use crate::random::Random;

/// The timer's grain. Who is later than this was held up, and what it tells happened when it was
/// due: otherwise a slow subject would hide its own slowness (coordinated omission).
const GRAIN: Duration = Duration::from_millis(2);

pub(super) struct Driver {
    shared: Arc<Shared>,
    settings: Settings,
    plan: Plan,
    played: u64,
    history: History,
}

/// What has happened last.
#[derive(Default)]
struct History {
    before: Pods,
    events: Vec<Planned>,
    /// When each of them happened.
    moments: Vec<i64>,
}

/// How a plan is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlayOptions {
    /// Events a second; 0 for as fast as they are taken.
    pub(super) rate: f64,
    /// What is wrong with how events are reported.
    pub(super) faults: Faults,
    /// After how long every connection is cut, again and again.
    pub(super) cut_every: Option<Duration>,
}

/// Events that are told late: when each is due, which it is, and the event as it was when it
/// happened.
type Late = BTreeMap<(Instant, usize), Bytes>;

/// What one play has come to.
#[derive(Default)]
struct Played {
    sent: u64,
    first: i64,
    last: i64,
    late: i64,
    blocked: i64,
    dropped: u64,
}

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

    pub(super) fn plan(&mut self, work: Work) -> RuntimeAnswer {
        self.played += 1;
        let seed = self.settings.seed ^ (self.played << 32);
        let before = lock(&self.shared.table).pods().clone();
        self.plan = Plan::new(work, &before, self.settings.profile, seed);
        self.history = History {
            before,
            ..History::default()
        };
        RuntimeAnswer::Planned {
            events: self.plan.events.len() as u64,
            truth: crate::node::truth(&self.plan.after),
        }
    }

    /// It all happens at once, and nobody is told.
    pub(super) fn happen_unreported(&mut self) {
        let now = self.shared.now();
        let mut table = lock(&self.shared.table);
        for planned in self.plan.events.drain(..) {
            table.happens(&planned, now);
            self.history.moments.push(now);
            self.history.events.push(planned);
        }
    }

    pub(super) fn history(&self) -> RuntimeAnswer {
        let mut pods = self.history.before.clone();
        let (mut before, mut changes) = (BTreeMap::new(), Vec::new());
        let events = self.history.events.iter();
        for (Planned { pod, change, .. }, &at) in events.zip(&self.history.moments) {
            let was = pods.get(pod).map(Truth::of);
            apply(&mut pods, *pod, change, at);
            let now = pods.get(pod).map(Truth::of);
            let Some(of) = was.as_ref().or(now.as_ref()) else {
                continue;
            };
            let nothing = Truth::nothing(&of.uid);
            before
                .entry(*pod)
                .or_insert_with(|| was.clone().unwrap_or_else(|| nothing.clone()));
            changes.push(Happened {
                at,
                pod: now.unwrap_or(nothing),
            });
        }
        RuntimeAnswer::History {
            before: before.into_values().collect(),
            changes,
        }
    }

    pub(super) async fn play(&mut self, options: PlayOptions) -> RuntimeAnswer {
        let PlayOptions { rate, faults, .. } = options;
        let events = std::mem::take(&mut self.plan.events);
        let mut moments = Vec::with_capacity(events.len());
        let mut random = Random::new(self.settings.seed ^ 0xfa017);
        let mut faulty = |per_million: u32| random.below(1_000_000) < per_million as usize;
        let mut delays = Random::new(self.settings.seed ^ 0x1a7e);
        let mut late_by = |most: u32| delays.below(most as usize + 1) as u64;
        let (mut late, mut played) = (Late::new(), Played::default());
        let start = self.shared.clock.now();
        let mut cut = options.cut_every.map(|every| start.after(every));
        for (n, planned) in events.iter().enumerate() {
            // What is on time may be stamped after what was due just after it.
            let now = self.due(start, n, rate, &mut played).await;
            let now = now.max(played.last);
            moments.push(now);
            lock(&self.shared.table).happens(planned, now);
            played.last = now;
            if n == 0 {
                played.first = now;
            }
            if let Some(due) = cut.filter(|due| self.shared.clock.now() >= *due) {
                self.shared.cut();
                cut = options.cut_every.map(|every| due.after(every));
            }
            let by = self.shared.clock.now();
            self.send_late(&mut late, by, &mut played).await;
            if !planned.reported || faulty(faults.dropped) {
                continue;
            }
            let event = planned.event.fill(&moments);
            if faulty(faults.late) {
                let by = Duration::from_millis(late_by(faults.late_ms));
                late.insert((self.shared.clock.now().after(by), n), event);
                continue;
            }
            let times = if faulty(faults.doubled) { 2 } else { 1 };
            for _ in 0..times {
                self.send(event.clone(), &mut played).await;
            }
        }
        while let Some((&(due, _), _)) = late.first_key_value() {
            self.shared.clock.sleep_until(due).await;
            self.send_late(&mut late, due, &mut played).await;
        }
        (self.history.events, self.history.moments) = (events, moments);
        let Played {
            sent,
            first,
            last,
            late,
            blocked,
            dropped,
        } = played;
        RuntimeAnswer::Played {
            sent,
            first,
            last,
            late,
            blocked,
            dropped,
        }
    }

    /// Waits until it is the turn of that event; the moment at which it happens.
    async fn due(&self, start: Instant, n: usize, rate: f64, played: &mut Played) -> i64 {
        let clock = self.shared.clock;
        if rate > 0.0 {
            let due = start.after(Duration::from_secs_f64(n as f64 / rate));
            let on_time = clock.now() < due;
            clock.sleep_until(due).await;
            let late = clock.now().since(due);
            let late_nanos = i64::try_from(late.as_nanos()).unwrap_or(i64::MAX);
            if on_time {
                played.late = played.late.max(late_nanos);
            } else if late > GRAIN {
                return self.shared.now() - late_nanos;
            }
        }
        self.shared.now()
    }

    /// Tells what is due by then of what is told late.
    async fn send_late(&self, late: &mut Late, by: Instant, played: &mut Played) {
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

/// To everyone, waiting for whoever does not read, or dropping what it has no room for: how often
/// that was. Those who are gone are forgotten.
pub(super) async fn publish(shared: &Shared, frame: Bytes) -> u64 {
    let subscribers = lock(&shared.subscribers).clone();
    let mut dropped = 0;
    for subscriber in subscribers {
        let frame = Ok(frame.clone());
        let is_gone = if shared.dropping {
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
        if is_gone {
            lock(&shared.subscribers).retain(|s| !s.is_closed());
        }
    }
    if shared.dropping {
        // Whoever waits for room gives those their turn who make it; this one never waits.
        tokio::task::yield_now().await;
    }
    dropped
}
