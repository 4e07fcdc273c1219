//! Histories in which an earlier release was wrong: one test per finding, or a few.

mod announced_ends;
mod details;
mod missed_events;
mod outages;
mod pods_of_containers;
mod relist_period;
mod unsettled;
mod waiters;

use pleg_core::{EventProfile, Mode, Report, ReportedState, Settings, StreamEnd};

use crate::script::{Script, container, exited, ready};

const MINUTE: u64 = 60_000;

/// A list row of the report.
fn in_s(mut report: Report) -> Report {
    report.identity.sandbox = Some("s".into());
    report
}

fn ended(id: &str, code: i32, reason: &str) -> Report {
    in_s(exited(id, "p", code, reason))
}

/// A node with one pod and these running containers, listed and inspected.
fn listed(containers: &[&str]) -> Script {
    listed_with(Settings::default(), containers)
}

fn listed_with(settings: Settings, containers: &[&str]) -> Script {
    let polling = settings.mode == Mode::Polling;
    let mut t = match polling {
        true => Script::with(settings),
        false => Script::confirmed_with(settings),
    };
    let running = |id: &&str| container(id, "p", ReportedState::Running);
    t.node = vec![ready()];
    t.node.extend(containers.iter().map(running));
    if !polling {
        // What exists is in the baseline of a new stream, so no event is expected for it.
        t.stream_ends(StreamEnd::Ended(None));
        t.subscribe();
    }
    t.run(5_000);
    assert_eq!(t.missed(), 0);
    t
}

fn containerd() -> EventProfile {
    let mut profile = EventProfile::UNKNOWN;
    profile.promises_started = true;
    profile.promises_stopped = true;
    profile.removal_suppresses_stopped = false;
    profile.splits_events_between_subscribers = true;
    profile
}

fn on_containerd(containers: &[&str]) -> Script {
    let mut t = listed(containers);
    t.machine.handle_profile(t.now(), containerd());
    t
}

fn period(t: &Script) -> u64 {
    t.health().period.as_secs()
}
