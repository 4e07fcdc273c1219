//! Exact texts and values of pod statuses. Tests of `static_pods` compare the statuses of whole lives.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod setup;

use std::sync::Arc;
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Resources};
use pleg::{Exit, Id, Instant};
use serde_json::{Value, json};

use crate::notation::rows;
use setup::{Node, ago};

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

/// A row: the specification; its containers; the restart count in the previous status, in which `app` runs, if a
/// previous status exists; a field of the status, and its value.
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
    // The newest exit record is of an earlier exit of `app-3` itself, so the last state is the exit of `app-2`.
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
        # The runtime reports no resources, or the container is not running.
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

#[test]
fn container_that_is_replaced_does_not_end_its_pod() {
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 3)] {
        let mut node = Node::of(policy, &format!("app exited {code}"));
        assert_ne!(node.phase(), "Running", "{policy} {code}");
        node.replaced.insert("app".to_owned());
        assert_eq!(node.phase(), "Running", "{policy} {code}");
        let node = node.waits();
        assert_eq!(node.app()["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(node.app()["lastState"]["terminated"]["exitCode"], code);
        assert_eq!(node.phase(), "Running", "{policy} {code}, and waits");
    }
    let mut node = Node::of("Never init app", "init exited 3");
    assert_eq!(node.phase(), "Failed");
    node.replaced.insert("init".to_owned());
    assert_eq!(node.phase(), "Pending");
}

/// A row: the restart policy and the specification's containers, the pod's containers, the phase, and the init
/// containers that are not complete. Tests of `static_pods` cover the other phases.
#[test]
fn phase_and_initialized_condition_follow_the_container_states() {
    let table = "
        OnFailure app b         | app exited 0, b exited 1    | Running   |
        Always init sidecar app |                             | Pending   | init sidecar
        Always init sidecar app | init exited 1               | Pending   | init sidecar
        # The phase becomes terminal only when no container is running.
        Never init sidecar app  | init exited 1, sidecar running | Pending | init
        Never init sidecar app  | init exited 0               | Pending   | sidecar
        Never init sidecar app  | init exited 0, sidecar running | Pending |
        # The end of a sidecar does not count.
        Never init sidecar app  | init exited 0, sidecar exited 1, app running | Running |
        Never init sidecar app  | init exited 0, sidecar exited 137, app exited 0 | Succeeded | - PodCompleted
    ";
    for row in rows(table) {
        let status = Node::of(row[0], row[1]).status();
        assert_eq!(status["phase"], row[2], "{row:?}");
        let expected = match row[3] {
            "" => "Initialized|True|-|-".to_owned(),
            "- PodCompleted" => "Initialized|True|PodCompleted|-".to_owned(),
            names => format!(
                "Initialized|False|ContainersNotInitialized|containers with incomplete status: [{names}]"
            ),
        };
        assert_eq!(conditions(&status)[1], expected, "{row:?}");
    }
}

#[test]
fn pod_fails_at_its_deadline_and_terminal_phases_stay() {
    // A row: when the pod started (now is 10:00), its previous status (phase, reason, message), its container, its new
    // status.
    let table = "
        09:59:00 | Running                 | app running  | Running
        09:59:00 | Running                 | app exited 0 | Failed DeadlineExceeded Pod was active on the node longer than the specified deadline
        09:59:01 | Running                 | app running  | Running
        09:59:00 | Failed DeadlineExceeded | app exited 0 | Failed DeadlineExceeded
        09:59:00 | Succeeded               | app exited 0 | Succeeded
        09:59:01 | Failed Evicted no disk  | app running  | Failed Evicted no disk
    ";
    for row in rows(table) {
        let [before, expected] = [row[1], row[3]].map(|words| {
            let mut words = words.splitn(3, ' ');
            json!({"phase": words.next(), "reason": words.next(), "message": words.next()})
        });
        let mut node = Node::of("Never", row[2]).before(before);
        node.previous["startTime"] = json!(format!("2026-07-01T{}Z", row[0]));
        node.pod["spec"]["activeDeadlineSeconds"] = json!(60);
        let status = node.status();
        let shown = ["phase", "reason", "message"].map(|field| (field, status[field].clone()));
        assert_eq!(Value::from_iter(shown), expected, "{row:?}");
    }
}

#[test]
fn planners_final_phase_is_reported_unless_the_pod_is_static() {
    let mut node = Node::of("Always", "app exited 1");
    node.terminal = true;
    assert_eq!(node.phase(), "Failed");
    node.pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
    assert_eq!(node.phase(), "Running");
    let mut node = Node::of("Always", "");
    node.terminal = true;
    assert_eq!(node.phase(), "Failed", "it was deleted before it ran");
}

fn conditions(status: &Value) -> Vec<String> {
    let shown = |c: &Value| {
        let text = |field: &str| c[field].as_str().unwrap_or("-").to_owned();
        ["type", "status", "reason", "message"].map(text).join("|")
    };
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().map(shown).collect()
}

#[test]
fn readiness_gates_affect_only_the_ready_condition() {
    let mut node = Node::of("Always", "app running");
    node.pod["spec"]["readinessGates"] =
        json!([{"conditionType": "a/b"}, {"conditionType": "c/d"}]);
    node.pod["status"] = json!({"conditions": [{"type": "c/d", "status": "False"}]});
    let shown = conditions(&node.status());
    assert_eq!(shown[0], "c/d|False|-|-");
    assert_eq!(
        shown[3],
        "Ready|False|ReadinessGatesNotReady|corresponding condition of pod readiness gate \"a/b\" \
         does not exist., the status of pod readiness gate \"c/d\" is not \"True\", but False"
    );
    assert_eq!(shown[4], "ContainersReady|True|-|-");
}

#[test]
fn pod_ready_to_start_condition_needs_ready_sandbox_with_address() {
    let is_ready = |node: &Node| node.status()["conditions"][0]["status"] == "True";
    for (pod, expected) in [
        ("", true),
        ("no sandbox", false),
        ("sandbox-0 ended", false),
        ("sandbox-1 ready, sandbox-0 ready", false),
        ("sandbox-1 ended, sandbox-0 ready", false),
    ] {
        assert_eq!(is_ready(&Node::of("Always", pod)), expected, "{pod}");
    }
    let mut node = Node::of("Always", "");
    node.sandboxes[0].details = Default::default();
    assert!(!is_ready(&node), "no address");
}

#[test]
fn transition_times_change_only_with_the_status_of_their_condition() {
    let old = "2026-01-01T00:00:00Z";
    let before = json!({"startTime": old, "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": old},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": old},
    ]});
    let mut node = Node::of("Always", "app running").before(before);
    node.pod["metadata"]["generation"] = json!(3);
    let status = node.status();
    let observed = [&status, &status["conditions"][4]].map(|of| &of["observedGeneration"]);
    assert_eq!(observed, [3, 3]);
    assert_eq!(status["startTime"], old);
    let times = [2, 4].map(|at| &status["conditions"][at]["lastTransitionTime"]);
    assert_eq!(times, ["2026-07-01T10:00:00Z", old]);
}

#[test]
fn addresses_of_the_preferred_family_come_first() {
    let mut node = Node::of("Always", "");
    node.ips = vec!["fd00::7", "10.0.0.7", "10.0.0.8", "nonsense"];
    let ips = |node: &Node| {
        let status = node.status();
        json!([status["podIP"], status["podIPs"], status["hostIP"]])
    };
    let (v4, v6) = (json!({"ip": "10.0.0.7"}), json!({"ip": "fd00::7"}));
    assert_eq!(ips(&node), json!(["10.0.0.7", [v4, v6], "192.168.0.1"]));
    node.host_ips = vec!["fd00::1".parse().unwrap()];
    assert_eq!(ips(&node), json!(["fd00::7", [v6, v4], "fd00::1"]));
    node.ips.clear();
    assert_eq!(ips(&node), json!([null, null, "fd00::1"]));
}
