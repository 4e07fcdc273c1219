//! Every event causes a read, unless the cache already shows the reported change.

use pleg_core::CallErrorKind::{DeadlineExceeded, Failed};
use pleg_core::EventType::{Created, Deleted, Other, Started, Stopped};

use crate::node::{WALL, created, exited, running};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

/// Sends events of every type, replayed and new, without a status and with the status created or running.
#[test]
fn events_without_a_read_add_remove_and_revive_no_id() {
    let mut t = Script::with(&["web", "old", "past"]);
    t.node.exit("old", 1);
    t.node.remove("past");
    t.relist();
    t.forget();
    t.hold(PodLists);
    t.hold(Relists);
    let ids = ["web", "old", "past", "ghost"];
    let before = ids.map(|id| t.cached(id));
    for id in ids {
        for what in [Created, Started, Stopped, Deleted, Other(9)] {
            for age in [1, 60_000] {
                t.send(Event::nil(what, id).aged(age));
                t.send(Event::of(what, created(id)).aged(age));
                t.send(Event::of(what, running(id)).aged(age));
            }
        }
    }
    t.pass(4_000);
    assert_eq!(ids.map(|id| t.cached(id)), before);
    t.expect_nothing();
}

/// Upstream compared event timestamps, but some runtimes use another unit, or stamp events after reading the statuses.
#[test]
fn timestamp_of_an_event_does_not_change_its_effect() {
    let epoch = WALL / 1_000_000;
    for age in [0, -1_000, 240_000, epoch, epoch - 1_700, -7 * epoch / 2] {
        let mut t = Script::with(&["web"]);
        t.node.exit("web", 3);
        t.read();
        let read = t.as_of("p");
        t.send(Event::of(Started, running("web")).aged(age));
        assert_eq!(t.cached("web"), "Exited 3");
        assert_eq!(t.as_of("p"), read);
        t.hold(PodLists);
        t.send(Event::of(Stopped, exited("s", None)).aged(age));
        t.expect(&["Died web 3", "Died s"]);
    }
}

#[test]
fn event_whose_change_is_cached_causes_no_read() {
    let types = [Created, Started, Stopped, Deleted];
    for (id, shown) in [("web", 2), ("uncoded", 2), ("old", 3), ("past", 4)] {
        let mut t = Script::with(&["web", "uncoded", "old", "past"]);
        t.node.exit("uncoded", None);
        t.node.exit("old", 0);
        t.node.remove("past");
        t.relist();
        for (n, what) in types.into_iter().enumerate() {
            t.pass(60_000);
            t.forget();
            t.send(Event::nil(what, id));
            t.pass(300);
            assert_eq!(t.calls_of("list p") == 0, n < shown, "{what:?} of {id}");
        }
    }
}

#[test]
fn id_deleted_during_a_read_does_not_stay_cached() {
    let deleted = Event::nil(Deleted, "web");
    for event in [deleted.clone(), deleted.unnamed()] {
        let mut t = Script::with(&[]);
        t.node.start("web");
        t.slow_read(StatusCalls);
        t.node.remove("web");
        t.send(event);
        t.release();
        assert_eq!(t.cached("web"), "Running");
        t.pass(300);
        t.expect(&["Started web", "Died web", "Removed web"]);
    }
}

/// A relist from before the removal publishes the id. This satisfies the CREATED event, but not the DELETED event.
#[test]
fn deleted_event_causes_a_read_although_earlier_relist_shows_id() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.slow_relist();
    t.event(Created, "web");
    t.removes("web");
    t.release();
    assert_eq!(t.cached("web"), "Created");
    t.pass(300);
    assert_eq!(t.cached("web"), "none");
}

/// CRI-O up to 1.27.0 sends DELETED for a stop.
#[test]
fn deleted_event_with_status_of_its_id_causes_one_read() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 0);
    t.event(Deleted, "web");
    t.expect(&["Died web 0"]);
    t.pass(60_000);
    assert_eq!(t.count("list p"), 1);
    assert_eq!(t.cached("web"), "Exited 0");
}

#[test]
fn stopped_causes_read_at_once_other_events_after_250_ms() {
    for (what, id, pause) in [
        (Stopped, "web", 0),
        (Created, "job", 250),
        (Started, "job", 250),
        (Deleted, "web", 250),
        (Other(9), "web", 250),
    ] {
        let mut t = Script::with(&["web"]);
        t.send(Event::nil(what, id));
        if pause > 0 {
            t.pass(200);
            // The pause counts from the first event.
            t.send(Event::nil(what, id));
            t.pass(49);
            t.expect_calls(&[]);
            t.pass(2);
        }
        assert_eq!(t.calls()[0], "list p");
    }
}

#[test]
fn one_read_satisfies_events_before_and_during_it() {
    for is_during in [true, false] {
        let mut t = Script::with(&[]);
        t.node.start("web");
        if is_during {
            t.hold(PodLists);
            t.read();
        }
        t.event(Created, "web");
        t.event(Started, "web");
        t.pass(100);
        t.release();
        if !is_during {
            t.read();
        }
        t.pass(1_000);
        t.expect_calls(&["list p"]);
        t.expect(&["Started web"]);
    }
}

#[test]
fn stopped_during_a_read_causes_another_read() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.event(Created, "web");
    t.slow_read(PodLists);
    t.node.exit("web", 3);
    t.send(Event::nil(Stopped, "web"));
    t.release();
    t.expect(&["Started web", "Died web 3"]);
}

