use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pleg::{Pleg, PodUid, cri::CriClient};
use pleg_kubelet::actions::{Desired, decide};

use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::worker::{Next, PodWorkers, Reconcile, Run, WorkerSettings};
use pleg_kubelet::{backoff::BackOff, cri_config::NodeConfig};
use pleg_kubelet::{history::PodHistory, manifest::Manifest};

type Memory = (BTreeMap<PodUid, PodHistory>, BackOff);
struct Kubelet(Performer, Mutex<Memory>);
impl Kubelet {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Kubelet {
    type Spec = Manifest;
    type Error = PerformError;
    async fn reconcile(&self, run: &Run<Manifest>) -> Result<Next, PerformError> {
        let (pod, spec) = run.last_spec.as_ref().map(|m| (&m.pod, &m.spec)).unzip();
        let desired = match spec {
            Some(spec) if run.spec.is_some() => Desired::run(spec),
            _ => Desired::terminate(spec),
        };
        let (ends, now) = (run.terminal_records(), run.now());
        let decide = |view| {
            let (histories, back_off) = &mut *self.memory();
            let history = histories.entry(run.uid.clone()).or_default();
            decide(&desired, view, &ends, history, back_off, now)
        };
        let mut actions = decide(&run.view);
        if let Some(after) = actions.inspect_after
            && let Ok(view) = run.details_newer_than(after).await
        {
            actions = decide(&view); // The exit code is known now.
        }
        let performed = self.0.perform(run, pod, &actions).await;
        if actions.terminated && run.spec.is_none() {
            for sandbox in &run.view.status.sandboxes {
                self.0.remove_sandbox(run, &sandbox.id).await?; // And its containers.
            }
        }
        let error = performed.errors.into_iter().next();
        error.map_or(Ok(actions.due.into()), Err)
    }
    fn ended(&self, uid: &PodUid) {
        let (histories, back_off) = &mut *self.memory();
        histories.remove(uid);
        back_off.forget(uid);
    }
}

pub(crate) fn start(pleg: &Pleg, client: CriClient, node: NodeConfig) -> PodWorkers<Manifest> {
    let kubelet = Kubelet(Performer::new(client, node), Mutex::default());
    PodWorkers::spawn(pleg.clone(), kubelet, WorkerSettings::default())
}
