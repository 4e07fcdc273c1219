//! The examples of docs/kubelet.md: a kubelet, a loop without `PodWorkers`, and a unit test of a worker.

mod kubelet;
mod own_loop;
mod worker;

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LocalObjectReference, Pod};
use pleg::cri::v1::ContainerConfig;
use pleg::{ContainerState, Id, Pleg, PodHandle, PodUid};
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::{LastChanges, Performer, Sources};
use pleg_kubelet::plan::Planner;
use pleg_kubelet::worker::{Reconcile as _, Run};
use pleg_sim::Sim;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot;

use kubelet::Kubelet;

const GUIDE: &str = include_str!("../../../../../docs/kubelet.md");

fn web() -> (PodUid, Pod) {
    let pod = json!({
        "metadata": {"name": "web", "uid": "u"},
        "spec": {"containers": [{"name": "app", "image": "shop:1"}]},
    });
    (PodUid::from("u"), serde_json::from_value(pod).unwrap())
}

#[test]
fn code_in_the_guide_is_the_tested_code() {
    for (code, lines) in [
        (include_str!("kubelet.rs"), 60),
        (include_str!("own_loop.rs"), 120),
        (include_str!("worker.rs"), 40),
    ] {
        assert!(GUIDE.contains(&format!("```rust,ignore\n{code}```\n")));
        assert!(code.lines().count() <= lines);
    }
}

/// Waits until the container with the attempt number `attempt` is running. Returns its id.
async fn running(pod: &mut PodHandle, attempt: u32) -> Id {
    loop {
        let status = pod.view().status;
        let runs = status.container("app").filter(|c| c.attempt == attempt);
        if let Some(c) = runs.filter(|c| c.state == ContainerState::Running) {
            return c.id.clone();
        }
        assert!(pod.changed().await);
    }
}

/// A simulated runtime, the directory of its socket, and its endpoint.
fn node() -> (Sim, TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let sim = Sim::builder().build();
    let _serving = sim.serve_unix(&socket, pending()).unwrap();
    let endpoint = format!("unix://{}", socket.display());
    (sim, dir, endpoint)
}

#[tokio::test]
async fn example_kubelet_starts_restarts_and_removes_a_pod() {
    let (sim, dir, endpoint) = node();
    let config = NodeConfig::of_host(dir.path(), Vec::new());
    let started = kubelet::start(&endpoint, config, Vec::new()).await;
    let (pleg, workers) = started.unwrap();
    let (uid, web) = web();
    let mut pod = pleg.pod(&uid);
    workers.set(&uid, web);
    let first = running(&mut pod, 0).await;
    sim.kill_container(first.as_str(), 1);
    running(&mut pod, 1).await;
    workers.delete(&uid);
    while pod.view().status.exists() {
        assert!(pod.changed().await);
    }
    pleg.shutdown().await;
}

/// Adds an annotation to each container.
struct Mark;

impl LastChanges for Mark {
    fn container(
        &self,
        pod: &Pod,
        config: &mut ContainerConfig,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let name = pod.metadata.name.clone().ok_or("no name")?;
        config.annotations.insert("example/pod".to_owned(), name);
        Ok(())
    }
}

/// Reads the pull secrets of a pod.
struct Secrets;

impl Sources for Secrets {}

#[tokio::test]
async fn example_loop_without_workers_runs_restarts_and_finishes_a_pod() {
    let (sim, dir, endpoint) = node();
    let (mut builder, client) = Pleg::connect(&endpoint).unwrap();
    let consumer = builder.register_consumer("guide");
    let pleg = builder.spawn().unwrap();
    let config = NodeConfig::of_host(dir.path(), Vec::new());
    let planner = Planner::new(BackOffSettings::default()).unwrap();
    let kubelet = Kubelet {
        planner: planner.consumer(consumer),
        performer: Performer::new(client, config)
            .sources(Secrets)
            .last_changes(Mark),
    };
    let (uid, mut web) = web();
    // Without `Secrets`, the performer would refuse the pod.
    let secrets = Some(vec![LocalObjectReference::default()]);
    web.spec.as_mut().unwrap().image_pull_secrets = secrets;
    let (delete, deleted) = oneshot::channel();
    let mut pod = pleg.pod(&uid);
    let remove_orphans = || kubelet.performer.remove_orphans(&pleg, &BTreeSet::new());
    assert!(remove_orphans().is_err(), "not synced");
    pleg.wait_until_synced().await.unwrap();
    // The plans of this kubelet do not end a pod at its deadline.
    let mut refused = web.clone();
    refused.spec.as_mut().unwrap().active_deadline_seconds = Some(9);
    let refused = Run::new(&pleg, uid.clone(), refused);
    let error = kubelet.reconcile(&refused).await.unwrap_err();
    assert!(error.to_string().contains("call Desired::until_deadline"));
    let run = own_loop::run_pod(&kubelet, &pleg, Arc::new(web), deleted);
    let watched = async {
        let first = running(&mut pod, 0).await;
        sim.kill_container(first.as_str(), 1);
        running(&mut pod, 1).await;
        remove_orphans().unwrap();
        assert!(dir.path().join("pods").join(uid.as_str()).is_dir());
        let view = pleg.details_newer_than(&uid, pleg.now(), Duration::from_secs(30));
        let status = view.await.unwrap().status;
        let annotations = &status.container("app").unwrap().details.annotations;
        assert_eq!(annotations.get("example/pod"), Some("web"));
        delete.send(()).unwrap();
    };
    let (ended, ()) = tokio::join!(run, watched);
    ended.unwrap();
    assert!(!pleg.get(&uid).status.exists());
}
