//! A queue of 1000 events that is always drained: CRI-O since 1.28.
//!
//! The runtime puts events into the queue and never waits; an event that finds it full is dropped.
//! The first subscriber starts one task, which sends each event to each client in turn. A client
//! that does not read delays all others until the queue is full. After the last client has left,
//! the task keeps running and sends to nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{Context, Delivery, Event, QUEUE};

#[derive(Debug)]
pub(super) struct Draining {
    queue: mpsc::Sender<Event>,
    /// The first subscriber takes this to start the task.
    drain: Mutex<Option<mpsc::Receiver<Event>>>,
    clients: Arc<Clients>,
    context: Context,
}

/// In the order of subscription.
#[derive(Debug, Default)]
struct Clients(Mutex<Vec<mpsc::Sender<Event>>>);

impl Clients {
    fn list(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draining {
    pub(super) fn new(context: Context) -> Self {
        let (queue, drain) = mpsc::channel(QUEUE);
        Self {
            queue,
            drain: Mutex::new(Some(drain)),
            clients: Arc::default(),
            context,
        }
    }
}

#[tonic::async_trait]
impl Delivery for Draining {
    async fn publish(&self, event: Event) {
        let full = self.queue.try_send(event).is_err();
        let held = QUEUE.saturating_sub(self.queue.capacity());
        self.context.count(|counts| {
            counts.held = held;
            counts.dropped += u64::from(full);
        });
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
        let clients = {
            let mut list = self.clients.list();
            list.push(out);
            list.len()
        };
        self.context.count(|counts| counts.subscribers = clients);
        if self.context.stop.is_cancelled() {
            // The process has ended, so the stream ends as well.
            self.clients.list().clear();
        }
        let drain = self
            .drain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(queue) = drain {
            let (context, clients) = (self.context.clone(), Arc::clone(&self.clients));
            self.context.tasks.spawn(async move {
                tokio::select! {
                    () = context.stop.cancelled() => {}
                    () = send_to_all(queue, &clients, &context) => {}
                }
                // The streams end with the process.
                clients.list().clear();
            });
        }
    }
}

/// Sends each event to each client, one after the other, and waits for each.
async fn send_to_all(mut queue: mpsc::Receiver<Event>, clients: &Clients, context: &Context) {
    while let Some(event) = queue.recv().await {
        context.count(|counts| counts.held = queue.len());
        let now = clients.list().clone();
        let mut delivered = false;
        for client in now {
            if client.send(Arc::clone(&event)).await.is_ok() {
                delivered = true;
            } else {
                clients.list().retain(|c| !c.same_channel(&client));
            }
        }
        let left = clients.list().len();
        context.count(|counts| {
            counts.subscribers = left;
            counts.dropped += u64::from(!delivered);
        });
    }
}
