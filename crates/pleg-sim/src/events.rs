//! Creates events and applies the configured faults to them.
//!
//! The order is that of real runtimes: the state changes, then the statuses are copied, then the
//! timestamp is taken, then the event is queued. An event with a later timestamp can therefore show
//! an older state.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind};
use pleg_node_model::{Due, EventType};

use crate::{
    delivery::Event,
    engine::{Engine, lock},
    knobs::Value,
    process::{Phase, Process},
};

/// The maximum time for which an event waits for the next one, with which it is swapped.
const SWAP_TIMEOUT: Duration = Duration::from_millis(100);

/// An event that waits for the next one, and the process that publishes it.
pub(crate) type HeldEvent = (Arc<Process>, Event);

impl Engine {
    /// Sends the events of a change, one after the other. Waits where the runtime would.
    pub(crate) async fn emit(self: &Arc<Self>, events: Vec<Due>) {
        for due in events {
            self.emit_one(&due).await;
        }
    }

    /// Copies the current statuses, takes the timestamp and publishes the event.
    async fn emit_one(self: &Arc<Self>, due: &Due) {
        // The event belongs to this process: if the process ends meanwhile, the event is lost.
        let process = self.process();
        let snapshot = self.world().snapshot(due);
        let (Some((sandbox, statuses)), true) = (snapshot, self.phase() != Phase::Down) else {
            return;
        };
        let kind = match due.what {
            EventType::Created => Kind::ContainerCreatedEvent,
            EventType::Started => Kind::ContainerStartedEvent,
            EventType::Stopped => Kind::ContainerStoppedEvent,
            EventType::Deleted => Kind::ContainerDeletedEvent,
        };
        let pause = self.injector.value("stamp.pause", Value::span);
        self.pause(pause.unwrap_or_default()).await;
        let mut event = v1::ContainerEventResponse {
            container_id: due.subject.to_string(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status: statuses.0,
            containers_statuses: statuses.1,
        };
        self.injector.alter_event(&sandbox, &mut event);
        let (event, injector) = (Arc::new(event), &self.injector);
        if injector.fires("drop") {
            return;
        }
        let twice = injector.fires("duplicate");
        let swaps = !twice && injector.decide("swap");
        let held = {
            let mut slot = lock(&self.held_event);
            if slot.is_none() && swaps {
                *slot = Some((process, Arc::clone(&event)));
                drop(slot);
                self.release_after_timeout(event);
                return;
            }
            slot.take()
        };
        if twice {
            publish(&process, Arc::clone(&event)).await;
        }
        publish(&process, event).await;
        if let Some((held_by, held)) = held {
            // After a restart the held event is lost with the old process, so nothing is swapped.
            if Arc::ptr_eq(&held_by, &process) {
                self.injector.count("swap");
            }
            publish(&held_by, held).await;
        }
    }

    /// Publishes the held event after [`SWAP_TIMEOUT`], unless another event was published first.
    fn release_after_timeout(self: &Arc<Self>, event: Event) {
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            engine.pause(SWAP_TIMEOUT).await;
            let is_same = |(_, held): &mut HeldEvent| Arc::ptr_eq(held, &event);
            let held = lock(&engine.held_event).take_if(is_same);
            if let Some((process, event)) = held {
                publish(&process, event).await;
            }
        });
    }
}

async fn publish(process: &Process, event: Event) {
    tracing::debug!(
        id = event.container_id,
        kind = event.container_event_type().as_str_name(),
        "event"
    );
    process.delivery.publish(event).await;
}
