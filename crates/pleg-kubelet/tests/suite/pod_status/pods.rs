//! Phases, conditions, addresses, and whole statuses.

use pleg::ContainerState;
use pleg::core::{SandboxState, SandboxStatus};
use pleg_kubelet::probe::ProbeResults;
use serde_json::{Value, json};

use super::setup::{Node, container, exited, running};

fn created(name: &str) -> pleg::ContainerStatus {
    container(name, 0, ContainerState::Created, |_| ())
}

#[test]
fn status_of_a_running_pod_is_complete() {
    let mut node = Node::one("Always").with(running("app", 0));
    node.pod["metadata"]["generation"] = json!(3);
    let condition = |kind| {
        json!({
            "type": kind,
            "status": "True",
            "lastTransitionTime": "2026-07-01T10:00:00Z",
            "observedGeneration": 3,
        })
    };
    let expected = json!({
        "phase": "Running",
        "observedGeneration": 3,
        "qosClass": "BestEffort",
        "startTime": "2026-07-01T10:00:00Z",
        "hostIP": "192.168.0.1",
        "hostIPs": [{"ip": "192.168.0.1"}],
        "podIP": "10.0.0.7",
        "podIPs": [{"ip": "10.0.0.7"}],
        "conditions": [
            condition("PodReadyToStartContainers"),
            condition("Initialized"),
            condition("Ready"),
            condition("ContainersReady"),
            condition("PodScheduled"),
        ],
        "containerStatuses": [{
            "name": "app",
            "image": "shop:1",
            "imageID": "shop@sha256:1",
            "containerID": "containerd://app-0",
            "ready": true,
            "started": true,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-07-01T09:59:00Z"}},
        }],
    });
    assert_eq!(node.status(), expected);
}

#[test]
fn container_that_is_replaced_does_not_end_its_pod() {
    for (policy, code) in [("OnFailure", 0), ("Never", 0), ("Never", 3)] {
        let mut node = Node::one(policy).with(exited("app", 0, code));
        assert_ne!(node.phase(), "Running", "{policy} {code}");
        node.replaced.insert("app".to_owned());
        assert_eq!(node.phase(), "Running", "{policy} {code}");
        let node = node.waits("app", "CrashLoopBackOff", "");
        assert_eq!(node.app()["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(node.app()["lastState"]["terminated"]["exitCode"], code);
        assert_eq!(node.phase(), "Running", "{policy} {code}, and waits");
    }
}

#[test]
fn init_container_that_is_replaced_does_not_fail_its_pod() {
    let mut node = Node::new(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init", "image": "shop:1"}],
        "containers": [{"name": "app", "image": "shop:1"}],
    }))
    .with(exited("init", 0, 3));
    assert_eq!(node.phase(), "Failed");
    node.replaced.insert("init".to_owned());
    assert_eq!(node.phase(), "Pending");
}

/// Upstream's rules for one container: (restart policy, container, phase).
#[test]
fn phase_follows_the_container_and_the_restart_policy() {
    let cases = [
        ("Always", None, "Pending"),
        ("Always", Some(created("app")), "Pending"),
        ("Always", Some(running("app", 0)), "Running"),
        ("Always", Some(exited("app", 0, 0)), "Running"),
        ("Always", Some(exited("app", 0, 1)), "Running"),
        ("OnFailure", Some(exited("app", 0, 0)), "Succeeded"),
        ("OnFailure", Some(exited("app", 0, 1)), "Running"),
        ("Never", Some(exited("app", 0, 0)), "Succeeded"),
        ("Never", Some(exited("app", 0, 1)), "Failed"),
    ];
    for (policy, container, phase) in cases {
        let mut node = Node::one(policy);
        node.containers.extend(container);
        assert_eq!(node.phase(), phase, "{policy} {:?}", node.containers);
    }
}

