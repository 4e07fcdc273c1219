//! Statuses of containers.

use std::sync::Arc;
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Resources};
use pleg::{Exit, Id, Instant};
use serde_json::{Value, json};

use super::setup::{Node, ago, in_detail};
use crate::notation::rows;

const CRASHED: &str = "back-off 10s restarting failed container=app pod=web_shop(u-1)";

/// The state of an ended container.
fn ended(id: &str, code: i32) -> Value {
    json!({"terminated": {
        "containerID": format!("containerd://{id}"), "exitCode": code,
        "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": "2026-07-01T09:59:00Z", "finishedAt": "2026-07-01T09:59:30Z",
    }})
}

/// The state of a container whose exit code is not known.
fn lost(message: &str) -> Value {
    let reason = "ContainerStatusUnknown";
    json!({"terminated": {"exitCode": 137, "reason": reason, "message": message}})
}

/// A reported status of the pod in which the container `app` has the state `state`.
fn reported(state: &Value, restarts: u32) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "containerID": format!("containerd://app-{restarts}"), "image": "", "imageID": "",
        "ready": true, "restartCount": restarts, "state": state,
    }]})
}

/// A row: the pod's specification, its containers, a field in the status of the first container, and the field's value.
#[test]
fn status_fields_are_computed_from_the_containers() {
    let table = r#"
        Always | app created | /state | {"waiting": {}}
        Always | app created | /containerID | "containerd://app-0"
        Always | app unknown | /state | {"waiting": {}}
        Always |             | /state | {"waiting": {"reason": "ContainerCreating"}}
        Always setup app |   | /state | {"waiting": {"reason": "PodInitializing"}}
        # The last state is that of the second newest container.
        Always | app-2 running, app-1 exited 7, app exited 8 | /lastState/terminated/exitCode | 7
        Always | app-2 running, app-1 exited 7, app exited 8 | /lastState/terminated/containerID | "containerd://app-1"
        Always | app-2 running, app-1 exited 7, app exited 8 | /restartCount | 2
        # The restart count comes from the annotation.
        Always | app-1 running count=9 | /restartCount | 9
        Always | app-2 exited 1, app-1 exited 7 | /restartCount | 2
    "#;
    for row in rows(table) {
        let app = Node::of(row[0], row[1]).app();
        let expected: Value = serde_json::from_str(row[3]).unwrap();
        assert_eq!(app.pointer(row[2]), Some(&expected), "{row:?}");
    }
}

#[test]
fn reported_state_stays_running_while_exit_code_may_still_come() {
    let running = json!({"running": {"startedAt": "2026-07-01T09:59:00Z"}});
    let mut node = Node::of("Never", "app exited").before(reported(&running, 0));
    let at = Instant::from_origin(Duration::from_secs(5));
    node.ended = vec![Exit::new("app-0", "app", at)];
    node.unread = [Id::from("app-0")].into();
    assert_eq!(node.state_and_phase(), json!([running, "Running"]));
    node.unread.clear();
    let code = |node: &Node| node.app()["state"]["terminated"]["exitCode"].clone();
    let lost = json!([137, "Failed"]);
    assert_eq!(json!([code(&node), node.phase()]), lost);
    let error = CallError::new("ContainerStatus", CallErrorKind::Failed, "test");
    node.containers[0].error = Some(Arc::new(error));
    assert_eq!(code(&node), 137);
    node.ended.clear();
    let reason = "its end is not announced, and its status call fails";
    assert_eq!(node.app()["state"], running, "{reason}");
    node.previous = Value::Null;
    assert!(node.app()["state"]["waiting"].is_object());
}

#[test]
fn termination_messages_of_a_pod_share_twelve_kibibytes() {
    let mut node = Node::of("Always app b c d", "app exited 3");
    node.messages = [(Id::from("app-0"), "x".repeat(4096))].into();
    let message = node.app()["state"]["terminated"]["message"].clone();
    assert_eq!(message.as_str().map(str::len), Some(3072));
}

