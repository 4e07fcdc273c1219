//! B2 to B15: the evented PLEG up to 1.36.2, found by reading it (B1, B9, B10 and B13 are in `pleg`, B10 also in
//! `pleg-evented`; B14 cannot apply).

use pleg_core::CallErrorKind;
use pleg_core::EventType::{Created, Deleted, Other, Started, Stopped};

use super::life::second;
use crate::node::{created, exited, running};
use crate::script::{Event, PodLists, Relists, Script};

/// Upstream: a late or replayed event of a deleted pod creates an entry that no list ever deletes.
#[test]
fn b2_late_event_does_not_restore_a_removed_pod() {
    for by_events in [true, false] {
        // Just now, four minutes late, and replayed by a stream that began since.
        for (late, again) in [(0, false), (240_000, false), (240_000, true)] {
            let mut t = Script::with(&["web"]);
            for id in ["web", "s"] {
                if by_events {
                    t.exits(id, 3);
                }
                t.node.remove(id);
                if by_events {
                    t.event(Deleted, id);
                }
            }
            t.relist();
            t.pass(late);
            if again {
                t.lose_stream();
                t.subscribe();
                t.pass(2_000);
            }
            t.forget();
            let late_event = |what, status| Event::of(what, status).with(exited("s", None));
            for age in [1, 240_000] {
                t.send(late_event(Stopped, exited("web", 3)).aged(age));
                t.send(late_event(Stopped, exited("s", None)).aged(age));
                t.send(Event::of(Started, running("web")).aged(age));
                t.send(Event::nil(Deleted, "web").unnamed().aged(age));
            }
            t.pass(20_000);
            assert!(t.status("p").is_nothing(), "{late} ms late");
            assert_eq!(t.count("list p"), 0, "the cache knows that it is gone");
            // If no event has reported the exit, its code may still become known.
            let is_new = !by_events && late == 0;
            t.expect(if is_new { &["Changed web 3"] } else { &[] });
        }
    }
}

/// Upstream: a ticker advances freshness without a read, and a list that ends later sets it back.
#[test]
fn b3_freshness_is_a_read_and_never_goes_back() {
    let mut t = Script::with(&["web"]);
    t.hold(Relists);
    t.relist();
    t.pass(50);
    let start = t.now();
    t.read();
    let fresh = t.as_of("p");
    assert!(fresh > Some(start) && fresh < Some(t.now()));
    // The relist was requested before, and ends after the read.
    t.answer(Relists);
    assert_eq!(t.as_of("p"), fresh);
    // Time passes, events arrive, and lists fail.
    t.node.relists_fail = Some(CallErrorKind::Failed);
    t.node.pod_lists_fail = Some(CallErrorKind::Failed);
    t.release();
    for _ in 0..20 {
        t.event(Started, "web");
        t.send(Event::of(Other(7), running("web")));
        t.pass(60_000);
    }
    assert_eq!(t.as_of("p"), fresh);
    (t.node.relists_fail, t.node.pod_lists_fail) = (None, None);
    t.pass(60_000);
    assert!(t.as_of("p") > fresh);
}

/// Upstream: an event is stamped after its statuses were collected: older data with the newer stamp wins.
#[test]
fn b4_an_older_snapshot_with_a_newer_stamp_changes_nothing() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.relist();
    let read = t.status("p");
    t.hold(PodLists);
    for age in [0, -500, -1_000] {
        t.send(Event::of(Started, running("web")).aged(age));
        t.send(Event::of(Other(7), created("web")).aged(age));
    }
    t.pass(1_000);
    assert_eq!(t.status("p"), read);
    t.release();
    assert_eq!(t.status("p"), read);
    t.expect(&["Died web 3"]);
}

/// Upstream: a container's DELETED sends Died and Removed and leaves the container in the cache.
#[test]
fn b5_a_removed_container_is_out_of_the_cache() {
    let mut t = Script::with(&["db", "web"]);
    t.node.remove("web");
    t.event(Deleted, "web");
    t.pass(250);
    // The script checks that the cache does not show it when Removed is announced.
    t.expect(&["Died web", "Removed web"]);
    assert_eq!(t.containers(), ["db"]);
}

/// Upstream: DELETED of a pod's old sandbox deletes the pod, although its new sandbox runs.
#[test]
fn b6_removal_of_an_old_sandbox_leaves_the_pod() {
    for has_status in [true, false] {
        let mut t = Script::with(&["web"]);
        for status in second() {
            t.node.set(status);
        }
        t.event(Started, "s1");
        for id in ["web", "s"] {
            t.exits(id, 0);
        }
        t.node.remove("web");
        t.send(Event::nil(Deleted, "web"));
        t.node.remove("s");
        t.send(match has_status {
            true => Event::of(Deleted, exited("s", None)),
            false => Event::nil(Deleted, "s").unnamed(),
        });
        t.pass(500);
        let status = t.status("p");
        let counts = (status.sandboxes.len(), status.active_containers().count());
        assert_eq!((t.cached("s1"), counts), ("Ready".to_owned(), (1, 1)));
        let mut announced = t.announced();
        announced.retain(|event| event.ends_with("s1") || event.ends_with("web1"));
        assert_eq!(announced, ["Started s1", "Started web1"]);
    }
}