#[test]
fn stale_read_is_retried_after_growing_pauses() {
    let mut t = Script::with(&["web"]);
    t.send(Event::nil(Stopped, "web"));
    let mut lists = 0;
    let pauses = [50, 100, 300, 1_000, 3_000, 10_000, 60_000];
    for (pause, expected) in pauses.into_iter().zip([1, 2, 3, 4, 5, 6, 6]) {
        t.pass(pause);
        lists += t.count("list p");
        assert_eq!(lists, expected, "after {pause} ms");
    }
    t.node.exit("web", 3);
    t.pass(61_000);
    t.expect(&["Died web 3"]);
}

#[test]
fn frequent_worker_reads_do_not_exhaust_retries_after_stale_read() {
    let mut t = Script::with(&["web"]);
    t.send(Event::nil(Stopped, "web"));
    for _ in 0..10 {
        t.pass(20);
        t.read();
    }
    t.node.exit("web", 3);
    t.pass(250);
    t.expect(&["Died web 3"]);
}

#[test]
fn new_event_restarts_the_retries_without_delaying_the_planned_retry() {
    let mut t = Script::with(&["web"]);
    t.send(Event::nil(Stopped, "web"));
    t.pass(2_000);
    t.forget();
    t.send(Event::nil(Stopped, "web"));
    t.pass(2_000);
    assert_eq!(t.count("list p"), 1, "STOPPED is read at once");
    // The pod is read 4.4 s after the first event, as planned, then after a pause of 0.1 s, then after one of 0.3 s.
    t.pass(1_500);
    assert_eq!(t.count("list p"), 3);
}

#[test]
fn stale_read_after_deleted_event_is_retried_soon() {
    let mut t = Script::with(&["web"]);
    t.exits("web", 3);
    t.node.lag();
    t.removes("web");
    t.pass(300);
    assert_eq!(t.cached("web"), "Exited 3");
    t.node.catch_up();
    t.pass(100);
    t.expect(&["Died web 3", "Removed web 3"]);
}

#[test]
fn unlisted_id_with_failing_status_is_read_with_pauses() {
    let mut t = Script::with(&[]);
    t.node.relists_fail = Some(Failed);
    t.node.fail_status("ghost", DeadlineExceeded);
    t.send(Event::nil(Started, "ghost"));
    t.pass(120_000);
    assert!(matches!(t.count("status ghost"), 4..=6));
}

/// The pod is gone from the runtime, so only its events cause a read of the pod.
#[test]
fn event_during_first_relist_causes_a_pod_read_after_it() {
    let mut t = Script::new();
    t.hold(Relists);
    t.subscribe();
    t.send(Event::nil(Stopped, "web"));
    t.release();
    t.pass(3_000);
    assert_eq!(t.health().behind_since, None);
}

#[test]
fn event_without_pod_causes_a_pod_read_or_a_relist() {
    for (id, call) in [("web", "list p"), ("q/web", "relist"), ("job", "list p")] {
        let mut t = Script::with(&["web"]);
        t.node.add_pod("q");
        t.send(Event::of(Started, running("job")));
        t.send(Event::nil(Stopped, id).unnamed());
        assert_eq!(t.calls()[0], call);
    }
}

/// containerd 1.7 replays up to 1,000 events of removed ids to a new subscriber.
#[test]
fn replayed_events_of_unknown_ids_cause_few_relists() {
    for pause in [0, 5] {
        let mut t = Script::with(&[]);
        for n in 0..500 {
            let stale = Event::nil(Stopped, &format!("old{n}"));
            t.send(stale.unnamed().aged(60_000));
            t.pass(pause);
        }
        t.pass(30_000);
        t.expect_nothing();
        let relists = t.count("relist");
        assert!((2..=8).contains(&relists), "{relists}");
    }
}

#[test]
fn id_listed_outside_the_pod_its_event_names_is_published() {
    let mut t = Script::with(&["web", "q/web"]);
    let mut wrong = running("web2");
    wrong.identity.pod = Some("q".into());
    t.node.set(wrong.clone());
    t.send(Event::of(Started, wrong).unnamed());
    t.relist();
    t.expect(&["Started web2"]);
}

/// Sends STOPPED for one container in each of `pods` pods that the cache lacks. `exist`: the node has these pods.
fn end_one_of_each(t: &mut Script, pods: usize, exist: bool) {
    for n in 0..pods {
        if exist {
            t.node.start(&format!("q{n}/s"));
            t.node.exit(&format!("q{n}/web"), 0);
        }
        t.queue(Event::nil(Stopped, &format!("q{n}/web")));
    }
    t.send(Event::nil(Started, "web"));
}

#[test]
fn one_relist_replaces_more_than_sixteen_due_pod_reads() {
    for (pods, exist, expected) in [
        (16, true, [0, 16, 48]),
        (17, true, [1, 0, 51]),
        (17, false, [1, 0, 0]),
    ] {
        let mut t = Script::with(&["web"]);
        end_one_of_each(&mut t, pods, exist);
        t.pass(2_500);
        let calls = ["relist", "list q"].map(|call| t.calls_of(call));
        assert_eq!([calls[0], calls[1], t.announced().len()], expected);
    }
}

#[test]
fn many_pods_do_not_wait_for_a_relist_that_hangs() {
    let mut t = Script::with(&["web"]);
    t.slow_relist();
    t.pass(1_000);
    end_one_of_each(&mut t, 20, true);
    t.pass(1_000);
    assert_eq!(t.announced().len(), 60);
}

#[test]
fn failing_relists_do_not_stop_the_reads_of_many_pods() {
    let mut t = Script::with(&["web"]);
    t.node.relists_fail = Some(Failed);
    t.pass(61_000);
    t.forget();
    end_one_of_each(&mut t, 20, true);
    t.send(Event::nil(Stopped, "free").unnamed());
    t.pass(1_000);
    assert_eq!(t.announced().len(), 60);
    assert!(t.count("relist") <= 2);
}
