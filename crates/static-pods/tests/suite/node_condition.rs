//! The Ready condition of the node, letter by letter.

use std::time::Duration;

use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pleg::{Instant, NotReady, WallTime};
use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};
use static_pods::node_condition::{NodeErrors, NodeEvent, node_ready};
use static_pods::runtime_state::{HealthCheck, RuntimeState};

const BEGIN: Instant = Instant::from_nanos(1_000_000_000);
/// 2026-07-01T10:00:00Z
const WALL: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);

fn condition(kind: &str, status: bool, reason: &str, message: &str) -> RuntimeCondition {
    RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// What is wrong with a node.
#[derive(Clone, Copy, Default)]
struct Node<'a> {
    never_asked: bool,
    status_age: u64,
    runtime_down: bool,
    network_down: bool,
    pleg: Option<&'a NotReady>,
    storage: Option<&'a str>,
    shutdown: Option<&'a str>,
    missing: &'a [&'a str],
}

fn errors(node: Node<'_>) -> NodeErrors {
    let mut state = RuntimeState::new();
    if !node.never_asked {
        let mut conditions = vec![
            condition("RuntimeReady", true, "", ""),
            condition("NetworkReady", true, "", ""),
        ];
        let status = |conditions: &[RuntimeCondition]| RuntimeStatus {
            conditions: conditions.to_vec(),
        };
        state.status_answered(BEGIN, Some(&status(&conditions)));
        if node.runtime_down {
            conditions[0] = condition("RuntimeReady", false, "", "");
        }
        if node.network_down {
            conditions[1] = condition(
                "NetworkReady",
                false,
                "NetworkPluginNotReady",
                "Network plugin returns error: cni plugin not initialized",
            );
        }
        state.status_answered(BEGIN, Some(&status(&conditions)));
    }
    state.set_storage_error(node.storage.map(str::to_owned));
    let pleg = node.pleg.map(NotReady::to_string);
    let result = pleg.as_deref().map_or(Ok(()), Err);
    let now = BEGIN.after(Duration::from_secs(node.status_age));
    let checks = [HealthCheck {
        name: "PLEG",
        result,
    }];
    NodeErrors {
        runtime: state.errors(now, &checks),
        shutdown: node.shutdown.map(str::to_owned),
        missing_capacity: node.missing.iter().map(|&m| m.to_owned()).collect(),
    }
}

/// Each case: what is wrong, and the whole message.
#[test]
fn each_message_is_upstreams() {
    let stale = NotReady::Stale {
        elapsed: Duration::from_secs(185),
        threshold: Duration::from_secs(180),
    };
    let precise = NotReady::Stale {
        elapsed: Duration::from_nanos(185_123_456_789),
        threshold: Duration::from_secs(180),
    };
    let well = Node::default();
    let cases = [
        (
            Node {
                never_asked: true,
                ..well
            },
            "[container runtime status check may not have completed yet, network state unknown]",
        ),
        (
            Node {
                status_age: 30,
                ..well
            },
            "container runtime is down",
        ),
        (
            Node {
                pleg: Some(&stale),
                ..well
            },
            "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s",
        ),
        (
            Node {
                pleg: Some(&precise),
                ..well
            },
            "PLEG is not healthy: pleg was last seen active 3m5.123456789s ago; threshold is 3m0s",
        ),
        (
            Node {
                pleg: Some(&NotReady::NeverListed),
                ..well
            },
            "PLEG is not healthy: pleg has yet to be successful",
        ),
        (
            Node {
                status_age: 31,
                pleg: Some(&stale),
                ..well
            },
            "[container runtime is down, PLEG is not healthy: \
             pleg was last seen active 3m5s ago; threshold is 3m0s]",
        ),
        (
            Node {
                runtime_down: true,
                ..well
            },
            "container runtime not ready: RuntimeReady=false reason: message:",
        ),
        (
            Node {
                network_down: true,
                ..well
            },
            "container runtime network not ready: NetworkReady=false \
             reason:NetworkPluginNotReady \
             message:Network plugin returns error: cni plugin not initialized",
        ),
        (
            Node {
                storage: Some("no CSI driver"),
                ..well
            },
            "no CSI driver",
        ),
        (
            Node {
                shutdown: Some("node is shutting down"),
                ..well
            },
            "node is shutting down",
        ),
        (
            Node {
                missing: &["cpu", "memory"],
                ..well
            },
            "missing node capacity for resources: cpu, memory",
        ),
        (
            Node {
                status_age: 60,
                pleg: Some(&stale),
                network_down: true,
                storage: Some("no CSI driver"),
                shutdown: Some("node is shutting down"),
                missing: &["ephemeral-storage"],
                ..well
            },
            "[container runtime is down, PLEG is not healthy: \
             pleg was last seen active 3m5s ago; threshold is 3m0s, \
             container runtime network not ready: NetworkReady=false \
             reason:NetworkPluginNotReady \
             message:Network plugin returns error: cni plugin not initialized, \
             no CSI driver, node is shutting down, \
             missing node capacity for resources: ephemeral-storage]",
        ),
    ];
    for (node, message) in cases {
        let (condition, _) = node_ready(&errors(node), None, WALL);
        assert_eq!(condition.message.as_deref(), Some(message));
        assert_eq!(condition.reason.as_deref(), Some("KubeletNotReady"));
        assert_eq!((&*condition.type_, &*condition.status), ("Ready", "False"));
    }
}

