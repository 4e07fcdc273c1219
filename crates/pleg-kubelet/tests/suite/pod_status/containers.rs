//! Statuses of containers.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::core::{CallError, CallErrorKind, ContainerDetails, Labels, Resources};
use pleg::{ContainerState, Exit, Id, Instant};
use pleg_kubelet::pod_status::{crash_loop_back_off, image_pull_back_off};
use pleg_kubelet::probe::ProbeResults;
use serde_json::{Value, json};

use super::setup::{Node, ago, container, exited, running};

const CRASHED: &str = "back-off 10s restarting failed container=app pod=web_shop(u-1)";

fn ended(id: &str, code: i32) -> Value {
    json!({"terminated": {
        "containerID": format!("containerd://{id}"),
        "exitCode": code,
        "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": "2026-07-01T09:59:00Z",
        "finishedAt": "2026-07-01T09:59:30Z",
    }})
}

#[test]
fn exit_code_that_may_still_become_known_is_not_reported() {
    let ended = || container("app", 0, ContainerState::Exited, |_| ());
    let running = json!({"running": {"startedAt": "2026-07-01T09:59:00Z"}});
    let before = json!({"containerStatuses": [{
        "name": "app", "containerID": "containerd://app-0", "state": running,
        "image": "", "imageID": "", "ready": true, "restartCount": 0,
    }]});
    let at = |seconds| Instant::from_origin(Duration::from_secs(seconds));
    let mut node = Node::one("Never").with(ended()).before(before);
    node.ended = vec![Exit::new("app-0", "app", at(5))];
    node.unread = [Id::from("app-0")].into();
    assert_eq!(node.app()["state"], running);
    assert_eq!(node.phase(), "Running");
    node.unread.clear();
    assert_eq!(
        node.app()["state"]["terminated"]["exitCode"],
        137,
        "it is lost"
    );
    assert_eq!(node.phase(), "Failed");
    let error = CallError::new("ContainerStatus", CallErrorKind::Failed, "test");
    node.containers[0].error = Some(Arc::new(error));
    assert_eq!(node.app()["state"]["terminated"]["exitCode"], 137);
    node.ended.clear();
    let reason = "its end is not announced, and its status call fails";
    assert_eq!(node.app()["state"], running, "{reason}");
    node.previous = None;
    assert!(node.app()["state"]["waiting"].is_object());
}

#[test]
fn messages_of_a_pod_share_twelve_kibibytes() {
    let mut node = Node::new(
        json!({"containers": [{"name": "app"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}),
    );
    node = node.with(exited("app", 0, 3));
    node.messages = [(Id::from("app-0"), "x".repeat(4096))].into();
    let message = node.app()["state"]["terminated"]["message"].clone();
    assert_eq!(message.as_str().map(str::len), Some(3072));
}

#[test]
fn container_that_vanished_after_a_restart_keeps_its_last_state_and_count() {
    let before = json!({"containerStatuses": [{
        "name": "app", "containerID": "containerd://app-1", "restartCount": 1,
        "image": "", "imageID": "", "ready": true,
        "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}},
    }]});
    let node = Node::one("Never").before(before);
    assert_eq!(node.app()["restartCount"], 1);
    assert_eq!(node.app()["lastState"]["terminated"]["exitCode"], 3);
}

#[test]
fn container_that_was_never_created_waits() {
    let app = Node::one("Always").app();
    let expected = json!({
        "name": "app",
        "image": "shop:1",
        "imageID": "",
        "ready": false,
        "started": false,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
    });
    assert_eq!(app, expected);
    let node =
        Node::new(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "app"}]}));
    assert_eq!(
        node.app()["state"],
        json!({"waiting": {"reason": "PodInitializing"}})
    );
    let init = &node.status()["initContainerStatuses"][0]["state"];
    assert_eq!(init, &json!({"waiting": {"reason": "PodInitializing"}}));
}

