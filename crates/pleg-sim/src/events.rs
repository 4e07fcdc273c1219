//! The event hub: one queue, many subscribers, and nobody told about what was lost.
//!
//! After containerd 2: every subscriber gets every event; each has a channel of 100, and the one
//! queue waits, without a time limit, for a subscriber that does not read, and with it everything
//! that wants to tell an event. While nobody subscribes, events are held for five minutes and
//! given to the first who does. A subscriber that went away is noticed only when it is sent
//! something. Touches tokio's channels and the clock; knows nothing of pods.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pleg_cri::v1::ContainerEventResponse;
use pleg_runtime::{clock::Clock, core::Instant};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::id::Dice;

/// What a subscriber may leave unread before everybody waits for it.
const BUFFER: usize = 100;
/// How long an event waits for a first subscriber.
const HOLD: Duration = Duration::from_secs(5 * 60);

pub(crate) type Event = Arc<ContainerEventResponse>;

/// How many there are, for tests and displays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Subscribers that the hub believes in, dead ones included.
    pub(crate) subscribers: usize,
    /// Events held for a first subscriber.
    pub(crate) held: usize,
}

#[derive(Debug)]
pub(crate) struct EventHub {
    /// Whoever has it is the one who publishes or subscribes; waiting is first come, first served.
    queue: Mutex<Queue>,
    counts: watch::Sender<Counts>,
    discarded: AtomicU64,
    stop: CancellationToken,
    clock: Clock,
}

#[derive(Debug)]
struct Queue {
    subscribers: Vec<Subscriber>,
    held: VecDeque<(Instant, Event)>,
    dice: Dice,
}

#[derive(Debug)]
struct Subscriber {
    channel: mpsc::Sender<Event>,
    /// Its stream has failed, which its own task found out.
    gone: CancellationToken,
    /// Events that went into its channel after it was gone.
    buried: usize,
}

impl EventHub {
    pub(crate) fn new(seed: u64, clock: Clock, stop: CancellationToken) -> Self {
        let queue = Queue {
            subscribers: Vec::new(),
            held: VecDeque::new(),
            dice: Dice::new(!seed),
        };
        Self {
            queue: Mutex::new(queue),
            counts: watch::Sender::new(Counts::default()),
            discarded: AtomicU64::new(0),
            stop,
            clock,
        }
    }

    pub(crate) fn counts(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// Held events that were thrown away because nobody came for them.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// Tells it to every subscriber, waiting for each that has no room; holds it if there is none.
    pub(crate) async fn publish(&self, event: ContainerEventResponse) {
        let event = Arc::new(event);
        let mut queue = self.queue.lock().await;
        let mut at = 0;
        while at < queue.subscribers.len() {
            if self.offer(&mut queue, at, &event).await {
                at += 1;
            } else {
                queue.subscribers.remove(at);
            }
        }
        if self.stop.is_cancelled() {
            return;
        }
        if queue.subscribers.is_empty() {
            self.discard_old(&mut queue);
            queue.held.push_back((self.clock.now(), event));
        }
        self.count(&queue);
    }

    /// Subscribes and passes events on to `out` until that fails, which shows only when there is
    /// one to pass on.
    pub(crate) async fn subscribe(&self, out: mpsc::Sender<Event>) {
        let (channel, mut events) = mpsc::channel(BUFFER);
        let gone = CancellationToken::new();
        let enter = self.enter(Subscriber {
            channel,
            gone: gone.clone(),
            buried: 0,
        });
        let pass_on = async move {
            while let Some(event) = events.recv().await {
                if out.send(event).await.is_err() {
                    break;
                }
            }
            gone.cancel();
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            _ = futures::future::join(enter, pass_on) => {}
        }
    }

    /// Gives a new subscriber what was held, and counts it in.
    async fn enter(&self, subscriber: Subscriber) {
        let mut queue = self.queue.lock().await;
        self.discard_old(&mut queue);
        // Whoever is there, dead ones included, keeps events from being held.
        queue.subscribers.push(subscriber);
        let newest = queue.subscribers.len() - 1;
        while let Some((since, event)) = queue.held.pop_front() {
            if !self.offer(&mut queue, newest, &event).await {
                queue.subscribers.remove(newest);
                queue.held.push_front((since, event));
                break;
            }
        }
        self.count(&queue);
    }

    /// Hands an event to one subscriber. False if it turns out to be gone.
    async fn offer(&self, queue: &mut Queue, at: usize, event: &Event) -> bool {
        let heads = queue.dice.below(2) == 0;
        let Some(subscriber) = queue.subscribers.get_mut(at) else {
            return false;
        };
        if subscriber.gone.is_cancelled() {
            // Its channel still has room, and Go's select takes either way: even odds, while there
            // is room, that the event is buried there.
            subscriber.buried += 1;
            return heads && subscriber.buried <= BUFFER;
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => true,
            sent = subscriber.channel.send(Arc::clone(event)) => sent.is_ok(),
            () = subscriber.gone.cancelled() => false,
        }
    }

    fn discard_old(&self, queue: &mut Queue) {
        let now = self.clock.now();
        while queue
            .held
            .front()
            .is_some_and(|(since, _)| now.since(*since) >= HOLD)
        {
            queue.held.pop_front();
            self.discarded.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self, queue: &Queue) {
        let counts = Counts {
            subscribers: queue.subscribers.len(),
            held: queue.held.len(),
        };
        self.counts.send_replace(counts);
    }
}