fn shown(condition: &NodeCondition) -> [String; 3] {
    let time = |t: &Option<Time>| t.as_ref().map_or(String::new(), |t| t.0.to_string());
    [
        condition.status.clone(),
        time(&condition.last_transition_time),
        time(&condition.last_heartbeat_time),
    ]
}

#[test]
fn transition_time_changes_with_the_status_and_heartbeat_always() {
    let ready = errors(Node::default());
    let down = errors(Node {
        status_age: 30,
        ..Node::default()
    });
    let other = errors(Node {
        network_down: true,
        ..Node::default()
    });
    // At each step, 10 s apart: errors, then status, transition, heartbeat and event.
    let steps = [
        (&ready, ["True", "10:00:00", "10:00:00"], None),
        (&ready, ["True", "10:00:00", "10:00:10"], None),
        (
            &down,
            ["False", "10:00:20", "10:00:20"],
            Some(NodeEvent::NodeNotReady),
        ),
        (&other, ["False", "10:00:20", "10:00:30"], None),
        (
            &ready,
            ["True", "10:00:40", "10:00:40"],
            Some(NodeEvent::NodeReady),
        ),
    ];
    let mut previous = None;
    for (step, (errors, [status, transition, heartbeat], event)) in (0..).zip(steps) {
        let now = WALL.after(Duration::from_secs(10 * step));
        let (condition, recorded) = node_ready(errors, previous.as_ref(), now);
        let time = |t| format!("2026-07-01T{t}Z");
        let want = [status.to_owned(), time(transition), time(heartbeat)];
        assert_eq!((shown(&condition), recorded), (want, event), "step {step}");
        previous = Some(condition);
    }
}

#[test]
fn ready_condition_is_upstreams_as_json() {
    let (condition, event) = node_ready(&errors(Node::default()), None, WALL);
    assert_eq!(event, None);
    assert_eq!(
        serde_json::to_string(&condition).unwrap(),
        r#"{"lastHeartbeatTime":"2026-07-01T10:00:00Z","lastTransitionTime":"2026-07-01T10:00:00Z","message":"kubelet is posting ready status","reason":"KubeletReady","status":"True","type":"Ready"}"#
    );
}

#[test]
fn event_message_names_the_node() {
    let message = NodeEvent::NodeNotReady.message("n1");
    assert_eq!(message, "Node n1 status is now: NodeNotReady");
}
