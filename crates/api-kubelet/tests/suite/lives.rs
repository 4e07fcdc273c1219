//! Pods from their creation to their removal, as they are reported to the API server.

use std::collections::BTreeSet;

use axum::http::Method;
use k8s_openapi::api::core::v1::Pod;
use pleg::{ContainerState, ContainerStatus};
use pleg_kubelet::cri_config::{NodeConfig, sandbox_config};
use serde_json::{Value, json};

use super::node::{Node, PODS};

#[tokio::test]
async fn node_is_registered_with_lease_and_ready_condition() {
    let node = Node::up().await;
    let get = |node: &Node, path: &str| node.api.request(&Method::GET, path, &Value::Null);
    let is_ready = |node: &Node| {
        let object = get(node, "api/v1/nodes/n").unwrap_or_default();
        object["status"]["conditions"][0]["status"] == "True"
    };
    node.until("ready", is_ready).await;
    let lease = "apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    assert_eq!(get(&node, lease).unwrap()["spec"]["holderIdentity"], "n");
}

#[tokio::test]
async fn exits_are_reported_before_restarts_unless_api_server_is_down() {
    let node = Node::up().await;
    node.run("web", "Always").await;
    // Another client sets a label, which the updates of the status must keep.
    let labels = json!({"metadata": {"labels": {"tier": "front"}}});
    let path = format!("{PODS}/web");
    node.api.request(&Method::PATCH, &path, &labels).unwrap();
    node.api.answer_conflicts(3);
    let last_code = || node.container("web")["lastState"]["terminated"]["exitCode"].clone();
    node.sim.kill_container(&node.id("web"), 5);
    node.until_running("web", 1).await;
    assert_eq!(last_code(), 5);
    let history = node.api.history(PODS);
    let history = history.iter();
    let statuses = history.map(|pod| &pod["status"]["containerStatuses"][0]);
    let mut ended = statuses.filter(|status| status["state"]["terminated"]["exitCode"] == 5);
    assert_eq!(ended.next().unwrap()["restartCount"], 0);

    let (id, (observer, _)) = (node.id("web"), node.observer().await);
    node.api.set_down(true);
    node.sim.kill_container(&id, 6);
    let is_another = |c: &ContainerStatus| c.attempt == 2 && c.state == ContainerState::Running;
    let restarted = |_: &Node| {
        let views = observer.snapshot();
        let mut apps = views.iter().filter_map(|view| view.status.container("app"));
        apps.any(is_another)
    };
    node.until("restarted", restarted).await;
    node.api.set_down(false);
    node.until_running("web", 2).await;
    assert_eq!(last_code(), 6);
    let metadata = &node.pod("web").unwrap()["metadata"];
    assert_eq!(metadata["labels"]["tier"], "front");
}

#[tokio::test]
async fn deleted_pod_is_removed_after_its_exit_code_is_reported() {
    let node = Node::up().await;
    let (observer, _) = node.observer().await;
    for is_down in [false, true] {
        node.run("web", "Always").await;
        node.until("seen", |_| !observer.snapshot().is_empty())
            .await;
        node.api.set_down(is_down);
        node.delete("web", 1);
        let gone = format!("gone while down is {is_down}");
        node.until(&gone, |_| observer.snapshot().is_empty()).await;
        node.api.set_down(false);
        node.until_removed("web").await;
        let history = node.api.history(PODS);
        let last = &history[history.len() - 1]["status"]["containerStatuses"][0];
        let code = &last["state"]["terminated"]["exitCode"];
        assert!(code.is_number(), "down: {is_down}, {last}");
    }
}

#[tokio::test]
async fn failed_pod_is_removed_if_deleted_while_its_sandbox_stops() {
    let node = Node::up().await;
    node.sim.set_knob("stop_pod_sandbox.latency=300ms").unwrap();
    node.run("job", "Never").await;
    node.sim.kill_container(&node.id("job"), 4);
    node.until_failed("job").await;
    node.delete("job", 1);
    node.until_removed("job").await;
}

#[tokio::test]
async fn restarted_kubelet_adopts_its_pods_and_removes_deleted_pods() {
    let mut node = Node::up().await;
    node.run("web", "Always").await;
    node.run("stays", "Always").await;
    node.run("job", "Never").await;
    node.create("elsewhere", "Always");
    let (observer, client) = node.observer().await;
    // A pod of another kubelet lacks the annotation of this kubelet, so it must not be terminated.
    let foreign = json!({"metadata": {"name": "f", "namespace": "test", "uid": "foreign"}});
    let foreign: Pod = serde_json::from_value(foreign).unwrap();
    let foreign =
        sandbox_config(&foreign, &NodeConfig::of_host("/tmp".as_ref(), vec![]), 0).unwrap();
    let foreign = client.run_pod_sandbox(foreign, "").await;
    foreign.into_result().unwrap();
    let uids = || {
        let views = observer.snapshot();
        let uids = views.iter().map(|view| view.status.uid.to_string());
        uids.collect::<BTreeSet<_>>()
    };
    let (stays, job, id) = (node.uid("stays"), node.uid("job"), node.id("stays"));
    node.sim.kill_container(&node.id("job"), 4);
    node.until_failed("job").await;
    // The directory of a deleted pod. The new kubelet must remove it although the runtime does not list the pod.
    let left = node.dir.path().join("pods/left");
    std::fs::create_dir_all(&left).unwrap();
    node.restart_kubelet(|node| node.delete("web", 0)).await;
    assert!(!left.exists());
    assert_eq!(node.id("stays"), id);
    let others = BTreeSet::from([stays, job.clone(), node.uid("next"), "foreign".to_owned()]);
    node.until("removed", |_| uids() == others).await;
    let ended = node.observer().await.0.get(&job.into());
    assert_eq!(ended.status.containers.len(), 1, "kept for its log");
    assert!(node.pod("elsewhere").unwrap()["status"].is_null());
    let history = node.api.history(PODS);
    let is_job = |pod: &&Value| pod["metadata"]["name"] == "job";
    let phases = history.iter().filter(is_job);
    let phases = phases.map(|pod| &pod["status"]["phase"]);
    let mut since = phases.skip_while(|phase| **phase != "Failed");
    assert!(since.all(|phase| phase == "Failed"), "{history:?}");
}
