use pleg::{InvalidSetting, Pleg, PodUid, WaitError, cri::CriClient};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::decision::Decider;
use pleg_kubelet::gc::GcPolicy;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::worker::{Next, PodWorkers, Reconcile, Run, WorkerSettings};
use static_pods::manifest::Manifest;

struct Kubelet(Decider, Performer);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl Reconcile for Kubelet {
    type Spec = Manifest;
    type Error = Error;
    async fn reconcile(&self, run: &Run<Manifest>) -> Result<Next, Error> {
        let Self(decider, performer) = self;
        let Some(Manifest { pod, spec, .. }) = run.last_spec.as_deref() else {
            return Ok(Next::Change); // Somebody else's pod. Without this it would be terminated.
        };
        let desired = match run.spec {
            Some(_) => Desired::run(spec),
            None => Desired::terminate(Some(spec)),
        };
        let mut decision = decider.decide(run, desired, None).await?;
        let actions = &mut decision.actions;
        let prepared = performer.prepare(run, pod, actions).await;
        decider.record(run, actions); // Before the first call.
        let performed = performer.perform(run, Some(pod), actions, prepared).await;
        let removals = decider.removals(run, &mut decision, GcPolicy::default());
        performer.remove_all(run, &removals.await).await;
        let due = decision.actions.due.into_iter().chain(performed.due).min();
        let error = performed.errors.into_iter().next();
        error.map_or(Ok(due.into()), |error| Err(error.into()))
    }
    fn ended(&self, run: &Run<Manifest>) {
        self.0.forget(run);
        let removed = self.1.remove_pod(&run.uid);
        removed.unwrap_or_else(|error| tracing::error!(%error, "files of a pod are left"));
    }
}

pub(crate) fn start(
    pleg: &Pleg,
    client: CriClient,
    node: NodeConfig,
    manifests: Vec<(PodUid, std::sync::Arc<Manifest>)>,
) -> Result<PodWorkers<Manifest>, InvalidSetting> {
    let decider = Decider::new(BackOffSettings::default())?;
    let kubelet = Kubelet(decider, Performer::new(client, node));
    PodWorkers::spawn(pleg.clone(), kubelet, WorkerSettings::default(), manifests)
}
