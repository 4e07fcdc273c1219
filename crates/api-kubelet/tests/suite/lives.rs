//! Lives of pods, as the API server is told of them.

use axum::http::Method;
use pleg::{ContainerState, ContainerStatus};
use serde_json::{Value, json};

use super::node::{Node, PODS};

/// A container that runs until it is killed.
fn service() -> Value {
    json!({"containers": [{"name": "app", "image": "shop:1"}]})
}

/// A container that is not restarted.
fn job() -> Value {
    json!({"containers": [{"name": "app", "image": "shop:1"}], "restartPolicy": "Never"})
}

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
async fn exit_code_of_a_restarted_container_is_told() {
    let node = Node::up().await;
    node.create("web", service());
    node.until_running("web", 0).await;
    node.sim.kill_container(&node.id("web"), 3);
    node.until_running("web", 1).await;
    let container = node.container("web");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
}

#[tokio::test]
async fn deleted_pod_goes_when_its_containers_have_ended() {
    let node = Node::up().await;
    node.create("web", service());
    node.until_running("web", 0).await;
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
async fn restarted_kubelet_adopts_running_pods() {
    let mut node = Node::up().await;
    node.create("web", service());
    node.until_running("web", 0).await;
    let id = node.id("web");
    node.kill_kubelet().await;
    node.start_kubelet();
    node.create("next", service());
    node.until_running("next", 0).await;
    assert_eq!(node.id("web"), id);
}

#[tokio::test]
async fn pod_that_ended_stays_ended_after_a_restart() {
    let mut node = Node::up().await;
    node.create("job", job());
    node.until_running("job", 0).await;
    node.sim.kill_container(&node.id("job"), 4);
    node.until("failed", |node| {
        node.pod("job").unwrap()["status"]["phase"] == "Failed"
    })
    .await;
    node.kill_kubelet().await;
    node.start_kubelet();
    node.create("next", service());
    node.until_running("next", 0).await;
    let phases = node.api.history(PODS);
    let of_job = phases.iter().filter(|pod| pod["metadata"]["name"] == "job");
    let phases: Vec<&Value> = of_job.map(|pod| &pod["status"]["phase"]).collect();
    let ended = phases.iter().position(|phase| **phase == "Failed").unwrap();
    assert!(
        phases[ended..].iter().all(|phase| **phase == "Failed"),
        "{phases:?}"
    );
}

#[tokio::test]
async fn exit_is_told_before_the_restart() {
    let node = Node::up().await;
    node.create("web", service());
    node.until_running("web", 0).await;
    node.sim.kill_container(&node.id("web"), 5);
    node.until_running("web", 1).await;
    let told = node.api.history(PODS).into_iter().find(|pod| {
        let container = &pod["status"]["containerStatuses"][0];
        container["state"]["terminated"]["exitCode"] == 5
    });
    let told = told.expect("the exit was told");
    assert_eq!(told["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test]
async fn container_is_restarted_while_the_api_server_is_away() {
    let node = Node::up().await;
    node.create("web", service());
    node.until_running("web", 0).await;
    let (id, observer) = (node.id("web"), node.observer());
    node.api.set_down(true);
    node.sim.kill_container(&id, 5);
    let is_another = |c: &ContainerStatus| c.attempt == 1 && c.state == ContainerState::Running;
    let restarted = |_: &Node| {
        let views = observer.snapshot();
        views
            .iter()
            .any(|view| view.status.container("app").is_some_and(is_another))
    };
    node.until("restarted", restarted).await;
    assert!(node.api.has_refused("pods/web"));
    node.api.set_down(false);
    node.until_running("web", 1).await;
    assert_eq!(
        node.container("web")["lastState"]["terminated"]["exitCode"],
        5
    );
}

#[tokio::test]
async fn label_that_another_writes_is_kept() {
    let node = Node::up().await;
    node.create("web", service());
    let labels = json!({"metadata": {"labels": {"tier": "front"}}});
    let path = format!("{PODS}/web");
    node.api.request(&Method::PATCH, &path, &labels).unwrap();
    node.until_running("web", 0).await;
    assert_eq!(
        node.pod("web").unwrap()["metadata"]["labels"]["tier"],
        "front"
    );
}