/// Upstream: a status made from an event has one sandbox, no active containers and no order.
#[test]
fn b7_a_status_is_the_whole_pod_newest_first() {
    let mut t = Script::with(&["web"]);
    for id in ["web", "s"] {
        t.exits(id, 0);
    }
    for status in second() {
        t.node.set(status);
    }
    t.event(Started, "s1");
    t.event(Started, "web1");
    t.pass(300);
    for _ in 0..2 {
        let status = t.status("p");
        let sandboxes: Vec<_> = status.sandboxes.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(sandboxes, ["s1", "s"]);
        let all = status.containers.iter().map(|c| (c.id.as_str(), c.active));
        assert_eq!(all.collect::<Vec<_>>(), [("web1", true), ("web", false)]);
        let latest = status.container("web").map(|c| c.id.as_str());
        assert_eq!(latest, Some("web1"), "of one name the newest comes first");
        // The last event is about the old sandbox.
        t.event(Stopped, "s");
        t.read_details();
    }
}

/// Upstream: the list drops a pending reinspection, and announces an old change again 300 s later.
#[test]
fn b8_two_sources_announce_once() {
    // A relist that was evaluated before the exit ends after the event.
    let mut t = Script::with(&["web"]);
    t.hold(Relists);
    t.relist();
    t.evaluate(Relists);
    t.pass(5);
    t.exits("web", 3);
    t.expect(&["Died web 3"]);
    t.release();
    t.pass(300_000);
    t.expect_nothing();
    assert_eq!(t.missed(), (0, 0));

    // A reinspection that was evaluated before the exit.
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    let request = t.request_reinspect("p");
    t.evaluate(PodLists);
    t.exits("web", 3);
    t.release();
    assert!(t.is_answered(request));
    t.pass(300_000);
    t.expect(&["Died web 3"]);
    assert_eq!(t.cached("web"), "Exited 3");
}

/// Upstream: it lists and then subscribes; a change in between is not seen for up to 300 s.
#[test]
fn b11_change_in_the_gap_is_found_at_once() {
    for at_start in [true, false] {
        let mut t = Script::new();
        t.node.start("s");
        t.node.start("web");
        t.settle();
        if !at_start {
            t.subscribe();
            t.pass(20_000);
            t.lose_stream();
            t.pass(700);
        }
        t.forget();
        // A relist has ended, the stream is down, and no event will report this.
        t.node.exit("web", 3);
        t.pass(100);
        t.expect_nothing();
        t.subscribe();
        t.expect(&["Died web 3"]);
        t.pass(20_000);
        assert_eq!(t.missed(), (0, 0), "the stream could not report it");
    }
}

/// Upstream: running_pods is always 0; running_containers adds events to what the list has set.
#[test]
fn b12_pods_and_containers_are_counted_once() {
    let mut t = Script::new();
    t.settle();
    t.subscribe();
    let count = |t: &Script| {
        let counts = t.core.state_counts();
        (counts.running_pods, counts.running, counts.exited)
    };
    for pod in ["p0", "p1", "p2", "p3", "p4"] {
        t.node.add_pod(pod);
        t.event(Created, &format!("{pod}/web"));
        t.event(Started, &format!("{pod}/web"));
    }
    t.pass(250);
    assert_eq!(count(&t), (5, 5, 0));
    t.relist();
    assert_eq!(count(&t), (5, 5, 0), "the relist counts nothing twice");
    for id in ["p0/web", "p0/s", "p1/web", "p1/s"] {
        t.exits(id, 0);
        t.event(Stopped, id);
    }
    assert_eq!(count(&t), (3, 3, 2));
    t.relist();
    assert_eq!(count(&t), (3, 3, 2));
}

/// Upstream (1.37): 200 crashes cause 200 lists; event types other than STOPPED wait for the next list.
#[test]
fn b15_burst_of_crashes_causes_few_reads() {
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    for has_status in [true, false] {
        let mut t = Script::with(&[]);
        for id in &ids {
            t.starts(id);
        }
        t.pass(300);
        assert_eq!(t.announced().len(), 200);
        assert_eq!(t.count("list p"), 1, "one read serves every STARTED");
        t.hold(PodLists);
        for id in &ids {
            t.node.exit(id, 1);
            match has_status {
                true => t.event(Stopped, id),
                false => t.send(Event::nil(Stopped, id)),
            }
            if !has_status && *id == ids[0] {
                t.evaluate(PodLists);
            }
        }
        t.release();
        assert_eq!(t.count("list p"), if has_status { 0 } else { 2 });
        let died: Vec<String> = ids.iter().map(|id| format!("Died {id} 1")).collect();
        let mut announced = t.announced();
        announced.sort_by_key(|event| died.iter().position(|d| d == event));
        assert_eq!(announced, died);
        // Requests made at the same time share a read.
        t.hold(PodLists);
        let requests: Vec<_> = (0..200).map(|_| t.request_read("p")).collect();
        t.release();
        assert!(t.count("list p") <= 2);
        assert!(requests.iter().all(|&request| t.is_answered(request)));
    }
}
