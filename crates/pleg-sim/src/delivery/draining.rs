//! A queue of 1000 events that is always drained: CRI-O since 1.28.
//!
//! The runtime puts events into the queue and never waits; an event is dropped if the queue is full.
//! The first subscriber starts one task, which sends each event to each subscriber in turn. A
//! subscriber that does not read delays all others until the queue is full. After the last
//! subscriber has disconnected, the task keeps running and drops the events.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use super::{Context, Delivery, Event, QUEUE_CAPACITY};
use crate::engine::lock;

#[derive(Debug)]
pub(super) struct Draining {
    queue: mpsc::Sender<Event>,
    /// The first subscriber takes this to start the task.
    drain: Mutex<Option<mpsc::Receiver<Event>>>,
    /// In the order of subscription.
    subscribers: Arc<Mutex<Vec<mpsc::Sender<Event>>>>,
    context: Context,
}

impl Draining {
    pub(super) fn new(context: Context) -> Self {
        let (queue, drain) = mpsc::channel(QUEUE_CAPACITY);
        Self {
            queue,
            drain: Mutex::new(Some(drain)),
            subscribers: Arc::default(),
            context,
        }
    }
}

#[tonic::async_trait]
impl Delivery for Draining {
    async fn publish(&self, event: Event) {
        let full = self.queue.try_send(event).is_err();
        let held = QUEUE_CAPACITY.saturating_sub(self.queue.capacity());
        self.context.count(|counts| {
            counts.held = held;
            counts.dropped += u64::from(full);
        });
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
        let count = {
            let mut subscribers = lock(&self.subscribers);
            subscribers.push(out);
            subscribers.len()
        };
        self.context.count(|counts| counts.subscribers = count);
        if self.context.stop.is_cancelled() {
            // The process has ended, so the stream ends as well.
            lock(&self.subscribers).clear();
        }
        let drain = lock(&self.drain).take();
        if let Some(queue) = drain {
            let (context, subscribers) = (self.context.clone(), Arc::clone(&self.subscribers));
            self.context.tasks.spawn(async move {
                tokio::select! {
                    () = context.stop.cancelled() => {}
                    () = send_to_all(queue, &subscribers, &context) => {}
                }
                // The streams end with the process.
                lock(&subscribers).clear();
            });
        }
    }
}

/// Sends each event to each subscriber, one after the other, and waits for each.
async fn send_to_all(
    mut queue: mpsc::Receiver<Event>,
    subscribers: &Mutex<Vec<mpsc::Sender<Event>>>,
    context: &Context,
) {
    while let Some(event) = queue.recv().await {
        context.count(|counts| counts.held = queue.len());
        let current = lock(subscribers).clone();
        let mut delivered = false;
        for subscriber in current {
            if subscriber.send(Arc::clone(&event)).await.is_ok() {
                delivered = true;
            } else {
                lock(subscribers).retain(|s| !s.same_channel(&subscriber));
            }
        }
        let remaining = lock(subscribers).len();
        context.count(|counts| {
            counts.subscribers = remaining;
            counts.dropped += u64::from(!delivered);
        });
    }
}
