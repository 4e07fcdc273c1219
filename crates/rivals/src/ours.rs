//! Implements the interface of the ports for this project's generator, so that tests and benchmarks run on all of them.

use std::time::Duration;

use pleg::{ContainerState, Pleg, StartError, WaitError};
use pleg_core::{Id, Instant, PodUid, ReportedState};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;

use crate::subject::{Fifo, Receiver, Subject};

/// The timeout of a call of `Pleg::newer_than`. It is longer than any test or benchmark.
const NO_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// This project's generator.
#[derive(Debug)]
pub struct Ours {
    pleg: Pleg,
}

impl Ours {
    /// Starts this project's generator.
    ///
    /// # Errors
    /// If a setting is not valid, or if the caller is outside of a tokio runtime.
    pub fn start<R: Runtime>(mut builder: pleg::Builder<R>) -> Result<(Self, Fifo), StartError> {
        let events = Fifo(Receiver::Ours(builder.subscribe()));
        let pleg = builder.spawn()?;
        Ok((Self { pleg }, events))
    }
}

impl Subject for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn clock(&self) -> Clock {
        self.pleg.clock()
    }

    fn visit_containers(&self, uid: &PodUid, each: &mut dyn FnMut(&Id, ReportedState)) {
        for container in &self.pleg.get(uid).status.containers {
            let shown = match container.state {
                ContainerState::Created => ReportedState::Created,
                ContainerState::Running => ReportedState::Running,
                ContainerState::Exited => ReportedState::Exited,
                _ => ReportedState::Unknown,
            };
            each(&container.id, shown);
        }
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) {
        match self.pleg.newer_than(uid, after, NO_TIMEOUT).await {
            Ok(_) | Err(WaitError::Read { .. }) => {}
            // Upstream's call has no timeout and waits even after a shutdown, so this function does as well.
            Err(_) => std::future::pending().await,
        }
    }

    /// Does nothing: [`newer_than`](Pleg::newer_than) reads the pod.
    fn request_relist(&self, _: &PodUid) {}

    fn is_healthy(&self) -> bool {
        self.pleg.health().ready().is_ok()
    }

    async fn shutdown(&self) {
        self.pleg.shutdown().await;
    }
}
