//! The worker of a pod: plans what the pod needs, reports its status to the API server, and performs the plan.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Pod;
use pleg::PodStatus;
use pleg_cri::CriClient;
use pleg_cri::v1::PodSandboxConfig;
use pleg_kubelet::actions::Desired;
use pleg_kubelet::perform::{LastChanges, Performer};
use pleg_kubelet::plan::{Observed, Planner};
use pleg_kubelet::probe::Prober;
use pleg_kubelet::worker::{Action, Reconcile, Run};
use static_pods::node_status::NodeStatus;

use crate::pods::is_to_run;
use crate::status::{Statuses, is_terminal};

/// The time limit for a report of a pod's status to the API server, and for the removal of the pod's API object.
const API_WITHIN: Duration = Duration::from_secs(10);
/// Annotation that this kubelet sets on the sandboxes of its pods: the name of its node.
const API_NODE: &str = "pleg/api-node";

/// Runs the pods of the node.
pub(crate) struct Kubelet {
    pub(crate) node: Arc<NodeStatus>,
    pub(crate) statuses: Statuses,
    pub(crate) planner: Planner,
    pub(crate) performer: Performer,
    pub(crate) prober: Prober<CriClient>,
}

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct Error(#[from] anyhow::Error);

impl Reconcile for Kubelet {
    type Spec = Pod;
    type Error = Error;

    async fn reconcile(&self, run: &Run<Pod>) -> Result<Action, Error> {
        Ok(self.run(run).await?)
    }

    async fn finish(&self, run: &Run<Pod>) -> Result<(), Error> {
        Ok(self.clean_up(run).await?)
    }

    /// Returns true if an annotation on one of the pod's sandboxes names this kubelet's node.
    fn owns(&self, pod: &PodStatus) -> bool {
        let mut sandboxes = pod.sandboxes.iter();
        sandboxes.any(|s| s.details.annotations.get(API_NODE) == Some(self.node.name()))
    }
}

impl Kubelet {
    async fn run(&self, run: &Run<Pod>) -> anyhow::Result<Action> {
        // `pod` is `None` if the pod's API object was deleted while no kubelet ran.
        let pod = run.last_spec.as_deref();
        let runs = run.spec.as_deref().filter(|pod| is_to_run(pod));
        if let Some(pod) = runs {
            self.prober.set(&run.uid, pod, run.waker());
        }
        let desired = match runs {
            Some(_) => Desired::of(run, pod),
            None => Desired::terminate(pod, run.grace),
        };
        let status = pod.and_then(|pod| self.statuses.last(pod));
        let desired = desired.until_deadline(run, status.as_ref());
        let probes = |status: &_| self.prober.results(status);
        let plan = self.planner.plan(run, desired, Some(&probes)).await?;
        let observed = plan.observed.clone();
        // Report before the plan is performed: the API server must know of an exit before the container is restarted or
        // removed. If the report fails, perform the plan all the same: the next status has each container's last exit.
        if let Err(error) = self.report(run, &observed).await {
            tracing::debug!(pod = %run.uid, %error, "status not reported; plan performed anyway");
        }
        let usable = self.node.usable(runs).map_err(|error| anyhow!(error));
        usable.context("the runtime cannot be used")?;
        let performed = self.performer.perform(pod, plan).await;
        self.report(run, &observed).await?;
        Ok(performed.into_action()?)
    }

    async fn clean_up(&self, run: &Run<Pod>) -> anyhow::Result<()> {
        self.prober.remove(&run.uid);
        let Some(pod) = run.last_spec.as_deref() else {
            return Ok(self.performer.remove_pod(run).await?);
        };
        let desired = Desired::terminate(Some(pod), run.grace);
        let plan = self.planner.plan(run, desired, None).await?;
        // Before `remove_pod`, report if containers exited, the last report failed or the last phase was not terminal.
        let has_ended = self.statuses.last(pod).as_ref().is_some_and(is_terminal);
        if !plan.exits().is_empty() || self.statuses.is_unreported(pod) || !has_ended {
            self.report(run, &plan.observed).await?;
        }
        self.performer.remove_pod(run).await?;
        if pod.metadata.deletion_timestamp.is_some() {
            tokio::time::timeout(API_WITHIN, self.statuses.remove(pod)).await??;
        }
        self.statuses.forget(pod);
        Ok(())
    }

    async fn report(&self, run: &Run<Pod>, observed: &Observed) -> anyhow::Result<()> {
        let Some(pod) = run.last_spec.as_deref() else {
            return Ok(());
        };
        let (last, runtime) = (self.statuses.last(pod), self.node.runtime());
        let performer = &self.performer;
        let status = performer.status(run, pod, observed, last.as_ref(), &runtime);
        let reported = self.statuses.report(pod, status.await);
        let reported = tokio::time::timeout(API_WITHIN, reported).await;
        let reported = reported.context("the API server does not answer")?;
        reported.context("the status cannot be reported")
    }
}

type Changed = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Annotates each new sandbox with the node's name, by which `owns` recognizes the sandbox.
pub(crate) struct Mark(pub(crate) String);

impl LastChanges for Mark {
    fn sandbox(&self, _: &Pod, config: &mut PodSandboxConfig) -> Changed {
        let mark = (API_NODE.to_owned(), self.0.clone());
        config.annotations.extend([mark]);
        Ok(())
    }
}
