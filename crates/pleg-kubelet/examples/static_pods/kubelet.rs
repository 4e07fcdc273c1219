//! The worker of a pod: decides what it needs, performs that, and reports how it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, PodStatus};
use pleg::core::{Kind, SandboxState};
use pleg::{Consumer, ContainerState, Id, PodUid, PodView, TerminalRecord, WaitError};
use pleg_cri::CriClient;
use pleg_kubelet::actions::{Desired, PodActions, pod_actions};
use pleg_kubelet::backoff::{BackOff, BackOffSettings};
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::gc::{Gc, GcPolicy, PodLife, Removal};
use pleg_kubelet::history::PodHistory;
use pleg_kubelet::manifest::Manifest;
use pleg_kubelet::perform::{PerformError, Performer, Prepared};
use pleg_kubelet::pod_status::{PodState, pod_status};
use pleg_kubelet::probe::{Probe, ProbeResults, Prober};
use pleg_kubelet::runtime_state::SyncLoopBackoff;
use pleg_kubelet::worker::{Next, Reconcile, Run, RunError};
use serde_json::{Value, json};

use crate::node::Node;

/// The annotation of a pod that was made from a manifest.
const SOURCE: &str = "kubernetes.io/config.source";
/// How often a pod looks whether an earlier one of its name is gone.
const PREDECESSOR_PERIOD: Duration = Duration::from_millis(200);

/// Runs pods. One for the node.
pub(crate) struct Kubelet {
    node: Arc<Node>,
    consumer: Consumer,
    performer: Performer,
    prober: Prober<CriClient>,
    memory: Mutex<Memory>,
}

/// What is kept between runs.
struct Memory {
    back_off: BackOff,
    pods: BTreeMap<PodUid, PodMemory>,
}

#[derive(Default)]
struct PodMemory {
    history: PodHistory,
    /// The ends that were reported.
    reported: BTreeSet<Id>,
    /// The pod with its last status.
    pod: Option<Pod>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the runtime cannot be used: {0}")]
    Runtime(String),
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    #[error(transparent)]
    Perform(#[from] PerformError),
}

impl Reconcile for Kubelet {
    type Spec = Manifest;
    type Error = Error;

    async fn reconcile(&self, run: &Run<Manifest>) -> Result<Next, Error> {
        let manifest = run.spec.as_deref().or(run.last_spec.as_deref());
        let pod = manifest.map(|manifest| &manifest.pod);
        if run.spec.is_none() && !is_ours(run) {
            return Ok(Next::Change);
        }
        let needs_network = pod.is_some_and(|pod| !is_on_host_network(pod));
        self.node.usable(needs_network).map_err(Error::Runtime)?;
        if run.spec.is_some() && self.has_predecessor(run) {
            return Ok(Next::At(run.now().after(PREDECESSOR_PERIOD)));
        }
        if let Some(manifest) = &run.spec {
            let probes = Probe::of_pod(&manifest.pod);
            self.prober.set(&run.uid, &probes, run.waker());
        }
        let (view, mut actions, records) = self.decide(run).await?;
        self.report_ends(run, &records, &actions).await;
        let removals = self.garbage(run, &view, &actions).await;
        let prepared = match pod {
            Some(pod) => self.performer.prepare(run, pod, &mut actions).await,
            None => Prepared::default(),
        };
        self.record(run, &actions);
        let performed = self.performer.perform(run, pod, &actions, prepared).await;
        for started in &performed.started {
            print(&json!({
                "event": "started", "pod": run.uid.as_str(), "container": started.name,
                "id": started.id.as_str(), "attempt": started.attempt,
            }));
        }
        self.update_status(run, pod, &view, &actions, &performed.waiting);
        for removal in &removals {
            self.performer.remove(run, removal).await?;
        }
        if let Some(error) = performed.errors.into_iter().next() {
            return Err(error.into());
        }
        Ok(actions.due.into_iter().chain(performed.due).min().into())
    }

