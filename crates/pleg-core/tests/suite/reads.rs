//! Tests which of overlapping reads counts, what rows and statuses change, and which pod an id belongs to.

use pleg_core::CallErrorKind::{Failed, NotFound};
use pleg_core::EventType::{Started, Stopped};
use pleg_core::PodStatus;

use crate::node::{Node, exited, running, unlabelled, with};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn relist_rows_are_ignored_if_a_pod_read_overlaps() {
    let mut t = Script::with(&[]);
    t.slow_relist();
    t.node.start("web");
    t.read();
    t.expect(&["Started web"]);
    t.forget();
    let fresh = t.as_of("p");
    t.answer(Relists);
    assert_eq!(t.cached("web"), "Running");
    assert_eq!(t.as_of("p"), fresh, "as_of never goes back");
    t.pass(150);
    t.expect_calls(&["list p"]);
    t.expect_nothing();
}

#[test]
fn relist_rows_are_ignored_if_a_failed_pod_read_overlaps() {
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

/// The relist began before the successful read, so the relist's rows are older.
#[test]
fn relist_rows_are_ignored_if_successful_and_failed_reads_overlap() {
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

/// A pod read has listed a first change and waits for its status calls. Meanwhile, relists show later changes.
#[test]
fn relist_rows_are_used_if_only_status_calls_overlap() {
    type Change = fn(&mut Node);
    let starts: Change = |node| node.start("job");
    let exits: Change = |node| node.exit("web", 3);
    let removes: Change = |node| node.remove("job");
    let rows: [(Change, &[Change], &[&str]); 4] = [
        (starts, &[exits], &["Started job", "Died web 3"]),
        (starts, &[|_| (), exits], &["Started job", "Died web 3"]),
        // When the relist ends, its rows equal the cache. The pod read, which ends later, publishes an id not in them.
        (
            starts,
            &[removes],
            &["Started job", "Died job", "Removed job"],
        ),
        (
            |node| node.start("q/s"),
            &[|node| node.remove("q/s")],
            &["Started q/s", "Died q/s", "Removed q/s"],
        ),
    ];
    for (first, later, announced) in rows {
        let mut t = Script::with(&["web"]);
        first(&mut t.node);
        t.hold(StatusCalls);
        t.read();
        t.read_since("q", t.now());
        t.evaluate(StatusCalls);
        for change in later {
            change(&mut t.node);
            t.relist();
        }
        t.expect_nothing();
        t.release();
        t.expect(announced);
    }
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
fn id_listed_as_running_and_as_exited_has_ended() {
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
fn late_status_from_a_runtime_probe_revives_no_removed_container() {
    let mut t = Script::with(&["web"]);
    t.slow_probe("web");
    t.node.remove("web");
    t.relist();
    t.expect(&["Died web", "Removed web"]);
    t.release();
    t.expect_nothing();
}

#[test]
fn exited_status_from_a_runtime_probe_is_announced() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.slow_probe("web");
    t.answer(StatusCalls);
    t.expect(&["Died web 3"]);
}

/// Only a pod read changes a cached state from created to running, not the single status that a runtime probe reads.
#[test]
fn running_status_from_runtime_probe_leaves_the_cached_state_created() {
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

/// The status call 2 s after the exit returns NotFound: the generator at once lists the pod and reads the status again.
#[test]
fn not_found_after_an_exit_causes_pod_read_at_once() {
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
fn details_come_from_the_status_that_was_requested_later() {
    let image = |name: &'static str| with(running("web"), |d| d.image = name.into());
    let mut t = Script::with(&["web"]);
    t.hold(StatusCalls);
    t.node.set(image("old"));
    t.await_call("status web");
    t.evaluate(StatusCalls);
    t.node.set(image("new"));
    let worker = t.read_details();
    t.answer_newest(StatusCalls);
    let of = |status: &PodStatus| status.containers[0].details.image.clone();
    assert_eq!(&*of(&t.view(worker).status), "new");
    t.release();
    assert_eq!(&*of(&t.status("p")), "new");
}

#[test]
fn rows_of_other_pods_in_unfiltered_pod_list_are_ignored() {
    let mut t = Script::with(&["web"]);
    t.node.ignores_filters = true;
    t.node.add_pod("q");
    let worker = t.read();
    assert_eq!(t.view(worker).status.containers.len(), 1);
    t.expect_nothing();
}

/// The pod "p" with the containers "web" and, without a label, "free".
fn with_unlabelled() -> Script {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.relist();
    t.forget();
    t
}

#[test]
fn pod_with_an_unlabelled_id_is_read_by_relists_only() {
    let mut t = with_unlabelled();
    let worker = t.read();
    assert_eq!(t.answered(worker, "free"), "Running");
    t.node.set(unlabelled(exited("free", 3)));
    t.send(Event::nil(Stopped, "free"));
    t.pass(1_100);
    t.expect(&["Died free 3"]);
    t.node.relists_fail = Some(Failed);
    let worker = t.read();
    assert!(t.error(worker).is_some());
    t.node.relists_fail = None;
    t.removes("free");
    t.pass(1_100);
    t.expect(&["Removed free 3"]);
    assert_eq!(t.calls_of("list p"), 0);
}

#[test]
fn details_of_a_pod_with_unlabelled_ids_need_one_relist() {
    let mut t = with_unlabelled();
    t.hold(Relists);
    let worker = t.read_details();
    t.send(Event::nil(Started, "web"));
    t.release();
    assert!(t.is_answered(worker));
    t.expect_calls(&["relist", "status free s web"]);
}

#[test]
fn started_event_of_an_unlabelled_id_causes_a_relist() {
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
        t.pass(20_000);
        assert_eq!(t.missed(), (0, 0));
    }
}

#[test]
fn exit_event_during_read_that_adds_unlabelled_id_is_announced() {
    let mut t = Script::with(&[]);
    t.node.set(unlabelled(running("free")));
    t.hold(StatusCalls);
    t.relist();
    t.evaluate(StatusCalls);
    t.send(Event::of(Stopped, unlabelled(exited("free", 3))));
    t.release();
    t.expect(&["Started free", "Died free 3"]);
}

/// A list of the pod overlaps the relist that shows an id without pod-uid label, and the next relist lacks the pod.
#[test]
fn pod_that_vanishes_after_an_overlapped_relist_leaves_the_cache() {
    let mut t = Script::with(&["web"]);
    t.node.set(unlabelled(running("free")));
    t.hold(PodLists);
    t.read();
    t.relist();
    ["free", "web", "s"].iter().for_each(|id| t.node.remove(id));
    t.release();
    t.pass(2_500);
    assert!(t.cache.is_empty());
}

#[test]
fn rows_awaiting_read_slot_are_dropped_once_relist_equals_cache() {
    let mut t = Script::with_settings(|settings| settings.inspections = 1);
    ["s", "q/s"].iter().for_each(|id| t.node.start(id));
    t.settle();
    t.subscribe();
    t.forget();
    t.hold(StatusCalls);
    t.read_details();
    t.pass(300);
    t.hold(PodLists);
    t.read_since("q", t.now());
    t.node.start("web");
    t.relist();
    t.node.remove("web");
    t.slow_relist();
    t.answer(StatusCalls);
    t.answer(Relists);
    t.release();
    t.expect_nothing();
}

/// No list of the pod shows the id, and the rows of the overlapping relist are not applied.
#[test]
fn unlabelled_id_in_an_overlapping_relist_causes_another_relist() {
    for (has_event, label) in [(true, None), (false, None), (false, Some("q".into()))] {
        let mut t = Script::with(&["web"]);
        let mut free = running("free");
        (free.identity.unlabelled, free.identity.pod) = (label.is_none(), label);
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

/// The label of the container names the pod "q", and only a relist shows its sandbox, which belongs to the pod "p".
#[test]
fn container_whose_label_and_sandbox_disagree_is_published_once() {
    // Each case names the pods that are read before or during the relist, and how these reads are answered.
    for case in ["q, newest first", "slow q", "", "q, p", "q, p during"] {
        let has = |what: &str| case.contains(what);
        let mut t = Script::with(&[]);
        t.node.add_pod("q");
        t.relist();
        let mut free = running("free");
        (free.identity.pod, free.identity.sandbox) = (Some("q".into()), Some("s2".into()));
        t.node.set(free);
        if has("slow") {
            t.hold(StatusCalls);
        }
        if has("q") {
            t.read_since("q", t.now());
        }
        t.node.start("s2");
        if has("during") {
            t.slow_relist();
        }
        if has("p") {
            t.read();
            t.release();
        }
        t.hold(StatusCalls);
        t.relist();
        assert_eq!(t.status("q").containers.len(), 1);
        t.read_since("q", t.now());
        if has("newest") {
            t.answer_newest(StatusCalls);
        }
        t.release();
        let in_pods = ["q", "p"].map(|uid| t.status(uid).containers.len());
        assert_eq!((t.announced().len(), in_pods), (4, [1, 1]));
        t.forget();
        t.read();
        t.expect_calls(&["relist"]);
    }
}

/// A later relist does not show the id, while the statuses of its pod are still being read.
#[test]
fn unlabelled_id_missing_from_a_later_relist_is_gone() {
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
    t.expect(&["Started free", "Died web 3", "Died free", "Removed free"]);
}
