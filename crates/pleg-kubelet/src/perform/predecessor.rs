//! At most one pod of a name runs: an edited manifest is a new pod, which waits until the earlier pod has ended.

use std::collections::BTreeMap;
use std::sync::Mutex;

use pleg::{Instant, Pleg, PodUid};

use crate::lock;
use crate::names::PodName;
use crate::worker::may_run;

/// The pod that may run under each name, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<BTreeMap<(String, String), Owner>>);

/// The pod for which a sandbox was last created under a name.
#[derive(Debug)]
struct Owner {
    uid: PodUid,
    /// The instant of the sandbox's creation. `None` while the create call is in progress, and after it failed: a call
    /// that timed out may still take effect, so the name becomes free only when the pod's worker has ended.
    created: Option<Instant>,
}

impl Owner {
    fn may_run(&self, pleg: &Pleg) -> bool {
        let view = pleg.get(&self.uid);
        let is_older = |created| view.as_of <= Some(created);
        self.created.is_none_or(is_older) || may_run(&view.status)
    }
}

impl Names {
    /// Reserves the name of the pod before its sandbox is created. Fails with the uid of a namesake that may run.
    pub(super) fn take(&self, pleg: &Pleg, name: PodName<'_>, uid: &PodUid) -> Result<(), PodUid> {
        let mut owners = lock(&self.0);
        let key = (name.namespace.to_owned(), name.name.to_owned());
        let owner = owners.get(&key).filter(|owner| owner.uid != *uid);
        if let Some(owner) = owner.filter(|owner| owner.may_run(pleg)) {
            return Err(owner.uid.clone());
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
        let uid = uid.clone();
        owners.insert(key, Owner { uid, created: None });
        Ok(())
    }

    pub(super) fn created(&self, uid: &PodUid, at: Instant) {
        let mut owners = lock(&self.0);
        for owner in owners.values_mut().filter(|owner| owner.uid == *uid) {
            owner.created = Some(at);
        }
    }

    /// Frees the name of a pod. Called after the pod's worker has cleaned up.
    pub(super) fn release(&self, uid: &PodUid) {
        lock(&self.0).retain(|_, owner| owner.uid != *uid);
    }
}
