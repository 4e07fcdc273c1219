//! The worker of a pod: plans what the pod needs, performs the plan, and reports the pod's status.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::admission::{NodeFacts, admit};
use crate::credentials::{DOCKER_CONFIG, DockerConfig};
use crate::manifest::{MANIFEST_NODE, Manifest};
use crate::node_status::{NodeStatus, sync_loop_pause};
use k8s_openapi::api::core::v1::{self, Pod};
use pleg::core::Kind;
use pleg::{Consumer, Exit, Id, InvalidSetting, Pleg, PodStatus, PodUid};
use pleg_cri::CriClient;
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::{PerformError, Performer};
use pleg_kubelet::plan::{Observed, Planner};
use pleg_kubelet::probe::Prober;
use pleg_kubelet::worker::{Action, Reconcile, Run, RunError};
use serde_json::{Value, json};

/// Runs the pods of a node.
#[derive(Debug)]
pub struct Kubelet {
    /// The event generator, which has the statuses of the node's pods.
    pub pleg: Pleg,
    /// The status of the node.
    pub node: NodeStatus,
    planner: Planner,
    performer: Performer,
    prober: Prober<CriClient>,
    /// The pods of the manifests, each with its last status.
    pods: Mutex<BTreeMap<PodUid, Pod>>,
    /// Pods being terminated because their manifest was removed or replaced. Never locked together with `pods`.
    going: Mutex<BTreeSet<PodUid>>,
    facts: NodeFacts,
}

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime is down or not ready, the PLEG is unhealthy, or the pod needs the network, which is not ready.
    #[error("the runtime cannot be used: {0}")]
    Runtime(String),
    /// The pod could not be planned, or an action failed.
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl Reconcile for Kubelet {
    type Spec = Manifest;
    type Error = Error;

    async fn reconcile(&self, run: &Run<Manifest>) -> Result<Action, Error> {
        let manifest = run.last_spec.as_deref();
        let pod = manifest.map(|manifest| &manifest.pod);
        if let Some(manifest) = &run.spec {
            self.prober.set(&run.uid, &manifest.pod, run.waker());
            if !self.is_admitted(run, &manifest.pod) {
                return Ok(Action::await_change());
            }
        }
        let status = self.last_status(&run.uid);
        let desired = Desired::of(run, pod).until_deadline(run, status.as_ref());
        let probes = |status: &_| self.prober.results(status);
        let plan = self
            .planner
            .plan(run, desired, Some(&probes))
            .await
            .map_err(PerformError::from)?;
        let observed = plan.observed.clone();
        self.update_status(run, pod, &observed).await;

        let runs = pod.filter(|_| run.spec.is_some());
        self.node.usable(runs).map_err(Error::Runtime)?;
        report(&run.uid, plan.exits());
        let performed = self.performer.perform(pod, plan).await;
        for started in &performed.started {
            print(&json!({
                "event": "started", "pod": run.uid.as_str(), "container": started.name,
                "id": started.existing.as_ref().map(Id::as_str), "attempt": started.attempt,
            }));
        }
        self.update_status(run, pod, &observed).await;
        Ok(performed.into_action()?)
    }

    async fn finish(&self, run: &Run<Manifest>) -> Result<(), Error> {
        self.prober.remove(&run.uid);
        self.pods().remove(&run.uid);
        self.going().remove(&run.uid);
        self.performer.remove_pod(run).await?;
        report(&run.uid, &self.planner.last_exits(run));
        Ok(())
    }

    /// Returns true for pods that were made from this node's manifests. The kubelet leaves other pods alone.
    fn owns(&self, pod: &PodStatus) -> bool {
        let mut sandboxes = pod.sandboxes.iter();
        sandboxes.any(|s| s.details.annotations.get(MANIFEST_NODE) == Some(self.node.name()))
    }

    fn error_policy(&self, _: &PodUid, error: &RunError<Error>, failures: u32) -> Duration {
        match error {
            RunError::Reconcile(Error::Runtime(_)) => sync_loop_pause(failures),
            _ => Duration::from_secs(u64::from(failures).clamp(1, 10)),
        }
    }
}

impl Kubelet {
    /// A kubelet that runs no pod yet. `back_off` sets the delays of restarts and of image pulls.
    ///
    /// # Errors
    /// If the back-off is invalid.
    pub fn new(
        pleg: Pleg,
        client: CriClient,
        node: NodeStatus,
        consumer: Consumer,
        config: NodeConfig,
        facts: NodeFacts,
        back_off: BackOffSettings,
    ) -> Result<Self, InvalidSetting> {
        let address = config.host_ips.first().map(ToString::to_string);
        let performer = Performer::new(client.clone(), config).image_back_off(back_off)?;
        let kubelet = Self {
            prober: Prober::new(&pleg, client, &address.unwrap_or_default()),
            performer,
            planner: Planner::new(back_off)?.consumer(consumer),
            node,
            pleg,
            pods: Mutex::default(),
            going: Mutex::default(),
            facts,
        };
        Ok(kubelet.docker_config(DOCKER_CONFIG))
    }

