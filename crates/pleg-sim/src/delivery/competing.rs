//! One queue of 1000 events for all subscribers: containerd 1.7, and CRI-O up to 1.27.
//!
//! The queue is a Go channel. Receivers wait in order, and each event goes to the first of them
//! only. A handler does not check whether its client is still connected, so a dead subscriber waits
//! like any other, and the event that reveals the disconnect is lost. An event is dropped if the
//! queue is full; the runtime never waits. Queued events do not expire.
//!
//! The knob `second_subscriber` adds a subscriber that takes a share of the events. It takes an
//! event before the event is queued, so its share does not depend on the other subscribers.

use std::{collections::VecDeque, sync::Mutex};

use tokio::sync::{mpsc, oneshot};

use super::{Context, Delivery, Event, QUEUE_CAPACITY};
use crate::{engine::lock, fault_profile::SECOND_SUBSCRIBER};

#[derive(Debug)]
pub(super) struct Competing {
    channel: Mutex<Channel>,
    context: Context,
}

#[derive(Debug, Default)]
struct Channel {
    queue: VecDeque<Event>,
    /// The waiting receivers, in order.
    waiting: VecDeque<oneshot::Sender<Event>>,
    handlers: usize,
}

impl Competing {
    pub(super) fn new(context: Context) -> Self {
        Self {
            channel: Mutex::default(),
            context,
        }
    }

    fn count(&self, channel: &Channel, lost: u64) {
        self.context.count(|counts| {
            counts.subscribers = channel.handlers;
            counts.held = channel.queue.len();
            counts.dropped += lost;
        });
    }

    /// The next event, or a waiting receiver for one.
    fn receive(&self) -> Result<Event, oneshot::Receiver<Event>> {
        let mut channel = lock(&self.channel);
        if let Some(event) = channel.queue.pop_front() {
            self.count(&channel, 0);
            return Ok(event);
        }
        let (sender, event) = oneshot::channel();
        channel.waiting.push_back(sender);
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

    /// Counts a handler that starts (+1) or ends (-1).
    fn handlers(&self, change: isize) {
        let mut channel = lock(&self.channel);
        channel.handlers = channel.handlers.saturating_add_signed(change);
        self.count(&channel, 0);
    }
}

#[tonic::async_trait]
impl Delivery for Competing {
    async fn publish(&self, event: Event) {
        if self.context.injector.fires(SECOND_SUBSCRIBER) {
            return;
        }
        let mut channel = lock(&self.channel);
        let mut unsent = Some(event);
        while let Some(event) = unsent.take() {
            let Some(sender) = channel.waiting.pop_front() else {
                let full = channel.queue.len() >= QUEUE_CAPACITY;
                if !full {
                    channel.queue.push_back(event);
                }
                self.count(&channel, u64::from(full));
                return;
            };
            // A waiting receiver is closed only after a shutdown.
            unsent = sender.send(event).err();
        }
    }

    async fn serve(&self, out: mpsc::Sender<Event>) {
        self.handlers(1);
        tokio::select! {
            () = self.context.stop.cancelled() => {}
            () = self.handle(out) => self.handlers(-1),
        }
    }
}
