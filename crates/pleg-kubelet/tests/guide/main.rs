//! The examples of docs/kubelet.md: a kubelet loop, and a test with the fake runtime.

#![cfg(feature = "manifests")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod fake;
mod kubelet;

use std::future::pending;

use pleg::{ContainerState, Id, Pleg, PodHandle, PodUid};
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::manifest::Manifest;
use pleg_sim::Sim;

const GUIDE: &str = include_str!("../../../../docs/kubelet.md");
const WEB: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, image: 'shop:1'}]
";

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

#[tokio::test]
async fn loop_starts_restarts_and_removes_a_pod() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let sim = Sim::builder().build();
    let _serving = sim.serve_unix(&socket, pending()).unwrap();
    let (builder, client) = Pleg::connect(&format!("unix://{}", socket.display())).unwrap();
    let pleg = builder.spawn().unwrap();
    let workers = kubelet::start(
        &pleg,
        client,
        NodeConfig::of_host(dir.path(), Vec::new()),
        Vec::new(),
    );

    let manifest = Manifest::parse("web.yaml".as_ref(), WEB, "node1").unwrap();
    let uid = PodUid::from(manifest.uid());
    let mut pod = pleg.pod(&uid);
    workers.set(&uid, manifest);
    let first = running(&mut pod, 0).await;
    sim.kill_container(first.as_str(), 1);
    running(&mut pod, 1).await;
    workers.delete(&uid);
    while !pod.view().status.is_nothing() {
        assert!(pod.changed().await);
    }
    pleg.shutdown().await;
}
