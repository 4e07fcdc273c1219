//! Phases, conditions and addresses.

use serde_json::{Value, json};

use super::setup::Node;
use crate::notation::rows;

#[test]
fn container_that_is_replaced_does_not_end_its_pod() {
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 3)] {
        let mut node = Node::of(policy, &format!("app exited {code}"));
        assert_ne!(node.phase(), "Running", "{policy} {code}");
        node.replaced.insert("app".to_owned());
        assert_eq!(node.phase(), "Running", "{policy} {code}");
        let node = node.waits("app", "CrashLoopBackOff", "");
        assert_eq!(node.app()["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(node.app()["lastState"]["terminated"]["exitCode"], code);
        assert_eq!(node.phase(), "Running", "{policy} {code}, and waits");
    }
    let mut node = Node::of("Never setup app", "setup exited 3");
    assert_eq!(node.phase(), "Failed");
    node.replaced.insert("setup".to_owned());
    assert_eq!(node.phase(), "Pending");
}

/// A row: the restart policy and the specification's containers, the pod's containers, the phase, and the init
/// containers that are not complete. Tests of `static_pods` cover the other phases.
#[test]
fn phase_and_initialized_condition_follow_the_container_states() {
    let table = "
        Always app      |                                     | Pending   |
        Always app      | app exited 1                        | Running   |
        Always app b    | app running                         | Pending   |
        Always app b    | app running, b running              | Running   |
        OnFailure app b | app exited 0, b exited 1            | Running   |
        Always setup proxy app |                              | Pending   | setup proxy
        Always setup proxy app | setup exited 1               | Pending   | setup proxy
        Never setup proxy app  | setup exited 1               | Failed    | setup proxy
        # The phase becomes terminal only when no container runs.
        Never setup proxy app  | setup exited 1, proxy running | Pending  | setup
        Never setup proxy app  | setup exited 0               | Pending   | proxy
        Never setup proxy app  | setup exited 0, proxy running | Pending  |
        Never setup proxy app  | setup exited 0, proxy running, app running | Running |
        # The end of a sidecar does not count.
        Never setup proxy app  | setup exited 0, proxy exited 1, app running | Running |
        Never setup proxy app  | setup exited 0, proxy exited 137, app exited 0 | Succeeded | - PodCompleted
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
fn terminal_phase_and_its_reason_do_not_change() {
    let before = json!({"phase": "Failed", "reason": "Evicted", "message": "no disk"});
    let status = Node::of("Always", "app running").before(before).status();
    let shown = ["phase", "reason", "message"].map(|field| &status[field]);
    assert_eq!(shown, ["Failed", "Evicted", "no disk"]);
}

#[test]
fn pod_fails_at_its_deadline_unless_it_ended_before() {
    // A row: when the pod started (now is 10:00), its previous status, its container, its new status.
    let table = "
        09:59:00 | Running                 | app running  | Running
        09:59:00 | Running                 | app exited 0 | Failed DeadlineExceeded
        09:59:01 | Running                 | app running  | Running
        09:59:00 | Failed DeadlineExceeded | app exited 0 | Failed DeadlineExceeded
        09:59:00 | Succeeded               | app exited 0 | Succeeded
    ";
    for row in rows(table) {
        let [before, expected] = [row[1], row[3]].map(|words| {
            let mut words = words.split(' ');
            json!({"phase": words.next(), "reason": words.next()})
        });
        let mut node = Node::of("Never", row[2]).before(before);
        node.previous["startTime"] = json!(format!("2026-07-01T{}Z", row[0]));
        node.pod["spec"]["activeDeadlineSeconds"] = json!(60);
        let status = node.status();
        let shown = json!({"phase": status["phase"], "reason": status["reason"]});
        assert_eq!(shown, expected, "{row:?}");
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
fn ready_to_start_containers_needs_a_ready_sandbox_with_address() {
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
    node.pod["spec"]["hostNetwork"] = json!(true);
    assert!(is_ready(&node), "on the host network, it has none");
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
    node.pod["spec"]["hostNetwork"] = json!(true);
    let of_node = json!(["fd00::1", [{"ip": "fd00::1"}], "fd00::1"]);
    assert_eq!(ips(&node), of_node);
}

/// A row: the resources of each container, and the QoS class. Tests of OOM scores in `resources.rs` cover more pods.
#[test]
fn quality_of_service_class_follows_the_resources() {
    let table = r#"
        [{"requests": {"cpu": "0"}}]                                        | BestEffort
        [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}] | Guaranteed
        [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}] | Burstable
        [{"limits": {"cpu": "1", "memory": "1Gi"}}, {}]                     | Burstable
        [{"limits": {"example.com/gpu": "1"}}]                              | BestEffort
    "#;
    for row in rows(table) {
        let resources: Vec<Value> = serde_json::from_str(row[0]).unwrap();
        let each = (0..).zip(resources);
        let container = |(n, r): (u32, Value)| json!({"name": format!("c{n}"), "resources": r});
        let containers: Vec<_> = each.map(container).collect();
        let node = Node::new(json!({"containers": containers}), "");
        assert_eq!(node.status()["qosClass"], row[1], "{row:?}");
    }
}
