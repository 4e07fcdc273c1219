use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};
use serde_json::json;

use super::*;
use crate::picture::finding::arrange;
use crate::text::lower;

#[test]
fn unreachable_runtime_explains_runtime_silent_and_is_not_slow() {
    for (silent, causes) in [(true, [None; 1]), (false, [Some("runtime_unreachable")])] {
        let evidence = json!({
            "unusable": { "silent": silent },
            "stream": { "degraded": { "runtime_silent": { "lasts": true } } },
        });
        let evidence: Evidence = serde_json::from_value(evidence).unwrap();
        let found = arrange(check(&evidence)).into_iter();
        let found = found.filter(|finding| finding.code == "runtime_silent");
        assert!(found.map(|finding| finding.cause).eq(causes));
        assert_eq!(evidence.calls().slow, silent);
    }
}

#[test]
fn pods_for_a_slow_relist_are_estimated_from_median_time() {
    let round = json!({ "versionMillis": 1.0, "sandboxes": { "millis": 4.0 }, "containers": { "millis": 8.0 } });
    let lists: Lists = serde_json::from_value(json!({ "rounds": [round] })).unwrap();
    // A relist takes 10 ms for 100 pods, in addition to 2 ms that do not depend on the pods.
    let marks = lists.marks(100).into_iter();
    let marks: Vec<f64> = marks.map(|(_, pods)| pods.round()).collect();
    assert_eq!(marks, [9980.0, 99_980.0, 1_799_980.0]);
    assert_eq!(lists.marks(4), [], "too few");
    assert_eq!(median([]), None);
    assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median([1.0, 2.0]), Some(1.0));
    assert_eq!(quantile((1..=100).map(f64::from), 0.99), Some(99.0));
}

/// Each row: a change of a healthy runtime's evidence => texts of the only finding, if there is one.
const FINDINGS: &str = r#"
{} =>
{"wallClock": {"stepMillis": 999.0}} =>
{"wallClock": {"stepMillis": -999.0}} =>
{"wallClock": {"stepMillis": 1000.0}} => clock_step
{"wallClock": {"stepMillis": -3600000.0}} => clock_step
{"wallClock": {"fromFuture": 1}} => clock_step
{"unusable": {"why": "there is no socket"}} => runtime_unreachable critical | there is no socket
{"unusable": {"denied": true}} => not_examined warning
{"lists": {"rounds": [{"sandboxes": {"millis": 10000.0, "failure": {"kind": "deadline_exceeded"}}}]}} => list_slow critical | attempt 1: ListPodSandbox: no answer for 10 s
{"lists": {"rounds": [{"sandboxes": {"millis": 5.0, "failure": {"kind": "failed"}}}]}} => list_failed critical | 1 of 1 attempts failed
{"lists": {"containerBytes": 15728640}} => list_large warning | a list has 94 %
{"lists": {"unfilteredBytes": 7}} => filters_ignored warning
{"conditions": {"failure": {"kind": "internal", "message": "no"}}} => runtime_status_failed critical | internal: no
{"conditions": {"conditions": [{"name": "NetworkReady", "reason": "NoPlugin"}]}} => network_not_ready critical | Status: NetworkReady is false (NoPlugin)
{"conditions": {"conditions": [{"name": "RuntimeReady"}]}} => runtime_not_ready critical | Status: RuntimeReady is false
{"statuses": {"slowest": [{"pod": "u1", "operation": "Status", "id": "c1", "millis": 5000.0, "hangs": true}]}} => pods_hung critical | u1: Status (c1): no answer for 5.0 s
{"statuses": {"slowest": [{"pod": "u1", "millis": 1500.0}]}} => status_slow warning
{"statuses": {"slowest": [{"pod": "u1", "millis": 999.0}]}} =>
{"statuses": {"problems": [{"pod": "u1"}]}, "pods": {"pods": [{"uid": "u1", "name": "shop/cart"}]}} => pods_failing warning | shop/cart cannot be read
{"stream": {"state": "open", "missed": 3, "changes": 9}} => stream_silent warning
{"stream": {"state": "proven", "events": 5, "degraded": {"stream_lossy": {"lasts": true}}}} => stream_lossy warning
{"stream": {"state": "notOffered", "why": "events are disabled"}} => stream_disabled info | events are disabled
{"stream": {"state": "notOffered", "notSubscribed": "a kubelet subscribes"}} => stream_not_examined info | a kubelet subscribes
{"pods": {"dead": 1000}} => dead_containers warning
{"pods": {"superfluousSandboxes": 200}} => dead_sandboxes warning
{"pods": {"withoutAddress": ["u1"]}} => sandbox_without_address warning | u1: the sandbox is ready, but has no address
"#;

#[test]
fn each_runtime_evidence_gives_only_its_own_finding() {
    for row in FINDINGS.trim().lines() {
        let (change, texts) = row.split_once(" =>").unwrap();
        let change: serde_json::Map<_, _> = serde_json::from_str(change).unwrap();
        let mut evidence = json!({
            "conditions": { "conditions": [{ "name": "NetworkReady", "status": true }] },
            "lists": { "rounds": [{ "sandboxes": { "millis": 4.0 }, "containers": { "millis": 6.0 } }] },
            "stream": { "state": "proven", "events": 5, "changes": 7 },
            "pods": { "running": 80, "dead": 80 },
        });
        evidence.as_object_mut().unwrap().extend(change);
        let evidence: Evidence = serde_json::from_value(evidence).unwrap();
        let rest = |f: &Finding| format!("{} {}", f.summary, f.evidence.join(" "));
        let shown = |f: &Finding| format!("{} {} {}", f.code, lower(f.severity), rest(f));
        let found: Vec<String> = check(&evidence).iter().map(shown).collect();
        let count = usize::from(!texts.is_empty());
        assert_eq!(found.len(), count, "{row}: {found:?}");
        for text in texts.trim().split_terminator(" | ") {
            assert!(found[0].contains(text), "{row}: {found:?}");
        }
        let is_slow = texts.contains("_slow") || texts.contains("pods_hung");
        assert_eq!(evidence.calls().slow, is_slow, "{row}");
    }
}

#[test]
fn number_and_text_of_runtime_conditions_are_bounded() {
    let condition = RuntimeCondition {
        r#type: "NetworkReady".to_owned(),
        message: "x".repeat(10_000),
        ..RuntimeCondition::default()
    };
    let conditions = vec![condition; 1_000];
    let many = Conditions::from(StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        ..StatusResponse::default()
    });
    assert_eq!(many.conditions.len(), MOST_CONDITIONS);
    let shown = many.conditions[0].to_string();
    assert!(shown.starts_with("false: xx") && shown.chars().count() == MOST_TEXT + 7);
}

#[test]
fn dead_container_beside_its_running_successor_is_not_superfluous() {
    let sample = crate::view::tests::Sample::new();
    let pods = Pods::new(&sample.pods, &sample.pods, sample.wall);
    assert_eq!((pods.dead, pods.superfluous), (2, 0));
}
