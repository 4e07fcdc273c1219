//! Statuses of containers.

use std::sync::Arc;
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Resources};
use pleg::{Exit, Id, Instant};
use serde_json::{Value, json};

use super::setup::{Node, ago};
use crate::notation::rows;

/// The state of an ended container.
fn ended(id: &str, code: i32) -> Value {
    json!({"terminated": {
        "containerID": format!("containerd://{id}"), "exitCode": code,
        "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": "2026-07-01T09:59:00Z", "finishedAt": "2026-07-01T09:59:30Z",
    }})
}

/// A reported status of the pod in which the container `app` has the state `state`.
fn reported(state: &Value, restarts: u32) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "containerID": format!("containerd://app-{restarts}"), "image": "", "imageID": "",
        "ready": true, "restartCount": restarts, "state": state,
    }]})
}

/// A row: the specification; its containers; the restart count in the previous status, in which `app` runs, if there is
/// one; a field of the status, and its value.
#[test]
fn status_fields_are_computed_from_containers_and_previous_status() {
    let table = r#"
        Always | app created | | /app/state | {"waiting": {}}
        Always | app created | | /app/containerID | "containerd://app-0"
        Always | app unknown | | /app/state | {"waiting": {}}
        # The last state is that of the second newest container.
        Always | app-2 running, app-1 exited 7, app exited 8 | | /app/lastState/terminated/exitCode | 7
        Always | app-2 running, app-1 exited 7, app exited 8 | | /app/lastState/terminated/containerID | "containerd://app-1"
        Always | app-2 running, app-1 exited 7, app exited 8 | | /app/restartCount | 2
        # The restart count comes from the annotation.
        Always | app-1 running count=9 | | /app/restartCount | 9
        Always | app-2 exited 1, app-1 exited 7 | | /app/restartCount | 2
        # The exit code is not known.
        Never  | app exited | | /app/state | {"terminated": {"containerID": "containerd://app-0", "exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": "2026-07-01T09:59:30Z"}}
        Never  | app exited | | /phase | "Failed"
        # A container that ran has vanished without an exit record.
        Always |             | 4 | /app/lastState | {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located when the pod was deleted.  The container used to be Running"}}
        Always |             | 4 | /app/restartCount | 5
        Always |             | 4 | /phase | "Running"
        Always | app-4 unknown | 4 | /app/state | {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located when the pod was terminated"}}
        Always | app-4 unknown | 4 | /app/restartCount | 5
        # An init container that was removed has succeeded, because a regular container exists.
        Always init sidecar app | app running | | /initContainerStatuses/0/state/terminated | {"exitCode": 0, "reason": "Completed", "message": "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"}
        Always init sidecar app | app running | | /initContainerStatuses/0/ready | true
        Always init sidecar app | app running | | /initContainerStatuses/0/started | false
        Always init sidecar app | app running | | /initContainerStatuses/1/state/waiting/reason | "PodInitializing"
    "#;
    for row in rows(table) {
        let mut node = Node::of(row[0], row[1]);
        if let Ok(restarts) = row[2].parse() {
            node.previous = reported(&json!({"running": {}}), restarts);
        }
        let field = row[3].replace("/app/", "/containerStatuses/0/");
        let expected: Value = serde_json::from_str(row[4]).unwrap();
        assert_eq!(node.status().pointer(&field), Some(&expected), "{row:?}");
    }
}

#[test]
fn reported_state_stays_running_while_exit_code_may_still_come() {
    let running = json!({"running": {"startedAt": "2026-07-01T09:59:00Z"}});
    let mut node = Node::of("Never", "app exited").before(reported(&running, 0));
    let at = Instant::from_origin(Duration::from_secs(5));
    node.ended = vec![Exit::new("app-0", "app", at)];
    node.unread = [Id::from("app-0")].into();
    assert_eq!(node.app()["state"], running);
    assert_eq!(node.phase(), "Running");
    node.unread.clear();
    let code = |node: &Node| node.app()["state"]["terminated"]["exitCode"].clone();
    assert_eq!(code(&node), 137);
    assert_eq!(node.phase(), "Failed");
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
    let state = |node: Node| node.waits().app()["state"].clone();
    for (policy, code) in [("Never", 1), ("Never", 0), ("OnFailure", 0)] {
        let node = Node::of(policy, &format!("app exited {code}"));
        assert_eq!(state(node), ended("app-0", code), "{policy}");
    }
    assert!(state(Node::of("Always", "app running"))["running"].is_object());
    let deleted = Node::of("Always", "app exited 1").deleted();
    assert_eq!(state(deleted), ended("app-0", 1));
    let vanished = Node::of("Always", "").before(reported(&json!({"running": {}}), 4));
    assert_eq!(vanished.deleted().app()["restartCount"], 4);
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
    node.ended = vec![record("app-0", 4, None)];
    let last = &node.app()["lastState"]["terminated"];
    assert_eq!(last["reason"], "ContainerStatusUnknown");
}

/// A row: the state; CPU quota, shares and memory in effect; then the expected CPU request, CPU limit and memory limit.
#[test]
fn status_of_a_running_container_shows_its_resources_in_effect() {
    let specified = json!({
        "requests": {"cpu": "300m", "memory": "64Mi", "example.com/gpu": "1"},
        "limits": {"cpu": "500m", "memory": "128Mi", "example.com/gpu": "1"},
    });
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
        let mut node = Node::of("Always", &format!("app {}", row[0]));
        node.pod["spec"]["containers"][0]["resources"] = specified.clone();
        Arc::make_mut(&mut node.containers[0].details).resources = Some(Arc::new(resources));
        let app = node.app();
        let expected = json!({
            "requests": {"cpu": amounts[0], "memory": "64Mi", "example.com/gpu": "1"},
            "limits": {"cpu": amounts[1], "memory": amounts[2], "example.com/gpu": "1"},
        });
        assert_eq!(app["resources"], expected, "{row:?}");
        assert_eq!(app["allocatedResources"], specified["requests"]);
    }
}
