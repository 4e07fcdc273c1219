//! A1 to A11 and A16: the evented PLEG, as reported upstream. Which status a worker gets, and what events may change.
//! A12, A14, A15 and A17 are in out_of_order.rs, A7, A9 and A13 in `pleg` and `pleg-evented`.

use std::time::Duration;

use pleg_core::EventType::{Created, Deleted, Other, Started, Stopped};
use pleg_core::{Arrival, CallErrorKind, Report, RuntimeEvent, WallTime};

use super::life::limited;
use crate::node::{WALL, created, exited, running};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

/// Upstream: two syncs in a row got the same old status, and both created the container.
#[test]
fn a1_worker_gets_a_status_newer_than_its_last_sync() {
    creates_a_container_once(Script::with(&[]));
}

/// A worker that creates a container without any event gets no status from before.
pub(crate) fn creates_a_container_once(mut t: Script) {
    // Reads that show the node before the sync has ended.
    t.hold(Relists);
    t.hold(PodLists);
    t.relist();
    let early = t.read();
    t.evaluate(Relists);
    t.evaluate(PodLists);
    t.pass(5);
    // The first sync has created "web" now. No event reports it.
    t.node.create("web");
    let sync_ended = t.now();
    let worker = t.read_since("p", sync_ended);
    t.answer(Relists);
    t.answer(PodLists);
    assert_eq!(t.answered(early, "web"), "none");
    // An event with a status from before, and time.
    t.event(Started, "s");
    t.pass(4_000);
    assert!(!t.is_answered(worker));
    assert_eq!(t.in_flight(PodLists), 1, "one read is requested for it");
    t.release();
    assert!(t.view(worker).as_of > Some(sync_ended));
    assert_eq!(t.answered(worker, "web"), "Created");
}

/// Upstream: a ticker made the snapshot of a CREATED event look fresh, and static pods were started twice.
#[test]
fn a2_no_timer_or_event_answers_a_worker() {
    let mut t = Script::with(&["web"]);
    let known = t.as_of("p");
    t.hold(Relists);
    t.hold(PodLists);
    t.node.create("db");
    t.event(Created, "db");
    // The sync ends here. Its read does not answer, and time goes by without any list.
    let worker = t.read();
    t.pass(4_000);
    assert!(!t.is_answered(worker));
    assert_eq!(t.as_of("p"), known, "nothing has become fresher");
    assert_eq!(t.cached("db"), "none", "only reads show that it exists");
    t.node.start("db");
    t.release();
    assert_eq!(t.answered(worker, "db"), "Running");
}

/// Upstream: a timestamp in nanoseconds was used as seconds, and nothing could replace the status.
#[test]
fn a3_stamp_in_any_unit_yields_to_the_next_read() {
    let zero = -6_795_364_578_871_345_152;
    let units = [1, 1_000, 1_000_000, 1_000_000_000].map(|unit| WALL / unit);
    for stamp in units.into_iter().chain([0, zero, i64::MAX, i64::MIN]) {
        for known in [true, false] {
            let mut t = Script::with(if known { &["web"] } else { &[] });
            let mut event = RuntimeEvent::new("web", Started);
            event.created_at = stamp;
            event.sandbox = Some(running("s"));
            event.containers = vec![running("web")];
            let (arrived, wall) = (t.now(), WallTime::from_nanos(WALL));
            let event = Arrival {
                event,
                arrived,
                wall,
            };
            t.core.handle_event(arrived, event);
            t.settle();
            t.node.exit("web", 3);
            t.relist();
            assert_eq!(t.cached("web"), "Exited 3", "{stamp}");
            assert!(t.as_of("p") > Some(arrived), "{stamp}");
            t.expect(&["Started web", "Died web 3"][usize::from(known)..]);
        }
    }
}

/// Upstream: the timestamp of a sandbox status, in three different units, was compared with that of events.
#[test]
fn a4_no_stamp_decides_between_an_event_and_a_read() {
    for created_at in [None, Some(WALL / 1_000_000_000), Some(WALL)] {
        for age in [200_000, 1_000, 0, -900] {
            let sandbox = |shown: fn(&str) -> Report| {
                let mut sandbox = shown("s");
                sandbox.identity.created_at = created_at.map(WallTime::from_nanos);
                sandbox
            };
            let mut t = Script::with(&["web"]);
            t.node.set(sandbox(running));
            t.node.exit("web", 3);
            t.read();
            let read = t.as_of("p");
            // Its statuses are from before the exit.
            let early = Event::of(Started, running("web")).with(sandbox(running));
            t.send(early.aged(age));
            assert_eq!(t.cached("web"), "Exited 3", "{age}");
            assert_eq!(t.as_of("p"), read);
            // An end is true whenever it arrives.
            t.node.set(sandbox(|id| exited(id, None)));
            t.hold(PodLists);
            t.send(Event::of(Stopped, sandbox(|id| exited(id, None))).aged(age));
            assert_eq!(t.cached("s"), "NotReady", "{age}");
        }
    }
}

