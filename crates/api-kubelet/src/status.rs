//! Reports the statuses of pods to the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, Error, ResourceExt as _};
use pleg::PodUid;
use pleg_kubelet::pod_status::OWN_CONDITIONS;

use crate::pods::uid_of;

/// The maximum number of updates that one report sends to the API server while they fail with a conflict.
const ATTEMPTS: u32 = 6;

/// The newest status of each pod.
pub(crate) struct Statuses {
    pub(crate) client: Client,
    /// The newest status of each pod, with true once the API server has this status or the pod's API object is gone.
    pub(crate) last: Mutex<BTreeMap<PodUid, (PodStatus, bool)>>,
}

impl Statuses {
    /// The newest status that this kubelet computed for the pod, even if unreported; else the API object's status.
    pub(crate) fn last(&self, pod: &Pod) -> Option<PodStatus> {
        let made = self.all().get(&uid_of(pod)).map(|(last, _)| last.clone());
        made.or_else(|| pod.status.clone())
    }

    /// Returns true if this kubelet has computed a status of the pod that the API server has not accepted yet.
    pub(crate) fn is_unreported(&self, pod: &Pod) -> bool {
        let (all, uid) = (self.all(), uid_of(pod));
        all.get(&uid).is_some_and(|(_, reported)| !reported)
    }

    /// Sends a status of a pod to the API server if it has changed, and waits until the API server has accepted it.
    /// Sends nothing if the pod's API object is gone, or if another pod has the pod's name.
    ///
    /// # Cancel safety
    /// If the future is dropped, the update may or may not take effect: call `report` again.
    pub(crate) async fn report(&self, pod: &Pod, status: PodStatus) -> Result<(), Error> {
        let uid = uid_of(pod);
        if matches!(self.all().get(&uid), Some((last, true)) if *last == status) {
            return Ok(());
        }
        self.all().insert(uid.clone(), (status.clone(), false));
        let pods = self.pods(pod);
        for attempt in 1.. {
            let live = pods.get_opt(&pod.name_any()).await?;
            let Some(mut live) = live.filter(|live| live.uid() == pod.uid()) else {
                break;
            };
            live.status = Some(merged(&status, live.status.as_ref()));
            let params = PostParams::default();
            match pods.replace_status(&pod.name_any(), &params, &live).await {
                Err(Error::Api(error)) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        self.all().insert(uid, (status, true));
        Ok(())
    }

    /// Removes the API object of a pod that has ended, but not the object of a later pod of the same name.
    pub(crate) async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        let params = DeleteParams::default().grace_period(0);
        let params = params.preconditions(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        });
        match self.pods(pod).delete(&pod.name_any(), &params).await {
            // Another client has removed the object, or the object of that name belongs to a later pod.
            Err(Error::Api(error)) if error.is_not_found() || error.is_conflict() => Ok(()),
            removed => removed.map(drop),
        }
    }

    pub(crate) fn forget(&self, pod: &Pod) {
        self.all().remove(&uid_of(pod));
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        let namespace = pod.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PodUid, (PodStatus, bool)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `status` with those conditions of `live` that other components set. A terminal phase of `live` stays.
fn merged(status: &PodStatus, live: Option<&PodStatus>) -> PodStatus {
    let mut merged = status.clone();
    let Some(live) = live else { return merged };
    let is_own = |c: &&PodCondition| OWN_CONDITIONS.contains(&&*c.type_);
    let own = status.conditions.iter().flatten().filter(is_own);
    let others = live.conditions.iter().flatten().filter(|c| !is_own(c));
    merged.conditions = Some(own.chain(others).cloned().collect());
    if is_terminal(live) {
        merged.phase.clone_from(&live.phase);
    }
    merged
}

/// Returns true if the phase is terminal: the pod has ended and is never started again.
pub(crate) fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}
