//! B1 to B15: the evented PLEG up to 1.36.2, found by reading it (B1, B9, B10 and B13 are in
//! `pleg`, B10 also in `pleg-evented`; B14 cannot apply).

use std::slice::from_ref;
use std::time::Duration;

use pleg_core::ReportedState::{Exited, Running};
use pleg_core::{EventType, LifecycleType, Report, StreamEnd};

use super::life::{c, in_sandbox, life, running};
use crate::script::{Script, exited, ready, s, sandbox, status};
use EventType::{Deleted, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted, PodSync};

/// Upstream: A deleted pod leaves no trace. A late or replayed event creates an entry that no list
/// ever deletes. (found by reading)
///
/// Here: A removed id stays removed for 10 minutes of drained stream; an event from before the
/// subscribe is implausible. Nothing is started, dies or is removed again; an exit code that was
/// not known may still be announced. (invariant 6)
#[test]
fn b2_late_event_does_not_restore_a_removed_pod() {
    for told in [false, true] {
        // Just now, four minutes late, and replayed by a stream that began since.
        for (later_ms, again) in [(0, false), (240_000, false), (240_000, true)] {
            let mut t = running();
            if told {
                life()[4..].iter().for_each(|step| t.live(step));
            } else {
                t.node.clear();
                t.relist();
            }
            t.settle();
            assert!(t.get("p").status.is_nothing());
            let announced = t.announced.len();
            t.run(later_ms);
            if again {
                t.stream_ends(StreamEnd::Ended(None));
                t.subscribe();
                t.run(2_000);
            }
            for stamp_ms in [0, -240_000] {
                let of_sandbox = || Some(sandbox("s", "p", Exited));
                t.stamped(stamp_ms, Stopped, "c", of_sandbox(), &[c(Exited)]);
                t.stamped(stamp_ms, Stopped, "s", of_sandbox(), &[]);
                t.stamped(stamp_ms, Started, "c", s(), &[c(Running)]);
                t.stamped(stamp_ms, Deleted, "c", None, &[]);
                assert!(
                    t.get("p").status.is_nothing(),
                    "told {told}, {later_ms} ms late"
                );
            }
            t.run(10_000);
            assert!(t.get("p").status.is_nothing());
            // If the exit was not reported, its exit code may still become known.
            let starts = [ContainerStarted, ContainerDied, ContainerRemoved];
            let after = &t.announced[announced..];
            assert!(
                after.iter().all(|(what, ..)| !starts.contains(what)),
                "{after:?}"
            );
            assert!(after.is_empty() || !told, "{after:?}");
        }
    }
}

/// Upstream: The ticker advances freshness without a read, and a list that ends later sets it back
/// to its begin. (found by reading)
///
/// Here: `as_of` is the begin of a read that proved the status. Timers, events and failed lists do
/// not change it, and it never goes back. (invariant 3)
#[test]
fn b3_freshness_is_a_read_and_never_goes_back() {
    let mut t = running();
    t.node = vec![ready(), c(Running)];
    t.relist();
    let list_began = t.now();
    t.pass(50);
    let asked = t.now();
    t.wait("p", asked);
    let rows: Vec<Report> = t.node.clone();
    t.inspect(&rows, &[]);
    let fresh = t.get("p").as_of;
    assert!(fresh > Some(asked) && list_began < asked);
    assert!(
        fresh < Some(asked.after(Duration::from_millis(1))),
        "its begin, not its end"
    );
    // The list that began before ends after it.
    t.list(&rows);
    assert_eq!(t.get("p").as_of, fresh);
    t.node.push(in_sandbox(status("d", "p", Running)));
    t.tell(Started, "d");
    let view = t.get("p");
    assert_eq!((view.as_of, view.status.containers.len()), (fresh, 2));
    // Time passes, events arrive, and a list fails.
    for _ in 0..20 {
        t.pass(60_000);
        t.tell(Started, "c");
        while t.lists_wanted() > 0 {
            t.list_fails(pleg_core::CallErrorKind::Failed);
        }
    }
    assert_eq!(t.get("p").as_of, fresh);
    let mut last = fresh;
    for _ in 0..20 {
        t.run(7_000);
        let now = t.get("p").as_of;
        assert!(now >= last);
        last = now;
    }
    assert!(last > fresh);
}