#[test]
fn created_container_waits_without_a_reason() {
    let node = Node::one("Always").with(container("app", 0, ContainerState::Created, |_| ()));
    assert_eq!(node.app()["state"], json!({"waiting": {}}));
    assert_eq!(node.app()["containerID"], "containerd://app-0");
}

/// Each reason that a kubelet gives, with its message.
#[test]
fn reasons_to_wait_are_given_letter_by_letter() {
    let cases = [
        (
            "ErrImagePull",
            "rpc error: code = NotFound desc = failed to pull and unpack image",
        ),
        ("ImagePullBackOff", "Back-off pulling image \"shop:1\""),
        (
            "CreateContainerConfigError",
            "configmap \"settings\" not found",
        ),
        ("CreateContainerError", "context deadline exceeded"),
        ("RunContainerError", "failed to start shim task"),
    ];
    for (reason, message) in cases {
        let node = Node::one("Always").waits("app", reason, message);
        let expected = json!({"waiting": {"reason": reason, "message": message}});
        assert_eq!(node.app()["state"], expected);
        assert_eq!(node.phase(), "Pending");
    }
}

#[test]
fn messages_of_back_offs_are_upstreams() {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}});
    let pod: Pod = serde_json::from_value(pod).unwrap_or_default();
    let crash = |seconds| crash_loop_back_off(Duration::from_secs(seconds), "app", &pod);
    let message = |seconds| crash(seconds).message.unwrap_or_default();
    assert_eq!(crash(10).reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(message(10), CRASHED);
    assert_eq!(
        [message(160), message(300)],
        [
            "back-off 2m40s restarting failed container=app pod=web_shop(u-1)",
            "back-off 5m0s restarting failed container=app pod=web_shop(u-1)",
        ]
    );
    let pull = image_pull_back_off("shop:1");
    assert_eq!(pull.reason.as_deref(), Some("ImagePullBackOff"));
    let message = pull.message.as_deref();
    assert_eq!(message, Some("Back-off pulling image \"shop:1\""));
}

#[test]
fn crashed_container_waits_and_has_a_last_state() {
    let node = Node::one("Always")
        .with(exited("app", 2, 1))
        .with(exited("app", 1, 7))
        .waits("app", "CrashLoopBackOff", CRASHED);
    let app = node.app();
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": CRASHED}});
    assert_eq!(app["state"], waiting);
    assert_eq!(app["lastState"], ended("app-2", 1));
    assert_eq!(app["restartCount"], 2);
    assert_eq!(app["containerID"], "containerd://app-2");
    assert_eq!(node.phase(), "Running");
}

