use std::error::Error;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Exit, Pleg, PodUid};
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

impl Reconcile for Kubelet {
    type Spec = Pod;
    type Error = PerformError;
    async fn reconcile(&self, run: &Run<Pod>) -> Result<Action, PerformError> {
        let pod = run.last_spec.as_deref();
        let plan = self.planner.plan(run, Desired::of(run, pod), None).await?;
        report(plan.exits()); // Before `perform`, which acknowledges them.
        self.performer.perform(pod, plan).await.into_action()
    }
    async fn finish(&self, run: &Run<Pod>) -> Result<(), PerformError> {
        self.performer.remove_pod(run).await?;
        report(&self.planner.last_exits(run));
        Ok(())
    }
}

fn report(exits: &[Exit]) {
    for exit in exits {
        tracing::info!(kind = ?exit.kind, name = %exit.name, code = exit.exit_code, "exited");
    }
}

pub(crate) async fn start(
    endpoint: &str,
    node: NodeConfig,
    pods: Vec<(PodUid, Arc<Pod>)>,
) -> Result<(Pleg, PodWorkers<Pod>), Box<dyn Error>> {
    let (mut builder, client) = Pleg::connect(endpoint)?;
    let consumer = builder.register_consumer("kubelet");
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?; // Until then, `pleg` may not know all containers.
    let planner = Planner::new(BackOffSettings::default())?.consumer(consumer);
    let performer = Performer::new(client, node);
    let uids = pods.iter().map(|(uid, _)| uid.clone()).collect();
    if let Err(error) = performer.remove_orphans(&pleg, &uids) {
        tracing::error!(%error, "files of deleted pods are left");
    }
    let kubelet = Arc::new(Kubelet { planner, performer });
    Ok((pleg.clone(), PodWorkers::spawn(pleg, kubelet, pods)))
}