/// Upstream: An event is stamped after its statuses were collected: older data with the newer
/// timestamp wins. (found by reading)
///
/// Here: The later state stands, whichever observation arrived last. (invariant 2)
#[test]
fn b4_an_older_snapshot_with_a_newer_stamp_changes_nothing() {
    let mut t = running();
    t.node = vec![ready(), c(Exited)];
    t.relist();
    t.settle();
    let read = t.get("p").status;
    assert_eq!(
        read.container("c").and_then(|c| c.details.exit_code),
        Some(3)
    );
    for ms in [0, 500, 1_000] {
        t.stamped(ms, Started, "c", s(), &[c(Running)]);
        t.stamped(
            ms,
            EventType::Other(7),
            "s",
            s(),
            &[c(pleg_core::ReportedState::Created)],
        );
    }
    assert_eq!(t.get("p").status.containers, read.containers);
    assert_eq!(t.get("p").status.sandboxes, read.sandboxes);
    assert_eq!(t.said(ContainerStarted, "c"), 1);
}

/// Upstream: A container's DELETED sends Died and Removed and leaves the container in the cache.
/// (found by reading)
///
/// Here: The cache is written first and no longer shows the container. (invariant 9)
#[test]
fn b5_a_removed_container_is_out_of_the_cache() {
    let mut t = running();
    let d = in_sandbox(status("d", "p", Running));
    t.event(Started, "d", s(), from_ref(&d));
    t.event(Deleted, "c", s(), &[d]);
    let last: Vec<_> = t
        .announced
        .iter()
        .rev()
        .take(2)
        .map(|(what, ..)| *what)
        .collect();
    assert_eq!(last, [ContainerRemoved, ContainerDied]);
    let left: Vec<_> = t
        .get("p")
        .status
        .containers
        .iter()
        .map(|c| c.id.clone())
        .collect();
    assert_eq!(left, ["d".into()]);
}

/// A second sandbox of the pod, with a container of its own.
fn second() -> [Report; 2] {
    let mut ready = sandbox("s2", "p", Running);
    ready.identity.attempt = 1;
    let mut container = status("c2", "p", Running);
    container.identity.sandbox = Some("s2".into());
    container.identity.name = Some("c".into());
    container.identity.attempt = 1;
    [ready, container]
}

/// Upstream: DELETED of a pod's old sandbox deletes the pod, although its new sandbox runs. (found
/// by reading)
///
/// Here: It removes that sandbox only. (invariant 2)
#[test]
fn b6_removal_of_an_old_sandbox_does_not_remove_the_pod() {
    for carried in [true, false] {
        let mut t = running();
        let [ready, container] = second();
        t.event(Started, "s2", Some(ready.clone()), &[container]);
        t.event(Stopped, "c", s(), &[c(Exited)]);
        t.event(Stopped, "s", Some(sandbox("s", "p", Exited)), &[c(Exited)]);
        t.event(Deleted, "c", Some(sandbox("s", "p", Exited)), &[]);
        t.event(
            Deleted,
            "s",
            carried.then(|| sandbox("s", "p", Exited)),
            &[],
        );
        let status = t.get("p").status;
        let sandboxes: Vec<_> = status.sandboxes.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(sandboxes, ["s2"]);
        assert!(status.active_sandbox().is_some());
        assert_eq!(status.active_containers().count(), 1);
        assert_eq!(t.said(ContainerDied, "s2") + t.said(ContainerDied, "c2"), 0);
    }
}