    fn error_policy(&self, _: &PodUid, error: &RunError<Error>, failures: u32) -> Duration {
        let mut pause = SyncLoopBackoff::new();
        match error {
            RunError::Reconcile(Error::Runtime(_)) => (0..failures.min(8))
                .map(|_| pause.failed())
                .last()
                .unwrap_or_default(),
            _ => Duration::from_secs(u64::from(failures).clamp(1, 10)),
        }
    }

    fn ended(&self, uid: &PodUid) {
        self.prober.remove(uid);
        self.performer.forget(uid);
        let mut memory = self.memory();
        memory.back_off.forget(uid);
        memory.pods.remove(uid);
        drop(memory);
        if let Err(error) = self.performer.node().pods.remove(uid) {
            tracing::error!(pod = %uid, %error, "the directory of a pod cannot be removed");
        }
    }
}

impl Kubelet {
    pub(crate) fn new(
        client: CriClient,
        node: Arc<Node>,
        consumer: Consumer,
        config: NodeConfig,
        back_off: BackOffSettings,
    ) -> Self {
        let host_address = config.host_ips.first().map(ToString::to_string);
        let host_address = host_address.unwrap_or_else(|| "127.0.0.1".to_owned());
        Self {
            prober: Prober::new(node.pleg(), client.clone(), &host_address),
            performer: Performer::new(client, config),
            node,
            consumer,
            memory: Mutex::new(Memory {
                back_off: BackOff::new(back_off),
                pods: BTreeMap::new(),
            }),
        }
    }

    /// All pods with their last status.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        let memory = self.memory();
        let pods = memory.pods.values();
        pods.filter_map(|of_pod| of_pod.pod.clone()).collect()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, after an inspection if an exit code is missing.
    async fn decide(
        &self,
        run: &Run<Manifest>,
    ) -> Result<(PodView, PodActions, Arc<[TerminalRecord]>), Error> {
        let (mut view, mut is_inspected) = (run.view.clone(), false);
        loop {
            let records = run.terminal_records();
            let results = self.prober.results(&view.status);
            let actions = self.decide_once(run, &view, &records, &results);
            let missing = records.iter().filter(|record| record.exit_code.is_none());
            let missing = missing.filter(|r| view.status.containers.iter().any(|c| c.id == r.id));
            let unread = missing
                .map(|r| r.detected)
                .filter(|at| view.inspected <= Some(*at));
            match actions.inspect_after.into_iter().chain(unread).max() {
                Some(after) if !is_inspected => {
                    view = run.details_newer_than(after).await?;
                    is_inspected = true;
                }
                _ => return Ok((view, actions, records)),
            }
        }
    }

    fn decide_once(
        &self,
        run: &Run<Manifest>,
        view: &PodView,
        records: &[TerminalRecord],
        results: &ProbeResults,
    ) -> PodActions {
        let mut desired = match &run.spec {
            Some(manifest) => Desired::run(&manifest.spec),
            None => Desired::terminate(run.last_spec.as_deref().map(|manifest| &manifest.spec)),
        };
        desired.probes = Some(results);
        let Memory { back_off, pods } = &mut *self.memory();
        let history = &mut pods.entry(run.uid.clone()).or_default().history;
        history.observe(&view.status, records, run.now());
        pod_actions(&desired, view, history, back_off, run.now())
    }

    /// Takes over a decision before its first call.
    fn record(&self, run: &Run<Manifest>, actions: &PodActions) {
        let Memory { back_off, pods } = &mut *self.memory();
        let history = &mut pods.entry(run.uid.clone()).or_default().history;
        history.record(&run.uid, actions, back_off, run.now());
    }

    /// Reports how containers ended, once, and then lets them be removed. An exit code that may
    /// still become known is waited for.
    async fn report_ends(
        &self,
        run: &Run<Manifest>,
        records: &[TerminalRecord],
        actions: &PodActions,
    ) {
        for record in records {
            if record.exit_code.is_none() && actions.inspect_after.is_some() {
                continue;
            }
            let is_new = {
                let mut memory = self.memory();
                let of_pod = memory.pods.entry(run.uid.clone()).or_default();
                of_pod.reported.insert(record.id.clone())
            };
            if is_new && record.kind == Kind::Container {
                print(&json!({
                    "event": "ended", "pod": run.uid.as_str(), "container": record.name.as_str(),
                    "id": record.id.as_str(), "attempt": record.attempt,
                    "exitCode": record.exit_code,
                }));
            }
            self.consumer.acknowledge(&record.id).await;
        }
        let mut memory = self.memory();
        let of_pod = memory.pods.entry(run.uid.clone()).or_default();
        let exists = |id: &Id| records.iter().any(|record| record.id == *id);
        of_pod.reported.retain(exists);
    }