#[test]
fn vanished_container_keeps_its_last_state_and_restart_count() {
    let mut before = reported(&json!({"running": {}}), 1);
    before["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 3}});
    let app = Node::of("Never", "").before(before).app();
    let last = &app["lastState"]["terminated"]["exitCode"];
    assert_eq!((&app["restartCount"], last), (&json!(1), &json!(3)));
}

#[test]
fn container_that_is_not_restarted_is_not_shown_as_waiting() {
    let state = |node: Node| node.waits("app", "CrashLoopBackOff", CRASHED).app()["state"].clone();
    for (policy, code) in [("Never", 1), ("Never", 0), ("OnFailure", 0)] {
        let node = Node::of(policy, &format!("app exited {code}"));
        assert_eq!(state(node), ended("app-0", code), "{policy}");
    }
    assert!(state(Node::of("Always", "app running"))["running"].is_object());
    let deleted = Node::of("Always", "app exited 1").deleted();
    assert_eq!(state(deleted), ended("app-0", 1));
}

fn record(id: &str, detected: u64, code: Option<i32>) -> Exit {
    let mut record = Exit::new(id, "app", Instant::from_nanos(detected));
    (record.exit_code, record.reason) = (code, "Error".into());
    record.finished_at = ago(30);
    record
}

#[test]
fn last_state_of_removed_container_comes_from_its_exit_record() {
    let mut node = Node::of("Always", "app-3 running");
    // The newest exit record is of an earlier exit of `app-3` itself, so the last state is that of `app-2`.
    let records =
        [1, 2, 3].map(|n: u8| record(&format!("app-{n}"), n.into(), Some(4 + i32::from(n))));
    node.ended = records.into();
    let mut expected = ended("app-2", 6);
    let end = expected["terminated"].as_object_mut();
    end.unwrap().remove("startedAt");
    assert_eq!(node.app()["lastState"], expected);
    // The exit record is used even if no container is left.
    node.containers.clear();
    node.ended.pop();
    let app = node.app();
    assert_eq!(app["lastState"], expected);
    assert_eq!(app["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(node.phase(), "Running");
}

#[test]
fn unknown_exit_code_is_137_with_reason_container_status_unknown() {
    let mut node = Node::of("Never", "app exited");
    let expected = json!({"terminated": {
        "containerID": "containerd://app-0", "exitCode": 137, "reason": "ContainerStatusUnknown",
        "finishedAt": "2026-07-01T09:59:30Z",
    }});
    assert_eq!(node.state_and_phase(), json!([expected, "Failed"]));
    node.containers = in_detail("app-1 running");
    node.ended = vec![record("app-0", 1, None)];
    let last = &node.app()["lastState"]["terminated"];
    assert_eq!(last["reason"], "ContainerStatusUnknown");
}

#[test]
fn running_container_that_vanished_without_exit_record_has_ended() {
    let vanished = || Node::of("Always", "").before(reported(&json!({"running": {}}), 4));
    let node = vanished();
    let message = "The container could not be located when the pod was deleted.  \
                   The container used to be Running";
    assert_eq!(node.app()["lastState"], lost(message));
    assert_eq!(node.app()["restartCount"], 5);
    assert_eq!(node.phase(), "Running");
    // A container of a pod that is being deleted is not restarted.
    assert_eq!(vanished().deleted().app()["restartCount"], 4);
}

#[test]
fn running_container_whose_state_became_unknown_is_reported_as_ended() {
    let unknown = Node::of("Always", "app-4 unknown");
    let app = unknown.before(reported(&json!({"running": {}}), 4)).app();
    let message = "The container could not be located when the pod was terminated";
    assert_eq!(app["state"], lost(message));
    assert_eq!(app["restartCount"], 5);
}

#[test]
fn removed_init_container_has_succeeded_if_a_regular_one_exists() {
    let status = Node::of("Always setup proxy app", "app running").status();
    let init = &status["initContainerStatuses"];
    let message = "Unable to get init container status from container runtime and pod has been \
                   initialized, treat it as exited normally";
    let succeeded = json!({"exitCode": 0, "reason": "Completed", "message": message});
    assert_eq!(init[0]["state"]["terminated"], succeeded);
    let shown = json!([init[0]["ready"], init[0]["started"]]);
    assert_eq!(shown, json!([true, false]));
    assert_eq!(init[1]["state"]["waiting"]["reason"], "PodInitializing");
}

/// A row: the state; CPU quota, shares and memory in effect; then the expected CPU request, CPU limit and memory limit.
#[test]
fn status_of_a_running_container_shows_its_resources_in_effect() {
    let spec = json!({"containers": [{"name": "app", "resources": {
        "requests": {"cpu": "300m", "memory": "64Mi", "example.com/gpu": "1"},
        "limits": {"cpu": "500m", "memory": "128Mi", "example.com/gpu": "1"},
    }}]});
    let table = "
        running  | 50000 307 134217728   | 300m 500m 128Mi
        # While a resize is in progress.
        running  | 200000 1024 268435456 | 1 2 256Mi
        # The runtime reports no resources, or the container does not run.
        running  | 0 0 0                 | 300m 500m 128Mi
        exited 0 | 200000 1024 268435456 | 300m 500m 128Mi
    ";
    for row in rows(table) {
        let numbers: Vec<i64> = row[1].split(' ').map(|n| n.parse().unwrap()).collect();
        let amounts: Vec<_> = row[2].split(' ').collect();
        let mut resources = Resources::default();
        (resources.cpu_period, resources.cpu_quota) = (100_000, numbers[0]);
        (resources.cpu_shares, resources.memory_limit) = (numbers[1], numbers[2]);
        let mut node = Node::new(spec.clone(), &format!("app {}", row[0]));
        node.details().resources = Some(Arc::new(resources));
        let app = node.app();
        let expected = json!({
            "requests": {"cpu": amounts[0], "memory": "64Mi", "example.com/gpu": "1"},
            "limits": {"cpu": amounts[1], "memory": amounts[2], "example.com/gpu": "1"},
        });
        assert_eq!(app["resources"], expected, "{row:?}");
        let allocated = json!({"cpu": "300m", "memory": "64Mi", "example.com/gpu": "1"});
        assert_eq!(app["allocatedResources"], allocated);
    }
}
