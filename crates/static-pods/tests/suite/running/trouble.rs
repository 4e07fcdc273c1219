//! Calls that fail, images that are missing, directories that cannot be made.

use std::path::Path;
use std::time::Duration;

use pleg::ContainerState;
use pleg::core::SandboxState;
use pleg_cri::v1;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_sim::{FaultProfile, Mode};
use static_pods::manifest::Manifest;

use super::node::Node;

const ONE: &str = "{containers: [{name: c, image: 'app:1'}]}";

#[tokio::test]
async fn image_that_cannot_be_pulled_is_pulled_again_after_a_back_off() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim.set_knob("pull_image.fail=unavailable").unwrap();
    let uid = node.set("web", ONE);
    node.until_waiting(&uid, "ImagePullBackOff").await;
    let message = node.container(&uid)["state"]["waiting"]["message"].clone();
    let message = message.as_str().unwrap_or_default();
    let begins = "Back-off pulling image \"app:1\": ErrImagePull: PullImage: ";
    assert!(message.starts_with(begins), "{message}");
    node.sim.set_knob("pull_image.fail=off").unwrap();
    node.until_running(&uid).await;
    assert_eq!(
        node.container(&uid)["restartCount"],
        0,
        "no attempt was used"
    );
}

#[tokio::test]
async fn image_that_somebody_else_pulls_ends_the_back_off() {
    // 10 s and more.
    let node = Node::with_back_off(Mode::Containerd2, BackOffSettings::default()).await;
    node.sim.set_knob("pull_image.fail=unavailable").unwrap();
    let uid = node.set("web", ONE);
    let failed = |node: &Node| {
        let reason = &node.container(&uid)["state"]["waiting"]["reason"];
        reason == "ErrImagePull" || reason == "ImagePullBackOff"
    };
    node.until(&uid, "failed", failed).await;
    node.sim.set_knob("pull_image.fail=off").unwrap();
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
async fn image_that_must_not_be_pulled_is_waited_for() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set(
        "web",
        "{containers: [{name: c, image: 'app:1', imagePullPolicy: Never}]}",
    );
    node.until_waiting(&uid, "ErrImageNeverPull").await;
    let other = node.set("other", ONE);
    node.until_running(&other).await;
    node.until_running(&uid).await;
}

#[tokio::test]
async fn failed_sandbox_is_tried_again_and_delays_no_container() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim
        .set_knob("run_pod_sandbox.fail=unavailable@#1")
        .unwrap();
    let uid = node.set("web", ONE);
    node.until_running(&uid).await;
    assert_eq!(node.container(&uid)["restartCount"], 0);
    let sandboxes = node.kubelet.pleg.get(&uid).status.sandboxes.clone();
    assert_eq!(sandboxes[0].attempt, 1, "the first may have been used");
}

#[tokio::test]
async fn failed_create_is_tried_again_with_another_attempt() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim
        .set_knob("create_container.fail=unavailable")
        .unwrap();
    let uid = node.set("web", ONE);
    node.until_waiting(&uid, "CreateContainerError").await;
    node.sim.set_knob("create_container.fail=off").unwrap();
    node.until_running(&uid).await;
    let status = node.kubelet.pleg.get(&uid).status;
    assert!(status.containers[0].attempt > 0);
    assert_eq!(status.containers.len(), 1);
    let count = node.container(&uid)["restartCount"].clone();
    assert_eq!(count, 0, "an attempt that failed is no restart");
}

#[tokio::test]
async fn reason_for_waiting_stays_while_the_next_attempt_is_made() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim
        .set_knob("create_container.fail=unavailable")
        .unwrap();
    node.sim.set_knob("create_container.latency=300ms").unwrap();
    let uid = node.set("web", ONE);
    node.until_waiting(&uid, "CreateContainerError").await;
    // The next attempt makes it again before it creates the container.
    let logs = node.dir.path().join(format!("logs/default_web-n_{uid}"));
    std::fs::remove_dir_all(&logs).unwrap();
    let begun = |_: &Node| logs.exists();
    node.until(&uid, "begun", begun).await;
    let reason = node.container(&uid)["state"]["waiting"]["reason"].clone();
    assert_eq!(reason, "CreateContainerError");
}

