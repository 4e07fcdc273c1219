use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};
use serde_json::json;

use super::*;
use crate::picture::finding::arrange;
use crate::text::lower;

/// All troubles of a runtime that answers, except those that exclude each other.
fn recorded(change: impl FnOnce(&mut serde_json::Value)) -> Evidence {
    let failed = json!({ "millis": 5.0, "failure": { "kind": "failed", "message": "no" } });
    let slow = json!({ "millis": 2000.0 });
    let reason = json!({ "sentence": "it lasts", "seconds": 4.0, "lasts": true });
    let odd = oddities::KINDS.map(|[code, ..]| json!({ "code": code, "pod": "u1" }));
    let mut evidence = json!({
        "name": "containerd",
        "conditions": { "conditions": [
            { "name": "NetworkReady", "status": false, "reason": "NetworkPluginNotReady" },
            { "name": "RuntimeReady", "status": false },
        ], "failure": { "kind": "internal" } },
        "lists": {
            "rounds": [{ "sandboxes": slow, "containers": slow }, { "sandboxes": failed }],
            "containerBytes": 15 << 20,
            "unfilteredBytes": 7,
        },
        "statuses": {
            "slowest": [
                { "operation": "ContainerStatus", "pod": "u1", "id": "c1", "millis": 5000.0, "hangs": true },
                { "operation": "ContainerStatus", "pod": "u2", "id": "c2", "millis": 1500.0 },
            ],
            "problems": [{ "pod": "u2", "kind": "failing", "operation": "PodSandboxStatus", "id": "s2" }],
        },
        "stream": {
            "state": "proven",
            "events": 5,
            "missed": 4,
            "degraded": {
                "runtime_silent": reason, "stream_lossy": reason, "stream_down": reason, "backlog": reason,
            },
        },
        "pods": { "pods": [{ "uid": "u1", "name": "shop/cart" }], "dead": 1000, "withoutAddress": ["u1"],
            "superfluousSandboxes": 200,
            "oddities": odd,
        },
        "wallClock": { "stepMillis": -2000.0 },
    });
    change(&mut evidence);
    serde_json::from_value(evidence).unwrap()
}

fn stream(change: serde_json::Value) -> Evidence {
    recorded(|evidence| evidence["stream"] = change)
}

fn all() -> Vec<Evidence> {
    vec![
        recorded(|_| ()),
        recorded(|evidence| evidence["unusable"] = json!({ "why": "there is no socket" })),
        stream(json!({ "state": "open", "missed": 3, "changes": 9 })),
        stream(json!({ "state": "notOffered", "why": "the runtime does not implement events" })),
        stream(json!({ "state": "notOffered", "notSubscribed": "a kubelet subscribes" })),
    ]
}

fn codes(evidence: &Evidence) -> Vec<&'static str> {
    check(evidence).iter().map(|finding| finding.code).collect()
}

#[test]
fn runbook_explains_every_finding() {
    let runbook = include_str!("../../../../../docs/runbook.md");
    let mut found: Vec<&str> = all().iter().flat_map(codes).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 27, "{found:?}");
    for code in found {
        let heading = format!("\n### {code}\n");
        assert!(runbook.contains(&heading), "{code} is missing");
    }
}

#[test]
fn stream_that_was_not_examined_is_not_called_disabled() {
    let why = json!({ "state": "notOffered", "notSubscribed": "why" });
    let found = codes(&stream(why)).into_iter();
    let of_stream = found.filter(|code| code.starts_with("stream_"));
    assert!(of_stream.eq(["stream_not_examined"]));
}

#[test]
fn unreachable_runtime_is_not_slow_and_explains_missing_answers() {
    for (silent, causes) in [(true, [None; 1]), (false, [Some("runtime_unreachable")])] {
        let evidence = recorded(|all| all["unusable"] = json!({ "silent": silent }));
        let found = arrange(check(&evidence)).into_iter();
        let found = found.filter(|finding| finding.code == "runtime_silent");
        assert!(found.map(|finding| finding.cause).eq(causes));
        assert_eq!(evidence.calls().slow, silent);
    }
}

#[test]
fn limit_of_the_generic_pleg_follows_from_time_per_pod() {
    let round = json!({ "versionMillis": 1.0, "sandboxes": { "millis": 4.0 }, "containers": { "millis": 8.0 } });
    let lists: Lists = serde_json::from_value(json!({ "rounds": [round] })).unwrap();
    // 10 ms for 100 pods, in addition to 2 ms that do not depend on them.
    let marks = lists.marks(100).into_iter();
    let marks: Vec<f64> = marks.map(|(_, pods)| pods.round()).collect();
    assert_eq!(marks, [9980.0, 99_980.0, 1_799_980.0]);
    assert_eq!(lists.marks(4), [], "too few");
}

/// Changes of the evidence of a healthy runtime => texts of the only finding, if there is one.
const FINDINGS: &str = r#"
{} =>
{"wallClock": {"stepMillis": 999.0}} =>
{"wallClock": {"stepMillis": -999.0}} =>
{"wallClock": {"stepMillis": 1000.0}} => clock_step
{"wallClock": {"stepMillis": -3600000.0}} => clock_step
{"wallClock": {"fromFuture": 1}} => clock_step
{"lists": {"rounds": [{"sandboxes": {"millis": 10000.0, "failure": {"kind": "deadline_exceeded"}}}]}} => list_slow critical | attempt 1: ListPodSandbox: no answer for 10 s
{"conditions": {"failure": {"kind": "internal", "message": "no"}}} => runtime_status_failed critical | internal: no
{"statuses": {"problems": [{"pod": "u1"}]}, "pods": {"pods": [{"uid": "u1", "name": "shop/cart"}]}} => shop/cart cannot be read
"#;

#[test]
fn findings_follow_from_the_evidence() {
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
        assert_eq!(evidence.calls().slow, row.contains("list_slow"), "{row}");
    }
}

#[test]
fn conditions_of_the_runtime_are_bounded_and_shown() {
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
