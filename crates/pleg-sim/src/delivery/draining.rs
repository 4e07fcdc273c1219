//! A queue of 1000 that is drained for good: CRI-O since 1.28.
//!
//! The runtime puts events into the queue and never waits: what finds it full is lost. The first
//! subscriber ever starts one task, which sends each event to each client in turn. So a client
//! that does not read starves all others until the queue is full; and once the last one has left,
//! the task goes on and sends to nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{Delivery, Event, QUEUE, Surroundings};

#[derive(Debug)]
pub(super) struct Draining {
    queue: mpsc::Sender<Event>,
    /// What the first subscriber takes to start the task with.
    drain: Mutex<Option<mpsc::Receiver<Event>>>,
    clients: Arc<Clients>,
    around: Surroundings,
}

/// In the order in which they came.
#[derive(Debug, Default)]
struct Clients(Mutex<Vec<mpsc::Sender<Event>>>);

impl Clients {
    fn list(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draining {
    pub(super) fn new(around: Surroundings) -> Self {
        let (queue, drain) = mpsc::channel(QUEUE);
        Self {
            queue,
            drain: Mutex::new(Some(drain)),
            clients: Arc::default(),
            around,
        }
    }
}

#[tonic::async_trait]
impl Delivery for Draining {
    async fn publish(&self, event: Event) {
        let full = self.queue.try_send(event).is_err();
        let held = QUEUE.saturating_sub(self.queue.capacity());
        self.around.count(|counts| {
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
        self.around.count(|counts| counts.subscribers = clients);
        if self.around.stop.is_cancelled() {
            // Nobody sends any more: its stream ends.
            self.clients.list().clear();
        }
        let drain = self
            .drain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(queue) = drain {
            let (around, clients) = (self.around.clone(), Arc::clone(&self.clients));
            self.around.tasks.spawn(async move {
                tokio::select! {
                    () = around.stop.cancelled() => {}
                    () = send_to_all(queue, &clients, &around) => {}
                }
                // The streams end with the runtime.
                clients.list().clear();
            });
        }
    }
}

/// Each event to each client, one after the other, waiting for each.
async fn send_to_all(mut queue: mpsc::Receiver<Event>, clients: &Clients, around: &Surroundings) {
    while let Some(event) = queue.recv().await {
        around.count(|counts| counts.held = queue.len());
        let now = clients.list().clone();
        let mut told = false;
        for client in now {
            if client.send(Arc::clone(&event)).await.is_ok() {
                told = true;
            } else {
                clients.list().retain(|c| !c.same_channel(&client));
            }
        }
        let left = clients.list().len();
        around.count(|counts| {
            counts.subscribers = left;
            counts.dropped += u64::from(!told);
        });
    }
}
