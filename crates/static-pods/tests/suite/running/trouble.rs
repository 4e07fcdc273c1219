//! Failing calls, missing images, unusable directories, restarts of the kubelet, and changes of manifests.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use pleg::core::SandboxState;
use pleg::{PodStatus, PodUid};
use pleg_cri::v1;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_sim::Mode;
use serde_json::Value;
use static_pods::node_status::NodeStatus;

use super::node::{Node, ONE, manifest, one};
use crate::Log;

#[tokio::test]
async fn change_of_the_nodes_ready_condition_is_logged() {
    let node = Node::up(Mode::Containerd2).await;
    let (mut log, _guards) = Log::start();
    let pleg = node.kubelet.pleg.clone();
    let status = NodeStatus::new("n", pleg, node.runtime().client());
    assert_eq!(status.ready().status, "False", "nothing is known yet");
    status.wait_for_runtime().await;
    for is_change in [true, false] {
        assert_eq!(status.ready().status, "True");
        let is_logged = log.take().contains("Node n status is now: NodeReady");
        assert_eq!(is_logged, is_change);
    }
}

#[tokio::test]
async fn image_pulled_by_another_client_ends_the_back_off() {
    // The node has the default back-off delays: 10 s and more.
    let node = Node::with_back_off(Mode::Containerd2, BackOffSettings::default()).await;
    node.knob("pull_image.fail=unavailable");
    let uid = node.set("web", ONE);
    node.until_waiting(&uid, "ImagePullBackOff").await;
    node.knob("pull_image.fail=off");
    let image = v1::ImageSpec {
        image: "app:1".to_owned(),
        ..v1::ImageSpec::default()
    };
    let clock = node.kubelet.pleg.clock();
    let pulled = clock.now();
    let pull = node.runtime().client().pull_image(image, None, None).await;
    pull.unwrap();
    node.workers.wake(&uid);
    node.until_running(&uid).await;
    assert!(clock.now().since(pulled) < Duration::from_secs(9));
}

#[tokio::test]
async fn container_forbidden_to_pull_starts_once_image_is_present() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set("web", &one("imagePullPolicy: Never"));
    node.until_waiting(&uid, "ErrImageNeverPull").await;
    let other = node.set("other", ONE);
    node.until_running(&other).await;
    node.until_running(&uid).await;
    // Another image may have this name by now, so the kubelet calls ImageStatus for each pod.
    node.knob("image_status.fail=unavailable");
    let last = node.set("last", ONE);
    node.until_waiting(&last, "ImageInspectError").await;
}

#[tokio::test]
async fn container_keeps_its_waiting_reason_while_its_creation_is_retried() {
    let node = Node::up(Mode::Containerd2).await;
    node.knob("create_container.fail=unavailable");
    node.knob("create_container.latency=300ms");
    let uid = node.set("web", ONE);
    node.until_waiting(&uid, "CreateContainerError").await;
    // The next attempt makes the directory of logs again before it creates the container.
    let logs = node.logs(&uid);
    std::fs::remove_dir_all(&logs).unwrap();
    node.until(&uid, "begun", |_| logs.exists()).await;
    let reason = node.container(&uid)["state"]["waiting"]["reason"].clone();
    assert_eq!(reason, "CreateContainerError");
}

#[tokio::test]
async fn status_names_uncreatable_log_directory_and_deletion_removes_all_files() {
    let node = Node::up(Mode::Containerd2).await;
    let all_logs = node.dir.path().join("logs");
    std::fs::write(&all_logs, "not a directory").unwrap();
    let uid = node.set(
        "web",
        "{volumes: [{name: v, emptyDir: {}}], terminationGracePeriodSeconds: 1,
          containers: [{name: c, image: 'app:1', volumeMounts: [{name: v, mountPath: /v}]}]}",
    );
    let path = all_logs.to_str().unwrap();
    let named = |node: &Node| node.status(&uid).to_string().contains(path);
    node.until(&uid, "named", named).await;
    std::fs::remove_file(&all_logs).unwrap();
    node.until_running(&uid).await;
    let files = node.dir.path().join("pods").join(uid.as_str());
    assert!(files.join("volumes/kubernetes.io~empty-dir/v").is_dir());
    let mode = std::fs::metadata(&files).unwrap().mode();
    assert_eq!(mode & 0o777, 0o750, "other users cannot reach the volumes");
    let logs = node.logs(&uid);
    assert!(logs.is_dir());
    node.workers.delete(&uid);
    node.until_gone(&uid).await;
    let removed = |_: &Node| !files.exists() && !logs.exists();
    node.until(&uid, "removed", removed).await;
}

#[tokio::test]
async fn log_of_a_removed_container_is_removed() {
    let node = Node::up(Mode::Containerd2).await;
    node.knob("pull_image.fail=unavailable");
    let uid = node.set("web", &one("command: [exit, '3', '5']"));
    node.until_waiting(&uid, "ImagePullBackOff").await;
    let logs = node.logs(&uid).join("c");
    std::fs::write(logs.join("0.log"), "x").unwrap();
    node.knob("pull_image.fail=off");
    let removed = |_: &Node| !logs.join("0.log").exists();
    node.until(&uid, "removed", removed).await;
    assert!(logs.is_dir());
}

