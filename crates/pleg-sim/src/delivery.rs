//! The delivery of events to subscribers, as each kind of runtime does it.
//!
//! [`Delivery::publish`] takes an event and waits only where the runtime would. Each call of
//! `GetContainerEvents` is one [`Delivery::serve`]. The channel `out` represents the client's
//! connection: a send waits while the client does not read, and fails after the client has
//! disconnected. So a disconnect is noticed only when there is an event to send.
//!
//! **containerd 1.7, and CRI-O up to 1.27:** one queue of 1000 events for all subscribers, a Go channel. The runtime
//! never waits: it drops an event if the queue is full. Queued events do not expire. Subscribers wait in order, and
//! each event goes only to the first subscriber that waits. The handler of a call does not check whether its client is
//! still connected, so a dead subscriber waits like any other, and the event that reveals the disconnect is lost. The
//! knob `second_subscriber` adds a subscriber that takes a share of the events before they are queued, so its share
//! does not depend on the other subscribers.
//!
//! **CRI-O since 1.28:** the same queue, but the first subscriber starts one task, which sends each event to
//! each subscriber in turn. A subscriber that does not read delays all others until the queue is full. After
//! the last subscriber has disconnected, the task keeps running and drops the events.
//!
//! **containerd 2:** every subscriber gets every event, and has a channel with a capacity of 100. The runtime
//! waits without a time limit for a subscriber that does not read. While there is no subscriber, events wait
//! for five minutes and are delivered to the next subscriber.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use pleg_cri::v1::ContainerEventResponse;
use pleg_node_model::Delivery as Kind;
use tokio::{
    sync::{Mutex as FairMutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Engine, lock},
    faults::SECOND_SUBSCRIBER,
    id::Rng,
};

/// The queue capacity of containerd 1.7 and CRI-O.
const CAPACITY: usize = 1000;
/// The number of events that a subscriber of containerd 2 may leave unread before it blocks the runtime.
const BUFFER: usize = 100;
/// The time for which containerd 2 keeps an event while there is no subscriber.
const RETENTION: Duration = Duration::from_secs(5 * 60);

pub(crate) type Event = Arc<ContainerEventResponse>;

/// The numbers of subscribers and of undelivered events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Subscribers that the runtime has not removed, including dead ones.
    pub subscribers: usize,
    /// Events that wait for a subscriber.
    pub queued: usize,
    /// Events that the runtime discarded because no subscriber came within five minutes.
    pub discarded: u64,
    /// Events that the runtime dropped because the queue was full or there was no subscriber.
    pub dropped: u64,
}

/// Event delivery for one process of the runtime.
pub(crate) struct Delivery {
    kind: Kind,
    /// The queue of containerd 1.7 and CRI-O.
    queue: mpsc::Sender<Event>,
    /// The other end of `queue`. The handlers of `GetContainerEvents` lock it in the order in which they ask for it.
    receiver: FairMutex<mpsc::Receiver<Event>>,
    /// The subscribers of CRI-O since 1.28, in the order of subscription.
    subscribers: Mutex<Vec<mpsc::Sender<Event>>>,
    /// The state of containerd 2. The lock admits one `publish_to_all` or `add` at a time, in order.
    broadcast: FairMutex<Broadcast>,
    stop: CancellationToken,
}

impl Delivery {
    pub(crate) fn new(kind: Kind, seed: u64, stop: CancellationToken) -> Self {
        let (queue, receiver) = mpsc::channel(CAPACITY);
        let broadcast = Broadcast {
            subscribers: Vec::new(),
            waiting: VecDeque::new(),
            rng: Rng::new(!seed),
        };
        Self {
            kind,
            queue,
            receiver: FairMutex::new(receiver),
            subscribers: Mutex::default(),
            broadcast: FairMutex::new(broadcast),
            stop,
        }
    }

    /// Updates the counters, unless the process has ended, because the next process uses the same counters.
    fn count(&self, engine: &Engine, update: impl FnOnce(&mut Counts)) {
        engine.counts.send_if_modified(|counts| {
            let before = *counts;
            if !self.stop.is_cancelled() {
                update(counts);
            }
            *counts != before
        });
    }

