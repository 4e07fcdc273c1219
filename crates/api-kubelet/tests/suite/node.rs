//! An API server, a simulated runtime and the kubelet, which can be killed.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use api_kubelet::kubelet::Kubelet;
use api_kubelet::node::{register, report};
use api_kubelet::pods::{changes, follow};
use api_kubelet::status::Statuses;
use axum::http::Method;
use kube::{Client, Config};
use pleg::Pleg;
use pleg::core::Mode;
use pleg::runtime::clock::Clock;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::worker::{PodWorkers, WorkerSettings};
use pleg_sim::{Serving, Sim};
use serde_json::{Value, json};
use static_pods::admission::NodeFacts;
use static_pods::node_status::NodeStatus;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::api_server::ApiServer;

/// The namespace of the pods.
pub(crate) const PODS: &str = "api/v1/namespaces/test/pods";
/// For what happens at once when all is well.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) api: ApiServer,
    pub(crate) sim: Sim,
    dir: TempDir,
    kubelet: Option<JoinHandle<()>>,
    _serving: Serving,
}

impl Node {
    /// A node whose kubelet runs.
    pub(crate) async fn up() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::builder().build();
        let socket = dir.path().join("cri.sock");
        let _serving = sim.serve_unix(socket, pending()).unwrap();
        let (api, kubelet) = (ApiServer::start().await, None);
        let mut node = Self {
            api,
            sim,
            dir,
            kubelet,
            _serving,
        };
        node.start_kubelet();
        node
    }

    fn start_kubelet(&mut self) {
        let (url, root) = (self.api.url.clone(), self.dir.path().to_owned());
        self.kubelet = Some(tokio::spawn(async move {
            let api = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
            let socket = format!("unix://{}", root.join("cri.sock").display());
            let (mut builder, client) = Pleg::connect(&socket).unwrap();
            let consumer = builder.register_consumer("api-kubelet");
            let pleg = builder.spawn().unwrap();
            let status = Arc::new(NodeStatus::new("n", pleg.clone(), client.clone()));
            let config = NodeConfig::of_host(&root, vec![[127, 0, 0, 1].into()]);
            let facts = NodeFacts::new("n", &config);
            let statuses = Statuses::new(api.clone());
            let mut back_off = BackOffSettings::default();
            back_off.initial = Duration::from_millis(5);
            let node = status.clone();
            let kubelet = Kubelet::new(&pleg, client, node, consumer, config, statuses, back_off);
            status.wait_for_runtime().await;
            pleg.wait_until_synced().await.unwrap();
            register(&api, &facts).await.unwrap();
            let changes = Box::pin(changes(api.clone(), "n"));
            let settings = WorkerSettings::default();
            let workers = PodWorkers::spawn(pleg.clone(), kubelet.unwrap(), settings, []).unwrap();
            let clock = pleg.clock();
            futures::join!(report(&api, "n", &status, clock), follow(changes, &workers));
        }));
    }

    /// Ends the kubelet at once, even in the middle of a call, and starts another one. Returns when that runs pods.
    pub(crate) async fn restart_kubelet(&mut self) {
        let kubelet = self.kubelet.take().unwrap();
        kubelet.abort();
        assert!(kubelet.await.unwrap_err().is_cancelled());
        self.start_kubelet();
        self.run("next", "Always").await;
    }

    /// A generator of its own.
    pub(crate) fn observer(&self) -> Pleg {
        let socket = format!("unix://{}", self.dir.path().join("cri.sock").display());
        let (builder, _) = Pleg::connect(&socket).unwrap();
        builder.mode(Mode::Polling).spawn().unwrap()
    }

    /// Creates a pod with a container that runs until it is killed.
    pub(crate) fn create(&self, name: &str, restart_policy: &str) {
        let containers = json!([{"name": "app", "image": "shop:1"}]);
        let spec =
            json!({"nodeName": "n", "restartPolicy": restart_policy, "containers": containers});
        let metadata = json!({"name": name, "namespace": "test"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": metadata});
        self.api.request(&Method::POST, PODS, &pod).unwrap();
    }

    /// Creates such a pod, and waits until it runs.
    pub(crate) async fn run(&self, name: &str, restart_policy: &str) {
        self.create(name, restart_policy);
        self.until_running(name, 0).await;
    }

    /// The object of a pod; `None` if it has none.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        let path = format!("{PODS}/{name}");
        self.api.request(&Method::GET, &path, &Value::Null).ok()
    }

    /// The status of the first container of a pod, as the API server knows it.
    pub(crate) fn container(&self, name: &str) -> Value {
        let pod = self.pod(name).unwrap_or_default();
        pod["status"]["containerStatuses"][0].clone()
    }

    /// The id of that container, as the runtime calls it.
    pub(crate) fn id(&self, name: &str) -> String {
        let container = self.container(name);
        let id = container["containerID"].as_str().unwrap_or_default();
        id.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Waits until `so`.
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
