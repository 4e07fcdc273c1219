//! A node with a simulated runtime and the workers.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pleg::{Pleg, PodStatus, PodUid};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::worker::PodWorkers;
use pleg_sim::{Mode, Serving, Sim};
use serde_json::Value;
use static_pods::admission::NodeFacts;
use static_pods::manifest::Manifest;
use static_pods::node_status::NodeStatus;
use tempfile::TempDir;

use static_pods::kubelet::Kubelet;

pub(crate) const ONE: &str = "{containers: [{name: c, image: 'app:1'}]}";

/// A pod of one container, which has the additional fields `fields`.
pub(crate) fn one(fields: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'app:1', {fields}}}]}}"
    )
}

pub(crate) fn manifest(name: &str, labels: &str, spec: &str) -> Manifest {
    let metadata = format!("{{name: {name}, labels: {labels}}}");
    let contents = format!("{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {spec}}}");
    crate::parse(&format!("{name}.yaml"), &contents, "n").unwrap()
}

/// Time limit of steps that take no time when all is well.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) sim: Sim,
    pub(crate) kubelet: Arc<Kubelet>,
    pub(crate) workers: PodWorkers<Manifest>,
    pub(crate) dir: TempDir,
    _serving: Serving,
}

impl Node {
    pub(crate) async fn up(mode: Mode) -> Self {
        let mut back_off = BackOffSettings::default();
        back_off.initial = Duration::from_millis(5);
        back_off.max = Duration::from_millis(20);
        Self::with_back_off(mode, back_off).await
    }

    /// A node with these back-off delays for restarts and pulls.
    pub(crate) async fn with_back_off(mode: Mode, back_off: BackOffSettings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let sim = Sim::builder().mode(mode).build();
        let _serving = sim.serve_unix(&socket, pending()).unwrap();
        let (mut builder, client) = Pleg::connect(&format!("unix://{}", socket.display())).unwrap();
        let consumer = builder.register_consumer("static_pods");
        let pleg = builder.spawn().unwrap();
        let status = NodeStatus::new("n", pleg.clone(), client.clone());
        status.wait_for_runtime().await;
        let config = NodeConfig::of_host(dir.path(), vec![[127, 0, 0, 1].into()]);
        let mut facts = NodeFacts::new("n", &config);
        let amount = Quantity("100Mi".to_owned());
        facts.allocatable.insert("cpu".to_owned(), amount);
        let of = pleg.clone();
        let kubelet = Kubelet::new(of, client, status, consumer, config, facts, back_off);
        let kubelet = Arc::new(kubelet.unwrap());
        // This task watches the runtime's status. Without it, the runtime would count as down after 30 s.
        let watched = kubelet.clone();
        tokio::spawn(async move { watched.node.watch().await });
        let workers = PodWorkers::spawn(pleg, kubelet.clone(), []);
        Self {
            sim,
            kubelet,
            workers,
            dir,
            _serving,
        }
    }

    /// Another connection to the runtime.
    pub(crate) fn runtime(&self) -> CriRuntime {
        let socket = self.dir.path().join("cri.sock");
        let endpoint = format!("unix://{}", socket.display());
        CriRuntime::new(CriConfig::new(endpoint.parse().unwrap())).unwrap()
    }

    /// Passes the workers a pod with the given name and specification (YAML in flow style).
    pub(crate) fn set(&self, name: &str, spec: &str) -> PodUid {
        self.set_manifest(manifest(name, "{}", spec))
    }

    pub(crate) fn set_manifest(&self, manifest: Manifest) -> PodUid {
        let uid = PodUid::from(manifest.uid());
        self.workers.set(&uid, manifest);
        uid
    }

    /// The status of the pod, as `/pods` shows it.
    pub(crate) fn status(&self, uid: &PodUid) -> Value {
        let pods = self.kubelet.pods();
        let status = pods.get(uid).and_then(|pod| pod.status.as_ref());
        serde_json::to_value(status).unwrap()
    }

    /// The status of the pod's first container.
    pub(crate) fn container(&self, uid: &PodUid) -> Value {
        self.status(uid)["containerStatuses"][0].clone()
    }

    /// Waits until `so` is true of the node. If that takes too long, panics with `what` and the status of the pod.
    pub(crate) async fn until(&self, uid: &PodUid, what: &str, so: impl Fn(&Self) -> bool) {
        let is_soon = self.is_soon(|| so(self)).await;
        assert!(is_soon, "not {what}: {:#}", self.status(uid));
    }

    /// Waits until `so` is true. Returns false if it takes too long.
    pub(crate) async fn is_soon(&self, so: impl Fn() -> bool) -> bool {
        let clock = self.kubelet.pleg.clock();
        let deadline = clock.now().after(SOON);
        while !so() {
            if clock.now() > deadline {
                return false;
            }
            let next = clock.now().after(Duration::from_millis(2));
            clock.sleep_until(next).await;
        }
        true
    }

    pub(crate) fn logs(&self, uid: &PodUid) -> PathBuf {
        self.dir.path().join(format!("logs/default_web-n_{uid}"))
    }

    /// The status of the pod in the runtime.
    pub(crate) fn seen(&self, uid: &PodUid) -> Arc<PodStatus> {
        self.kubelet.pleg.get(uid).status
    }

    pub(crate) fn knob(&self, knob: &str) {
        self.sim.set_knob(knob).unwrap();
    }

    /// Waits until `/pods` no longer shows the pod, and the runtime has no container or sandbox of it.
    pub(crate) async fn until_gone(&self, uid: &PodUid) {
        let gone = |node: &Self| node.status(uid).is_null() && !node.seen(uid).exists();
        self.until(uid, "gone", gone).await;
    }

    /// Waits until the first container of the pod waits for this reason.
    pub(crate) async fn until_waiting(&self, uid: &PodUid, reason: &str) {
        let waits = |node: &Self| node.container(uid)["state"]["waiting"]["reason"] == reason;
        self.until(uid, reason, waits).await;
    }

    pub(crate) fn is_running(&self, uid: &PodUid) -> bool {
        self.container(uid)["state"]["running"].is_object()
    }

    /// Waits until the first container of the pod is running. Returns its id.
    pub(crate) async fn until_running(&self, uid: &PodUid) -> Value {
        self.until(uid, "running", |node| node.is_running(uid))
            .await;
        self.container(uid)["containerID"].clone()
    }
}
