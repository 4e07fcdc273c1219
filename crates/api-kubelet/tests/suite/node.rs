//! An API server, a simulated runtime, and a kubelet that can be killed.

use std::future::pending;
use std::time::Duration;

use api_kubelet::run::{connect, run};
use axum::http::Method;
use pleg::Pleg;
use pleg::core::Mode;
use pleg::runtime::clock::Clock;
use pleg_cri::CriClient;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_sim::{Serving, Sim};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::api_server::ApiServer;

pub(crate) const PODS: &str = "api/v1/namespaces/test/pods";
/// The time limit of steps that normally take milliseconds.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) api: ApiServer,
    pub(crate) sim: Sim,
    pub(crate) dir: TempDir,
    kubelet: JoinHandle<()>,
    _serving: Serving,
}

impl Node {
    pub(crate) async fn up() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::builder().build();
        let socket = dir.path().join("cri.sock");
        let _serving = sim.serve_unix(socket, pending()).unwrap();
        let api = ApiServer::start().await;
        Self {
            kubelet: Self::start_kubelet(&api, &dir),
            api,
            sim,
            dir,
            _serving,
        }
    }

    fn start_kubelet(api: &ApiServer, dir: &TempDir) -> JoinHandle<()> {
        let (url, root) = (api.url.clone(), dir.path().to_owned());
        tokio::spawn(async move {
            let api = connect(Some(&url)).await.unwrap();
            let socket = format!("unix://{}", root.join("cri.sock").display());
            let config = NodeConfig::of_host(&root, vec![[127, 0, 0, 1].into()]);
            let mut back_off = BackOffSettings::default();
            back_off.initial = Duration::from_millis(5);
            let run = run(api, "n", &socket, config, back_off, pending());
            run.await.unwrap();
        })
    }

    /// Ends the kubelet at once, even in the middle of a call; calls `meanwhile`; then starts a new kubelet. Returns
    /// when the new kubelet runs pods.
    pub(crate) async fn restart_kubelet(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.kubelet.abort();
        assert!((&mut self.kubelet).await.unwrap_err().is_cancelled());
        meanwhile(self);
        self.kubelet = Self::start_kubelet(&self.api, &self.dir);
        self.run("next", "Always").await;
    }

    /// A second event generator and CRI client, with which the test looks at the runtime.
    pub(crate) async fn observer(&self) -> (Pleg, CriClient) {
        let socket = format!("unix://{}", self.dir.path().join("cri.sock").display());
        let (builder, client) = Pleg::connect(&socket).unwrap();
        let pleg = builder.mode(Mode::Polling).spawn().unwrap();
        pleg.wait_until_synced().await.unwrap();
        (pleg, client)
    }

    pub(crate) fn delete(&self, name: &str, grace: u32) {
        let options = json!({"gracePeriodSeconds": grace});
        let path = format!("{PODS}/{name}");
        self.api.request(&Method::DELETE, &path, &options).unwrap();
    }

    pub(crate) async fn until_failed(&self, name: &str) {
        let phase = |node: &Self| node.pod(name).unwrap()["status"]["phase"].clone();
        self.until("failed", |node| phase(node) == "Failed").await;
    }

    pub(crate) async fn until_removed(&self, name: &str) {
        self.until("removed", |node| node.pod(name).is_none()).await;
    }

    /// Creates a pod with a container that runs until it is killed. The pod `elsewhere` belongs to another node.
    pub(crate) fn create(&self, name: &str, restart_policy: &str) {
        let containers = json!([{"name": "app", "image": "shop:1"}]);
        let node = if name == "elsewhere" { "m" } else { "n" };
        let spec =
            json!({"nodeName": node, "restartPolicy": restart_policy, "containers": containers});
        let metadata = json!({"name": name, "namespace": "test"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": metadata});
        self.api.request(&Method::POST, PODS, &pod).unwrap();
    }

    /// Creates a pod as [`create`](Self::create) does, and waits until it runs.
    pub(crate) async fn run(&self, name: &str, restart_policy: &str) {
        self.create(name, restart_policy);
        self.until_running(name, 0).await;
    }

    /// The object of a pod; `None` if it is gone.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        let path = format!("{PODS}/{name}");
        self.api.request(&Method::GET, &path, &Value::Null).ok()
    }

    pub(crate) fn uid(&self, name: &str) -> String {
        let pod = self.pod(name).unwrap_or_default();
        let uid = pod["metadata"]["uid"].as_str();
        uid.unwrap_or_default().to_owned()
    }

    /// The status of the first container of a pod in the API server.
    pub(crate) fn container(&self, name: &str) -> Value {
        let pod = self.pod(name).unwrap_or_default();
        pod["status"]["containerStatuses"][0].clone()
    }

    /// The runtime's id of the first container of a pod.
    pub(crate) fn id(&self, name: &str) -> String {
        let container = self.container(name);
        let id = container["containerID"].as_str().unwrap_or_default();
        id.rsplit('/').next().unwrap_or_default().to_owned()
    }

    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let clock = Clock::start();
        let deadline = clock.now().after(SOON);
        while !so(self) {
            let late = clock.now() > deadline;
            assert!(!late, "not {what}: {:#?}", self.api.history(PODS).last());
            let next = clock.now().after(Duration::from_millis(5));
            clock.sleep_until(next).await;
        }
    }

    pub(crate) async fn until_running(&self, name: &str, restarts: u64) {
        let runs = |node: &Self| {
            let container = node.container(name);
            container["state"]["running"].is_object() && container["restartCount"] == restarts
        };
        self.until("running", runs).await;
    }
}
