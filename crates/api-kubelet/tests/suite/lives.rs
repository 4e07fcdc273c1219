//! Lives of pods, as the API server is told of them.

use axum::http::Method;
use pleg::{ContainerState, ContainerStatus};
use serde_json::{Value, json};

use super::node::{Node, PODS};

#[tokio::test]
async fn node_is_registered_with_its_lease_and_condition() {
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
async fn exit_is_told_before_the_restart_and_with_it() {
    let node = Node::up().await;
    node.run("web", "Always").await;
    node.sim.kill_container(&node.id("web"), 5);
    node.until_running("web", 1).await;
    let last = &node.container("web")["lastState"];
    assert_eq!(last["terminated"]["exitCode"], 5);
    let history = node.api.history(PODS);
    let statuses = history
        .iter()
        .map(|pod| &pod["status"]["containerStatuses"][0]);
    let mut ended = statuses.filter(|status| status["state"]["terminated"]["exitCode"] == 5);
    assert_eq!(ended.next().unwrap()["restartCount"], 0);
}

#[tokio::test]
async fn deleted_pod_goes_when_its_containers_have_ended() {
    let node = Node::up().await;
    node.run("web", "Always").await;
    let (path, options) = (format!("{PODS}/web"), json!({"gracePeriodSeconds": 1}));
    node.api.request(&Method::DELETE, &path, &options).unwrap();
    node.until("removed", |node| node.pod("web").is_none())
        .await;
    let history = node.api.history(PODS);
    let last = &history[history.len() - 1]["status"]["containerStatuses"][0];
    assert!(
        last["state"]["terminated"]["exitCode"].is_number(),
        "{last}"
    );
}

#[tokio::test]
async fn restarted_kubelet_adopts_running_pods_and_leaves_ended_ones() {
    let mut node = Node::up().await;
    node.run("web", "Always").await;
    node.run("job", "Never").await;
    let id = node.id("web");
    node.sim.kill_container(&node.id("job"), 4);
    let failed = |node: &Node| node.pod("job").unwrap()["status"]["phase"] == "Failed";
    node.until("failed", failed).await;
    node.restart_kubelet().await;
    assert_eq!(node.id("web"), id);
    let history = node.api.history(PODS);
    let of_job = history
        .iter()
        .filter(|pod| pod["metadata"]["name"] == "job");
    let phases = of_job.map(|pod| &pod["status"]["phase"]);
    let mut since = phases.skip_while(|phase| **phase != "Failed");
    assert!(since.all(|phase| phase == "Failed"), "{history:?}");
}

#[tokio::test]
async fn container_is_restarted_while_the_api_server_is_away() {
    let node = Node::up().await;
    node.run("web", "Always").await;
    let (id, observer) = (node.id("web"), node.observer());
    node.api.set_down(true);
    node.sim.kill_container(&id, 5);
    let is_another = |c: &ContainerStatus| c.attempt == 1 && c.state == ContainerState::Running;
    let restarted = |_: &Node| {
        let views = observer.snapshot();
        let mut apps = views.iter().filter_map(|view| view.status.container("app"));
        apps.any(is_another)
    };
    node.until("restarted", restarted).await;
    assert!(node.api.has_refused("pods/web"));
    node.api.set_down(false);
    node.until_running("web", 1).await;
    let last = &node.container("web")["lastState"];
    assert_eq!(last["terminated"]["exitCode"], 5);
}

#[tokio::test]
async fn label_that_another_writes_is_kept() {
    let node = Node::up().await;
    node.create("web", "Always");
    let labels = json!({"metadata": {"labels": {"tier": "front"}}});
    let path = format!("{PODS}/web");
    node.api.request(&Method::PATCH, &path, &labels).unwrap();
    node.until_running("web", 0).await;
    let metadata = &node.pod("web").unwrap()["metadata"];
    assert_eq!(metadata["labels"]["tier"], "front");
}