#[test]
fn phase_of_several_containers() {
    let spec = |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "app"}, {"name": "log"}]});
    let cases = [
        ("Always", vec![running("app", 0)], "Pending"),
        (
            "Always",
            vec![running("app", 0), running("log", 0)],
            "Running",
        ),
        (
            "Never",
            vec![running("app", 0), exited("log", 0, 1)],
            "Running",
        ),
        (
            "Never",
            vec![exited("app", 0, 0), exited("log", 0, 0)],
            "Succeeded",
        ),
        (
            "Never",
            vec![exited("app", 0, 0), exited("log", 0, 1)],
            "Failed",
        ),
        (
            "OnFailure",
            vec![exited("app", 0, 0), exited("log", 0, 1)],
            "Running",
        ),
    ];
    for (policy, containers, phase) in cases {
        let mut node = Node::new(spec(policy));
        node.containers = containers;
        assert_eq!(node.phase(), phase, "{policy} {:?}", node.containers);
    }
}

#[test]
fn phase_and_initialized_follow_init_containers() {
    let spec = |policy: &str| {
        json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [{"name": "app"}],
        })
    };
    let not = |names: &str| format!("containers with incomplete status: [{names}]");
    let cases = [
        ("Always", vec![], "Pending", not("setup proxy")),
        (
            "Always",
            vec![running("setup", 0)],
            "Pending",
            not("setup proxy"),
        ),
        (
            "Always",
            vec![exited("setup", 0, 1)],
            "Pending",
            not("setup proxy"),
        ),
        (
            "Never",
            vec![exited("setup", 0, 1)],
            "Failed",
            not("setup proxy"),
        ),
        (
            "Never",
            vec![exited("setup", 0, 0)],
            "Pending",
            not("proxy"),
        ),
        (
            "Never",
            vec![exited("setup", 0, 0), running("proxy", 0)],
            "Pending",
            String::new(),
        ),
        (
            "Never",
            vec![
                exited("setup", 0, 0),
                running("proxy", 0),
                running("app", 0),
            ],
            "Running",
            String::new(),
        ),
        // A sidecar that restarts does not make the pod pending again.
        (
            "Never",
            vec![
                exited("setup", 0, 0),
                exited("proxy", 0, 1),
                running("app", 0),
            ],
            "Running",
            String::new(),
        ),
        // A sidecar's end does not count.
        (
            "Never",
            vec![
                exited("setup", 0, 0),
                exited("proxy", 0, 137),
                exited("app", 0, 0),
            ],
            "Succeeded",
            String::new(),
        ),
    ];
    for (policy, containers, phase, message) in cases {
        let mut node = Node::new(spec(policy));
        node.containers = containers;
        let status = node.status();
        assert_eq!(status["phase"], phase, "{:?}", node.containers);
        let initialized = &status["conditions"][1];
        assert_eq!(initialized["type"], "Initialized");
        match message.is_empty() {
            true => assert_eq!(initialized["status"], "True", "{:?}", node.containers),
            false => {
                assert_eq!(initialized["status"], "False");
                assert_eq!(initialized["reason"], "ContainersNotInitialized");
                assert_eq!(initialized["message"], message);
            }
        }
    }
}

#[test]
fn containers_restart_rules_come_before_the_pods_policy() {
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "app",
            "restartPolicy": "Never",
            "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
            ],
        }],
    });
    for (code, phase) in [(42, "Running"), (1, "Failed"), (0, "Succeeded")] {
        let node = Node::new(spec.clone()).with(exited("app", 0, code));
        assert_eq!(node.phase(), phase);
    }
}

#[test]
fn ended_phase_stays_with_its_reason() {
    let before = json!({"phase": "Failed", "reason": "Evicted", "message": "no disk"});
    let status = Node::one("Always")
        .with(running("app", 0))
        .before(before)
        .status();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!("Evicted"), &json!("no disk"))
    );
}

