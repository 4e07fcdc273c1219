//! What a test or a benchmark does with a generator, whichever it is.

use std::future::Future;
use std::sync::Arc;

use pleg_core::{CallError, Instant, PodUid, WallTime};
use pleg_runtime::clock::Clock;

use crate::status::PodStatus;

/// What a cache answers: a status, and the error of the read that was to bring it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status. The ports overwrite it when a read fails, ours keeps the last good one.
    pub status: Arc<PodStatus>,
    /// How the last read of the pod failed, if it did.
    pub error: Option<CallError>,
}

/// The generator says that the node should not be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unhealthy(pub(crate) String);

/// A running generator under a test or a benchmark. Its lifecycle events come out of the
/// [`Fifo`](crate::Fifo) that was made with it.
pub trait Subject: Send + Sync + 'static {
    /// A short name.
    fn name(&self) -> &'static str;

    /// The clock whose instants [`newer_than`](Self::newer_than) compares.
    fn clock(&self) -> Clock;

    /// The wall clock by which the generator judges what a runtime stamps: a runtime on the same
    /// node stamps its events with this.
    fn wall(&self) -> WallTime;

    /// What is cached of the pod.
    fn get(&self, uid: &PodUid) -> Answer;

    /// What is cached of the pod once that is newer than `after`, as the generator understands
    /// it. Waits for ever; dropping the future only gives up the answer.
    fn newer_than(&self, uid: &PodUid, after: Instant) -> impl Future<Output = Answer> + Send;

    /// Asks for a read of the pod soon.
    fn request_relist(&self, uid: &PodUid);

    /// Asks for a PodSync of the pod after its next read.
    fn request_reinspect(&self, uid: &PodUid);

    /// Whether the kubelet may go on.
    ///
    /// # Errors
    /// Why not.
    fn healthy(&self) -> Result<(), Unhealthy>;

    /// How many events did not fit into the channel, where that is counted.
    fn discarded(&self) -> Option<u64>;

    /// What a pod worker of that release asks to be newer than, after a sync that ended at
    /// `ended`. Before k#120942 (1.29) a kubelet with events asked for nothing (A1).
    fn last_sync_time(&self, ended: Instant) -> Instant {
        ended
    }

    /// Ends it; returns when none of its tasks is left.
    fn shutdown(&self) -> impl Future<Output = ()> + Send;
}