/// Upstream: containerd 2.0 sent a timestamp without container statuses, and containers were created twice.
#[test]
fn a5_statuses_that_are_left_out_remove_nothing() {
    let mut t = Script::with(&["db", "web"]);
    for event in [Created, Started, Stopped, Other(9)] {
        t.send(Event::nil(event, "s"));
        assert_eq!(t.containers().len(), 2, "{event:?}");
    }
    t.send(Event::nil(Stopped, "web").unnamed());
    assert_eq!(t.containers().len(), 2);
    t.node.exit("web", 3);
    t.pass(60_000);
    assert_eq!(t.containers().len(), 2);
    t.expect(&["Died web 3"]);
}

/// Upstream: an event stamped before the end of the sync releases no worker; it waits for the list after 300 s.
#[test]
fn a6_a_waiter_causes_a_read_at_once() {
    // After a sync, after the kubelet has stopped the pod, after it has removed it.
    for (state, shown) in [("runs", "Running"), ("ended", "Exited 3"), ("gone", "none")] {
        let mut t = Script::with(&["web"]);
        if state != "runs" {
            t.exits("web", 3);
            t.exits("s", None);
        }
        if state == "gone" {
            for id in ["web", "s"] {
                t.node.remove(id);
                t.event(Deleted, id);
            }
        }
        t.pass(400);
        t.forget();
        let synced = t.now();
        let worker = t.read();
        assert_eq!(t.answered(worker, "web"), shown, "{state}");
        assert!(t.view(worker).as_of > Some(synced));
        assert!(t.now().since(synced) < Duration::from_millis(1));
        t.expect_calls(&["list p"]);
    }
}

/// Upstream: no event reports changed resources; the end of a resize was seen after 300 s.
#[test]
fn a8_a_resize_is_seen_at_once() {
    let mut t = Script::with(&["web"]);
    t.node.set(limited(1 << 30));
    let request = t.request_reinspect("p");
    let status = &t.view(request).status;
    let shown = status.container("web").unwrap().details.resources.as_ref();
    assert_eq!(shown.unwrap().memory_limit, 1 << 30);
    assert_eq!(t.announced_all(), ["PodSync p"]);
    t.expect_calls(&["list p", "status s web"]);
}

/// Upstream: a failed inspection stores an empty status, and the next event dereferences the nil pointer.
#[test]
fn a10_event_after_a_failed_read_finds_a_status() {
    let mut t = Script::with(&["web"]);
    t.node.pod_lists_fail = Some(CallErrorKind::Failed);
    let worker = t.read();
    assert_eq!(t.error(worker), Some(CallErrorKind::Failed));
    let failed = t.status("p");
    assert!(failed.error.is_some());
    assert_eq!((failed.sandboxes.len(), failed.containers.len()), (1, 1));
    t.exits("web", 3);
    t.expect(&["Died web 3"]);
    assert_eq!(t.cached("web"), "Exited 3");
    assert!(t.status("p").error.is_some(), "still that of the last read");
}

/// Upstream: an event without a sandbox status is dropped; the pod is stale until the next list.
#[test]
fn a11_an_event_without_a_sandbox_status_is_not_dropped() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.send(Event::nil(Stopped, "web").unnamed());
    t.expect(&["Died web 3"]);
    t.node.remove("web");
    t.send(Event::nil(Deleted, "web").unnamed());
    t.pass(250);
    t.expect(&["Removed web 3"]);
    t.expect_calls(&["list p", "status web", "list p"]);

    // Events about a hundred unknown ids cause one relist, which shows the one that exists.
    t.node.start("db");
    (0..100).for_each(|n| t.send(Event::nil(Stopped, &format!("x{n}")).unnamed()));
    t.send(Event::nil(Started, "db").unnamed());
    t.pass(1_500);
    assert_eq!(t.cached("db"), "Running");
    assert!((1..=2).contains(&t.count("relist")));
}

/// Upstream: a sandbox's own CREATED releases the worker with a status that has no containers.
#[test]
fn a16_a_sandbox_only_snapshot_hides_no_container() {
    let mut t = Script::with(&["web"]);
    let known = t.as_of("p");
    t.hold(PodLists);
    t.hold(StatusCalls);
    t.hold(Relists);
    let worker = t.read();
    // The second attempt's sandbox, stamped last and without any container.
    for event in [Created, Started] {
        t.send(Event::of(event, running("s1")));
        t.pass(1_000);
        assert!(!t.is_answered(worker));
        assert_eq!(
            (t.as_of("p"), t.containers()),
            (known, vec!["web".to_owned()])
        );
    }
    let mut db = created("db");
    db.identity.sandbox = Some("s1".into());
    t.node.start("s1");
    t.node.set(db);
    t.release();
    assert_eq!(t.answered(worker, "web"), "Running");
    assert_eq!(t.answered(worker, "db"), "Created");
}
