//! Creates events, applies the configured faults to them, and streams them to subscribers.
//!
//! Each event is created in the steps of real runtimes: the state changes, the statuses are copied, the timestamp is
//! taken, and the event is queued. So an event with a later timestamp can show an older state.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use pleg_cri::v1::ContainerEventResponse;
use pleg_node_model::Due;
use tokio::sync::mpsc;
use tonic::{Response, Status, codegen::BoxStream};

use crate::{
    delivery::Event,
    engine::{Engine, lock},
    error::shutting_down,
    knobs::Value,
    lists::check_size,
    process::{Phase, Process},
};

/// The maximum time for which a delayed event waits for a later event that it can be swapped with.
const SWAP_TIMEOUT: Duration = Duration::from_millis(100);

/// A delayed event, and the process that publishes it.
pub(crate) type DelayedEvent = (Arc<Process>, Event);

impl Engine {
    /// Sends the events of a change, one after the other. With containerd 2, waits for subscribers that do not read.
    pub(crate) async fn emit(self: &Arc<Self>, events: Vec<Due>) {
        for due in events {
            self.emit_one(&due).await;
        }
    }

    /// Copies the current statuses, takes the timestamp and publishes the event.
    async fn emit_one(self: &Arc<Self>, due: &Due) {
        // The event belongs to this process of the runtime, and is lost if the process ends before publishing it.
        let process = self.process();
        let event = self.world().event(due);
        let (Some((sandbox, mut event)), true) = (event, self.phase() != Phase::Down) else {
            return;
        };
        let pause = self.faults().value("stamp.pause", Value::span);
        self.pause(pause.unwrap_or_default()).await;
        event.created_at = self.now();
        self.faults().alter_event(&sandbox, &mut event);
        let event = Arc::new(event);
        if self.faults().fires("drop") {
            return;
        }
        let twice = self.faults().fires("duplicate");
        let swaps = !twice && self.faults().decide("swap");
        let delayed = {
            let mut slot = lock(&self.delayed_event);
            if slot.is_none() && swaps {
                *slot = Some((process, Arc::clone(&event)));
                drop(slot);
                self.release_after_timeout(event);
                return;
            }
            slot.take()
        };
        if twice {
            self.publish(&process, Arc::clone(&event)).await;
        }
        self.publish(&process, event).await;
        if let Some((of_process, delayed)) = delayed {
            // If the runtime has restarted, the delayed event is lost with the old process, and no events are swapped.
            if Arc::ptr_eq(&of_process, &process) {
                self.faults().count("swap");
            }
            self.publish(&of_process, delayed).await;
        }
    }

    /// Publishes the delayed event after [`SWAP_TIMEOUT`], unless another event was published first.
    fn release_after_timeout(self: &Arc<Self>, event: Event) {
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            engine.pause(SWAP_TIMEOUT).await;
            let is_same = |(_, delayed): &mut DelayedEvent| Arc::ptr_eq(delayed, &event);
            let delayed = lock(&engine.delayed_event).take_if(is_same);
            if let Some((process, event)) = delayed {
                engine.publish(&process, event).await;
            }
        });
    }

    async fn publish(&self, process: &Process, event: Event) {
        let (id, kind) = (&event.container_id, event.container_event_type());
        tracing::debug!(id, kind = kind.as_str_name(), "event");
        process.delivery.publish(event, self).await;
    }
}

/// One subscription. The runtime notices that a subscription was dropped only when it sends the next event.
struct Subscription {
    engine: Arc<Engine>,
    events: mpsc::Receiver<Event>,
    delivered: usize,
    /// If true, the subscription delivers no event from now on.
    mute: bool,
}

/// Subscribes to events. Returns when the first event has arrived.
pub(crate) async fn subscribe(
    engine: &Arc<Engine>,
) -> Result<Response<BoxStream<ContainerEventResponse>>, Status> {
    let (out, events) = mpsc::channel(1);
    let (process, of_task) = (engine.process(), Arc::clone(engine));
    // This task outlives the client, because the runtime must not notice a disconnect at once.
    let serving = async move { process.delivery.serve(out, &of_task).await };
    engine.tasks.spawn(serving);
    let subscription = Subscription {
        engine: Arc::clone(engine),
        events,
        delivered: 0,
        mute: false,
    };
    let events = stream::unfold(subscription, async |mut subscription| {
        Some((subscription.next().await.transpose()?, subscription))
    });
    let mut events = Box::pin(events.peekable());
    match events.as_mut().peek().await {
        Some(Err(status)) => Err(status.clone()),
        _ => Ok(Response::new(events)),
    }
}

impl Subscription {
    /// The next event. `None` if the stream ends with OK, because CRI-O's process has ended or a fault ends the stream.
    async fn next(&mut self) -> Result<Option<ContainerEventResponse>, Status> {
        loop {
            let ends = |value: Value| value.number().filter(|n| self.delivered >= *n);
            let ended = self.engine.faults().value("stream.end_after", ends);
            if ended.is_some() {
                return Ok(None);
            }
            let profile = &self.engine.profile;
            let Some(event) = self.events.recv().await else {
                return profile.is_crio.then_some(None).ok_or_else(shutting_down);
            };
            self.mute = self.mute || self.engine.faults().is_on("stream.mute");
            if !self.mute {
                self.delivered += 1;
                check_size(&*event, profile.message_limit)?;
                return Ok(Some(ContainerEventResponse::clone(&event)));
            }
        }
    }
}
