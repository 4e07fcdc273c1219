//! A queue of 1000 events that is always drained: CRI-O since 1.28.
//!
//! The runtime puts events into the queue and never waits; an event is dropped if the queue is full.
//! The first subscriber starts one task, which sends each event to each subscriber in turn. A
//! subscriber that does not read delays all others until the queue is full. After the last
//! subscriber has disconnected, the task keeps running and drops the events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{Context, Delivery, Event, QUEUE_CAPACITY};

#[derive(Debug)]
pub(super) struct Draining {
    queue: mpsc::Sender<Event>,
    /// The first subscriber takes this to start the task.
    drain: Mutex<Option<mpsc::Receiver<Event>>>,
    subscribers: Arc<Subscribers>,
    context: Context,
}

/// In the order of subscription.
#[derive(Debug, Default)]
struct Subscribers(Mutex<Vec<mpsc::Sender<Event>>>);

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            let mut subscribers = self.subscribers.lock();
            subscribers.push(out);
            subscribers.len()
        };
        self.context.count(|counts| counts.subscribers = count);
        if self.context.stop.is_cancelled() {
            // The process has ended, so the stream ends as well.
            self.subscribers.lock().clear();
        }
        let drain = self
            .drain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(queue) = drain {
            let (context, subscribers) = (self.context.clone(), Arc::clone(&self.subscribers));
            self.context.tasks.spawn(async move {
                tokio::select! {
                    () = context.stop.cancelled() => {}
                    () = send_to_all(queue, &subscribers, &context) => {}
                }
                // The streams end with the process.
                subscribers.lock().clear();
            });
        }
    }
}

/// Sends each event to each subscriber, one after the other, and waits for each.
async fn send_to_all(
    mut queue: mpsc::Receiver<Event>,
    subscribers: &Subscribers,
    context: &Context,
) {
    while let Some(event) = queue.recv().await {
        context.count(|counts| counts.held = queue.len());
        let current = subscribers.lock().clone();
        let mut delivered = false;
        for subscriber in current {
            if subscriber.send(Arc::clone(&event)).await.is_ok() {
                delivered = true;
            } else {
                subscribers.lock().retain(|s| !s.same_channel(&subscriber));
            }
        }
        let remaining = subscribers.lock().len();
        context.count(|counts| {
            counts.subscribers = remaining;
            counts.dropped += u64::from(!delivered);
        });
    }
}
