//! Events: made here, and only here made to lie.
//!
//! The order (state, then the statuses copied, then the stamp, then the queue) is that of real
//! runtimes, and the point of this file: an event with a later stamp can show an older state.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind};

use crate::{
    chaos::Fate,
    engine::{Engine, lock},
    faults::Delivery,
    run::{Phase, Run},
};

/// How long a swapped event waits for a successor at most.
const SWAP: Duration = Duration::from_millis(100);

impl Engine {
    /// Copies the statuses as they are now, stamps, and queues; waits where the runtime would.
    pub(crate) async fn tell(self: &Arc<Self>, kind: Kind, sandbox: &str, subject: &str) {
        // A process that ends meanwhile takes the event with it.
        let run = self.run();
        if self.phase() == Phase::Down || !self.may_tell(kind, sandbox, subject) {
            return;
        }
        let (pod_sandbox_status, mut containers_statuses) =
            self.world().snapshot(sandbox, self.habits.scope);
        if self.habits.leaves_holes && kind == Kind::ContainerDeletedEvent {
            containers_statuses.push(v1::ContainerStatus::default());
        }
        let chosen = self.faults.pause_before_stamp(subject, kind);
        self.pause(chosen.max(self.chaos.stamp_pause())).await;
        let mut event = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses,
        };
        let fate = self.chaos.spoil(sandbox, &mut event);
        match (self.faults.event(&mut event), fate) {
            (Delivery::Drop, _) | (_, Fate::Dropped) => {}
            (Delivery::Later(time), _) => {
                let engine = Arc::clone(self);
                self.tasks.spawn(async move {
                    engine.pause(time).await;
                    publish(&run, event).await;
                });
            }
            (Delivery::Twice, _) | (_, Fate::Twice) => {
                publish(&run, event.clone()).await;
                publish(&run, event).await;
            }
            (Delivery::Once, Fate::Swapped) => {
                self.tell_swapped().await;
                self.swap(run, event);
                return;
            }
            (Delivery::Once, Fate::Told) => publish(&run, event).await,
        }
        self.tell_swapped().await;
    }

    /// Keeps an event back until another is told, or none is for a while.
    fn swap(self: &Arc<Self>, run: Arc<Run>, event: v1::ContainerEventResponse) {
        *lock(&self.swapped) = Some((run, event));
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            engine.pause(SWAP).await;
            engine.tell_swapped().await;
        });
    }

    async fn tell_swapped(&self) {
        let swapped = lock(&self.swapped).take();
        if let Some((run, event)) = swapped {
            publish(&run, event).await;
        }
    }

    /// CRI-O tells nothing of a sandbox that is gone, nor the end of a container that is.
    fn may_tell(&self, kind: Kind, sandbox: &str, subject: &str) -> bool {
        let world = self.world();
        !self.habits.told.only_what_exists
            || (world.sandbox(sandbox).is_ok()
                && (kind != Kind::ContainerStoppedEvent
                    || subject == sandbox
                    || world.container(subject).is_ok()))
    }
}

async fn publish(run: &Run, event: v1::ContainerEventResponse) {
    tracing::debug!(
        id = event.container_id,
        kind = event.container_event_type().as_str_name(),
        "event"
    );
    run.delivery.publish(Arc::new(event)).await;
}
