//! What is wrong is named: causes, what to do, old data, simulated nodes.

use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Health, Instant, StreamLoss};
use ratatui::style::Modifier;

use super::{SIZES, Top};
use crate::view::tests::{Sample, at};
use crate::view::{Calls, Reason, View};

fn list_error() -> Option<CallError> {
    let kind = CallErrorKind::Unavailable;
    Some(CallError::new("ListPodSandbox", kind, "no socket"))
}

#[test]
fn worst_finding_and_its_next_step_come_first() {
    for size in SIZES {
        let mut top = Top::new(Sample::new(), size);
        top.sample.hang("web-1");
        top.answer();
        top.shows("DEGRADED");
        top.shows("pods_hung for 14s: calls about shop/web-1 do");
        top.shows("do: See the findings about shims");
        top.shows("Hung 14s");
    }
    let mut top = Top::new(Sample::new(), (120, 40));
    top.sample.hang("web-1");
    top.answer();
    top.cursor_is_at("shop/web-1");
    let row = top.line_of("shop/web-1");
    assert!(row.contains("ContainerStatus does not answer"), "{row}");
    top.shows("docs/runbook.md#pods_hung");
    top.keys("h");
    top.shows("! pods_hung for 14s: calls");
    top.shows("shop/web-1: ContainerStatus");
    top.sample.health.list_error = list_error();
    top.keys("h");
    top.shows("NO ANSWER of the runtime");
    for text in ["Running?", "list_failed", "no socket", "pods_hung"] {
        top.shows(text);
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
    let explained = reason("pods_failing", Some("disk_full"));
    view.health.reasons = vec![reason("disk_full", None), explained];
    view.health.not_examined = vec!["the log of the kubelet".to_owned()];
}

#[test]
fn explained_finding_is_dim_below_its_cause() {
    let mut top = Top::new(Sample::new(), (120, 40));
    top.change = fill_disk;
    top.answer();
    let lines = top.lines();
    for (line, text) in lines.iter().zip([
        "DEGRADED  disk_full for 2m10s: message",
        "  do: repair disk_full.",
        "  └ pods_failing for 2m10s",
    ]) {
        assert!(line.starts_with(text), "{line}");
    }
    assert!(top.buffer()[(4, 2)].modifier.contains(Modifier::DIM));
    top.hides("repair pods_failing");
    top.keys("h");
    top.shows("(because of disk_full)");
    top.shows("not examined: the log of the kubelet");
}

#[test]
fn charts_have_a_scale_and_rates_need_two_minutes() {
    let mut top = Top::new(Sample::new(), (120, 40));
    top.keys("h");
    for text in [
        "known after two minutes",
        "100ms",
        "s ago",
        "now",
        "slow 3s",
    ] {
        top.shows(text);
    }
    top.hides("generic PLEG");
    top.sample.now = Instant::from_nanos(240_000_000_000);
    top.answer();
    top.shows("generic PLEG, estimated");
    top.shows("a minute");
}

#[test]
fn storm_and_lossy_stream_are_pointed_out() {
    for size in SIZES {
        let mut top = Top::new(Sample::new(), size);
        for _ in 0..10_000 {
            top.sample.died("shop", "web-1", "app", 3);
        }
        // The present second does not count yet.
        top.sample.now = top.sample.now.after(Duration::from_secs(1));
        top.sample.health.loss = StreamLoss::new(100, 30);
        top.sample.health.missed = 30;
        top.answer();
        top.shows("! many events: 1000/s");
        top.shows("stream loses events");
        top.shows("stream_lossy");
    }
}

#[test]
fn unreachable_runtime_is_not_shown_as_a_node_without_pods() {
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        top.shows("no pods");
        top.sample.health.last_list = None;
        top.sample.health.list_error = list_error();
        top.sample.calls = Calls::new(Instant::from_nanos(86_000_000_000));
        top.answer();
        top.shows("NOT READY");
        top.shows("NO ANSWER of the runtime for 14s");
        top.shows("not known yet");
        top.hides("no pods");
        top.hides("0 pods");
    }
}

#[test]
fn silent_runtime_or_failing_or_stale_lists_make_data_old() {
    let changes: [fn(&mut Health); 3] = [
        |health| health.silent_since = Some(at(105)),
        |health| health.list_error = list_error(),
        |health| health.unready_after = Duration::from_secs(10),
    ];
    for change in changes {
        let mut top = Top::new(Sample::new(), (120, 40));
        top.sample.now = at(114);
        change(&mut top.sample.health);
        top.answer();
        // The last answer came 12 ms after 100 s.
        top.shows("NO ANSWER of the runtime for 13s");
    }
}

#[test]
fn silent_agent_makes_data_old() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.hides("NO ANSWER");
    top.now = top.now.after(Duration::from_secs(14));
    let error = "no answer of an agent at http://127.0.0.1:9394";
    top.answer_with(Err(error.to_owned()));
    top.shows("NO ANSWER of the agent for 14s");
    top.shows("agent_silent for 14s");
    top.shows("do: Check that the agent runs");
    top.hides("runbook");
    top.answer();
    top.hides("NO ANSWER");
}

#[test]
fn simulated_node_is_named_on_each_page() {
    for size in SIZES {
        let mut top = Top::new(Sample::new(), size);
        top.sample.simulated = true;
        top.answer();
        for key in ["", "h", "?", "?⏎", "p"] {
            top.keys(key);
            assert!(top.lines()[0].starts_with(" SIMULATED NODE "), "{key}");
        }
    }
}