#[tokio::test]
async fn restarted_kubelet_removes_orphaned_files_and_keeps_host_ports_taken() {
    let node = Node::up(Mode::Containerd2).await;
    let pod = one("ports: [{containerPort: 80, hostPort: 8080}]");
    let uid = node.set("web", &pod);
    node.until_running(&uid).await;
    let files = |uid: &PodUid| [node.dir.path().join(format!("pods/{uid}")), node.logs(uid)];
    let (gone, set) = (PodUid::from("gone"), PodUid::from("set"));
    for path in files(&gone).iter().chain(&files(&set)) {
        std::fs::create_dir_all(path).unwrap();
    }
    // Like a restarted kubelet, this one knows no pod until it adopts the running pods.
    node.kubelet.pods().clear();
    let specified = [uid.clone(), set.clone()];
    let specified = specified.map(|uid| (uid, Arc::new(manifest("web", "{}", &pod))));
    node.kubelet.adopt(&specified);
    assert!(files(&gone).iter().all(|path| !path.exists()));
    assert!(files(&set).iter().all(|path| path.exists()));
    assert!(files(&uid)[1].exists());
    let second = node.set("other", &pod);
    let failed = |node: &Node| node.status(&second)["reason"] == "NodePorts";
    node.until(&second, "rejected", failed).await;
    assert_eq!(node.status(&second)["phase"], "Failed");
}

#[tokio::test]
async fn changed_resources_appear_in_the_status_without_a_new_container() {
    let node = Node::up(Mode::Containerd2).await;
    let limit = "resources: {requests: {cpu: 100m}, limits: {cpu: LIMIT}}";
    let with = |cpu| one(&limit.replace("LIMIT", cpu));
    let uid = node.set("web", &with("200m"));
    let before = node.until_running(&uid).await;
    assert_eq!(node.set("web", &with("300m")), uid, "the same pod");
    let resized = |node: &Node| node.container(&uid)["resources"]["limits"]["cpu"] == "300m";
    node.until(&uid, "resized", resized).await;
    let in_effect = node.seen(&uid).containers[0].details.resources.clone();
    assert_eq!(in_effect.map(|r| r.cpu_quota), Some(30_000));
    assert_eq!(node.container(&uid)["containerID"], before);
}

/// Waits until a container other than `before` runs in pod `uid`. Pod `other` must have no ready sandbox then.
async fn until_another_runs(node: &Node, uid: &PodUid, other: &PodUid, before: &Value) {
    let is_ready = |status: &PodStatus| {
        let mut sandboxes = status.sandboxes.iter();
        sandboxes.any(|s| s.state == SandboxState::Ready)
    };
    let runs = |node: &Node| {
        assert!(!(is_ready(&node.seen(uid)) && is_ready(&node.seen(other))));
        assert!(node.kubelet.pods().len() <= 1, "both pods have one name");
        node.is_running(uid) && node.container(uid)["containerID"] != *before
    };
    node.until(uid, "started anew", runs).await;
}

/// The first pod, when set again, waits for the end of the second pod, not for the removal of its own old containers.
#[tokio::test]
async fn pod_of_restored_manifest_waits_until_its_replacement_ends() {
    let node = Node::up(Mode::Containerd2).await;
    let never = one("").replace("containers", "restartPolicy: Never, containers");
    let first = node.set("web", &never);
    let before = node.until_running(&first).await;
    node.knob("remove_container.fail=internal");
    node.workers.delete(&first);
    let second = node.set("web", &never.replace("app:1", "app:2"));
    node.until_running(&second).await;
    node.workers.delete(&second);
    assert_eq!(node.set("web", &never), first);
    until_another_runs(&node, &first, &second, &before).await;
    assert_eq!(node.status(&first)["phase"], "Running");
    let containers = node.seen(&first).containers.len();
    assert_eq!(containers, 2, "the old container cannot be removed");
    // The planner has acknowledged the exits of the earlier pod, so `reset` lets the kubelet remove its containers.
    node.sim.control("reset").await.unwrap();
    node.workers.delete(&first);
    node.until_gone(&first).await;
    node.set("web", &never);
    node.until_running(&first).await;
    let container = node.container(&first);
    let is_first = container["lastState"]["terminated"].is_null();
    assert!(is_first && container["restartCount"] == 0, "{container}");
}

#[tokio::test]
async fn pod_waits_while_its_deleted_predecessor_still_creates_a_sandbox() {
    let node = Node::up(Mode::Containerd2).await;
    node.knob("run_pod_sandbox.latency=300ms");
    let pod = one("ports: [{containerPort: 80, hostPort: 8080}]");
    let before = node.set("web", &pod);
    // Before the pod's first run, the kubelet notes that it will delete the pod: the run must not clear this note.
    node.kubelet.will_delete(&before);
    let begun = |node: &Node| !node.status(&before).is_null();
    node.until(&before, "begun", begun).await;
    node.workers.delete(&before);
    let after = node.set("web", &pod.replace("app:1", "app:2"));
    until_another_runs(&node, &after, &before, &Value::Null).await;
}
