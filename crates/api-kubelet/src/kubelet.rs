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
use pleg_kubelet::decision::{Decider, Decision};
use pleg_kubelet::ends::Ends;
use pleg_kubelet::gc::GcPolicy;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::pod_status::{PodState, pod_status};
use pleg_kubelet::probe::{Probe, Prober};
use pleg_kubelet::worker::{Next, Reconcile, Run, RunError};
use static_pods::node_status::NodeStatus;

use crate::pods::ApiPod;
use crate::status::Statuses;

/// Runs the pods of the node.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<NodeStatus>,
    statuses: Statuses,
    decider: Decider,
    ends: Ends,
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
    /// The API server does not have the pod's status. Nothing that ended is removed or restarted before it has.
    #[error("the API server was not told: {0}")]
    Api(#[source] Box<kube::Error>),
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

    async fn reconcile(&self, run: &Run<ApiPod>) -> Result<Next, Error> {
        let Some(ApiPod { pod, spec, .. }) = run.last_spec.as_deref() else {
            return Ok(Next::Change);
        };
        if run.spec.is_some() {
            let probes = Probe::of_pod(pod);
            self.prober.set(&run.uid, &probes, run.waker())?;
        }
        let desired = match run.spec.as_ref().is_some_and(|pod| pod.is_to_run()) {
            true => Desired::run(spec),
            false => Desired::terminate(Some(spec)),
        };
        let probes = |status: &_| self.prober.results(status);
        let mut decision = self.decider.decide(run, desired, Some(&probes)).await?;
        // Before anything is restarted or removed: the API server is to know of every end.
        let waiting = self.performer.waiting(&run.uid);
        self.tell(run, pod, &decision, &waiting).await?;
        let ended = self.ends.unreported(&decision);
        self.ends.acknowledge(&run.uid, &ended).await;
        self.node
            .usable(run.spec.as_ref().map(|_| pod))
            .map_err(Error::Runtime)?;
        let actions = &mut decision.actions;
        let prepared = self.performer.prepare(run, pod, actions).await;
        self.decider.record(run, actions);
        let performed = self
            .performer
            .perform(run, Some(pod), actions, prepared)
            .await;
        self.tell(run, pod, &decision, &performed.waiting).await?;
        let policy = GcPolicy::default();
        let removals = self.decider.removals(run, &mut decision, policy).await;
        self.performer.remove_all(run, &removals).await;
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        if is_deleted && decision.actions.terminated {
            self.statuses.remove(pod).await?;
        }
        let due = decision.actions.due.into_iter().chain(performed.due).min();
        let error = performed.errors.into_iter().next();
        error.map_or(Ok(due.into()), |error| Err(error.into()))
    }

    fn error_policy(&self, _: &pleg::PodUid, _: &RunError<Error>, failures: u32) -> Duration {
        Duration::from_secs(u64::from(failures).clamp(1, 10))
    }

    fn ended(&self, run: &Run<ApiPod>) {
        self.decider.forget(run);
        self.ends.forget(&run.uid);
        self.prober.remove(&run.uid);
        self.statuses.forget(&run.uid);
        if let Err(error) = self.performer.remove_pod(&run.uid) {
            tracing::error!(pod = %run.uid, %error, "the directory of a pod cannot be removed");
        }
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
            decider: Decider::new(back_off)?,
            ends: Ends::new(consumer),
            node,
            statuses,
        })
    }

    async fn tell(
        &self,
        run: &Run<ApiPod>,
        pod: &Pod,
        decision: &Decision,
        waiting: &BTreeMap<String, ContainerStateWaiting>,
    ) -> Result<(), Error> {
        let messages = self.performer.termination_messages(run, decision).await;
        let previous = self.statuses.last(&run.uid, pod);
        let status = pod_status(&PodState {
            pod,
            view: &decision.view,
            ended: &decision.records,
            unread: &decision.unread,
            previous: previous.as_ref(),
            messages: &messages,
            waiting,
            replaced: &decision.actions.replaced,
            probes: decision.probes.as_ref(),
            runtime: &self.node.runtime(),
            host_ips: &self.performer.node().host_ips,
            terminal: decision.actions.phase.is_some(),
            now: run.clock().wall(),
        });
        Ok(self.statuses.tell(&run.uid, pod, status).await?)
    }
}
