//! Details that change without a change of state, and reasons that arrive late (invariant 3).

use pleg_core::{ContainerDetails, EventType, Mode, PodView, ReportedState, Settings};

use super::{MINUTE, ended, listed, listed_with};
use crate::script::{container, exited, ready, s, status, with_memory_limit};
use EventType::Stopped;

/// containerd before 2.3: the reason becomes OOMKilled after the event.
#[test]
fn a5_late_reason_is_read_whoever_saw_the_end_first() {
    for first in ["waiter", "list", "poll"] {
        let mode = match first {
            "poll" => Mode::Polling,
            _ => Mode::Evented,
        };
        let mut settings = Settings::default();
        settings.mode = mode;
        let mut t = listed_with(settings, &["c"]);
        match first {
            "waiter" => {
                t.wait("p", t.now());
            }
            "list" => t.relist(),
            _ => {}
        }
        t.node[1] = ended("c", 137, "Error");
        match first {
            "poll" => t.run(1_100),
            _ => {
                t.settle();
                t.event(Stopped, "c", s(), &[exited("c", "p", 137, "Error")]);
                t.run(500);
            }
        }
        t.node[1] = ended("c", 137, "OOMKilled");
        t.run(30 * MINUTE);
        assert_eq!(&*of(&t.get("p"), "c").reason, "OOMKilled", "{first}");
        assert_eq!(t.machine.counters().exit_reads, 1, "{first}");
    }
}

fn of<'a>(view: &'a PodView, id: &str) -> &'a ContainerDetails {
    let mut all = view.status.containers.iter();
    &all.find(|c| c.id.as_str() == id)
        .expect("it exists")
        .details
}

fn memory(view: &PodView) -> i64 {
    of(view, "c")
        .resources
        .as_ref()
        .expect("it has")
        .memory_limit
}

/// A resize is read, and an event with statuses from before it arrives while the read is in flight,
/// or after it.
#[test]
fn a7_older_status_in_an_event_does_not_hide_a_resize() {
    for during in [true, false] {
        let mut t = listed(&[]);
        let old = with_memory_limit(container("c", "p", ReportedState::Running), 200);
        t.node = vec![ready(), old, container("d", "p", ReportedState::Running)];
        t.relist();
        t.settle();
        assert_eq!(memory(&t.get("p")), 200);
        t.node[1] = with_memory_limit(container("c", "p", ReportedState::Running), 400);
        t.request_reinspect("p");
        if !during {
            t.settle();
            assert_eq!(memory(&t.get("p")), 400);
        }
        t.pass(5);
        let stale = with_memory_limit(status("c", "p", ReportedState::Running), 200);
        let statuses = [stale, exited("d", "p", 0, "Completed")];
        t.event(Stopped, "d", s(), &statuses);
        t.node[2] = ended("d", 0, "Completed");
        if !during {
            assert_eq!(memory(&t.get("p")), 400, "what was inspected stands");
        }
        t.settle();
        assert_eq!(memory(&t.get("p")), 400);
        let inspections = t.machine.counters().inspections;
        t.run(30 * MINUTE);
        assert_eq!(memory(&t.get("p")), 400);
        assert_eq!(t.machine.counters().inspections, inspections);
    }
}

/// An inspection is in flight that reads a resize, and a STOPPED arrives: the status is one of an earlier
/// state, and its details are neither taken nor counted as read.
#[test]
fn a7_event_during_a_read_of_a_resize_does_not_hide_it() {
    let mut t = listed(&[]);
    let old = with_memory_limit(container("c", "p", ReportedState::Running), 200);
    t.node = vec![ready(), old];
    t.relist();
    t.settle();
    let resized = with_memory_limit(container("c", "p", ReportedState::Running), 400);
    t.request_reinspect("p");
    t.pass(5);
    t.event(
        Stopped,
        "c",
        s(),
        &[with_memory_limit(exited("c", "p", 1, "Error"), 200)],
    );
    t.node[1] = with_memory_limit(ended("c", 1, "Error"), 400);
    let before = t.now();
    t.inspect(&[ready(), resized], &[]);
    assert!(
        t.get("p").inspected < Some(before),
        "the old limit is not as of this read"
    );
    t.settle();
    assert_eq!(memory(&t.get("p")), 400);
}
