use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Consumer, Exit, InvalidSetting, Pleg, PodUid, WaitError, cri::CriClient};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::plan::Planner;
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run};

pub(crate) struct Kubelet {
    pub(crate) planner: Planner,
    pub(crate) performer: Performer,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl Reconcile for Kubelet {
    type Spec = Pod;
    type Error = Error;
    async fn reconcile(&self, run: &Run<Pod>) -> Result<Action, Error> {
        let pod = run.last_spec.as_deref();
        let plan = self.planner.plan(run, Desired::of(run, pod), None).await?;
        report(plan.exits()); // Before `perform`, which acknowledges them.
        Ok(self.performer.perform(pod, plan).await.into_action()?)
    }
    async fn finish(&self, run: &Run<Pod>) -> Result<(), Error> {
        self.performer.remove_pod(run).await?;
        report(&self.planner.last_exits(run));
        Ok(())
    }
}

fn report(exits: &[Exit]) {
    for exit in exits {
        tracing::info!(name = %exit.name, code = exit.exit_code, "exited");
    }
}

pub(crate) fn start(
    (pleg, consumer, client): (&Pleg, Consumer, CriClient),
    node: NodeConfig,
    pods: Vec<(PodUid, Arc<Pod>)>,
) -> Result<PodWorkers<Pod>, InvalidSetting> {
    let planner = Planner::new(BackOffSettings::default())?.consumer(consumer);
    let performer = Performer::new(client, node);
    let kubelet = Arc::new(Kubelet { planner, performer });
    Ok(PodWorkers::spawn(pleg.clone(), kubelet, pods))
}
