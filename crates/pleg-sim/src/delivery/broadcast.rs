//! One queue, and every subscriber gets every event: containerd 2.
//!
//! Every subscriber has a channel with a capacity of 100. The queue waits without a time limit for
//! a subscriber that does not read, and so does everything that publishes an event. While there is
//! no subscriber, events are kept for five minutes and delivered to the next subscriber. A
//! subscriber that disconnected is noticed only when an event is sent to it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Context, Event};
use crate::id::Rng;

/// The number of events that a subscriber may leave unread before it blocks the runtime.
const BUFFER: usize = 100;
/// The time for which an event is kept while there is no subscriber.
const RETENTION: Duration = Duration::from_secs(5 * 60);

/// The lock serializes publishing and subscribing, in order of arrival.
pub(super) struct Broadcast(Mutex<Queue>);

struct Queue {
    subscribers: Vec<Subscriber>,
    /// With the time of arrival.
    held: VecDeque<(Instant, Event)>,
    rng: Rng,
}

struct Subscriber {
    channel: mpsc::Sender<Event>,
    /// The stream has failed, which the subscriber's task has noticed.
    disconnected: CancellationToken,
    /// The number of events that were sent to the channel after the stream failed.
    sent_after_failure: usize,
}

impl Broadcast {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(Queue {
            subscribers: Vec::new(),
            held: VecDeque::new(),
            rng: Rng::new(!seed),
        }))
    }

    /// Sends the event to every subscriber and waits for each. Keeps it if there is no subscriber.
    pub(super) async fn publish(&self, event: Event, context: &Context) {
        let mut queue = self.0.lock().await;
        let mut at = 0;
        while at < queue.subscribers.len() {
            if queue.send(at, &event).await {
                at += 1;
            } else {
                queue.subscribers.remove(at);
            }
        }
        if queue.subscribers.is_empty() {
            let now = queue.discard_old(context);
            queue.held.push_back((now, event));
        }
        queue.count(context);
    }

    pub(super) async fn serve(&self, out: mpsc::Sender<Event>, context: &Context) {
        let (channel, mut events) = mpsc::channel(BUFFER);
        let disconnected = CancellationToken::new();
        let add = self.add(
            Subscriber {
                channel,
                disconnected: disconnected.clone(),
                sent_after_failure: 0,
            },
            context,
        );
        let forward = async move {
            while let Some(event) = events.recv().await {
                if out.send(event).await.is_err() {
                    break;
                }
            }
            disconnected.cancel();
        };
        futures::future::join(add, forward).await;
    }

    /// Registers a new subscriber and delivers the kept events to it.
    async fn add(&self, subscriber: Subscriber, context: &Context) {
        let mut queue = self.0.lock().await;
        queue.discard_old(context);
        // Any registered subscriber, even a dead one, prevents events from being kept.
        queue.subscribers.push(subscriber);
        let newest = queue.subscribers.len() - 1;
        while let Some((since, event)) = queue.held.pop_front() {
            if !queue.send(newest, &event).await {
                queue.subscribers.remove(newest);
                queue.held.push_front((since, event));
                break;
            }
        }
        queue.count(context);
    }
}

impl Queue {
    /// Sends an event to one subscriber. Returns false if the subscriber is disconnected.
    async fn send(&mut self, at: usize, event: &Event) -> bool {
        let sends = self.rng.below(2) == 0;
        let Some(subscriber) = self.subscribers.get_mut(at) else {
            return false;
        };
        if subscriber.disconnected.is_cancelled() {
            // The channel may still have capacity, and Go's select picks a ready case at random. In
            // half of the cases, the event is sent to the channel and lost.
            subscriber.sent_after_failure += 1;
            return sends && subscriber.sent_after_failure <= BUFFER;
        }
        tokio::select! {
            biased;
            sent = subscriber.channel.send(Arc::clone(event)) => sent.is_ok(),
            () = subscriber.disconnected.cancelled() => false,
        }
    }

    /// Discards the events that were kept for too long. Returns the present time.
    fn discard_old(&mut self, context: &Context) -> Instant {
        let now = context.clock.tokio(context.clock.now());
        let old = |(since, _): &(Instant, _)| now.duration_since(*since) >= RETENTION;
        while self.held.front().is_some_and(old) {
            self.held.pop_front();
            context.count(|counts| counts.discarded += 1);
        }
        now
    }

    fn count(&self, context: &Context) {
        context.count(|counts| {
            counts.subscribers = self.subscribers.len();
            counts.held = self.held.len();
        });
    }
}
