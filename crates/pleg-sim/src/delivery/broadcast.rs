//! One queue, many subscribers, each told everything: containerd 2.
//!
//! Every subscriber has a channel of 100, and the one queue waits, without a time limit, for one
//! that does not read, and with it everything that wants to tell an event. While nobody
//! subscribes, events are held for five minutes and given to the first who does. A subscriber
//! that went away is noticed only when it is sent something.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Delivery, Event, Surroundings};
use crate::id::Dice;

/// What a subscriber may leave unread before everybody waits for it.
const BUFFER: usize = 100;
/// How long an event waits for a first subscriber.
const HOLD: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(super) struct Broadcast {
    /// Whoever has it is the one who publishes or subscribes; waiting is first come, first served.
    queue: Mutex<Queue>,
    around: Surroundings,
}

#[derive(Debug)]
struct Queue {
    subscribers: Vec<Subscriber>,
    /// With the time of arrival.
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

impl Broadcast {
    pub(super) fn new(around: Surroundings) -> Self {
        let queue = Queue {
            subscribers: Vec::new(),
            held: VecDeque::new(),
            dice: Dice::new(!around.seed),
        };
        Self {
            queue: Mutex::new(queue),
            around,
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
            () = self.around.stop.cancelled() => true,
            sent = subscriber.channel.send(Arc::clone(event)) => sent.is_ok(),
            () = subscriber.gone.cancelled() => false,
        }
    }

    fn discard_old(&self, queue: &mut Queue) {
        let now = self.around.now();
        let old = |(since, _): &(Instant, _)| now.duration_since(*since) >= HOLD;
        while queue.held.front().is_some_and(old) {
            queue.held.pop_front();
            self.around.count(|counts| counts.discarded += 1);
        }
    }

    fn count(&self, queue: &Queue) {
        self.around.count(|counts| {
            counts.subscribers = queue.subscribers.len();
            counts.held = queue.held.len();
        });
    }
}

#[tonic::async_trait]
impl Delivery for Broadcast {
    /// Tells it to every subscriber, waiting for each that has no room; holds it if there is none.
    async fn publish(&self, event: Event) {
        let mut queue = self.queue.lock().await;
        let mut at = 0;
        while at < queue.subscribers.len() {
            if self.offer(&mut queue, at, &event).await {
                at += 1;
            } else {
                queue.subscribers.remove(at);
            }
        }
        if self.around.stop.is_cancelled() {
            return;
        }
        if queue.subscribers.is_empty() {
            self.discard_old(&mut queue);
            queue.held.push_back((self.around.now(), event));
        }
        self.count(&queue);
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
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
            () = self.around.stop.cancelled() => {}
            _ = futures::future::join(enter, pass_on) => {}
        }
    }
}
