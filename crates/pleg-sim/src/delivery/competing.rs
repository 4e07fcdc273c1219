//! One queue of 1000 for all subscribers: containerd 1.7, and CRI-O to 1.27.
//!
//! Go's channel: whoever receives waits in line, and an event goes to the first in line alone. A
//! handler does not look whether its client is still there; so a dead one stands in line like any
//! other, and the event that shows it its end is lost. What finds the queue full is lost; the
//! runtime never waits. What waits in the queue may be days old when somebody comes.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{Delivery, Event, QUEUE, Surroundings};

#[derive(Debug)]
pub(super) struct Competing {
    channel: Mutex<Channel>,
    around: Surroundings,
}

#[derive(Debug, Default)]
struct Channel {
    queue: VecDeque<Event>,
    line: VecDeque<oneshot::Sender<Event>>,
    handlers: usize,
}

impl Competing {
    pub(super) fn new(around: Surroundings) -> Self {
        Self {
            channel: Mutex::default(),
            around,
        }
    }

    fn channel(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, channel: &Channel, lost: u64) {
        self.around.count(|counts| {
            counts.subscribers = channel.handlers;
            counts.held = channel.queue.len();
            counts.dropped += lost;
        });
    }

    /// The next event, or a place in the line for one.
    fn receive(&self) -> Result<Event, oneshot::Receiver<Event>> {
        let mut channel = self.channel();
        if let Some(event) = channel.queue.pop_front() {
            self.count(&channel, 0);
            return Ok(event);
        }
        let (place, event) = oneshot::channel();
        channel.line.push_back(place);
        Err(event)
    }

    async fn handle(&self, out: mpsc::Sender<Event>) {
        loop {
            let event = match self.receive() {
                Ok(event) => event,
                Err(event) => match event.await {
                    Ok(event) => event,
                    Err(_) => return,
                },
            };
            if out.send(event).await.is_err() {
                return;
            }
        }
    }

    /// A handler comes (+1) or goes.
    fn handlers(&self, change: isize) {
        let mut channel = self.channel();
        channel.handlers = channel.handlers.saturating_add_signed(change);
        self.count(&channel, 0);
    }
}

#[tonic::async_trait]
impl Delivery for Competing {
    async fn publish(&self, event: Event) {
        let mut channel = self.channel();
        let mut unsent = Some(event);
        while let Some(event) = unsent.take() {
            let Some(place) = channel.line.pop_front() else {
                let full = channel.queue.len() >= QUEUE;
                if !full {
                    channel.queue.push_back(event);
                }
                self.count(&channel, u64::from(full));
                return;
            };
            // Only a runtime that ends leaves an empty place behind.
            unsent = place.send(event).err();
        }
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
        self.handlers(1);
        tokio::select! {
            () = self.around.stop.cancelled() => {}
            () = self.handle(out) => self.handlers(-1),
        }
    }
}