#[tokio::test]
async fn program_that_cannot_be_started_has_an_exit_code_and_is_restarted() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set(
        "web",
        "{containers: [{name: c, image: 'app:1', command: [fail-start]}]}",
    );
    let restarted = |node: &Node| node.container(&uid)["restartCount"].as_u64() > Some(2);
    node.until(&uid, "restarted", restarted).await;
    let ended = |node: &Node| {
        let last = &node.container(&uid)["lastState"]["terminated"];
        last["exitCode"] == 128
    };
    node.until(&uid, "ended with 128", ended).await;
}

#[tokio::test]
async fn directories_that_cannot_be_made_are_named_and_made_later() {
    let node = Node::up(Mode::Containerd2).await;
    let logs = node.dir.path().join("logs");
    std::fs::write(&logs, "not a directory").unwrap();
    let uid = node.set("web", ONE);
    let named = |node: &Node| {
        let status = node.status(&uid).to_string();
        status.contains(&*logs.to_string_lossy())
    };
    node.until(&uid, "named", named).await;
    std::fs::remove_file(&logs).unwrap();
    node.until_running(&uid).await;
}

#[tokio::test]
async fn deleted_pod_leaves_nothing() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set(
        "web",
        "{volumes: [{name: v, emptyDir: {}}], terminationGracePeriodSeconds: 1,
          containers: [{name: c, image: 'app:1', volumeMounts: [{name: v, mountPath: /v}]}]}",
    );
    node.until_running(&uid).await;
    let files = node.dir.path().join("pods").join(uid.as_str());
    assert!(files.join("volumes/kubernetes.io~empty-dir/v").is_dir());
    let logs = node.dir.path().join(format!("logs/default_web-n_{uid}"));
    assert!(logs.is_dir());
    node.workers.delete(&uid);
    let gone = |node: &Node| {
        let status = node.kubelet.pleg.get(&uid).status;
        let is_left = files.exists() || logs.exists();
        !status.exists() && node.status(&uid).is_null() && !is_left
    };
    node.until(&uid, "gone", gone).await;
}

#[tokio::test]
async fn log_of_a_removed_container_is_removed() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim.set_knob("pull_image.fail=unavailable").unwrap();
    let uid = node.set(
        "web",
        "{containers: [{name: c, image: 'app:1', command: [exit, '3', '5']}]}",
    );
    node.until_waiting(&uid, "ImagePullBackOff").await;
    let logs = node.dir.path().join(format!("logs/default_web-n_{uid}/c"));
    std::fs::write(logs.join("0.log"), "x").unwrap();
    node.sim.set_knob("pull_image.fail=off").unwrap();
    let removed = |_: &Node| !logs.join("0.log").exists();
    node.until(&uid, "removed", removed).await;
    assert!(logs.is_dir());
}

#[tokio::test]
async fn termination_message_is_reported_with_the_end() {
    let node = Node::up(Mode::Crio).await;
    let uid = node.set("web", ONE);
    node.until_running(&uid).await;
    // As the container does at /dev/termination-log.
    let file = node.dir.path().join(format!("pods/{uid}/containers/c/0"));
    std::fs::write(&file, "out of luck").unwrap();
    let first = node.container(&uid)["containerID"].clone();
    let id = first.as_str().unwrap().rsplit('/').next().unwrap();
    node.sim.kill_container(id, 3);
    node.until_another_runs(&uid, &first).await;
    let ended = node.container(&uid)["lastState"]["terminated"].clone();
    assert_eq!(
        (&ended["exitCode"], &ended["message"]),
        (&3.into(), &"out of luck".into())
    );
}

#[tokio::test]
async fn files_of_pods_that_went_while_no_kubelet_ran_are_removed() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set("web", ONE);
    node.until_running(&uid).await;
    let files = |uid: &str| {
        let logs = format!("logs/default_web-n_{uid}");
        [format!("pods/{uid}"), logs].map(|path| node.dir.path().join(path))
    };
    for path in files("gone").iter().chain(&files("set")) {
        std::fs::create_dir_all(path).unwrap();
    }
    let parse = |contents: &str| Manifest::parse(Path::new("a"), contents, "n").unwrap();
    let set = parse(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: a}]}}",
    );
    node.kubelet.remove_orphans(&[("set".into(), set.into())]);
    assert!(files("gone").iter().all(|path| !path.exists()));
    assert!(files("set").iter().all(|path| path.exists()));
    assert!(files(uid.as_str())[1].exists());
}

