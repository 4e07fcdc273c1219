//! Reads establish: which of two reads counts, what rows and statuses show, and whose pod an id is.

use pleg_core::CallErrorKind::{Failed, NotFound};
use pleg_core::EventType::{Started, Stopped};

use crate::node::{exited, running, unlabelled, with};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn relist_that_overlaps_a_pod_read_shows_nothing_of_it() {
    let mut t = Script::with(&[]);
    t.slow_relist();
    t.node.start("web");
    t.read();
    t.expect(&["Started web"]);
    t.forget();
    let fresh = t.as_of("p");
    t.answer(Relists);
    assert_eq!(t.cached("web"), "Running");
    assert_eq!(t.as_of("p"), fresh, "it never goes back");
    t.pass(150);
    t.expect_calls(&["list p"]);
    t.expect_nothing();
}

#[test]
fn relist_that_began_during_a_failed_pod_read_shows_nothing() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    let worker = t.read();
    t.node.exit("web", 3);
    t.relist();
    t.fail(PodLists);
    t.release();
    assert!(t.error(worker).is_some(), "rows of a relist answer nobody");
    t.expect_nothing();
    t.pass(1_500);
    t.expect(&["Died web 3"]);
}

/// The relist began before the successful read, so its rows are older.
#[test]
fn relist_that_overlaps_a_success_and_a_failure_shows_nothing() {
    let mut t = Script::with(&[]);
    t.slow_relist();
    t.node.start("web");
    t.read();
    t.hold(PodLists);
    t.read();
    t.answer(Relists);
    t.fail(PodLists);
    t.release();
    t.pass(3_000);
    t.expect(&["Started web"]);
}

#[test]
fn relist_during_the_statuses_of_a_pod_read_counts() {
    let mut t = Script::with(&["web"]);
    t.node.start("job");
    t.slow_read(StatusCalls);
    t.node.exit("web", 3);
    t.relist();
    t.release();
    t.expect(&["Started job", "Died web 3"]);
}

/// The rows of the relist equal the cache until the pod read publishes the id.
#[test]
fn relist_without_an_id_that_is_being_read_counts() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.slow_read(StatusCalls);
    t.node.remove("web");
    t.relist();
    t.expect_nothing();
    t.release();
    t.expect(&["Started web", "Died web", "Removed web"]);
}

#[test]
fn relist_without_a_pod_that_is_being_read_counts() {
    let mut t = Script::with(&[]);
    t.node.start("q/s");
    t.hold(StatusCalls);
    t.read_since("q", t.now());
    t.evaluate(StatusCalls);
    t.node.remove("q/s");
    t.relist();
    t.release();
    t.expect(&["Started q/s", "Died q/s", "Removed q/s"]);
}

#[test]
fn later_rows_replace_rows_that_wait_for_a_pod_read() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.slow_read(StatusCalls);
    t.relist();
    t.node.exit("web", 3);
    t.relist();
    t.release();
    t.expect(&["Started web", "Died web 3"]);
}

#[test]
fn reads_of_one_pod_never_overlap() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    let (first, second) = (t.read(), t.read());
    t.send(Event::nil(Stopped, "web"));
    assert_eq!(t.in_flight(PodLists), 1);
    t.answer(PodLists);
    assert!(t.is_answered(first) && !t.is_answered(second));
    assert_eq!(t.in_flight(PodLists), 1);
    t.answer(PodLists);
    assert!(t.is_answered(second));
    assert_eq!(t.in_flight(PodLists), 0);
}

#[test]
fn id_that_is_listed_twice_has_ended() {
    let (runs, ended) = (|| running("web"), || exited("web", 3));
    for (row, other) in [(runs(), ended()), (ended(), runs())] {
        let mut t = Script::with(&["web"]);
        t.node.set(ended());
        t.node.set_row(row);
        t.node.extra_rows = vec![other];
        t.read();
        t.relist();
        t.pass(1_000);
        t.expect(&["Died web 3"]);
        t.expect_calls(&["list p", "status web", "relist"]);
    }
}

#[test]
fn single_status_brings_nothing_back() {
    let mut t = Script::with(&["web"]);
    t.slow_probe("web");
    t.node.remove("web");
    t.relist();
    t.expect(&["Died web", "Removed web"]);
    t.release();
    t.expect_nothing();
}

#[test]
fn single_status_shows_an_end() {
    let mut t = Script::with(&["web"]);
    t.pass(5_500);
    t.node.exit("web", 3);
    t.hold(StatusCalls);
    t.await_call("status web");
    t.answer(StatusCalls);
    t.expect(&["Died web 3"]);
}

/// A read of the pod starts the container in the cache.
#[test]
fn single_status_starts_nothing() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.read();
    t.node.set_status(running("web"));
    t.hold(PodLists);
    t.hold(Relists);
    t.forget();
    t.await_call("status web");
    t.pass(150);
    assert_eq!(t.cached("web"), "Created");
    t.expect_nothing();
    t.node.start("web");
    t.answer(PodLists);
    t.expect(&["Started web"]);
}