    /// Takes an event that the runtime sends, and passes it to subscribers or to the queue.
    pub(crate) async fn publish(&self, event: Event, engine: &Engine) {
        if self.kind == Kind::AllOrQueued {
            let publishing = self.publish_to_all(event, engine);
            self.stop.run_until_cancelled(publishing).await;
            return;
        }
        if self.kind == Kind::OneSubscriber && engine.faults().fires(SECOND_SUBSCRIBER) {
            return;
        }
        let full = self.queue.try_send(event).is_err();
        self.count(engine, |counts| {
            counts.queued = CAPACITY.saturating_sub(self.queue.capacity());
            counts.dropped += u64::from(full);
        });
    }

    /// Sends events to `out` until a send fails or the process ends.
    pub(crate) async fn serve(&self, out: mpsc::Sender<Event>, engine: &Engine) {
        let serving = async {
            match self.kind {
                Kind::AllOrQueued => self.serve_all_and_waiting(out, engine).await,
                Kind::AllOrLost => self.drain(out, engine).await,
                _ => self.serve_next(out, engine).await,
            }
        };
        self.stop.run_until_cancelled(serving).await;
        if self.stop.is_cancelled() {
            // The event streams end when the runtime's process ends.
            lock(&self.subscribers).clear();
        }
    }

    // === containerd 1.7, and CRI-O up to 1.27 ===

    async fn serve_next(&self, out: mpsc::Sender<Event>, engine: &Engine) {
        self.count(engine, |counts| counts.subscribers += 1);
        loop {
            let mut receiver = self.receiver.lock().await;
            let event = receiver.recv().await;
            self.count(engine, |counts| counts.queued = receiver.len());
            drop(receiver);
            let Some(event) = event else {
                return;
            };
            if out.send(event).await.is_err() {
                break;
            }
        }
        self.count(engine, |counts| counts.subscribers -= 1);
    }

    // === CRI-O since 1.28 ===

    async fn drain(&self, out: mpsc::Sender<Event>, engine: &Engine) {
        lock(&self.subscribers).push(out);
        self.count(engine, |counts| counts.subscribers += 1);
        // The first subscriber's task keeps this lock and sends to all subscribers. Later subscribers' tasks end here.
        let Ok(mut receiver) = self.receiver.try_lock() else {
            return;
        };
        while let Some(event) = receiver.recv().await {
            self.count(engine, |counts| counts.queued = receiver.len());
            let current = lock(&self.subscribers).clone();
            let mut delivered = false;
            for subscriber in current {
                if subscriber.send(Arc::clone(&event)).await.is_ok() {
                    delivered = true;
                } else {
                    lock(&self.subscribers).retain(|s| !s.same_channel(&subscriber));
                    self.count(engine, |counts| counts.subscribers -= 1);
                }
            }
            self.count(engine, |counts| counts.dropped += u64::from(!delivered));
        }
    }

    // === containerd 2 ===

    /// Sends the event to every subscriber and waits for each. Without a subscriber, the event waits.
    async fn publish_to_all(&self, event: Event, engine: &Engine) {
        let mut broadcast = self.broadcast.lock().await;
        let mut at = 0;
        while at < broadcast.subscribers.len() {
            if broadcast.send(at, &event).await {
                at += 1;
            } else {
                broadcast.subscribers.remove(at);
            }
        }
        if broadcast.subscribers.is_empty() {
            let now = self.discard_old(&mut broadcast, engine);
            broadcast.waiting.push_back((now, event));
        }
        self.count_all(&broadcast, engine);
    }

    async fn serve_all_and_waiting(&self, out: mpsc::Sender<Event>, engine: &Engine) {
        let (channel, mut events) = mpsc::channel(BUFFER);
        let disconnected = CancellationToken::new();
        let subscriber = Subscriber {
            channel,
            disconnected: disconnected.clone(),
            sent_after_failure: 0,
        };
        let forward = async move {
            while let Some(event) = events.recv().await {
                if out.send(event).await.is_err() {
                    break;
                }
            }
            disconnected.cancel();
        };
        futures::future::join(self.add(subscriber, engine), forward).await;
    }

