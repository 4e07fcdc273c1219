//! Tests that trouble is shown: causes, what to do, old data, simulated nodes.

use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Health, StreamLoss};
use ratatui::style::Modifier;

use super::{SIZES, Top};
use crate::meter::Calls;
use crate::view::tests::{Sample, at};

fn list_error() -> Option<CallError> {
    let kind = CallErrorKind::Unavailable;
    Some(CallError::new("ListPodSandbox", kind, "no socket"))
}

fn top(size: (u16, u16), change: impl FnOnce(&mut Sample)) -> Top {
    let mut sample = Sample::new();
    change(&mut sample);
    Top::new(sample, size)
}

#[test]
fn worst_finding_and_its_next_step_come_first() {
    for size in SIZES {
        let rows = "
 => DEGRADED | pods_hung for 14s: calls about shop/web-1 do | Hung 14s
 => do: See the findings about shims";
        top(size, |sample| sample.hang("web-1")).play(rows);
    }
    let mut top = top((120, 40), |sample| sample.hang("web-1"));
    let rows = "
 => ⏎>!shop/web-1 Hung 14s | ContainerStatus does not answer | docs/runbook.md#pods_hung
h => ! pods_hung for 14s: calls | shop/web-1: ContainerStatus";
    top.play(rows);
    top.sample.health.list_error = list_error();
    top.play("h => NO ANSWER from the runtime | Running? | list_failed | no socket | pods_hung");
}

#[test]
fn explained_finding_is_dim_below_its_cause() {
    let mut top = top((120, 40), |sample| {
        sample.hang("web-1");
        sample.health.silent_since = Some(at(90));
        sample.facts.not_examined = vec!["the log of the kubelet".to_owned()];
    });
    let rows = "
 => ⏎DEGRADED runtime_silent for 10s: | ⏎do: See the findings about the host | ⏎└ pods_hung for 14s => shims
h => (because of runtime_silent) | not examined: the log of the kubelet
h => ⏎└ pods_hung";
    top.play(rows);
    let explained = |line: &String| line.starts_with("  └ pods_hung");
    let y = top.lines().iter().position(explained).unwrap();
    let cell = &top.buffer().content[y * 120 + 4];
    assert!(cell.modifier.contains(Modifier::DIM), "{cell:?}");
}

#[test]
fn charts_have_scales_and_call_rates_appear_after_two_minutes() {
    let mut top = top((120, 40), |_| ());
    top.play("h => known after two minutes | 100ms | s ago | now | slow 3s => generic PLEG");
    top.sample.now = at(240);
    top.answer();
    top.play(" => generic PLEG, estimated | a minute");
}

#[test]
fn event_storm_and_lossy_stream_are_pointed_out() {
    for size in SIZES {
        let mut top = top(size, |sample| {
            for n in 0..20_000 {
                sample.now = at(100).after(Duration::from_millis(n));
                sample.died("shop", "web-1", "app", 3);
            }
            // The event rate does not include the present second.
            sample.now = at(120);
            sample.health.loss = StreamLoss::new(100, 30);
            sample.health.missed = 30;
        });
        top.play(" => ! many events: 1000/s | stream loses events | stream_lossy");
        top.sample.now = at(125);
        top.answer();
        top.play(" => ! many events: 500/s");
    }
}

#[test]
fn unreachable_runtime_is_not_shown_as_a_node_without_pods() {
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        top.play(" => no pods");
        top.sample.health.last_list = None;
        top.sample.health.list_error = list_error();
        top.sample.calls = Calls::new(at(86));
        top.answer();
        let shown = "NOT READY | NO ANSWER from the runtime for 14s | not known yet";
        top.play(&format!(" => {shown} => no pods | 0 pods"));
    }
}

#[test]
fn data_is_marked_old_without_runtime_answers_or_current_lists() {
    let changes: [fn(&mut Health); 3] = [
        |health| health.silent_since = Some(at(105)),
        |health| health.list_error = list_error(),
        |health| health.unready_after = Duration::from_secs(10),
    ];
    for change in changes {
        let mut top = top((120, 40), |sample| {
            sample.now = at(114);
            change(&mut sample.health);
        });
        // The runtime last answered at 100.012 s. `now` is 114 s, so 13 whole seconds have passed.
        top.play(" => NO ANSWER from the runtime for 13s");
    }
    let answer = CallError::new("ListContainers", CallErrorKind::TooLarge, "no");
    let mut top = top((120, 40), |sample| sample.health.list_error = Some(answer));
    top.play(" => list_failed => NO ANSWER");
}

#[test]
fn data_of_a_silent_agent_is_shown_as_old() {
    let mut top = top((80, 24), |_| ());
    top.play(" =>  => NO ANSWER");
    top.now = top.now.after(Duration::from_secs(14));
    top.answer_with(Err("no answer from an agent".to_owned()));
    let rows = "
 => NO ANSWER from the agent for 14s | agent_silent for 14s => runbook
 => do: Check that the agent is running";
    top.play(rows);
    top.answer();
    top.play(" =>  => NO ANSWER");
}

#[test]
fn simulated_node_is_marked_on_each_page() {
    for size in SIZES {
        let mut top = top(size, |sample| sample.simulated = true);
        for key in ["", "h", "?", "?⏎", "p"] {
            top.keys(key);
            let screen = top.screen();
            assert!(screen.starts_with("\nSIMULATED NODE "), "{key}{screen}");
        }
    }
}