#[test]
fn container_that_is_not_restarted_does_not_wait() {
    let reason = |node: Node| node.waits("app", "CrashLoopBackOff", CRASHED).app();
    for (policy, code) in [("Never", 1), ("Never", 0), ("OnFailure", 0)] {
        let app = reason(Node::one(policy).with(exited("app", 0, code)));
        assert_eq!(app["state"], ended("app-0", code), "{policy}");
    }
    let app = reason(Node::one("Always").with(running("app", 0)));
    assert!(app["state"]["running"].is_object());
    let mut node = Node::one("Always").with(exited("app", 0, 1));
    node.pod["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
    assert_eq!(reason(node)["state"], ended("app-0", 1));
}

#[test]
fn last_state_is_that_of_the_second_newest_container() {
    let app = Node::one("Always")
        .with(running("app", 2))
        .with(exited("app", 1, 7))
        .with(exited("app", 0, 8))
        .app();
    assert_eq!(app["lastState"], ended("app-1", 7));
    assert_eq!(app["restartCount"], 2);
}

fn record(id: &str, detected: u64, code: Option<i32>) -> Exit {
    let mut record = Exit::new(id, "app", Instant::from_nanos(detected));
    record.exit_code = code;
    record.reason = "Error".into();
    record.finished_at = ago(30);
    record
}

#[test]
fn last_state_of_a_removed_container_comes_from_its_record() {
    let mut node = Node::one("Always").with(running("app", 3));
    node.ended = vec![
        record("app-1", 1, Some(5)),
        record("app-2", 2, Some(6)),
        // Its own end, of an earlier incarnation.
        record("app-3", 3, Some(7)),
    ];
    let expected = json!({"terminated": {
        "containerID": "containerd://app-2",
        "exitCode": 6,
        "reason": "Error",
        "finishedAt": "2026-07-01T09:59:30Z",
    }});
    assert_eq!(node.app()["lastState"], expected);
    // Also if no container is left.
    node.containers.clear();
    node.ended.pop();
    let app = node.app();
    assert_eq!(app["lastState"], expected);
    assert_eq!(
        app["state"],
        json!({"waiting": {"reason": "ContainerCreating"}})
    );
    assert_eq!(node.phase(), "Running");
}

#[test]
fn unknown_exit_code_is_137_with_its_reason() {
    let without_code = container("app", 0, ContainerState::Exited, |d| {
        d.finished_at = ago(30);
    });
    let node = Node::one("Never").with(without_code);
    let expected = json!({"terminated": {
        "containerID": "containerd://app-0",
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "finishedAt": "2026-07-01T09:59:30Z",
    }});
    assert_eq!(node.app()["state"], expected);
    assert_eq!(node.phase(), "Failed");
    let mut node = Node::one("Always").with(running("app", 1));
    node.ended = vec![record("app-0", 1, None)];
    assert_eq!(
        node.app()["lastState"]["terminated"]["reason"],
        "ContainerStatusUnknown"
    );
}

fn was_running() -> Value {
    let running = json!({"running": {"startedAt": "2026-07-01T09:00:00Z"}});
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "image": "shop:1", "imageID": "", "ready": true, "restartCount": 4,
        "state": running,
    }]})
}

#[test]
fn running_container_that_vanished_without_a_record_has_ended() {
    let node = Node::one("Always").before(was_running());
    let app = node.app();
    assert_eq!(
        app["lastState"],
        json!({"terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was deleted.  \
                        The container used to be Running",
        }})
    );
    assert_eq!(app["restartCount"], 5);
    assert_eq!(node.phase(), "Running");
    // If the pod is being deleted, it is not restarted.
    let mut node = Node::one("Always").before(was_running());
    node.pod["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
    assert_eq!(node.app()["restartCount"], 4);
}

#[test]
fn running_container_whose_state_became_unknown_has_ended() {
    let unknown = container("app", 4, ContainerState::Unknown { last: None }, |_| ());
    let app = Node::one("Always")
        .with(unknown.clone())
        .before(was_running())
        .app();
    assert_eq!(
        app["state"],
        json!({"terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
        }})
    );
    assert_eq!(app["restartCount"], 5);
    assert_eq!(
        Node::one("Always").with(unknown).app()["state"],
        json!({"waiting": {}})
    );
}