#[test]
fn pod_fails_at_its_deadline_unless_it_ended_before() {
    let with = |previous: Value, container| {
        let mut node = Node::one("Never").with(container).before(previous);
        node.pod["spec"]["activeDeadlineSeconds"] = json!(60);
        let status = node.status();
        (status["phase"].clone(), status["reason"].clone())
    };
    // One minute, and one second less, before now.
    let (late, early) = ("2026-07-01T09:59:00Z", "2026-07-01T09:59:01Z");
    let failed = (json!("Failed"), json!("DeadlineExceeded"));
    let at = |start: &str| json!({"startTime": start, "phase": "Running"});
    assert_eq!(with(at(late), running("app", 0)), failed);
    assert_eq!(with(at(early), running("app", 0)).0, "Running");
    let mut before = at(late);
    (before["phase"], before["reason"]) = failed.clone();
    assert_eq!(with(before, exited("app", 0, 0)), failed);
    let mut before = at(late);
    before["phase"] = json!("Succeeded");
    assert_eq!(
        with(before, exited("app", 0, 0)),
        (json!("Succeeded"), Value::Null)
    );
}

#[test]
fn terminal_pod_has_ended_unless_it_is_static() {
    let mut node = Node::one("Always").with(exited("app", 0, 1));
    node.terminal = true;
    assert_eq!(node.phase(), "Failed");
    node.pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
    assert_eq!(node.phase(), "Running");
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
fn conditions_say_which_containers_are_not_ready() {
    let unready = "ContainersNotReady|containers with unready status: [app log]";
    let spec = json!({"containers": [
        {"name": "app", "readinessProbe": {}},
        {"name": "log"},
    ]});
    let mut node = Node::new(spec)
        .with(running("app", 0))
        .with(exited("log", 0, 1));
    assert_eq!(
        conditions(&node.status()),
        [
            "PodReadyToStartContainers|True|-|-".to_owned(),
            "Initialized|True|-|-".to_owned(),
            format!("Ready|False|{unready}"),
            format!("ContainersReady|False|{unready}"),
            "PodScheduled|True|-|-".to_owned(),
        ]
    );
    node.containers[1] = running("log", 1);
    let names = ["app", "log"].map(str::to_owned);
    node.probes = Some(ProbeResults {
        started: names.clone().into(),
        ready: names.into(),
        ..ProbeResults::default()
    });
    assert!(
        conditions(&node.status())
            .iter()
            .all(|c| c.contains("|True|"))
    );
}

#[test]
fn conditions_of_ended_pods_name_their_end() {
    let ended = |code| Node::one("Never").with(exited("app", 0, code)).status();
    let of = |code: i32| conditions(&ended(code))[1..4].to_vec();
    let completed = |kind| format!("{kind}|False|PodCompleted|-");
    assert_eq!(
        of(0),
        [
            "Initialized|True|PodCompleted|-".to_owned(),
            completed("Ready"),
            completed("ContainersReady")
        ]
    );
    let failed = |kind| format!("{kind}|False|PodFailed|-");
    assert_eq!(
        of(1),
        [
            "Initialized|True|-|-".to_owned(),
            failed("Ready"),
            failed("ContainersReady")
        ]
    );
}

#[test]
fn readiness_gates_hold_back_ready_only() {
    let spec = json!({
        "containers": [{"name": "app"}],
        "readinessGates": [{"conditionType": "a/b"}, {"conditionType": "c/d"}],
    });
    let mut node = Node::new(spec).with(running("app", 0));
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
fn pod_is_ready_to_start_containers_with_one_ready_sandbox_and_its_address() {
    let sandbox = |state| SandboxStatus::new("s2", state);
    type Change = fn(&mut Node);
    let cases: [(&str, Change, bool); 6] = [
        ("as it is", |_| (), true),
        ("no sandbox", |n| n.sandboxes.clear(), false),
        (
            "not ready",
            |n| n.sandboxes[0].state = SandboxState::NotReady,
            false,
        ),
        (
            "no address",
            |n| n.sandboxes[0].details = std::sync::Arc::default(),
            false,
        ),
        (
            "no address on the host network",
            |n| {
                n.sandboxes[0].details = std::sync::Arc::default();
                n.pod["spec"]["hostNetwork"] = json!(true);
            },
            true,
        ),
        (
            "two are ready",
            |n| {
                n.sandboxes
                    .push(SandboxStatus::new("s0", SandboxState::Ready));
            },
            false,
        ),
    ];
    for (what, change, holds) in cases {
        let mut node = Node::one("Always");
        change(&mut node);
        let expected = if holds { "True" } else { "False" };
        assert_eq!(node.status()["conditions"][0]["status"], expected, "{what}");
    }
    let mut node = Node::one("Always");
    node.sandboxes.insert(0, sandbox(SandboxState::NotReady));
    assert_eq!(node.status()["conditions"][0]["status"], "False");
}

#[test]
fn transition_times_change_with_the_status_only() {
    let old = "2026-01-01T00:00:00Z";
    let before = json!({
        "startTime": old,
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": old},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": old},
        ],
    });
    let status = Node::one("Always")
        .with(running("app", 0))
        .before(before)
        .status();
    assert_eq!(status["startTime"], old);
    assert_eq!(
        status["conditions"][2]["lastTransitionTime"],
        "2026-07-01T10:00:00Z"
    );
    assert_eq!(status["conditions"][4]["lastTransitionTime"], old);
}

