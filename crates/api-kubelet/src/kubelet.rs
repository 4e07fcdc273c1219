//! The worker of a pod: decides what it needs, tells the API server how it is, and performs that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod};
use pleg::{Consumer, InvalidSetting, Pleg, WaitError};
use pleg_cri::CriClient;
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::plan::{Observed, Planner};
use pleg_kubelet::pod_status::{PodState, pod_status};
use pleg_kubelet::probe::{Probe, Prober};
use pleg_kubelet::worker::{Action, Reconcile, Run, RunError};
use static_pods::node_status::NodeStatus;

use crate::pods::ApiPod;
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
    type Spec = ApiPod;
    type Error = Error;

    async fn reconcile(&self, run: &Run<ApiPod>) -> Result<Action, Error> {
        let Some(ApiPod { pod, spec, .. }) = run.last_spec.as_deref() else {
            return Ok(Action::await_change());
        };
        let is_to_run = run.spec.as_ref().is_some_and(|pod| pod.is_to_run());
        if is_to_run {
            let probes = Probe::of_pod(pod);
            self.prober.set(&run.uid, &probes, run.waker())?;
        }
        let desired = match is_to_run {
            true => Desired::of(run, Some(spec)),
            false => Desired::terminate(Some(spec), run.grace),
        };
        let probes = |status: &_| self.prober.results(status);
        let plan = self.planner.plan(run, desired, Some(&probes)).await?;
        let observed = plan.observed.clone();
        // First, so that the API server knows of an exit before its container is restarted or removed. If it does not
        // answer, the pod runs on, and the next status has the last exit of each container.
        let waiting = self.performer.waiting(&run.uid);
        if let Err(error) = self.tell(run, pod, &observed, &waiting).await {
            tracing::debug!(pod = %run.uid, %error, "told after the actions of the plan");
        }
        let runs = Some(pod).filter(|_| is_to_run);
        self.node.usable(runs).map_err(Error::Runtime)?;
        let performed = self.performer.perform(Some(pod), plan).await;
        self.tell(run, pod, &observed, &performed.waiting).await?;
        Ok(performed.into_action()?)
    }

    async fn finish(&self, run: &Run<ApiPod>) -> Result<(), Error> {
        self.prober.remove(&run.uid);
        self.performer.remove_pod(run).await?;
        if let Some(ApiPod { pod, .. }) = run.last_spec.as_deref()
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
            performer: Performer::new(client, config).image_back_off(back_off)?,
            planner: Planner::new(back_off)?.consumer(consumer),
            node,
            statuses,
        })
    }

    async fn tell(
        &self,
        run: &Run<ApiPod>,
        pod: &Pod,
        observed: &Observed,
        waiting: &BTreeMap<String, ContainerStateWaiting>,
    ) -> Result<(), Error> {
        let messages = self.performer.termination_messages(run, observed).await;
        let previous = self.statuses.last(&run.uid, pod);
        let status = pod_status(&PodState {
            pod,
            view: &observed.view,
            ended: &observed.ended,
            unread: &observed.unread,
            previous: previous.as_ref(),
            messages: &messages,
            waiting,
            replaced: &observed.replaced,
            probes: observed.probes.as_ref(),
            runtime: &self.node.runtime(),
            host_ips: &self.performer.node().host_ips,
            terminal: observed.phase.is_some(),
            now: run.clock().wall(),
        });
        let told = self.statuses.tell(&run.uid, pod, status);
        let told = tokio::time::timeout(API_WITHIN, told).await;
        Ok(told.map_err(|_| Error::ApiTimeout)??)
    }
}
