//! Creates events and applies the configured faults to them.
//!
//! The order is that of real runtimes: the state changes, then the statuses are copied, then the
//! timestamp is taken, then the event is queued. An event with a later timestamp can therefore show
//! an older state.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind};

use crate::{
    chaos::Publish,
    engine::{Engine, lock},
    faults::Delivery,
    process::{Phase, Process},
};

/// How long a swapped event waits for the next one.
const SWAP_TIMEOUT: Duration = Duration::from_millis(100);

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
        self.pause(pause.max(self.chaos.stamp_pause())).await;
        let mut event = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses,
        };
        let publish_mode = self.chaos.alter_event(sandbox, &mut event);
        match (self.faults.event(&mut event), publish_mode) {
            (Delivery::Drop, _) | (_, Publish::Never) => {}
            (Delivery::Later(time), _) => {
                let engine = Arc::clone(self);
                self.tasks.spawn(async move {
                    engine.pause(time).await;
                    publish(&process, event).await;
                });
            }
            (Delivery::Twice, _) | (_, Publish::Twice) => {
                publish(&process, event.clone()).await;
                publish(&process, event).await;
            }
            (Delivery::Once, Publish::AfterNext) => {
                self.publish_swapped().await;
                self.swap(process, event);
                return;
            }
            (Delivery::Once, Publish::Once) => publish(&process, event).await,
        }
        self.publish_swapped().await;
    }

    /// Keeps an event until the next one is published, or for [`SWAP_TIMEOUT`].
    fn swap(self: &Arc<Self>, process: Arc<Process>, event: v1::ContainerEventResponse) {
        *lock(&self.swapped) = Some((process, event));
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            engine.pause(SWAP_TIMEOUT).await;
            engine.publish_swapped().await;
        });
    }

    async fn publish_swapped(&self) {
        let swapped = lock(&self.swapped).take();
        if let Some((process, event)) = swapped {
            publish(&process, event).await;
        }
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

async fn publish(process: &Process, event: v1::ContainerEventResponse) {
    tracing::debug!(
        id = event.container_id,
        kind = event.container_event_type().as_str_name(),
        "event"
    );
    process.delivery.publish(Arc::new(event)).await;
}