/// Upstream: A status made from an event has one sandbox, no active containers and no order: init
/// containers may run again. (found by reading; k#138514)
///
/// Here: A status is the whole pod, newest first, with the active part marked, whatever the last
/// event was about.
#[test]
fn b7_a_status_is_the_whole_pod_newest_first() {
    let mut t = running();
    let [ready, container] = second();
    t.event(Stopped, "c", s(), &[c(Exited)]);
    t.event(Stopped, "s", Some(sandbox("s", "p", Exited)), &[c(Exited)]);
    t.event(Started, "s2", Some(ready.clone()), &[]);
    t.event(Started, "c2", Some(ready), &[container]);
    // The last event is about the old sandbox.
    t.event(Stopped, "s", Some(sandbox("s", "p", Exited)), &[]);
    let check = |t: &Script| {
        let status = t.get("p").status;
        let sandboxes: Vec<_> = status.sandboxes.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(sandboxes, ["s2", "s"]);
        let all: Vec<_> = status
            .containers
            .iter()
            .map(|c| (c.id.as_str(), c.active))
            .collect();
        assert_eq!(all, [("c2", true), ("c", false)]);
        let latest = status.container("c").map(|c| c.id.as_str());
        assert_eq!(latest, Some("c2"), "of one name the newest comes first");
    };
    check(&t);
    t.node = vec![sandbox("s", "p", Exited), c(Exited)];
    t.node.extend(second());
    t.wait("p", t.now());
    t.settle();
    check(&t);
}

/// Upstream: If an event was first, the list drops its own change and a pending reinspection, and
/// announces the old change again 300 s later. (found by reading)
///
/// Here: Both sources feed one state: each transition is announced once, each request is answered.
/// (invariants 1, 9)
#[test]
fn b8_two_sources_announce_once() {
    let mut t = running();
    t.node = vec![ready(), c(Exited)];
    // The list is in flight while the event comes, and comes after it.
    t.relist();
    t.pass(5);
    t.tell(Stopped, "c");
    let told = t.announced.clone();
    t.settle();
    t.run(300_000);
    assert_eq!(t.announced, told, "no list announces it again");
    assert_eq!(t.missed(), 0);

    // A reinspection, and an event that is newer than what it reads.
    let mut t = running();
    let request = t.request_reinspect("p");
    t.node = vec![ready(), c(Exited)];
    t.tell(Stopped, "c");
    t.inspect(&[ready(), c(Running)], &[]);
    assert!(t.answer_of(request).is_some());
    assert_eq!(t.said(PodSync, "p"), 1);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    t.run(300_000);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    assert_eq!(t.said(ContainerStarted, "c"), 1);
}

/// Upstream: It lists and then subscribes, at the start and at a reconnect: a change in between is
/// not seen for up to 300 s. (found by reading)
///
/// Here: It subscribes, then lists: the change is found at once, with its exit code, and is no
/// miss. (invariant 10)
#[test]
fn b11_what_happens_in_the_gap_is_found_at_once() {
    // At the start, and at a reconnect.
    for at_start in [true, false] {
        let mut t = if at_start { Script::new() } else { running() };
        let before = if at_start {
            vec![]
        } else {
            vec![ready(), c(Running)]
        };
        t.node = before;
        t.settle();
        if !at_start {
            t.stream_ends(StreamEnd::Ended(None));
            t.run(700);
        }
        // Lists have run, the stream is down, and no event will report this.
        t.node = vec![ready(), c(Exited)];
        t.pass(100);
        let subscribed = t.now();
        t.subscribe();
        t.settle();
        assert_eq!(t.said(ContainerDied, "c"), 1, "at the start: {at_start}");
        assert!(t.now().since(subscribed) <= Duration::from_millis(2));
        let died = t.events.iter().rev().find(|e| e.event == ContainerDied);
        let code = died.and_then(|e| e.subject.as_ref()?.exit_code);
        assert_eq!(code, Some(3));
        t.run(10_000);
        assert_eq!(t.missed(), 0, "the stream did not have it");
        // The list does not remove an id that an event reported after the list began (invariant 5).
        t.relist();
        t.pass(5);
        t.event(Started, "d", s(), &[in_sandbox(status("d", "p", Running))]);
        let before: Vec<Report> = t.node.clone();
        t.list(&before);
        assert_eq!(t.get("p").status.containers.len(), 2);
    }
}

