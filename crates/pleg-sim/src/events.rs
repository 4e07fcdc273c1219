//! Creates events and applies the configured faults to them.
//!
//! The order is that of real runtimes: the state changes, then the statuses are copied, then the
//! timestamp is taken, then the event is queued. An event with a later timestamp can therefore show
//! an older state.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind};

use crate::{
    delivery::Event,
    engine::{Engine, lock},
    fault_profile::Publish,
    faults::Delivery,
    process::{Phase, Process},
};

/// How long an event waits for the next one, with which it is swapped.
const SWAP_TIMEOUT: Duration = Duration::from_millis(100);

/// An event that waits for the next one, and the process that publishes it.
pub(crate) type HeldEvent = (Arc<Process>, Event);

impl Engine {
    /// Copies the current statuses, takes the timestamp and publishes the event. Waits where the
    /// runtime would.
    pub(crate) async fn emit(self: &Arc<Self>, kind: Kind, sandbox: &str, subject: &str) {
        // The event belongs to this process: if the process ends meanwhile, the event is lost.
        let process = self.process();
        if self.phase() == Phase::Down || !self.sends_event(kind, sandbox, subject) {
            return;
        }
        let (pod_sandbox_status, mut containers_statuses) =
            self.world().snapshot(sandbox, self.profile.scope);
        if self.profile.empty_status_after_removal && kind == Kind::ContainerDeletedEvent {
            containers_statuses.push(v1::ContainerStatus::default());
        }
        let pause = self.faults.pause_before_stamp(subject, kind);
        self.pause(pause.max(self.injector.stamp_pause())).await;
        let mut event = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses,
        };
        self.injector.alter_event(sandbox, &mut event);
        let delivery = self.faults.event(&mut event);
        let event = Arc::new(event);
        let mode = match delivery {
            Delivery::Drop => Publish::Never,
            Delivery::Later(time) => {
                let engine = Arc::clone(self);
                self.tasks.spawn(async move {
                    engine.pause(time).await;
                    publish(&process, event).await;
                });
                return;
            }
            Delivery::Twice => Publish::Twice,
            Delivery::Once => self.injector.publish_mode(),
        };
        let copies = match mode {
            Publish::Never => return,
            Publish::Once | Publish::AfterNext => 1,
            Publish::Twice => 2,
        };
        let held = {
            let mut slot = lock(&self.held_event);
            if slot.is_none() && mode == Publish::AfterNext {
                *slot = Some((process, Arc::clone(&event)));
                drop(slot);
                self.release_after_timeout(event);
                return;
            }
            slot.take()
        };
        for _ in 0..copies {
            publish(&process, Arc::clone(&event)).await;
        }
        if let Some((held_by, held)) = held {
            // After a restart the held event is lost with the old process, so nothing is swapped.
            if Arc::ptr_eq(&held_by, &process) {
                self.injector.count_swap();
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

    /// CRI-O sends no event for a sandbox that is gone, and no STOPPED for a container that is
    /// gone.
    fn sends_event(&self, kind: Kind, sandbox: &str, subject: &str) -> bool {
        let world = self.world();
        !self.profile.events.requires_existing
            || (world.sandbox(sandbox).is_ok()
                && (kind != Kind::ContainerStoppedEvent
                    || subject == sandbox
                    || world.container(subject).is_ok()))
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