    /// What is left over of the pod.
    async fn garbage(
        &self,
        run: &Run<Manifest>,
        view: &PodView,
        actions: &PodActions,
    ) -> Vec<Removal> {
        let status = &view.status;
        let containers = status.containers.iter();
        let exited = containers.filter(|c| c.state == ContainerState::Exited);
        let sandboxes = status.sandboxes.iter();
        let not_ready = sandboxes.filter(|s| s.state == SandboxState::NotReady);
        let mut taken = BTreeSet::new();
        for id in exited.map(|c| &c.id).chain(not_ready.map(|s| &s.id)) {
            if self.node.pleg().is_acknowledged(id).await {
                taken.insert(id.clone());
            }
        }
        let life = match (&run.spec, actions.terminated) {
            (None, true) => PodLife::Deleted,
            (_, true) => PodLife::Terminated,
            _ => PodLife::Exists,
        };
        let gc = Gc {
            policy: GcPolicy::default(),
            now: run.clock().wall(),
            life: &|_| life,
            sources_ready: true,
            evict_terminated: false,
            taken: &|id| taken.contains(id),
        };
        gc.removals(&[status])
    }

    fn update_status(
        &self,
        run: &Run<Manifest>,
        pod: Option<&Pod>,
        view: &PodView,
        actions: &PodActions,
        waiting: &BTreeMap<String, ContainerStateWaiting>,
    ) {
        let Some(pod) = pod else { return };
        let results = self.prober.results(&view.status);
        let mut memory = self.memory();
        let of_pod = memory.pods.entry(run.uid.clone()).or_default();
        let previous: Option<PodStatus> = of_pod.pod.take().and_then(|pod| pod.status);
        let status = pod_status(&PodState {
            pod,
            view,
            ended: &run.terminal_records(),
            previous: previous.as_ref(),
            waiting,
            probes: Some(&results),
            runtime: &self.node.runtime(),
            host_ips: &self.performer.node().host_ips,
            terminal: actions.phase.is_some(),
            now: run.clock().wall(),
        });
        let mut pod = pod.clone();
        pod.status = Some(status);
        of_pod.pod = Some(pod);
    }

    /// Whether an earlier pod of the same name is still there. A changed manifest is another pod;
    /// the two must not run side by side.
    fn has_predecessor(&self, run: &Run<Manifest>) -> bool {
        let Some(manifest) = run.spec.as_ref().filter(|_| run.view.status.is_nothing()) else {
            return false;
        };
        let metadata = &manifest.pod.metadata;
        let pods = self.node.pleg().snapshot();
        pods.iter().map(|view| &view.status).any(|status| {
            let is_same = metadata.name.as_deref() == Some(&*status.name)
                && metadata.namespace.as_deref() == Some(&*status.namespace);
            let ended = |state| state == ContainerState::Exited;
            let runs = status.containers.iter().any(|c| !ended(c.state))
                || status
                    .sandboxes
                    .iter()
                    .any(|s| s.state != SandboxState::NotReady);
            status.uid != run.uid && is_same && runs
        })
    }
}

/// Whether the pod was made from a manifest: others on the same runtime are left alone.
fn is_ours(run: &Run<Manifest>) -> bool {
    let mut sandboxes = run.view.status.sandboxes.iter();
    run.last_spec.is_some() || sandboxes.any(|s| s.details.annotations.get(SOURCE) == Some("file"))
}

fn is_on_host_network(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.host_network == Some(true))
}

/// One line for programs that follow this one.
pub(crate) fn print(line: &Value) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // Nobody may be reading.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
