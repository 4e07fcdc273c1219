//! At most one pod of a name runs at a time: an edited manifest is a new pod, which waits until the earlier pod ended.

use std::collections::BTreeMap;
use std::sync::Mutex;

use pleg::{Instant, Pleg, PodUid};

use crate::lock;
use crate::spec::PodName;
use crate::worker::may_run;

/// The pod for which a sandbox was last created under a namespace and name, and the instant of that creation. `None`
/// while the create call is in progress, and after it failed: a call that timed out may still take effect, so the name
/// becomes free only when the pod's worker has ended.
type Owner = (PodUid, Option<Instant>);

/// The pod that may run under each name, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<BTreeMap<(String, String), Owner>>);

impl Names {
    /// Reserves the name of the pod before its sandbox is created. Fails with the uid of a namesake that may still run.
    pub(super) fn take(&self, pleg: &Pleg, name: PodName<'_>, uid: &PodUid) -> Result<(), PodUid> {
        let mut owners = lock(&self.0);
        let key = (name.namespace.to_owned(), name.name.to_owned());
        if let Some((owner, created)) = owners.get(&key).filter(|(owner, _)| owner != uid) {
            let view = pleg.get(owner);
            let is_older = |created| view.as_of <= Some(created);
            if created.is_none_or(is_older) || may_run(&view.status) {
                return Err(owner.clone());
            }
        }
        // `owners` does not have pods that an earlier kubelet process started, so look for these pods in the cache.
        let running = pleg.snapshot().into_iter().find(|view| {
            let status = &view.status;
            let is_same = *status.namespace == *name.namespace && *status.name == *name.name;
            is_same && status.uid != *uid && may_run(status)
        });
        if let Some(view) = running {
            return Err(view.status.uid.clone());
        }
        owners.insert(key, (uid.clone(), None));
        Ok(())
    }

    pub(super) fn created(&self, uid: &PodUid, at: Instant) {
        let mut owners = lock(&self.0);
        for (_, created) in owners.values_mut().filter(|(owner, _)| owner == uid) {
            *created = Some(at);
        }
    }

    /// Frees the name of a pod. Called after the pod's worker has cleaned up.
    pub(super) fn release(&self, uid: &PodUid) {
        lock(&self.0).retain(|_, (owner, _)| owner != uid);
    }
}