    /// Registers a new subscriber and delivers the waiting events to it.
    async fn add(&self, subscriber: Subscriber, engine: &Engine) {
        let mut broadcast = self.broadcast.lock().await;
        self.discard_old(&mut broadcast, engine);
        // While a subscriber is registered, even a dead one, no event waits.
        broadcast.subscribers.push(subscriber);
        let newest = broadcast.subscribers.len() - 1;
        while let Some((since, event)) = broadcast.waiting.pop_front() {
            if !broadcast.send(newest, &event).await {
                broadcast.subscribers.remove(newest);
                broadcast.waiting.push_front((since, event));
                break;
            }
        }
        self.count_all(&broadcast, engine);
    }

    /// Discards the events that have waited for a subscriber for too long. Returns the current time.
    fn discard_old(&self, broadcast: &mut Broadcast, engine: &Engine) -> Instant {
        let now = engine.instant();
        let old = |(since, _): &(Instant, _)| now.duration_since(*since) >= RETENTION;
        while broadcast.waiting.front().is_some_and(old) {
            broadcast.waiting.pop_front();
            self.count(engine, |counts| counts.discarded += 1);
        }
        now
    }

    fn count_all(&self, broadcast: &Broadcast, engine: &Engine) {
        self.count(engine, |counts| {
            counts.subscribers = broadcast.subscribers.len();
            counts.queued = broadcast.waiting.len();
        });
    }
}

struct Broadcast {
    subscribers: Vec<Subscriber>,
    /// The events that wait for a subscriber, each with the time at which it began to wait.
    waiting: VecDeque<(Instant, Event)>,
    rng: Rng,
}

struct Subscriber {
    channel: mpsc::Sender<Event>,
    /// The subscriber's task cancels this token when it cannot send an event on the subscriber's stream.
    disconnected: CancellationToken,
    /// The number of events that were sent to the channel after the stream failed.
    sent_after_failure: usize,
}