#[tokio::test]
async fn changed_resources_are_in_the_status_of_the_same_container() {
    let node = Node::up(Mode::Containerd2).await;
    let with = |cpu| {
        format!(
            "{{containers: [{{name: c, image: 'app:1', resources: {{requests: {{cpu: 100m}}, limits: {{cpu: {cpu}}}}}}}]}}"
        )
    };
    let uid = node.set("web", &with("200m"));
    node.until_running(&uid).await;
    let before = node.container(&uid)["containerID"].clone();
    assert_eq!(node.set("web", &with("300m")), uid, "the same pod");
    let resized = |node: &Node| {
        let container = node.container(&uid);
        container["resources"]["limits"]["cpu"] == "300m"
    };
    node.until(&uid, "resized", resized).await;
    let in_effect = node.kubelet.pleg.get(&uid).status.containers[0]
        .details
        .clone();
    let quota = in_effect.resources.as_ref().map(|r| r.cpu_quota);
    assert_eq!(quota, Some(30_000));
    assert_eq!(node.container(&uid)["containerID"], before);
}

#[tokio::test]
async fn failed_liveness_probe_restarts_the_container() {
    let node = Node::up(Mode::Containerd2).await;
    let uid = node.set(
        "web",
        "{hostNetwork: true, terminationGracePeriodSeconds: 1, containers: [{name: c, image: 'app:1',
          livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1}}]}",
    );
    let restarted = |node: &Node| node.container(&uid)["restartCount"].as_u64() > Some(0);
    node.until(&uid, "restarted", restarted).await;
}

#[tokio::test]
async fn manifest_that_is_put_back_starts_the_pod_anew() {
    let node = Node::up(Mode::Containerd2).await;
    let spec = "{restartPolicy: Never, terminationGracePeriodSeconds: 1,
        containers: [{name: c, image: 'app:1'}]}";
    let uid = node.set("web", spec);
    node.until_running(&uid).await;
    let before = node.container(&uid)["containerID"].clone();
    node.workers.delete(&uid);
    let stops = |node: &Node| {
        let containers = &node.kubelet.pleg.get(&uid).status.containers;
        containers.iter().all(|c| c.state == ContainerState::Exited)
    };
    node.until(&uid, "stopped", stops).await;
    assert_eq!(node.set("web", spec), uid);
    node.until_another_runs(&uid, &before).await;
}

#[tokio::test]
async fn pod_that_comes_back_does_not_wait_for_a_removal_that_fails() {
    let node = Node::up(Mode::Containerd2).await;
    let spec = "{restartPolicy: Never, terminationGracePeriodSeconds: 1,
        containers: [{name: c, image: 'app:1'}]}";
    let uid = node.set("web", spec);
    node.until_running(&uid).await;
    let before = node.container(&uid)["containerID"].clone();
    node.sim.set_knob("remove_container.fail=internal").unwrap();
    node.workers.delete(&uid);
    let stopped = |node: &Node| {
        let status = node.kubelet.pleg.get(&uid).status;
        let mut sandboxes = status.sandboxes.iter();
        sandboxes.all(|s| s.state == SandboxState::NotReady)
    };
    node.until(&uid, "stopped", stopped).await;
    assert_eq!(node.set("web", spec), uid);
    node.until_another_runs(&uid, &before).await;
    assert_eq!(node.status(&uid)["phase"], "Running");
    let containers = node.kubelet.pleg.get(&uid).status.containers.clone();
    assert_eq!(containers.len(), 2, "the one that cannot be removed stays");
    // What the earlier pod has left is acknowledged, so it can be removed now.
    node.sim.set_fault_profile(FaultProfile::default());
    node.workers.delete(&uid);
    let gone =
        |node: &Node| node.status(&uid).is_null() && !node.kubelet.pleg.get(&uid).status.exists();
    node.until(&uid, "gone", gone).await;
}

