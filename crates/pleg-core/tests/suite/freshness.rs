//! Tests which reads answer a waiter, and which statuses a read requests.

use pleg_core::CallErrorKind::{DeadlineExceeded, Failed};
use pleg_core::EventType::{Created, Deleted, Started, Stopped};

use crate::node::{created, exited, running, with};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn view_is_as_of_the_instant_its_rows_were_requested() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    let worker = t.read();
    let requested = t.now();
    t.pass(100);
    t.release();
    assert_eq!(t.view(worker).as_of, Some(requested));
    t.expect_calls(&["list p"]);
}

#[test]
fn unchanged_relist_makes_every_pod_fresh() {
    let mut t = Script::with(&["web"]);
    let before = t.now();
    t.relist();
    assert!(t.as_of("p") > Some(before));
    t.forget();
    let worker = t.read_since("p", before);
    assert!(t.is_answered(worker));
    t.expect_calls(&[]);
}

#[test]
fn waiter_is_answered_neither_by_events_nor_by_timers() {
    for mut t in [Script::with(&["web"]), Script::polled(&["web"])] {
        let before = t.as_of("p");
        t.hold(PodLists);
        t.hold(Relists);
        let worker = t.read();
        t.exits("web", 3);
        t.starts("s1");
        t.pass(4_900);
        t.expect(&["Died web 3"]);
        assert!(!t.is_answered(worker));
        assert_eq!(t.as_of("p"), before);
        assert_eq!(t.cached("s1"), "none");
        t.release();
        assert_eq!(t.answered(worker, "web"), "Exited 3");
    }
}

/// If an older read answered, a worker that has removed a container would get a view from before the removal.
#[test]
fn read_requested_before_the_waiters_instant_does_not_answer_it() {
    let mut t = Script::with(&["web"]);
    let first = t.slow_read(PodLists);
    t.node.remove("web");
    let second = t.read();
    t.relist();
    t.answer(PodLists);
    assert_eq!(t.answered(first, "web"), "Running");
    t.pass(4_000);
    assert!(!t.is_answered(second));
    t.release();
    assert_eq!(t.answered(second, "web"), "none");
}

#[test]
fn waiter_whose_list_fails_gets_the_error() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    let (first, later) = (t.read(), t.read());
    t.fail(PodLists);
    assert_eq!(t.error(first), Some(Failed));
    assert!(!t.is_answered(later));
    assert_eq!(t.cached("web"), "Running");
    assert!(t.status("p").error.is_some());
    t.exits("web", 3);
    t.expect(&["Died web 3"]);
}

#[test]
fn unlisted_pod_needs_no_read_after_reads_of_listed_pods() {
    let mut t = Script::with(&["web"]);
    let before = t.now();
    t.hold(StatusCalls);
    t.node.add_pod("q");
    t.relist();
    let (present, absent) = (t.read_since("q", before), t.read_since("r", before));
    assert!(!t.is_answered(present));
    assert!(t.calls().contains(&"list r".to_owned()));
    assert!(!t.view(absent).status.exists());
    t.release();
    assert_eq!(t.answered(present, "q/web"), "Running");
    let absent = t.read_since("r2", before);
    assert!(!t.view(absent).status.exists());
    assert!(!t.calls().contains(&"list r2".to_owned()));
}

#[test]
fn failed_status_call_leaves_old_details_with_the_new_state() {
    for fault in [Failed, DeadlineExceeded] {
        let mut t = Script::with(&[]);
        t.node.set(with(running("web"), |details| {
            details.image = "nginx".into();
        }));
        t.read();
        t.node.exit("web", 3);
        t.node.fail_status("web", fault);
        let worker = t.read();
        t.pass(5_000);
        assert_eq!(t.answered(worker, "web"), "Exited error");
        let web = t.view(worker).status.container("web").unwrap();
        assert_eq!(&*web.details.image, "nginx");
        assert_eq!(web.details.exit_code, None);
    }
}

#[test]
fn waiter_for_a_future_instant_causes_a_read_on_time() {
    let mut t = Script::with(&["web"]);
    let then = t.now().after(std::time::Duration::from_millis(500));
    let worker = t.read_since("p", then);
    t.relist();
    t.pass(499);
    t.expect_calls(&["relist"]);
    t.pass(2);
    t.expect_calls(&["list p"]);
    assert!(t.view(worker).as_of > Some(then));
}