impl Broadcast {
    /// Sends an event to one subscriber. Returns false if the subscriber is disconnected.
    async fn send(&mut self, at: usize, event: &Event) -> bool {
        let sends = self.rng.below(2) == 0;
        let Some(subscriber) = self.subscribers.get_mut(at) else {
            return false;
        };
        if subscriber.disconnected.is_cancelled() {
            // Go's select picks one of the ready cases at random. While the channel has capacity, every event has an
            // even chance to be sent to the channel and lost.
            subscriber.sent_after_failure += 1;
            return sends && subscriber.sent_after_failure <= BUFFER;
        }
        tokio::select! {
            biased;
            sent = subscriber.channel.send(Arc::clone(event)) => sent.is_ok(),
            () = subscriber.disconnected.cancelled() => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mode::Mode, process::Phase, profile::RuntimeProfile};

    /// While tokio's time is paused, a timeout of this length elapses as soon as every task is idle.
    const IDLE: Duration = Duration::from_millis(1);

    fn engine(mode: Mode, version: &str, seed: u64) -> Arc<Engine> {
        let profile = RuntimeProfile::of(mode, version);
        let engine = Engine::new(profile, Phase::Serving, seed, Arc::new(|| 0));
        Arc::new(engine)
    }

    /// The receiving end of a new subscriber. If the receiver is dropped, the subscriber is dead.
    async fn subscribe(engine: &Arc<Engine>) -> mpsc::Receiver<Event> {
        let (out, events) = mpsc::channel(1);
        let (engine, process) = (Arc::clone(engine), engine.process());
        tokio::spawn(async move { process.delivery.serve(out, &engine).await });
        idle().await;
        events
    }

    async fn idle() {
        let never = std::future::pending::<()>();
        assert!(tokio::time::timeout(IDLE, never).await.is_err());
    }

    /// Publishes events with these numbers.
    async fn publish(engine: &Engine, numbers: impl IntoIterator<Item = i64>) {
        for created_at in numbers {
            let event = Arc::new(ContainerEventResponse {
                created_at,
                ..Default::default()
            });
            engine.process().delivery.publish(event, engine).await;
        }
    }

    /// The numbers (`created_at`) of the events that arrive until every task is idle.
    async fn received(events: &mut mpsc::Receiver<Event>) -> Vec<i64> {
        let mut all = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(IDLE, events.recv()).await {
            all.push(event.created_at);
        }
        all
    }

    /// The counts of subscribers, waiting events, dropped events and discarded events.
    fn counts(engine: &Engine) -> [u64; 4] {
        let c = *engine.counts.borrow();
        let queued = c.queued as u64;
        [c.subscribers as u64, queued, c.dropped, c.discarded]
    }

    fn taken(engine: &Engine) -> usize {
        let faults = engine.faults();
        let taken = faults.fired.get(SECOND_SUBSCRIBER).copied();
        usize::try_from(taken.unwrap_or_default()).unwrap()
    }

    /// Each line has a title, runtimes, `:` and steps. Events are numbered. The step `a 0 2` asserts that subscriber a
    /// gets events 0 and 2, and the step `counts` asserts what the function `counts` returns.
    const DELIVERIES: &str = "\
each event goes to one subscriber, containerd-1.7 1.7.24, crio 1.27.5: subscribe a, subscribe b, publish 0..4, \
a 0 2, b 1 3
each dead subscriber loses one event, containerd-1.7 1.7.24: subscribe a, subscribe b, subscribe c, leave a, \
leave b, leave c, subscribe d, counts 4 0 0 0, publish 0..4, d 3, counts 1 0 0 0
a full queue drops new events, containerd-1.7 1.7.24, crio 1.27.5: publish 0..1002, counts 0 1000 2 0, \
wait 259200, subscribe a, a 0..1000, counts 1 0 2 0
everyone gets each event, crio 1.28.0: publish 0..3, counts 0 3 0 0, subscribe a, a 0..3, subscribe b, publish 3, \
a 3, b 3, leave a, leave b, publish 4..9, counts 0 0 5 0, subscribe c, publish 9, c 9
events wait five minutes, containerd-2 v2.4.0: publish 0..2, wait 299, publish 2..4, counts 0 4 0 0, wait 2, \
subscribe a, a 2 3, counts 1 0 0 2, subscribe b, publish 4, a 4, b 4, counts 2 0 0 2";

    #[tokio::test(start_paused = true)]
    async fn delivered_and_lost_events_depend_on_runtime() {
        for row in DELIVERIES.lines() {
            let (runtimes, steps) = row.split_once(": ").unwrap();
            for runtime in runtimes.split(", ").skip(1) {
                let (mode, version) = runtime.split_once(' ').unwrap();
                let engine = engine(mode.parse().unwrap(), version, 0);
                let mut subscribers = std::collections::HashMap::new();
                for step in steps.split(", ") {
                    let (command, rest) = step.split_once(' ').unwrap();
                    let numbers = rest.split(' ').flat_map(|number| {
                        let (from, to) = number.split_once("..").unwrap_or((number, ""));
                        let from = from.parse().unwrap_or_default();
                        from..to.parse().unwrap_or(from + 1)
                    });
                    let numbers: Vec<i64> = numbers.collect();
                    match command {
                        "subscribe" => drop(subscribers.insert(rest, subscribe(&engine).await)),
                        "leave" => drop(subscribers.remove(rest)),
                        "publish" => publish(&engine, numbers).await,
                        "wait" => {
                            tokio::time::advance(Duration::from_secs(numbers[0] as u64)).await;
                        }
                        "counts" => {
                            idle().await;
                            let counts = counts(&engine).map(u64::cast_signed);
                            assert_eq!(numbers, counts, "{row}");
                        }
                        name => {
                            let events = subscribers.get_mut(name).unwrap();
                            assert_eq!(received(events).await, numbers, "{row}");
                        }
                    }
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn second_subscriber_knob_takes_a_share_of_events() {
        for (mode, version) in [(Mode::Containerd17, "1.7.24"), (Mode::Crio, "1.27.5")] {
            let engine = engine(mode, version, 0);
            engine.set_knobs(&["second_subscriber=50%"]).unwrap();
            let mut events = subscribe(&engine).await;
            publish(&engine, 0..400).await;
            let left = received(&mut events).await.len();
            assert_eq!(left + taken(&engine), 400, "one subscriber per event");
            assert!((140..260).contains(&left), "{left}");
            assert_eq!(counts(&engine), [1, 0, 0, 0], "the knob is not counted");
            drop(events);
            // Without a percentage, the knob takes every event, so no event is queued for the dead subscriber.
            engine.set_knobs(&["second_subscriber"]).unwrap();
            publish(&engine, 0..6).await;
            assert_eq!(taken(&engine), 400 - left + 6);
            assert_eq!(counts(&engine), [1, 0, 0, 0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn crio_slow_subscriber_delays_all_other_subscribers() {
        let engine = engine(Mode::Crio, "1.28.0", 0);
        let slow = subscribe(&engine).await;
        let mut live = subscribe(&engine).await;
        // The runtime itself never waits.
        for n in 0..1100 {
            publish(&engine, n..n + 1).await;
            tokio::task::yield_now().await;
        }
        let first = received(&mut live).await.len();
        let [_, queued, dropped, _] = counts(&engine);
        assert!(first < 10 && queued == 1000, "{first} {queued}");
        assert!((90..100).contains(&dropped), "{dropped}");
        // After the slow subscriber has left, the live subscriber gets the remaining events.
        drop(slow);
        assert!(received(&mut live).await.len() as u64 >= queued);
    }

    /// After the event that reveals the disconnect, the channel still has capacity, and the runtime picks at random
    /// between sending to the channel and noticing the disconnect. So the number of lost events varies.
    #[tokio::test(start_paused = true)]
    async fn containerd_2_dead_subscriber_loses_varying_number_of_events() {
        let mut lost = std::collections::BTreeSet::new();
        for seed in 0..16 {
            let engine = engine(Mode::Containerd2, "v2.4.0", seed);
            drop(subscribe(&engine).await);
            let mut sent = 0;
            while counts(&engine)[1] == 0 {
                assert_eq!(counts(&engine)[0], 1, "the runtime has not noticed");
                publish(&engine, sent..sent + 1).await;
                idle().await;
                sent += 1;
                assert!(sent < 50, "never noticed");
            }
            assert_eq!(counts(&engine), [0, 1, 0, 0]);
            lost.insert(sent - 1);
            // A live subscriber loses no event if another subscriber is dead.
            drop(subscribe(&engine).await);
            let mut alive = subscribe(&engine).await;
            publish(&engine, 100..103).await;
            assert_eq!(received(&mut alive).await, [100, 101, 102]);
        }
        assert!(lost.len() > 2 && !lost.contains(&0), "{lost:?}");
    }

    /// A subscriber that does not read blocks, without a time limit, every task that sends an event.
    #[tokio::test(start_paused = true)]
    async fn containerd_2_waits_for_subscriber_that_does_not_read() {
        let engine = engine(Mode::Containerd2, "v2.4.0", 0);
        let mut slow = subscribe(&engine).await;
        let hour = Duration::from_secs(3600);
        let mut sent = 0;
        let blocked = loop {
            let mut publishing = Box::pin(publish(&engine, sent..sent + 1));
            let published = tokio::time::timeout(hour, &mut publishing).await;
            if published.is_err() {
                break publishing;
            }
            sent += 1;
        };
        assert_eq!(sent, BUFFER as i64 + 2, "two are in transit");
        let reading = async {
            for n in 0..=sent {
                assert_eq!(slow.recv().await.map(|event| event.created_at), Some(n));
            }
        };
        let both = futures::future::join(blocked, reading);
        tokio::time::timeout(hour, both).await.unwrap();
    }
}
