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

const DOWN: &str = "container runtime is down";
const NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                       message:Network plugin returns error: cni plugin not initialized";
const STALE: &str = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";

/// The errors of a node with these faults.
fn errors(wrong: &str) -> NodeErrors {
    let is = |word: &str| wrong.split(' ').any(|w| w == word);
    let ready = |kind: &str| RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        ..RuntimeCondition::default()
    };
    let mut state = RuntimeState::new();
    if !is("unasked") {
        let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
        let mut status = RuntimeStatus { conditions };
        state.status_answered(BEGIN, Some(&status));
        status.conditions[0].status = !is("runtime");
        if is("network") {
            let network = &mut status.conditions[1];
            network.status = false;
            network.reason = "NetworkPluginNotReady".to_owned();
            network.message = NETWORK.rsplit("message:").next().unwrap().to_owned();
        }
        state.status_answered(BEGIN, Some(&status));
    }
    state.set_storage_error(Some("an error that is over".to_owned()));
    state.set_storage_error(is("storage").then(|| "no CSI driver".to_owned()));
    let stale = |nanos| NotReady::Stale {
        elapsed: Duration::from_nanos(nanos),
        threshold: Duration::from_secs(180),
    };
    let pleg = match () {
        () if is("stale") => Some(stale(185_000_000_000)),
        () if is("precise") => Some(stale(185_123_456_789)),
        () => is("unlisted").then_some(NotReady::NeverListed),
    };
    let pleg = pleg.map(|not_ready| not_ready.to_string());
    let result = pleg.as_deref().map_or(Ok(()), Err);
    let seconds = if is("silent") { 30 } else { 29 };
    let now = BEGIN.after(Duration::from_secs(seconds));
    let name = "PLEG";
    let missing = if is("capacity") {
        &["cpu", "memory"][..]
    } else {
        &[]
    };
    NodeErrors {
        runtime: state.errors(now, &[HealthCheck { name, result }]),
        shutdown: is("shutdown").then(|| "node is shutting down".to_owned()),
        missing_capacity: missing.iter().map(|&m| m.to_owned()).collect(),
    }
}

#[test]
fn each_message_is_upstreams() {
    let all = "[DOWN, STALE, NETWORK, no CSI driver, node is shutting down, \
               missing node capacity for resources: cpu, memory]";
    // What is wrong, and the whole message.
    let table = [
        (
            "unasked",
            "[container runtime status check may not have completed yet, network state unknown]",
        ),
        ("silent", "DOWN"),
        ("stale", "STALE"),
        (
            "precise",
            "PLEG is not healthy: pleg was last seen active 3m5.123456789s ago; threshold is 3m0s",
        ),
        (
            "unlisted",
            "PLEG is not healthy: pleg has yet to be successful",
        ),
        (
            "runtime",
            "container runtime not ready: RuntimeReady=false reason: message:",
        ),
        ("network", "NETWORK"),
        ("storage", "no CSI driver"),
        ("shutdown", "node is shutting down"),
        (
            "capacity",
            "missing node capacity for resources: cpu, memory",
        ),
        ("silent stale network storage shutdown capacity", "ALL"),
    ];
    for (wrong, message) in table {
        let message = message.replace("ALL", all);
        let message = message.replace("DOWN", DOWN).replace("STALE", STALE);
        let message = message.replace("NETWORK", NETWORK);
        let (condition, _) = node_ready(&errors(wrong), None, WALL);
        assert_eq!(condition.message, Some(message));
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
    // At each step, 10 s apart: what is wrong, then status, transition, heartbeat and event.
    let (not_ready, ready) = (Some(NodeEvent::NodeNotReady), Some(NodeEvent::NodeReady));
    let steps = [
        ("", ["True", "10:00:00", "10:00:00"], None),
        ("", ["True", "10:00:00", "10:00:10"], None),
        ("silent", ["False", "10:00:20", "10:00:20"], not_ready),
        ("network", ["False", "10:00:20", "10:00:30"], None),
        ("", ["True", "10:00:40", "10:00:40"], ready),
    ];
    let mut previous = None;
    for (step, (wrong, [status, transition, heartbeat], event)) in (0..).zip(steps) {
        let now = WALL.after(Duration::from_secs(10 * step));
        let (condition, recorded) = node_ready(&errors(wrong), previous.as_ref(), now);
        let time = |t| format!("2026-07-01T{t}Z");
        let want = [status.to_owned(), time(transition), time(heartbeat)];
        assert_eq!((shown(&condition), recorded), (want, event), "step {step}");
        previous = Some(condition);
    }
}

#[test]
fn ready_condition_is_upstreams_as_json() {
    let (condition, event) = node_ready(&errors(""), None, WALL);
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
