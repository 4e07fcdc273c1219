//! Tells the API server how pods are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, Error, ResourceExt as _};
use pleg::PodUid;

/// How often an update that is a conflict is tried in one run.
const ATTEMPTS: u32 = 6;

/// The statuses of pods as the API server knows them.
pub struct Statuses {
    client: Client,
    told: Mutex<BTreeMap<PodUid, PodStatus>>,
}

impl std::fmt::Debug for Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statuses").finish_non_exhaustive()
    }
}

impl Statuses {
    /// Nothing was told yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            told: Mutex::default(),
        }
    }

    /// What the API server was told last of the pod; else what its object says.
    #[must_use]
    pub fn last(&self, uid: &PodUid, pod: &Pod) -> Option<PodStatus> {
        self.told().get(uid).cloned().or_else(|| pod.status.clone())
    }

    /// Tells the API server the status of a pod, if it is another one than before, and waits until it has it. A pod
    /// that is gone, or whose name another pod has, needs none.
    ///
    /// # Errors
    /// If the API server does not answer, or the object changes all the time.
    ///
    /// # Cancel safety
    /// The update may or may not take effect; make it again.
    pub async fn tell(&self, uid: &PodUid, pod: &Pod, status: PodStatus) -> Result<(), Error> {
        if self.told().get(uid) == Some(&status) {
            return Ok(());
        }
        let pods = self.pods(pod);
        for attempt in 1.. {
            let live = pods.get_opt(&pod.name_any()).await?;
            let Some(mut live) = live.filter(|live| live.uid() == pod.uid()) else {
                return Ok(());
            };
            live.status = Some(merged(&status, live.status.as_ref()));
            let params = PostParams::default();
            match pods.replace_status(&pod.name_any(), &params, &live).await {
                Err(Error::Api(error)) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        self.told().insert(uid.clone(), status);
        Ok(())
    }

    /// Removes the object of a pod that has ended. If another pod has its name by now, that stays.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        let params = DeleteParams::default().grace_period(0);
        let params = params.preconditions(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        });
        match self.pods(pod).delete(&pod.name_any(), &params).await {
            // Somebody else has removed it, or its name is another pod's.
            Err(Error::Api(error)) if error.is_not_found() || error.is_conflict() => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Drops what is kept of a pod.
    pub fn forget(&self, uid: &PodUid) {
        self.told().remove(uid);
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        let namespace = pod.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<PodUid, PodStatus>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status, with the conditions of others (the scheduler's, readiness gates), and never back from a terminal phase.
fn merged(status: &PodStatus, live: Option<&PodStatus>) -> PodStatus {
    let mut merged = status.clone();
    let Some(live) = live else { return merged };
    let own = status.conditions.as_deref().unwrap_or_default();
    let is_other = |c: &&PodCondition| own.iter().all(|own| own.type_ != c.type_);
    let others = live.conditions.iter().flatten().filter(is_other).cloned();
    merged.conditions = Some(own.iter().cloned().chain(others).collect());
    if is_terminal(live) {
        merged.phase.clone_from(&live.phase);
    }
    merged
}

/// Returns true if the pod has ended and is never started again.
#[must_use]
pub fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}
