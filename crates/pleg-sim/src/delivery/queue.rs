//! One queue of 1000 events for all subscribers: containerd 1.7 and CRI-O. The runtime puts events into
//! the queue and never waits; an event is dropped if the queue is full. Queued events do not expire.
//!
//! containerd 1.7, and CRI-O up to 1.27: the queue is a Go channel. Receivers wait in order, and each event
//! goes to the first of them only. A handler does not check whether its client is still connected, so a
//! dead subscriber waits like any other, and the event that reveals the disconnect is lost. The knob
//! `second_subscriber` adds a subscriber that takes a share of the events before they are queued, so its
//! share does not depend on the other subscribers.
//!
//! CRI-O since 1.28: the first subscriber starts one task, which sends each event to each subscriber in
//! turn. A subscriber that does not read delays all others until the queue is full. After the last
//! subscriber has disconnected, the task keeps running and drops the events.

use std::sync::{Arc, Mutex};

use tokio::sync::{Mutex as FairMutex, mpsc};

use super::{Context, Event};
use crate::{engine::lock, injector::SECOND_SUBSCRIBER};

const CAPACITY: usize = 1000;

pub(super) struct Queue {
    /// Each event goes to every subscriber, in the order of subscription.
    to_all: bool,
    queue: mpsc::Sender<Event>,
    /// Handlers get the lock in the order in which they wait.
    receiver: FairMutex<mpsc::Receiver<Event>>,
    /// Used if each event goes to all.
    subscribers: Mutex<Vec<mpsc::Sender<Event>>>,
}

impl Queue {
    pub(super) fn new(to_all: bool) -> Self {
        let (queue, receiver) = mpsc::channel(CAPACITY);
        Self {
            to_all,
            queue,
            receiver: FairMutex::new(receiver),
            subscribers: Mutex::default(),
        }
    }

    pub(super) fn publish(&self, event: Event, context: &Context) {
        if !self.to_all && context.injector.fires(SECOND_SUBSCRIBER) {
            return;
        }
        let full = self.queue.try_send(event).is_err();
        context.count(|counts| {
            counts.held = CAPACITY.saturating_sub(self.queue.capacity());
            counts.dropped += u64::from(full);
        });
    }

    pub(super) async fn serve(&self, out: mpsc::Sender<Event>, context: &Context) {
        context.count(|counts| counts.subscribers += 1);
        if self.to_all {
            lock(&self.subscribers).push(out);
            // The task of the first subscriber never releases the lock.
            if let Ok(mut receiver) = self.receiver.try_lock() {
                self.send_to_all(&mut receiver, context).await;
            }
            return;
        }
        loop {
            let mut receiver = self.receiver.lock().await;
            let event = receiver.recv().await;
            context.count(|counts| counts.held = receiver.len());
            drop(receiver);
            let Some(event) = event else {
                return;
            };
            if out.send(event).await.is_err() {
                break;
            }
        }
        context.count(|counts| counts.subscribers -= 1);
    }

    /// Sends each event to each subscriber, one after the other, and waits for each.
    async fn send_to_all(&self, receiver: &mut mpsc::Receiver<Event>, context: &Context) {
        while let Some(event) = receiver.recv().await {
            context.count(|counts| counts.held = receiver.len());
            let current = lock(&self.subscribers).clone();
            let mut delivered = false;
            for subscriber in current {
                if subscriber.send(Arc::clone(&event)).await.is_ok() {
                    delivered = true;
                } else {
                    lock(&self.subscribers).retain(|s| !s.same_channel(&subscriber));
                    context.count(|counts| counts.subscribers -= 1);
                }
            }
            context.count(|counts| counts.dropped += u64::from(!delivered));
        }
    }

    /// The process has ended.
    pub(super) fn end_streams(&self) {
        lock(&self.subscribers).clear();
    }
}