#[test]
fn cancelled_waiter_leaves_no_state_and_causes_no_read() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    t.read();
    let before = t.core.footprint();
    let then = t.now().after(std::time::Duration::from_millis(500));
    let waiters = [
        t.read_since("p", then),
        t.read_since("q", then),
        t.read_details(),
    ];
    waiters.into_iter().for_each(|waiter| t.cancel(waiter));
    assert_eq!(t.core.footprint(), before);
    t.release();
    t.pass(1_000);
    t.expect_calls(&["list p"]);
    assert_eq!(t.answers.len(), 1);
}

#[test]
fn read_asks_for_statuses_of_new_and_changed_ids() {
    let mut t = Script::with(&["web", "idle"]);
    t.node.start("job");
    t.node.exit("web", 0);
    t.read();
    t.expect_calls(&["list p", "status job web"]);
}

#[test]
fn event_status_completes_a_row_with_the_same_state() {
    for (own, calls) in [
        (running("web"), &["list p"][..]),
        (created("web"), &["list p", "status web"]),
    ] {
        let mut t = Script::with(&[]);
        t.node.start("web");
        t.send(Event::of(Started, own));
        t.read();
        t.expect_calls(calls);
        assert_eq!(t.cached("web"), "Running");
    }
}

/// CRI-O takes seconds for the status of a stopped container whose exit code it does not know.
#[test]
fn status_is_read_once_after_an_end_without_exit_code() {
    for fault in [None, Some(DeadlineExceeded)] {
        let mut t = Script::with(&["web"]);
        t.node.exit("web", None);
        if let Some(fault) = fault {
            t.node.fail_status("web", fault);
        }
        t.read();
        t.pass(5_050);
        t.forget();
        t.read();
        t.expect_calls(&["list p"]);
    }
}

#[test]
fn unlisted_id_is_read_only_if_events_precede_the_list() {
    let mut t = Script::with(&[]);
    t.send(Event::nil(Created, "web"));
    t.read();
    t.expect_calls(&["list p", "status web"]);
    t.hold(PodLists);
    t.read();
    t.send(Event::nil(Created, "job"));
    t.release();
    t.expect_calls(&["list p"]);
    t.send(Event::nil(Created, "web2"));
    t.send(Event::nil(Deleted, "web2"));
    t.pass(100);
    t.read();
    t.expect_calls(&["list p", "status job"]);
}

#[test]
fn details_as_of_is_when_the_oldest_status_was_requested() {
    let mut t = Script::with(&["web"]);
    let worker = t.read_details();
    let first = t.view(worker).details_as_of;
    assert!(first.is_some() && first == t.view(worker).as_of);
    t.node.start("job");
    let worker = t.read();
    assert!(t.view(worker).as_of > first);
    assert_eq!(t.view(worker).details_as_of, first);
}

#[test]
fn details_from_an_event_leave_details_as_of_unset() {
    let mut t = Script::with(&[]);
    let before = t.now();
    t.starts("web");
    let worker = t.read();
    assert_eq!(t.view(worker).details_as_of, None);
    let worker = t.read_details_since(before);
    assert!(t.view(worker).details_as_of > Some(before));
}

#[test]
fn waiter_for_details_needs_a_read_of_every_status() {
    let mut t = Script::with(&["web"]);
    let before = t.now();
    t.hold(PodLists);
    let plain = t.read();
    let details = t.read_details_since(before);
    t.answer(PodLists);
    assert!(t.is_answered(plain) && !t.is_answered(details));
    t.release();
    assert!(t.view(details).details_as_of.is_some());
}

/// If a worker gets newer details with neither an exit code nor an error, it assumes that the exit code is lost.
#[test]
fn running_status_of_an_ended_container_does_not_refresh_details() {
    let mut t = Script::with(&["web"]);
    let worker = t.read_details();
    let before = t.view(worker).details_as_of;
    t.node.set_row(exited("web", None));
    t.send(Event::of(Stopped, exited("web", None)));
    let worker = t.read_details();
    assert_eq!(t.answered(worker, "web"), "Exited");
    assert_eq!(t.view(worker).details_as_of, before);
}
