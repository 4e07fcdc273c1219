//! The examples of docs/kubelet.md: a kubelet loop, and a test with the fake runtime.

#![cfg(feature = "manifests")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod fake;
mod kubelet;

use std::future::pending;

use pleg::{ContainerState, Id, Pleg, PodHandle, PodUid};
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::manifest::Manifest;
use pleg_kubelet::worker::PodWorkers;
use pleg_sim::Sim;
use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../../docs/kubelet.md");

fn web(image: &str) -> (PodUid, Manifest) {
    let text = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  containers: [{{name: app, image: '{image}'}}]
"
    );
    let manifest = Manifest::parse("web.yaml".as_ref(), &text, "node1").unwrap();
    (PodUid::from(manifest.uid()), manifest)
}

#[test]
fn guide_shows_the_tested_code() {
    for code in [include_str!("kubelet.rs"), include_str!("fake.rs")] {
        assert!(GUIDE.contains(&format!("```rust,ignore\n{code}```\n")));
        assert!(code.lines().count() <= 60);
    }
}

/// The container of that attempt, once it runs.
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

/// A simulated runtime, and the loop of the guide on it.
struct Node {
    sim: Sim,
    pleg: Pleg,
    workers: PodWorkers<Manifest>,
    _dir: TempDir,
}

impl Node {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let sim = Sim::builder().build();
        let _serving = sim.serve_unix(&socket, pending()).unwrap();
        let (builder, client) = Pleg::connect(&format!("unix://{}", socket.display())).unwrap();
        let pleg = builder.spawn().unwrap();
        let node = NodeConfig::of_host(dir.path(), Vec::new());
        let workers = kubelet::start(&pleg, client, node, Vec::new()).unwrap();
        Self {
            sim,
            pleg,
            workers,
            _dir: dir,
        }
    }
}

#[tokio::test]
async fn loop_starts_restarts_and_removes_a_pod() {
    let node = Node::start();
    let (uid, manifest) = web("shop:1");
    let mut pod = node.pleg.pod(&uid);
    node.workers.set(&uid, manifest);
    let first = running(&mut pod, 0).await;
    node.sim.kill_container(first.as_str(), 1);
    running(&mut pod, 1).await;
    node.workers.delete(&uid);
    while pod.view().status.exists() {
        assert!(pod.changed().await);
    }
    node.pleg.shutdown().await;
}

#[tokio::test]
async fn edited_pod_starts_when_its_predecessor_has_ended() {
    let node = Node::start();
    let ((old_uid, old), (new_uid, new)) = (web("shop:1"), web("shop:2"));
    node.workers.set(&old_uid, old);
    let first = running(&mut node.pleg.pod(&old_uid), 0).await;
    node.sim.set_knob("stop_container.hang=1s").unwrap();

    node.workers.delete(&old_uid);
    node.workers.set(&new_uid, new);
    running(&mut node.pleg.pod(&new_uid), 0).await;
    let old = node.pleg.get(&old_uid).status;
    let first = old.containers.iter().find(|c| c.id == first);
    assert!(first.is_none_or(|c| c.state == ContainerState::Exited));
    node.pleg.shutdown().await;
}