/// No other read would ask for the exit code.
#[test]
fn single_status_that_is_not_found_is_retried_at_once() {
    let mut t = Script::with(&["web"]);
    t.exits("web", None);
    t.expect(&["Died web"]);
    t.node.fail_status("web", NotFound);
    t.pass(1_900);
    t.forget();
    t.pass(150);
    t.expect_calls(&["status web", "list p", "status web"]);
    t.node.heal_status("web");
    t.node.exit("web", 3);
    t.pass(5_000);
    t.expect(&["Changed web 3"]);
}

#[test]
fn status_that_was_requested_later_gives_the_details() {
    let image = |name: &'static str| with(running("web"), |d| d.image = name.into());
    let mut t = Script::with(&["web"]);
    t.hold(StatusCalls);
    t.node.set(image("old"));
    t.await_call("status web");
    t.evaluate(StatusCalls);
    t.node.set(image("new"));
    let worker = t.read_details();
    t.answer_newest(StatusCalls);
    let of =
        |view: &pleg_core::PodView| view.status.container("web").unwrap().details.image.clone();
    assert_eq!(of(t.view(worker)), "new");
    t.release();
    assert_eq!(of(&t.cache["p"]), "new");
}

#[test]
fn container_belongs_to_its_sandbox_then_to_its_label() {
    let with_pod = |pod: Option<&str>, sandbox: &str| {
        let mut row = running("web");
        row.identity.pod = pod.map(Into::into);
        row.identity.sandbox = Some(sandbox.into());
        row
    };
    for (row, pod) in [
        (with_pod(Some("q"), "s"), "p"),
        (with_pod(Some("q"), "unknown"), "q"),
        (with_pod(None, "unknown"), "unknown"),
    ] {
        let mut t = Script::with(&[]);
        t.node.set(row);
        t.relist();
        assert_eq!(t.pod_of("web"), Some(&pod.into()));
    }
}

#[test]
fn pod_list_that_ignores_its_filter_shows_one_pod() {
    let mut t = Script::with(&["web"]);
    t.node.ignores_filters = true;
    t.node.add_pod("q");
    let worker = t.read();
    assert_eq!(t.view(worker).status.containers.len(), 1);
    t.expect_nothing();
}

#[test]
fn pod_with_an_unlabelled_id_is_read_by_relists_only() {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.relist();
    t.expect(&["Started free"]);
    t.forget();
    let worker = t.read();
    assert_eq!(t.answered(worker, "free"), "Running");
    t.node.set(unlabelled(exited("free", 3)));
    t.send(Event::nil(Stopped, "free"));
    t.pass(1_100);
    t.expect(&["Died free 3"]);
    assert!(!t.calls().contains(&"list p".to_owned()));
}

#[test]
fn details_of_an_unlabelled_pod_are_read_with_one_relist() {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.relist();
    t.forget();
    let worker = t.read_details();
    t.pass(100);
    assert!(t.is_answered(worker));
    t.expect_calls(&["relist", "status free s web"]);
}

#[test]
fn failed_relist_answers_the_waiters_of_an_unlabelled_pod() {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.relist();
    t.node.relists_fail = Some(Failed);
    let worker = t.read();
    assert!(t.error(worker).is_some());
}

#[test]
fn started_of_an_unlabelled_id_is_followed_by_a_relist() {
    let free = || unlabelled(running("free"));
    for event in [
        Event::of(Started, free()),
        Event::nil(Started, "free"),
        Event::nil(Started, "free").unnamed(),
    ] {
        let mut t = Script::with(&[]);
        t.node.set(free());
        t.send(event);
        t.pass(1_500);
        t.expect(&["Started free"]);
    }
}

/// A list of the pod never shows the id, and the overlapping relist does not count.
#[test]
fn unlabelled_id_in_an_overlapping_relist_is_relisted() {
    for has_event in [true, false] {
        let mut t = Script::with(&["web"]);
        let free = unlabelled(running("free"));
        t.node.set(free.clone());
        if has_event {
            t.send(Event::of(Started, free));
        }
        t.hold(Relists);
        t.relist();
        t.hold(PodLists);
        t.read();
        t.release();
        t.read();
        t.pass(500);
        t.expect_nothing();
        t.pass(1_000);
        t.expect(&["Started free"]);
    }
}

/// A later relist does not show the id, while the statuses of its pod are still being read.
#[test]
fn unlabelled_id_is_gone_when_its_relist_is_settled() {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.node.set_row(exited("web", None));
    t.hold(StatusCalls);
    t.send(Event::nil(Started, "free"));
    t.send(Event::of(Stopped, unlabelled(running("free"))));
    t.pass(1_500);
    t.node.hide_row("free");
    t.pass(2_000);
    t.expect_nothing();
    t.node.exit("web", 3);
    t.release();
    t.pass(3_000);
    let announced = t.announced();
    let of = |what: &str| announced.iter().filter(|a| a.starts_with(what)).count();
    assert_eq!(
        (of("Died free"), of("Removed free")),
        (1, 1),
        "{announced:?}"
    );
}