#[test]
fn addresses_are_those_of_the_preferred_family_first() {
    let mut node = Node::one("Always");
    node.ips = vec!["fd00::7", "10.0.0.7", "10.0.0.8", "nonsense"];
    let ips = |node: &Node| {
        let status = node.status();
        (
            status["podIP"].clone(),
            status["podIPs"].clone(),
            status["hostIP"].clone(),
        )
    };
    let (v4, v6) = (json!({"ip": "10.0.0.7"}), json!({"ip": "fd00::7"}));
    assert_eq!(
        ips(&node),
        (json!("10.0.0.7"), json!([v4, v6]), json!("192.168.0.1"))
    );
    node.host_ips = vec![std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])];
    assert_eq!(
        ips(&node),
        (json!("fd00::7"), json!([v6, v4]), json!("fd00::1"))
    );
    node.ips.clear();
    assert_eq!(ips(&node), (Value::Null, Value::Null, json!("fd00::1")));
    node.pod["spec"]["hostNetwork"] = json!(true);
    assert_eq!(
        ips(&node),
        (
            json!("fd00::1"),
            json!([{"ip": "fd00::1"}]),
            json!("fd00::1")
        )
    );
}

#[test]
fn quality_of_service_class_follows_the_resources() {
    let cases = [
        (json!([{}]), "BestEffort"),
        (json!([{"requests": {"cpu": "0"}}]), "BestEffort"),
        (json!([{"requests": {"cpu": "1"}}]), "Burstable"),
        (json!([{"limits": {"cpu": "1"}}]), "Burstable"),
        (
            json!([{"limits": {"cpu": "1", "memory": "1Gi"}}]),
            "Guaranteed",
        ),
        (
            json!([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}]),
            "Guaranteed",
        ),
        (
            json!([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}]),
            "Burstable",
        ),
        (
            json!([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}]),
            "Burstable",
        ),
        (json!([{"limits": {"example.com/gpu": "1"}}]), "BestEffort"),
    ];
    for (resources, class) in cases {
        let containers: Vec<_> = (0..)
            .zip(resources.as_array().into_iter().flatten())
            .map(|(n, resources)| json!({"name": format!("c{n}"), "resources": resources}))
            .collect();
        let node = Node::new(json!({"containers": containers}));
        assert_eq!(node.status()["qosClass"], class, "{resources}");
    }
}
