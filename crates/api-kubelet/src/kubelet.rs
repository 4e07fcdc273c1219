//! The worker of a pod: decides what it needs, tells the API server how it is, and performs that.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Consumer, InvalidSetting, Pleg, WaitError};
use pleg_cri::CriClient;
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::plan::{Observed, Planner};
use pleg_kubelet::probe::{Probe, Prober};
use pleg_kubelet::spec::PodSpec;
use pleg_kubelet::worker::{Action, Reconcile, Run, RunError};
use static_pods::credentials::DockerConfig;
use static_pods::node_status::NodeStatus;

use crate::pods::is_to_run;
use crate::status::Statuses;

/// How long a run waits for the API server.
const API_WITHIN: Duration = Duration::from_secs(10);

/// Runs the pods of the node.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<NodeStatus>,
    statuses: Statuses,
    planner: Planner,
    performer: Performer,
    prober: Prober<CriClient>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime does not answer, or says that it is not ready.
    #[error("the runtime cannot be used: {0}")]
    Runtime(String),
    /// The generator gave no status.
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    /// A probe's periods cannot be used.
    #[error("a probe: {0}")]
    Probe(#[from] InvalidSetting),
    /// The API server does not have the pod's status.
    #[error("the API server was not told: {0}")]
    Api(#[source] Box<kube::Error>),
    /// The API server has not answered in time.
    #[error("the API server has not answered within {API_WITHIN:?}")]
    ApiTimeout,
    /// An action failed.
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Reconcile for Kubelet {
    type Spec = Pod;
    type Error = Error;

    async fn reconcile(&self, run: &Run<Pod>) -> Result<Action, Error> {
        let Some(pod) = run.last_spec.as_deref() else {
            return Ok(Action::await_change());
        };
        let spec = &PodSpec::from_pod(pod);
        let is_to_run = run.spec.as_deref().is_some_and(is_to_run);
        if is_to_run {
            self.prober
                .set(&run.uid, &Probe::of_pod(pod), run.waker())?;
        }
        let desired = match is_to_run {
            true => Desired::of(run, Some(spec)),
            false => Desired::terminate(Some(spec), run.grace),
        };
        let status = self.statuses.last(&run.uid, pod);
        let desired = desired.until_deadline(run, pod, status.as_ref());
        let probes = |status: &_| self.prober.results(status);
        let plan = self.planner.plan(run, desired, Some(&probes)).await?;
        let observed = plan.observed.clone();
        // First, so that the API server knows of an exit before its container is restarted or removed. If it does not
        // answer, the pod runs on, and the next status has the last exit of each container.
        if let Err(error) = self.tell(run, pod, &observed).await {
            tracing::debug!(pod = %run.uid, %error, "told after the actions of the plan");
        }
        let runs = is_to_run.then_some(pod);
        self.node.usable(runs).map_err(Error::Runtime)?;
        let performed = self.performer.perform(Some(pod), plan).await;
        self.tell(run, pod, &observed).await?;
        Ok(performed.into_action()?)
    }

    async fn finish(&self, run: &Run<Pod>) -> Result<(), Error> {
        self.prober.remove(&run.uid);
        self.performer.remove_pod(run).await?;
        if let Some(pod) = run.last_spec.as_deref()
            && pod.metadata.deletion_timestamp.is_some()
        {
            self.statuses.remove(pod).await?;
        }
        self.statuses.forget(&run.uid);
        Ok(())
    }

    fn error_policy(&self, _: &pleg::PodUid, _: &RunError<Error>, failures: u32) -> Duration {
        Duration::from_secs(u64::from(failures).clamp(1, 10))
    }
}

impl Kubelet {
    /// A kubelet that runs nothing yet.
    ///
    /// # Errors
    /// If the back-off is invalid.
    pub fn new(
        pleg: &Pleg,
        client: CriClient,
        node: Arc<NodeStatus>,
        consumer: Consumer,
        config: NodeConfig,
        statuses: Statuses,
        back_off: BackOffSettings,
    ) -> Result<Self, InvalidSetting> {
        let address = config.host_ips.first().map(ToString::to_string);
        Ok(Self {
            prober: Prober::new(pleg, client.clone(), &address.unwrap_or_default()),
            performer: Performer::new(client, config)
                .image_back_off(back_off)?
                .sources(DockerConfig::default()),
            planner: Planner::new(back_off)?.consumer(consumer),
            node,
            statuses,
        })
    }

    async fn tell(&self, run: &Run<Pod>, pod: &Pod, observed: &Observed) -> Result<(), Error> {
        let (previous, runtime) = (self.statuses.last(&run.uid, pod), self.node.runtime());
        let status = self
            .performer
            .status(run, pod, observed, previous.as_ref(), &runtime);
        let status = status.await;
        let told = self.statuses.tell(&run.uid, pod, status);
        let told = tokio::time::timeout(API_WITHIN, told).await;
        Ok(told.map_err(|_| Error::ApiTimeout)??)
    }
}
