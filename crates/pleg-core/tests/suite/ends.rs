//! Tests that reads and events record ends of containers and sandboxes, and that no read undoes an end for ten seconds.

use pleg_core::EventType::{Created, Started, Stopped};
use pleg_core::Report;

use crate::node::{created, exited, running, with};
use crate::script::{Event, PodLists, Script, StatusCalls};

#[test]
fn end_in_an_events_status_is_recorded_at_once() {
    for what in [Stopped, Started] {
        let mut t = Script::with(&["web"]);
        t.node.exit("web", 3);
        t.event(what, "web");
        t.node.exit("s", None);
        t.event(what, "s");
        t.expect(&["Died web 3", "Died s"]);
        t.expect_calls(&[]);
        assert_eq!(t.cached("web"), "Exited 3");
        assert_eq!(t.cached("s"), "NotReady");
    }
}

#[test]
fn event_records_an_exit_only_from_its_own_containers_status() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    t.send(Event::nil(Stopped, "web"));
    t.send(Event::of(Created, created("job")).with(exited("web", 3)));
    t.expect_nothing();
    assert_eq!(t.cached("web"), "Running");
}

#[test]
fn event_adds_missing_exit_fields_and_read_corrects_known_fields() {
    type Show = fn(&mut Script, Report);
    let event: Show = |t, status| t.send(Event::of(Stopped, status));
    let read: Show = |t, status| {
        t.node.set(status);
        t.read_details();
    };
    let code = |code| exited("web", code);
    let killed = |reason: &'static str| {
        let status = exited("web", 137);
        with(status, |details| details.reason = reason.into())
    };
    let (died, oom) = ("Died web 137 OOMKilled", "Changed web 137 OOMKilled");
    for (first, one, second, other, announced) in [
        (
            event,
            code(None),
            event,
            code(Some(3)),
            &["Died web", "Changed web 3"][..],
        ),
        (
            event,
            code(Some(2)),
            read,
            code(Some(1)),
            &["Died web 2", "Changed web 1"],
        ),
        (read, code(Some(1)), event, code(Some(2)), &["Died web 1"]),
        (event, code(Some(3)), read, code(None), &["Died web 3"]),
        (
            event,
            killed("Error"),
            read,
            killed("OOMKilled"),
            &["Died web 137 Error", oom],
        ),
        (event, killed("OOMKilled"), read, killed("Error"), &[died]),
    ] {
        let mut t = Script::with(&["web"]);
        t.node.set(one.clone());
        first(&mut t, one);
        second(&mut t, other);
        t.expect(announced);
    }
}

/// If a read begun before an exit counted as stale, each read in flight at an exit would cause a second read.
#[test]
fn read_begun_before_an_exit_neither_undoes_nor_reannounces_it() {
    let mut t = Script::with(&["web"]);
    t.slow_read(PodLists);
    t.exits("web", 3);
    t.release();
    t.pass(1_500);
    t.expect(&["Died web 3"]);
    t.expect_calls(&["list p"]);
}

/// containerd 2.4 listed a container as running after `StopContainer` had returned.
#[test]
fn lagging_read_undoes_no_end_and_is_repeated() {
    let mut t = Script::with(&["web"]);
    t.node.lag();
    t.exits("web", 3);
    let worker = t.read();
    assert_eq!(t.answered(worker, "web"), "Exited 3");
    t.pass(50);
    t.node.catch_up();
    t.pass(5_000);
    t.expect(&["Died web 3"]);
    assert_eq!(t.count("list p"), 2);
}

#[test]
fn wrong_end_is_undone_by_a_read_ten_seconds_later() {
    let mut t = Script::with(&["web"]);
    t.send(Event::of(Stopped, exited("web", 3)));
    t.read();
    t.pass(9_900);
    t.expect(&["Died web 3"]);
    assert_eq!(t.cached("web"), "Exited 3");
    t.pass(5_000);
    t.expect(&["Started web"]);
    assert_eq!(t.cached("web"), "Running");
    assert_eq!(t.core.counters().undone, 1);
    // For ten seconds after the container's latest recorded end, no read undoes an end.
    t.node.exit("web", 4);
    t.read();
    t.expect(&["Died web 4"]);
    t.node.start("web");
    t.read();
    assert_eq!(t.cached("web"), "Exited 4");
}

#[test]
fn undone_end_of_a_created_container_is_announced_as_changed() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.read();
    t.send(Event::of(Stopped, exited("web", 3)));
    t.read();
    t.forget();
    t.pass(15_000);
    t.expect(&["Changed web"]);
    assert_eq!(t.cached("web"), "Created");
}

#[test]
fn rows_requested_before_an_end_do_not_undo_it() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.hold(StatusCalls);
    t.read();
    t.relist();
    t.node.exit("web", 3);
    t.release();
    t.pass(5_000);
    t.expect(&["Started web", "Died web 3"]);
    assert_eq!(t.core.counters().undone, 0);
}

/// containerd 2 lists sandboxes from one store and reads their statuses from another.
#[test]
fn disagreeing_row_and_status_cause_at_most_one_announcement() {
    for (row, status, announced) in [
        (exited("web", None), running("web"), None),
        (running("web"), exited("web", 3), Some("Died web 3")),
        (exited("s", None), running("s"), None),
        (running("s"), exited("s", None), Some("Died s")),
    ] {
        let mut t = Script::with(&["web"]);
        t.node.set(status);
        t.node.set_row(row);
        if let Some(died) = announced {
            t.event(Stopped, died.split(' ').nth(1).unwrap());
        }
        t.pass(600_000);
        t.expect(announced.as_slice());
        let calls = t.calls().len();
        assert!(calls <= 250, "{calls} calls");
    }
}

/// containerd answers lists and status calls from different stores.
#[test]
fn status_that_lags_behind_its_row_is_read_again() {
    let mut t = Script::with(&["web"]);
    t.node.set_row(exited("web", 3));
    t.relist();
    assert_eq!(t.cached("web"), "Running");
    t.node.exit("web", 3);
    t.pass(150);
    t.expect(&["Died web 3"]);
}
