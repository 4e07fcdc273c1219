//! An id that a list shows and whose status call returns NotFound (invariant 3).

use pleg_core::{ContainerState, EventType, LifecycleType, PodView, ReportedState, SandboxState};

use super::listed;
use crate::script::{Script, container, sandbox};
use EventType::Deleted;

fn is_unsettled(view: &PodView, id: &str) -> Option<bool> {
    let mut all = view.status.containers.iter();
    Some(all.find(|c| c.id.as_str() == id)?.unsettled)
}

/// A list shows a running container and its status call returns NotFound: the answer contains it,
/// after the pod was read once more.
#[test]
fn a1_answer_contains_listed_id_without_status() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let waiter = t.wait("p", t.now());
    t.settle();
    assert!(t.answer_of(waiter).is_none(), "read once more");
    t.pass(99);
    assert_eq!(t.inspections_wanted(), 0);
    t.run(5);
    let view = t.view_for(waiter);
    assert_eq!(view.status.containers[0].state, ContainerState::Running);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert_eq!(is_unsettled(&t.get("p"), "c"), Some(true));
    assert!(view.inspected < view.as_of, "its details were not read");
}

/// The same for a container that was unknown.
#[test]
fn a1_answer_contains_new_id_without_status() {
    let mut t = listed(&[]);
    t.node.push(container("c", "p", ReportedState::Running));
    t.hidden = vec!["c".into()];
    let waiter = t.wait("p", t.now());
    t.run(200);
    let view = t.view_for(waiter);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert_eq!(t.said(LifecycleType::ContainerStarted, "c"), 1);
}

/// The second read finds the status, or that the id is gone: the id is not unsettled.
#[test]
fn a1_second_read_settles_the_id() {
    for gone in [true, false] {
        let mut t = listed(&["c"]);
        t.hidden = vec!["c".into()];
        let waiter = t.wait("p", t.now());
        t.settle();
        t.hidden.clear();
        if gone {
            t.node.pop();
        }
        t.run(200);
        let unsettled = is_unsettled(&t.view_for(waiter), "c");
        assert_eq!(unsettled, (!gone).then_some(false));
    }
}

/// The second read fails: the first one answers.
#[test]
fn a1_first_read_answers_if_the_second_fails() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let asked = t.now();
    let waiter = t.wait("p", asked);
    t.settle();
    t.pass(100);
    t.inspection_fails(&[]);
    let view = t.view_for(waiter);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert!(view.as_of > Some(asked));
}

/// An unsettled id is inspected again with backoff, and PodSync is announced when it is settled.
#[test]
fn a1_settling_is_announced() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    t.wait("p", t.now());
    t.run(300);
    let inspections = t.machine.counters().inspections;
    t.run(10_000);
    let tried = t.machine.counters().inspections - inspections;
    assert!((2..=6).contains(&tried), "{tried}");
    let failing = |t: &Script| t.machine.failing_pods().len();
    assert_eq!(failing(&t), 1, "it is named in health");
    let before = t.said(LifecycleType::PodSync, "p");
    t.hidden.clear();
    t.run(10_000);
    assert_eq!(is_unsettled(&t.get("p"), "c"), Some(false));
    assert_eq!(failing(&t), 0);
    assert_eq!(t.said(LifecycleType::PodSync, "p"), before + 1);
}

/// A removed sandbox that is still listed and has no status is in the answer with its listed state.
#[test]
fn a1_answer_contains_removed_id_that_is_listed() {
    let mut t = listed(&[]);
    t.event(
        Deleted,
        "s",
        Some(sandbox("s", "p", ReportedState::Exited)),
        &[],
    );
    t.node[0] = sandbox("s", "p", ReportedState::Exited);
    t.hidden = vec!["s".into()];
    t.pass(5);
    let waiter = t.wait("p", t.now());
    t.run(200);
    let view = t.view_for(waiter);
    let sandbox = view.status.sandboxes.first().expect("it is listed");
    assert_eq!(sandbox.state, SandboxState::NotReady);
    assert!(sandbox.unsettled);
}

/// The second read is made for its waiters also if events removed the pod since the first one.
#[test]
fn second_read_answers_the_waiter_of_a_pod_removed_after_the_first_read() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let waiter = t.wait("p", t.now());
    t.settle();
    t.node.clear();
    t.event(Deleted, "c", None, &[]);
    t.event(Deleted, "s", None, &[]);
    assert_eq!(t.withdrawn, ["p".into()]);
    assert_eq!((t.inspections_wanted(), t.lists_wanted()), (0, 0));
    t.pass(100);
    assert_eq!(t.inspections_wanted(), 1);
    t.settle();
    assert!(t.view_for(waiter).status.is_nothing());
}

/// The second read fails: its error answers who needs details, or a state newer than the first read.
#[test]
fn failed_second_read_fails_the_waiters_that_the_first_read_does_not_serve() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let details = t.wait_for_details("p", t.now());
    t.settle();
    let late = t.wait("p", t.now());
    t.pass(100);
    t.inspection_fails(&[]);
    for waiter in [details, late] {
        assert!(t.answer_of(waiter).expect("it is answered").is_err());
    }
}
