//! The interface of a generator to tests and benchmarks.

use std::future::Future;
use std::sync::Arc;

use pleg_core::{CallError, Instant, PodUid, WallTime};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;

use crate::relister::Relister;
use crate::status::PodStatus;

/// The cached status of a pod, and the error of the last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status. If a read fails, the ports overwrite it; [`Ours`](crate::Ours) keeps the last
    /// good status.
    pub status: Arc<PodStatus>,
    /// The error of the last read of the pod, if it failed.
    pub error: Option<CallError>,
}

/// The generator reports that it is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unhealthy(pub(crate) String);

/// A running generator in a test or a benchmark. It sends its lifecycle events to the
/// [`Fifo`](crate::Fifo) that was created with it.
pub trait Subject: Send + Sync + 'static {
    /// The name of the generator.
    fn name(&self) -> &'static str;

    /// The clock whose instants [`newer_than`](Self::newer_than) compares.
    fn clock(&self) -> Clock;

    /// The wall clock that the generator compares with timestamps of the runtime. A runtime on the
    /// same node uses this clock for the timestamps of its events.
    fn wall(&self) -> WallTime;

    /// The cached status of the pod.
    fn get(&self, uid: &PodUid) -> Answer;

    /// Waits until the cached status of the pod is newer than `after`, by the rules of the
    /// generator. There is no timeout. Dropping the future only cancels the wait.
    fn newer_than(&self, uid: &PodUid, after: Instant) -> impl Future<Output = Answer> + Send;

    /// Requests a relist of the pod.
    fn request_relist(&self, uid: &PodUid);

    /// Requests a PodSync of the pod after its next inspection.
    fn request_reinspect(&self, uid: &PodUid);

    /// The health check of the kubelet.
    ///
    /// # Errors
    /// If the generator is not healthy.
    fn healthy(&self) -> Result<(), Unhealthy>;

    /// The time that a pod worker of the release passes to [`newer_than`](Self::newer_than) after a
    /// sync that ended at `ended`. Before k#120942 (1.29), a kubelet with events did not require a
    /// newer status (A1).
    fn last_sync_time(&self, ended: Instant) -> Instant {
        ended
    }

    /// Stops the generator. Returns when all of its tasks have ended.
    fn shutdown(&self) -> impl Future<Output = ()> + Send;
}

/// A port of an upstream generator. All ports use a relister.
pub(crate) trait Port: Send + Sync + 'static {
    type Runtime: Runtime;
    const NAME: &'static str;

    fn relister(&self) -> &Relister<Self::Runtime>;

    fn healthy(&self) -> Result<(), Unhealthy> {
        self.relister().healthy()
    }

    fn last_sync_time(&self, ended: Instant) -> Instant {
        ended
    }
}

impl<P: Port> Subject for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn clock(&self) -> Clock {
        self.relister().clock.clock()
    }

    fn wall(&self) -> WallTime {
        self.relister().clock.wall()
    }

    fn get(&self, uid: &PodUid) -> Answer {
        self.relister().cache.get(uid)
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) -> Answer {
        let after = self.relister().clock.time(after);
        self.relister().cache.newer_than(uid, after).await
    }

    fn request_relist(&self, uid: &PodUid) {
        self.relister().request_relist(uid);
    }

    fn request_reinspect(&self, uid: &PodUid) {
        self.relister().request_reinspect(uid);
    }

    fn healthy(&self) -> Result<(), Unhealthy> {
        Port::healthy(self)
    }

    fn last_sync_time(&self, ended: Instant) -> Instant {
        Port::last_sync_time(self, ended)
    }

    async fn shutdown(&self) {
        self.relister().shutdown().await;
    }
}