/// Upstream: running_pods compares container ids with the sandbox's id and never finds one;
/// running_containers adds events to what the list has set. (found by reading)
///
/// Here: Both are counted from the same records. (invariant 1)
#[test]
fn b12_pods_and_containers_are_counted_once() {
    let mut t = Script::confirmed();
    let count = |t: &Script| {
        let state_counts = t.machine.state_counts();
        (
            state_counts.running_pods,
            state_counts.running,
            state_counts.exited,
        )
    };
    for n in 0..5 {
        let (pod, sb, id) = (format!("p{n}"), format!("s{n}"), format!("c{n}"));
        let ready = || sandbox(&sb, &pod, Running);
        let mut container = status(&id, &pod, Running);
        container.identity.sandbox = Some(sb.as_str().into());
        t.event(Started, &sb, Some(ready()), &[]);
        t.event(Started, &id, Some(ready()), from_ref(&container));
        t.node.extend([ready(), container]);
    }
    assert_eq!(count(&t), (5, 5, 0));
    t.relist();
    t.settle();
    assert_eq!(count(&t), (5, 5, 0), "the list counts nothing twice");
    for n in 0..2 {
        let (pod, sb, id) = (format!("p{n}"), format!("s{n}"), format!("c{n}"));
        let over = exited(&id, &pod, 0, "Completed");
        t.event(
            Stopped,
            &id,
            Some(sandbox(&sb, &pod, Running)),
            from_ref(&over),
        );
        t.event(Stopped, &sb, Some(sandbox(&sb, &pod, Exited)), &[]);
        t.node[2 * n].shown = Exited;
        t.node[2 * n + 1] = over;
    }
    assert_eq!(count(&t), (3, 3, 2));
    t.relist();
    t.settle();
    assert_eq!(count(&t), (3, 3, 2));
}

/// Upstream: Each STOPPED causes a list of its pod, one after the other, none shared; 200 crashes
/// cause 200 lists, or are dropped without a metric. Other event types wait for the next list.
/// (found by reading (1.37, k#139262))
///
/// Here: A complete event needs no read: 200 crashes cause none. Events without statuses cause two:
/// one in flight and one that the others share. Every event type counts. (invariants 4, 8, 11)
#[test]
fn b15_burst_of_crashes_causes_few_reads() {
    let crash = |t: &mut Script, complete: bool| {
        let before = t.machine.counters().inspections;
        for n in 0..200 {
            let id = format!("c{n}");
            let own = in_sandbox(exited(&id, "p", 1, "Error"));
            let own = if complete { vec![own] } else { vec![] };
            t.event(Stopped, &id, s(), &own);
        }
        t.node
            .iter_mut()
            .skip(1)
            .for_each(|r| *r = in_sandbox(exited(r.id.as_str(), "p", 1, "Error")));
        t.settle();
        t.machine.counters().inspections - before
    };
    for complete in [true, false] {
        let mut t = Script::confirmed();
        t.event(Started, "s", s(), &[]);
        t.node = vec![ready()];
        for n in 0..200 {
            let id = format!("c{n}");
            let own = in_sandbox(status(&id, "p", Running));
            t.event(Started, &id, s(), from_ref(&own));
            t.node.push(own);
        }
        assert_eq!(
            t.machine.counters().inspections,
            0,
            "STARTED needs no read either"
        );
        let reads = crash(&mut t, complete);
        // One in flight and one that waits for it.
        assert_eq!(reads, if complete { 0 } else { 2 });
        let died = t
            .announced
            .iter()
            .filter(|(what, ..)| *what == ContainerDied);
        assert_eq!(died.clone().count(), 200);
        assert!(died.clone().all(|(.., code)| *code == Some(1)));
        // Requests made at the same time share a read, too.
        let (before, asked) = (t.machine.counters().inspections, t.now());
        let requests: Vec<_> = (0..200).map(|_| t.request_relist("p")).collect();
        t.settle();
        assert!(t.machine.counters().inspections - before <= 2);
        assert!(requests.iter().all(|r| t.view_for(*r).as_of > Some(asked)));
    }
}
