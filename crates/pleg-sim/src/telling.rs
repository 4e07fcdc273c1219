//! Events: made here, and only here made to lie.
//!
//! The order (state, then the statuses copied, then the stamp, then the queue) is that of real
//! runtimes, and the point of this file: an event with a later stamp can show an older state.

use std::sync::Arc;

use pleg_cri::v1::{self, ContainerEventType as Kind};

use crate::{
    engine::Engine,
    faults::Delivery,
    run::{Phase, Run},
};

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
        self.pause(self.faults.pause_before_stamp(subject, kind))
            .await;
        let mut event = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses,
        };
        match self.faults.event(&mut event) {
            Delivery::Once => publish(&run, event).await,
            Delivery::Drop => {}
            Delivery::Twice => {
                publish(&run, event.clone()).await;
                publish(&run, event).await;
            }
            Delivery::Later(time) => {
                let engine = Arc::clone(self);
                self.tasks.spawn(async move {
                    engine.pause(time).await;
                    publish(&run, event).await;
                });
            }
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
