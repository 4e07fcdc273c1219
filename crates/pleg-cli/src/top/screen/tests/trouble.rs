//! What is wrong is named: causes, what to do, old data, simulated nodes.

use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Instant, StreamLoss};

use ratatui::style::Modifier;

use super::{Reason, SIZES, Top, View};
use crate::view::Calls;
use crate::view::tests::Sample;

#[test]
fn worst_finding_and_its_next_step_come_first() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (80, 24));
    let texts = [
        "DEGRADED",
        "pods_hung for 14s: calls about shop/web-1 do not answer",
        "do: See the findings about shims",
        "docs/runbook.md#pods_hung",
        "Hung 14s",
    ];
    top.shows(&texts);
    top.keys("h");
    top.shows(&["! pods_hung for 14s: calls", "shop/web-1: ContainerStatus"]);
    let error = CallError::new("ListPodSandbox", CallErrorKind::Unavailable, "no socket");
    top.sample.health.list_error = Some(error);
    top.keys("h");
    top.shows(&[
        "NO ANSWER of the runtime",
        "Running?",
        "list_failed",
        "no socket",
        "pods_hung",
    ]);
    for size in SIZES {
        let mut low = Top::new(Sample::new(), size);
        low.sample.hang("web-1");
        low.answer();
        low.shows(&["pods_hung for 14s", "Hung 14s", "shop/web-1"]);
    }
}

/// A full disk, what it explains, and what could not be examined.
fn fill_disk(view: &mut View) {
    let reason = |code: &str, cause: Option<&str>| Reason {
        code: code.to_owned(),
        severity: "critical".to_owned(),
        message: format!("message of {code}"),
        seconds: Some(130.0),
        cause: cause.map(str::to_owned),
        action: format!("repair {code}."),
        ..Reason::default()
    };
    view.health.reasons = vec![
        reason("disk_full", None),
        reason("pods_failing", Some("disk_full")),
    ];
    view.health.not_examined = vec!["the log of the kubelet".to_owned()];
}

#[test]
fn explained_finding_is_dim_below_its_cause() {
    let mut top = Top::new(Sample::new(), (120, 40));
    top.change = fill_disk;
    top.answer();
    let lines = top.lines();
    assert!(
        lines[0].starts_with("DEGRADED  disk_full for 2m10s: message"),
        "{lines:#?}"
    );
    assert!(
        lines[1].starts_with("  do: repair disk_full."),
        "{lines:#?}"
    );
    assert!(
        lines[2].starts_with("  └ pods_failing for 2m10s"),
        "{lines:#?}"
    );
    assert!(top.buffer()[(4, 2)].modifier.contains(Modifier::DIM));
    top.hides("repair pods_failing");
    top.keys("h");
    top.shows(&[
        "(because of disk_full)",
        "not examined: the log of the kubelet",
    ]);
}

#[test]
fn charts_have_a_scale_and_rates_need_two_minutes() {
    let mut top = Top::new(Sample::new(), (120, 40));
    top.keys("h");
    top.shows(&[
        "known after two minutes",
        "100ms",
        "s ago",
        "now",
        "slow 3s",
    ]);
    top.hides("generic PLEG");
    top.sample.now = Instant::from_nanos(240_000_000_000);
    top.answer();
    top.shows(&["generic PLEG, estimated", "a minute"]);
}

#[test]
fn storm_and_lossy_stream_are_pointed_out() {
    let mut sample = Sample::new();
    for _ in 0..10_000 {
        sample.died("shop", "web-1", "app", 3);
    }
    // The present second does not count yet.
    sample.now = sample.now.after(Duration::from_secs(1));
    sample.health.loss = StreamLoss::new(100, 30);
    sample.health.missed = 30;
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        std::mem::swap(&mut top.sample, &mut sample);
        top.answer();
        top.shows(&[
            "! many events: 1000/s",
            "stream loses events",
            "stream_lossy",
        ]);
        std::mem::swap(&mut top.sample, &mut sample);
    }
}

#[test]
fn unreachable_runtime_is_not_shown_as_a_node_without_pods() {
    let mut sample = Sample::empty();
    sample.health.last_list = None;
    let error = CallError::new("ListPodSandbox", CallErrorKind::Unavailable, "no socket");
    sample.health.list_error = Some(error);
    sample.calls = Calls::new(Instant::from_nanos(86_000_000_000));
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        top.shows(&["no pods"]);
        std::mem::swap(&mut top.sample, &mut sample);
        top.answer();
        top.shows(&[
            "NOT READY",
            "NO ANSWER of the runtime for 14s",
            "not known yet",
        ]);
        top.hides("no pods");
        top.hides("0 pods");
        std::mem::swap(&mut top.sample, &mut sample);
    }
}

#[test]
fn silent_agent_makes_data_old() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.hides("NO ANSWER");
    top.now = top.now.after(Duration::from_secs(14));
    top.fail("no answer of an agent at http://127.0.0.1:9394");
    top.shows(&["NO ANSWER of the agent for 14s", "agent_silent for 14s"]);
    top.shows(&["do: Check that the agent runs"]);
    top.hides("runbook");
    top.answer();
    top.hides("NO ANSWER");
}

#[test]
fn simulated_node_is_named_on_each_page() {
    for size in SIZES {
        let mut sample = Sample::new();
        sample.simulated = true;
        let mut top = Top::new(sample, size);
        for key in ["", "h", "?", "?\n", "p"] {
            top.keys(key);
            assert!(top.lines()[0].starts_with(" SIMULATED NODE "), "{key}");
        }
    }
}