    /// Sets the docker config file with the credentials for image pulls. The default is [`DOCKER_CONFIG`].
    #[must_use]
    pub fn docker_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.performer = self.performer.sources(DockerConfig {
            file: file.into(),
            ignores_pull_secrets: true,
        });
        self
    }

    fn last_status(&self, uid: &PodUid) -> Option<v1::PodStatus> {
        self.pods().get(uid).and_then(|pod| pod.status.clone())
    }

    /// Returns false if the node rejects the pod. A pod that ran before the kubelet was restarted is not checked again.
    fn is_admitted(&self, run: &Run<Manifest>, pod: &Pod) -> bool {
        let going = self.going().clone();
        let mut pods = self.pods();
        if let Some(known) = pods.get(&run.uid) {
            // The status of a rejected pod has no conditions.
            let status = known.status.as_ref();
            return status.is_none_or(|status| status.conditions.is_some());
        }
        let counts = |(uid, other): &(&PodUid, &Pod)| {
            let phase = other.status.as_ref().and_then(|s| s.phase.as_deref());
            !going.contains(*uid) && !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let others = pods.iter().filter(counts).map(|(_, other)| other);
        let result = match !run.view.status.exists() {
            true => admit(pod, &self.facts, others),
            false => Ok(()),
        };
        let mut pod = pod.clone();
        if let Err(rejection) = &result {
            tracing::warn!(pod = %run.uid, reason = rejection.reason, %rejection, "a pod was rejected");
            pod.status = Some(rejection.status(&pod, self.pleg.clock().wall()));
        }
        show(&mut pods, run, pod);
        result.is_ok()
    }

    /// Call this before you delete a pod: the pod that replaces it is then admitted as if the deleted pod had ended.
    pub fn will_delete(&self, uid: &PodUid) {
        self.going().insert(uid.clone());
    }

    fn going(&self) -> MutexGuard<'_, BTreeSet<PodUid>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pods that are running now, including pods of other programs.
    pub fn running(&self) -> BTreeSet<PodUid> {
        let views = self.pleg.snapshot().into_iter().map(|view| view.status);
        let running = views.filter(|status| status.active_sandbox().is_some());
        running.map(|status| status.uid.clone()).collect()
    }

    /// Admits the pods in `specs` that are already running, before other pods take their ports. Removes the files of
    /// pods that are neither in `specs` nor known to the runtime. Call it before the pod workers start.
    pub fn adopt(&self, specs: &[(PodUid, Arc<Manifest>)]) {
        let running = self.running();
        let adopted = specs.iter().filter(|(uid, _)| running.contains(uid));
        let adopted = adopted.map(|(uid, manifest)| (uid.clone(), manifest.pod.clone()));
        self.pods().extend(adopted);
        let uids = specs.iter().map(|(uid, _)| uid.clone()).collect();
        if let Err(error) = self.performer.remove_orphans(&self.pleg, &uids) {
            tracing::error!(%error, "files of deleted pods are left");
        }
    }

    /// All pods with their last status.
    pub fn pods(&self) -> MutexGuard<'_, BTreeMap<PodUid, Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn update_status(&self, run: &Run<Manifest>, pod: Option<&Pod>, observed: &Observed) {
        let Some(pod) = pod else { return };
        let (previous, runtime) = (self.last_status(&run.uid), self.node.runtime());
        let performer = &self.performer;
        let status = performer.status(run, pod, observed, previous.as_ref(), &runtime);
        let mut pod = pod.clone();
        pod.status = Some(status.await);
        if run.spec.is_none() {
            self.going().insert(run.uid.clone());
        }
        show(&mut self.pods(), run, pod);
    }
}

/// Puts the pod of a run into `pods`, which has at most one pod of each name: the newest one that has a specification.
fn show(pods: &mut BTreeMap<PodUid, Pod>, run: &Run<Manifest>, pod: Pod) {
    let name = |pod: &Pod| (pod.metadata.name.clone(), pod.metadata.namespace.clone());
    let is_other = |uid: &PodUid, other: &Pod| *uid != run.uid && name(other) == name(&pod);
    if run.spec.is_some() {
        pods.retain(|uid, other| !is_other(uid, other));
    } else if pods.iter().any(|(uid, other)| is_other(uid, other)) {
        return;
    }
    pods.insert(run.uid.clone(), pod);
}

/// Prints the exits of containers.
fn report(uid: &PodUid, exits: &[Exit]) {
    for exit in exits.iter().filter(|exit| exit.kind == Kind::Container) {
        print(&json!({
            "event": "ended", "pod": uid.as_str(), "container": &*exit.name,
            "id": exit.id.as_str(), "attempt": exit.attempt, "exitCode": exit.exit_code,
        }));
    }
}

/// Prints one line for programs that read the output of this program.
pub fn print(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Ignores the error if the reader of the output is gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
