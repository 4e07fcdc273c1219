//! A handle to one pod, for its worker.

use std::sync::Arc;
use std::time::Duration;

use pleg_core::{Instant, PodUid, PodView};

use crate::error::WaitError;
use crate::exit_records::Exit;
use crate::handle::Pleg;
use crate::subscription::{Delivery, Subscription};

/// A handle to one pod of a running generator, for the worker of that pod. Made by [`Pleg::pod`].
///
/// The pod need not exist. The handle stays valid if the pod is removed and created again with the same uid. A pod
/// handle does not keep the generator running; only a [`Pleg`] does.
#[derive(Debug)]
#[must_use]
pub struct PodHandle {
    pleg: Pleg,
    uid: PodUid,
    changes: Subscription,
}

impl Pleg {
    /// A handle to one pod.
    pub fn pod(&self, uid: &PodUid) -> PodHandle {
        PodHandle {
            pleg: Self {
                shared: self.shared.clone(),
                _running: None,
            },
            uid: uid.clone(),
            changes: self.subscribe_pod(uid),
        }
    }
}

impl PodHandle {
    /// The pod's uid.
    pub const fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// The present status in the cache: [`Pleg::get`].
    pub fn view(&self) -> PodView {
        self.pleg.get(&self.uid)
    }

    /// Completes when a change of the pod has been announced since the handle was made, or since the previous call
    /// completed. One completion may stand for several announcements; [`view`](Self::view) shows the result of all of
    /// them. Returns false once the generator is gone and every change was reported.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub async fn changed(&mut self) -> bool {
        loop {
            match self.changes.next().await {
                None => return false,
                // `Synced` is not a change of the pod.
                Some(Delivery::Synced) => {}
                Some(_) => break,
            }
        }
        while self.changes.try_next().is_some() {}
        true
    }

    /// The exit records of the pod's containers and sandboxes: [`Pleg::exits`].
    pub fn exits(&self) -> Arc<[Exit]> {
        self.pleg.exits(&self.uid)
    }

    /// A view that is newer than `after`: [`Pleg::newer_than`].
    ///
    /// # Errors
    /// The errors of [`Pleg::newer_than`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request. A read in flight continues.
    pub async fn newer_than(&self, after: Instant, within: Duration) -> Result<PodView, WaitError> {
        self.pleg.newer_than(&self.uid, after, within).await
    }

    /// A view with all details newer than `after`: [`Pleg::details_newer_than`].
    ///
    /// # Errors
    /// The errors of [`Pleg::details_newer_than`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request. A read in flight continues.
    pub async fn details_newer_than(
        &self,
        after: Instant,
        within: Duration,
    ) -> Result<PodView, WaitError> {
        self.pleg.details_newer_than(&self.uid, after, within).await
    }

    /// A separate subscription to the announcements of the pod: [`Pleg::subscribe_pod`].
    pub fn subscribe(&self) -> Subscription {
        self.pleg.subscribe_pod(&self.uid)
    }
}
