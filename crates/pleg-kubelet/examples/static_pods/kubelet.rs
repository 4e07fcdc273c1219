//! The worker of a pod: decides what it needs, performs that, and reports how it is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod};
use pleg::core::Kind;
use pleg::{Consumer, Id, InvalidSetting, Pleg, PodUid, TerminalRecord, WaitError};
use pleg_cri::CriClient;
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::decision::{Decider, Decision};
use pleg_kubelet::ends::Ends;
use pleg_kubelet::gc::GcPolicy;
use pleg_kubelet::manifest::Manifest;
use pleg_kubelet::names;
use pleg_kubelet::node_status::NodeStatus;
use pleg_kubelet::perform::{PerformError, Performer, Prepared};
use pleg_kubelet::pod_status::{PodState, pod_status};
use pleg_kubelet::probe::{Probe, Prober};
use pleg_kubelet::runtime_state::SyncLoopBackoff;
use pleg_kubelet::worker::{Next, Reconcile, Run, RunError};
use serde_json::{Value, json};

/// Runs pods. One for the node.
pub(crate) struct Kubelet {
    pub(crate) pleg: Pleg,
    pub(crate) node: NodeStatus,
    decider: Decider,
    ends: Ends,
    performer: Performer,
    prober: Prober<CriClient>,
    /// The pods with their last status.
    pods: Mutex<BTreeMap<PodUid, Pod>>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the runtime cannot be used: {0}")]
    Runtime(String),
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    #[error("a probe: {0}")]
    Probe(#[from] InvalidSetting),
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl Reconcile for Kubelet {
    type Spec = Manifest;
    type Error = Error;

    async fn reconcile(&self, run: &Run<Manifest>) -> Result<Next, Error> {
        if run.spec.is_none() && !self.is_ours(run) {
            return Ok(Next::Change);
        }
        let manifest = run.spec.as_deref().or(run.last_spec.as_deref());
        let pod = manifest.map(|manifest| &manifest.pod);
        if let Some(manifest) = &run.spec {
            let probes = Probe::of_pod(&manifest.pod);
            self.prober.set(&run.uid, &probes, run.waker())?;
        }
        let desired = match manifest {
            Some(manifest) if run.spec.is_some() => Desired::run(&manifest.spec),
            manifest => Desired::terminate(manifest.map(|manifest| &manifest.spec)),
        };
        let probes = |status: &_| self.prober.results(status);
        let mut decision = self.decider.decide(run, desired, Some(&probes)).await?;
        let messages = self.performer.termination_messages(run, &decision).await;
        let waiting = self.performer.waiting(&run.uid);
        self.update_status(run, pod, &decision, &messages, &waiting);

        let runs = pod.filter(|_| run.spec.is_some());
        self.node.usable(runs).map_err(Error::Runtime)?;
        let ended = self.ends.unreported(&decision);
        Self::report_ends(&run.uid, &ended);
        self.ends.acknowledge(&run.uid, &ended).await;
        let actions = &mut decision.actions;
        let prepared = match pod {
            Some(pod) => self.performer.prepare(run, pod, actions).await,
            None => Prepared::default(),
        };
        self.decider.record(run, actions);
        let performed = self.performer.perform(run, pod, actions, prepared).await;
        for started in &performed.started {
            print(&json!({
                "event": "started", "pod": run.uid.as_str(), "container": started.name,
                "id": started.id.as_str(), "attempt": started.attempt,
            }));
        }
        self.update_status(run, pod, &decision, &messages, &performed.waiting);
        let policy = GcPolicy::default();
        let removals = self.decider.removals(run, &mut decision, policy).await;
        self.performer.remove_all(run, &removals).await;
        let due = decision.actions.due.into_iter().chain(performed.due).min();
        let error = performed.errors.into_iter().next();
        error.map_or(Ok(due.into()), |error| Err(error.into()))
    }

    fn error_policy(&self, _: &PodUid, error: &RunError<Error>, failures: u32) -> Duration {
        match error {
            RunError::Reconcile(Error::Runtime(_)) => SyncLoopBackoff::nth(failures),
            _ => Duration::from_secs(u64::from(failures).clamp(1, 10)),
        }
    }

    fn ended(&self, run: &Run<Manifest>) {
        let uid = &run.uid;
        // What is left of a pod that comes back is reported by its next worker.
        if !run.view.status.exists() {
            if run.last_spec.is_some() {
                // Without a consumer's acknowledgement, these records go with the pod.
                let ends = self.decider.ends(run);
                Self::report_ends(uid, &self.ends.unreported_of(uid, &ends));
            }
            self.ends.forget(uid);
        }
        self.decider.forget(run);
        self.prober.remove(uid);
        self.pods().remove(uid);
        if let Err(error) = self.performer.remove_pod(uid) {
            tracing::error!(pod = %uid, %error, "the directory of a pod cannot be removed");
        }
    }
}

impl Kubelet {
    pub(crate) fn new(
        pleg: Pleg,
        client: CriClient,
        node: NodeStatus,
        consumer: Consumer,
        config: NodeConfig,
        back_off: BackOffSettings,
    ) -> Result<Self, InvalidSetting> {
        let address = config.host_ips.first().map(ToString::to_string);
        Ok(Self {
            prober: Prober::new(&pleg, client.clone(), &address.unwrap_or_default()),
            performer: Performer::new(client, config).image_back_off(back_off)?,
            decider: Decider::new(back_off)?,
            ends: Ends::new(consumer),
            node,
            pleg,
            pods: Mutex::default(),
        })
    }

    /// Whether the pod was made from a manifest of this node: others are left alone.
    fn is_ours(&self, run: &Run<Manifest>) -> bool {
        let sandboxes = run.view.status.sandboxes.iter();
        let mut nodes = sandboxes.map(|s| s.details.annotations.get(names::MANIFEST_NODE));
        run.last_spec.is_some() || nodes.any(|node| node == Some(self.node.name()))
    }

    /// The pods that run now, whoever made them.
    pub(crate) fn running(&self) -> BTreeSet<PodUid> {
        let views = self.pleg.snapshot().into_iter().map(|view| view.status);
        let running = views.filter(|status| status.active_sandbox().is_some());
        running.map(|status| status.uid.clone()).collect()
    }

    /// Removes what is left on the file system of pods that are neither among these nor in the runtime.
    pub(crate) fn remove_orphans(&self, specs: &[(PodUid, Arc<Manifest>)]) {
        let existing = self.pleg.snapshot();
        let existing = existing.iter().map(|view| &view.status.uid);
        let known = existing.chain(specs.iter().map(|(uid, _)| uid)).cloned();
        if let Err(error) = self.performer.remove_orphans(&known.collect()) {
            tracing::error!(%error, "directories of earlier pods cannot be removed");
        }
    }

    /// All pods with their last status.
    pub(crate) fn pods(&self) -> MutexGuard<'_, BTreeMap<PodUid, Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports how containers ended.
    fn report_ends(uid: &PodUid, ended: &[TerminalRecord]) {
        for record in ended.iter().filter(|r| r.kind == Kind::Container) {
            print(&json!({
                "event": "ended", "pod": uid.as_str(), "container": &*record.name,
                "id": record.id.as_str(), "attempt": record.attempt, "exitCode": record.exit_code,
            }));
        }
    }

    fn update_status(
        &self,
        run: &Run<Manifest>,
        pod: Option<&Pod>,
        decision: &Decision,
        messages: &BTreeMap<Id, String>,
        waiting: &BTreeMap<String, ContainerStateWaiting>,
    ) {
        let Some(pod) = pod else { return };
        let previous = self.pods().get(&run.uid).and_then(|pod| pod.status.clone());
        let status = pod_status(&PodState {
            pod,
            view: &decision.view,
            ended: &decision.records,
            unread: &decision.unread,
            previous: previous.as_ref(),
            messages,
            waiting,
            replaced: &decision.actions.replaced,
            probes: decision.probes.as_ref(),
            runtime: &self.node.runtime(),
            host_ips: &self.performer.node().host_ips,
            terminal: decision.actions.phase.is_some(),
            now: run.clock().wall(),
        });
        let mut pod = pod.clone();
        pod.status = Some(status);
        self.pods().insert(run.uid.clone(), pod);
    }
}

/// One line for programs that follow this one.
pub(crate) fn print(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Nobody may be reading.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
