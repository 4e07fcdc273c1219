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

use super::{Context, Delivery, Event};
use crate::id::Rng;

/// How many events a subscriber may leave unread before it blocks the runtime.
const BUFFER: usize = 100;
/// How long an event is kept while there is no subscriber.
const RETENTION: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(super) struct Broadcast {
    /// The lock serializes publishing and subscribing, in order of arrival.
    queue: Mutex<Queue>,
    context: Context,
}

#[derive(Debug)]
struct Queue {
    subscribers: Vec<Subscriber>,
    /// With the time of arrival.
    held: VecDeque<(Instant, Event)>,
    rng: Rng,
}

#[derive(Debug)]
struct Subscriber {
    channel: mpsc::Sender<Event>,
    /// The stream has failed, which the subscriber's task has noticed.
    disconnected: CancellationToken,
    /// The number of events that were sent to the channel after the stream failed.
    sent_after_failure: usize,
}

impl Broadcast {
    pub(super) fn new(context: Context) -> Self {
        let queue = Queue {
            subscribers: Vec::new(),
            held: VecDeque::new(),
            rng: Rng::new(!context.seed),
        };
        Self {
            queue: Mutex::new(queue),
            context,
        }
    }

    /// Delivers the kept events to a new subscriber and registers it.
    async fn add(&self, subscriber: Subscriber) {
        let mut queue = self.queue.lock().await;
        self.discard_old(&mut queue);
        // Any registered subscriber, even a dead one, prevents events from being kept.
        queue.subscribers.push(subscriber);
        let newest = queue.subscribers.len() - 1;
        while let Some((since, event)) = queue.held.pop_front() {
            if !self.send(&mut queue, newest, &event).await {
                queue.subscribers.remove(newest);
                queue.held.push_front((since, event));
                break;
            }
        }
        self.count(&queue);
    }

    /// Sends an event to one subscriber. Returns false if the subscriber is disconnected.
    async fn send(&self, queue: &mut Queue, at: usize, event: &Event) -> bool {
        let sends = queue.rng.below(2) == 0;
        let Some(subscriber) = queue.subscribers.get_mut(at) else {
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
            () = self.context.stop.cancelled() => true,
            sent = subscriber.channel.send(Arc::clone(event)) => sent.is_ok(),
            () = subscriber.disconnected.cancelled() => false,
        }
    }

    fn discard_old(&self, queue: &mut Queue) {
        let now = self.context.now();
        let old = |(since, _): &(Instant, _)| now.duration_since(*since) >= RETENTION;
        while queue.held.front().is_some_and(old) {
            queue.held.pop_front();
            self.context.count(|counts| counts.discarded += 1);
        }
    }

    fn count(&self, queue: &Queue) {
        self.context.count(|counts| {
            counts.subscribers = queue.subscribers.len();
            counts.held = queue.held.len();
        });
    }
}

#[tonic::async_trait]
impl Delivery for Broadcast {
    /// Sends the event to every subscriber and waits for each. Keeps it if there is no subscriber.
    async fn publish(&self, event: Event) {
        let mut queue = self.queue.lock().await;
        let mut at = 0;
        while at < queue.subscribers.len() {
            if self.send(&mut queue, at, &event).await {
                at += 1;
            } else {
                queue.subscribers.remove(at);
            }
        }
        if self.context.stop.is_cancelled() {
            return;
        }
        if queue.subscribers.is_empty() {
            self.discard_old(&mut queue);
            queue.held.push_back((self.context.now(), event));
        }
        self.count(&queue);
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
        let (channel, mut events) = mpsc::channel(BUFFER);
        let disconnected = CancellationToken::new();
        let add = self.add(Subscriber {
            channel,
            disconnected: disconnected.clone(),
            sent_after_failure: 0,
        });
        let forward = async move {
            while let Some(event) = events.recv().await {
                if out.send(event).await.is_err() {
                    break;
                }
            }
            disconnected.cancel();
        };
        tokio::select! {
            () = self.context.stop.cancelled() => {}
            _ = futures::future::join(add, forward) => {}
        }
    }
}