/// It runs beside what is left of its own earlier pod, but not beside another pod of its name.
#[tokio::test]
async fn pod_that_comes_back_waits_for_the_one_that_replaced_it() {
    let node = Node::up(Mode::Containerd2).await;
    let spec = |image| {
        format!(
            "{{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'app:{image}'}}]}}"
        )
    };
    let first = node.set("web", &spec(1));
    node.until_running(&first).await;
    let before = node.container(&first)["containerID"].clone();
    node.sim.set_knob("remove_container.fail=internal").unwrap();
    node.workers.delete(&first);
    let second = node.set("web", &spec(2));
    node.until_running(&second).await;
    node.workers.delete(&second);
    assert_eq!(node.set("web", &spec(1)), first);
    let another_runs = |node: &Node| {
        let status = |uid| node.kubelet.pleg.get(uid).status;
        let is_ready = |uid| {
            let status = status(uid);
            let mut sandboxes = status.sandboxes.iter();
            sandboxes.any(|s| s.state == SandboxState::Ready)
        };
        assert!(!(is_ready(&first) && is_ready(&second)), "both");
        let container = node.container(&first);
        container["state"]["running"].is_object() && container["containerID"] != before
    };
    node.until(&first, "running again", another_runs).await;
}

#[tokio::test]
async fn changed_pod_waits_for_a_sandbox_that_is_being_created() {
    let node = Node::up(Mode::Containerd2).await;
    node.sim.set_knob("run_pod_sandbox.latency=300ms").unwrap();
    let before = node.set("web", ONE);
    let begun = |node: &Node| !node.status(&before).is_null();
    node.until(&before, "begun", begun).await;
    node.workers.delete(&before);
    let after = node.set("web", "{containers: [{name: c, image: 'app:2'}]}");
    let runs = |node: &Node| {
        let status = |uid| node.kubelet.pleg.get(uid).status;
        let is_ready = |uid| {
            let status = status(uid);
            let mut sandboxes = status.sandboxes.iter();
            sandboxes.any(|s| s.state == SandboxState::Ready)
        };
        assert!(!(is_ready(&before) && is_ready(&after)), "both");
        node.container(&after)["state"]["running"].is_object()
    };
    node.until(&after, "running", runs).await;
}

#[tokio::test]
async fn manifest_that_is_put_back_after_its_pod_is_gone_starts_a_new_pod() {
    let node = Node::up(Mode::Containerd2).await;
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'app:1'}]}";
    let uid = node.set("web", spec);
    node.until_running(&uid).await;
    node.workers.delete(&uid);
    let gone = |node: &Node| node.status(&uid).is_null();
    node.until(&uid, "gone", gone).await;
    assert_eq!(node.set("web", spec), uid);
    node.until_running(&uid).await;
    let container = node.container(&uid);
    assert_eq!(container["restartCount"], 0);
    assert!(
        container["lastState"]["terminated"].is_null(),
        "{container}"
    );
}

#[tokio::test]
async fn status_that_cannot_be_read_does_not_stop_the_pods_other_containers() {
    let node = Node::up(Mode::Unimplemented).await;
    let uid = node.set(
        "web",
        "{restartPolicy: OnFailure, containers: [{name: web, image: 'app:1'}]}",
    );
    node.until_running(&uid).await;
    let id = node.kubelet.pleg.get(&uid).status.containers[0].id.clone();
    node.sim
        .set_knob("container_status.fail=unavailable")
        .unwrap();
    assert!(node.sim.kill_container(id.as_str(), 1));
    let waits = |node: &Node| {
        let status = node.kubelet.pleg.get(&uid).status;
        status.containers[0].state == ContainerState::Exited
    };
    node.until(&uid, "exited", waits).await;
    node.workers.delete(&uid);
    let stopped = |node: &Node| {
        let status = node.kubelet.pleg.get(&uid).status;
        status
            .sandboxes
            .iter()
            .all(|s| s.state == SandboxState::NotReady)
    };
    node.until(&uid, "stopped without an exit code", stopped)
        .await;
}