#[test]
fn removed_init_container_has_succeeded_if_a_regular_one_exists() {
    let spec = json!({
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "app"}],
    });
    let status = Node::new(spec).with(running("app", 0)).status();
    let init = &status["initContainerStatuses"];
    assert_eq!(
        init[0]["state"],
        json!({"terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "message": "Unable to get init container status from container runtime and pod has been \
                        initialized, treat it as exited normally",
        }})
    );
    assert_eq!(
        (&init[0]["ready"], &init[0]["started"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        init[1]["state"],
        json!({"waiting": {"reason": "PodInitializing"}})
    );
}

#[test]
fn init_containers_keep_their_order_and_others_are_sorted() {
    let names = |containers: &[&str]| -> Vec<Value> {
        containers
            .iter()
            .map(|name| json!({"name": name}))
            .collect()
    };
    let spec = json!({"initContainers": names(&["z", "a"]), "containers": names(&["y", "b"])});
    let status = Node::new(spec).status();
    let shown = |field: &str| [0, 1].map(|n| status[field][n]["name"].clone());
    assert_eq!(shown("initContainerStatuses"), ["z", "a"]);
    assert_eq!(shown("containerStatuses"), ["b", "y"]);
}

#[test]
fn restart_count_is_that_of_the_annotation() {
    let noted = |d: &mut ContainerDetails| {
        d.annotations = Labels::from([("io.kubernetes.container.restartCount", "9")]);
    };
    let app = Node::one("Always")
        .with(container("app", 1, ContainerState::Running, noted))
        .app();
    assert_eq!(app["restartCount"], 9);
}

#[test]
fn started_and_ready_follow_the_probes() {
    let spec = json!({"containers": [{"name": "app", "startupProbe": {}, "readinessProbe": {}}]});
    let none: &[&str] = &[];
    let app = &["app"][..];
    let cases = [
        (None, (false, false)),
        (Some((none, app)), (false, false)),
        (Some((app, none)), (true, false)),
        (Some((app, app)), (true, true)),
    ];
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    for (results, (is_started, is_ready)) in cases {
        let mut node = Node::new(spec.clone()).with(running("app", 0));
        node.probes = results.map(|(started, ready)| ProbeResults {
            started: names(started),
            ready: names(ready),
            ..ProbeResults::default()
        });
        let app = node.app();
        assert_eq!(app["started"], is_started);
        assert_eq!(app["ready"], is_ready);
        node.containers[0] = exited("app", 0, 0);
        assert_eq!(
            (&node.app()["started"], &node.app()["ready"]),
            (&json!(false), &json!(false))
        );
    }
}

#[test]
fn resources_are_those_in_effect() {
    let spec = json!({"containers": [{"name": "app", "resources": {
        "requests": {"cpu": "300m", "memory": "64Mi"},
        "limits": {"cpu": "0.5", "memory": "128Mi", "example.com/gpu": "1"},
    }}]});
    let with = |quota, shares, memory| {
        let mut resources = Resources::default();
        (resources.cpu_period, resources.cpu_quota) = (100_000, quota);
        (resources.cpu_shares, resources.memory_limit) = (shares, memory);
        let resources = Arc::new(resources);
        let app = container("app", 0, ContainerState::Running, |d| {
            d.resources = Some(resources);
        });
        Node::new(spec.clone()).with(app).app()
    };
    let resources = |cpu_request: &str, cpu: &str, memory: &str| {
        json!({
            "requests": {"cpu": cpu_request, "memory": "64Mi", "example.com/gpu": "1"},
            "limits": {"cpu": cpu, "memory": memory, "example.com/gpu": "1"},
        })
    };
    let app = with(50_000, 307, 134_217_728);
    assert_eq!(app["resources"], resources("300m", "500m", "128Mi"));
    assert_eq!(
        app["allocatedResources"],
        json!({"cpu": "300m", "memory": "64Mi", "example.com/gpu": "1"})
    );
    // While a resize is in progress.
    let app = with(200_000, 1024, 268_435_456);
    assert_eq!(app["resources"], resources("1", "2", "256Mi"));
    // Not reported, or not running.
    assert_eq!(
        with(0, 0, 0)["resources"],
        resources("300m", "500m", "128Mi")
    );
    let ended = Node::new(spec.clone()).with(exited("app", 0, 0)).app();
    assert_eq!(ended["resources"], resources("300m", "500m", "128Mi"));
}

#[test]
fn mounts_of_volumes_are_those_of_the_specification() {
    let spec = json!({"containers": [{"name": "app", "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": true},
        {"name": "tmp", "mountPath": "/tmp", "readOnly": false},
    ]}]});
    let expected = json!([
        {"name": "data", "mountPath": "/data", "readOnly": true, "recursiveReadOnly": "Disabled"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]);
    assert_eq!(Node::new(spec).app()["volumeMounts"], expected);
}

#[test]
fn container_that_never_started_has_the_epoch_as_its_start() {
    let failed = container("app", 0, ContainerState::Exited, |d| {
        (d.finished_at, d.exit_code) = (ago(30), Some(128));
    });
    let state = Node::one("Never").with(failed).app()["state"].clone();
    assert_eq!(state["terminated"]["startedAt"], "1970-01-01T00:00:00Z");
}
