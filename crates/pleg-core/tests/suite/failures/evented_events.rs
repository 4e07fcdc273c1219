//! A5 to A17: the evented PLEG, as reported upstream. Events that are incomplete, lost, repeated or
//! out of order. The entries about freshness are in evented_freshness.rs.

use std::slice::from_ref;
use std::time::Duration;

use pleg_core::ReportedState::{Created as IsCreated, Exited, Running};
use pleg_core::{ContainerState, EventType, LifecycleType, StreamEnd, StreamState};

use super::life::{c, in_sandbox, life, running};
use crate::script::{Script, ready, s, status};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};

/// Upstream: containerd 2.0 set the timestamp of a sandbox status and left its container statuses
/// empty: the pod was recorded without containers, and its containers were created twice.
/// (k#129818, k#129857, containerd#10728, #10740, #11323, #11408)
///
/// Here: A missing field never means that nothing exists. Containers come from ListContainers and
/// their own statuses. (invariant 7)
#[test]
fn a5_statuses_that_are_left_out_remove_nothing() {
    let mut t = running();
    let d = in_sandbox(status("d", "p", Running));
    t.event(Started, "d", s(), from_ref(&d));
    for event in [Created, Started, Stopped, EventType::Other(9)] {
        t.event(event, "s", s(), &[]);
        assert_eq!(t.get("p").status.containers.len(), 2, "{event:?}");
    }
    t.event(Stopped, "c", None, &[]);
    assert_eq!(t.get("p").status.containers.len(), 2);
    t.node = vec![ready(), c(Exited), d];
    t.run(60_000);
    assert_eq!(t.get("p").status.containers.len(), 2);
    assert_eq!(
        t.said(ContainerRemoved, "c") + t.said(ContainerRemoved, "d"),
        0
    );
}

/// Upstream: A failed inspection stores an empty status. The metrics of the next event dereference
/// the nil pointer. (k#128654, k#128486, k#122475)
///
/// Here: A status always exists. The error is beside the last good status, and events still advance
/// it. (invariant 11)
#[test]
fn a10_an_event_after_a_failed_inspection_finds_a_status() {
    let mut t = running();
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    let failed = t.get("p").status;
    assert!(failed.error.is_some());
    assert_eq!((failed.sandboxes.len(), failed.containers.len()), (1, 1));
    t.node = vec![ready(), c(Exited)];
    t.tell(Stopped, "c");
    let status = t.get("p").status;
    assert_eq!(t.shows("p"), Some(ContainerState::Exited));
    assert!(status.error.is_some(), "it is still the last read's");
    assert_eq!(
        t.events.last().and_then(|e| e.subject.as_ref()?.exit_code),
        Some(3)
    );

    // At the start, when there is no last good status.
    let mut t = Script::new();
    t.list(&[ready()]);
    t.inspection_fails(&[]);
    t.subscribe();
    t.event(Started, "c", s(), &[c(Running)]);
    assert!(t.get("p").status.error.is_some());
    assert_eq!(t.get("p").status.sandboxes.len(), 1);
}

/// Upstream: An event without a sandbox status is dropped; the pod is stale until the next list.
/// (k#114371, k#114351, containerd#7785, #8007, #8047, #8050)
///
/// Here: The pod is found by the id and inspected. An unknown id causes a list, at most one a
/// second; a DELETED of an unknown id becomes a tombstone. (invariants 6, 7)
#[test]
fn a11_an_event_without_a_sandbox_status_is_not_dropped() {
    let mut t = running();
    t.node = vec![ready(), c(Exited)];
    t.event(Stopped, "c", None, &[]);
    assert!(t.wants_only("p"));
    t.settle();
    assert_eq!(t.said(ContainerDied, "c"), 1);
    assert_eq!(
        t.events.last().and_then(|e| e.subject.as_ref()?.exit_code),
        Some(3)
    );
    t.event(Deleted, "c", None, &[]);
    assert_eq!((t.shows("p"), t.said(ContainerRemoved, "c")), (None, 1));
    t.event(Deleted, "s", None, &[]);
    assert!(t.get("p").status.is_nothing());

    // Unknown ids: a hundred of them cause one list.
    let mut t = Script::confirmed();
    t.run(30_000);
    let lists = t.machine.counters().lists;
    t.node = vec![ready(), c(Exited)];
    for n in 0..100 {
        t.event(Stopped, &format!("x{n}"), None, &[]);
        t.settle();
    }
    t.event(Stopped, "c", None, &[]);
    t.run(1_000);
    assert!((1..=2).contains(&(t.machine.counters().lists - lists)));
    assert_eq!(t.shows("p"), Some(ContainerState::Exited));
    assert_eq!(t.said(ContainerDied, "c"), 1);
    // A DELETED of an unknown id becomes a tombstone and causes no read.
    let before = t.machine.counters();
    t.event(Deleted, "y", None, &[]);
    t.pass(1_000);
    let after = t.machine.counters();
    assert_eq!(
        (after.lists, after.inspections),
        (before.lists, before.inspections)
    );
    assert_eq!(after.tombstones, before.tombstones + 1);
}

/// Upstream: Runtimes lose and delay events. Missed events are not counted; the metric that the KEP
/// requires was never implemented. (containerd#7318, #8892, #9652, #9661, cri-o#7210)
///
/// Here: Lists never stop. If any one event of a container is lost, the cache and the announcements
/// are the same one list later. A lost STARTED or STOPPED is one miss; CREATED, removals and what
/// another event reported are no misses. (invariant 10)
#[test]
fn a12_one_lost_event_changes_nothing_after_one_list() {
    // Two events report that a sandbox is ready; CREATED and removals are not counted.
    const MISSED: [u64; 8] = [0, 0, 0, 1, 1, 0, 1, 0];
    let run = |lost: Option<usize>| {
        let mut t = Script::confirmed();
        let mut stages = Vec::new();
        for (n, step) in life().iter().enumerate() {
            t.node.clone_from(&step.node);
            if lost != Some(n) {
                t.tell(step.event, step.id);
            }
            // A sandbox's CREATED and STARTED come together.
            if n > 0 {
                t.relist();
                t.settle();
                stages.push(t.get("p").status);
                t.run(20_000);
            }
        }
        (stages, t.transitions(), t.missed())
    };
    let (stages, announced, missed) = run(None);
    assert_eq!(missed, 0);
    assert_eq!(announced.len(), 6);
    for (n, expected) in MISSED.into_iter().enumerate() {
        let (with_loss, told, missed) = run(Some(n));
        assert_eq!(with_loss, stages, "without event {n}");
        assert_eq!(told, announced, "without event {n}");
        assert_eq!(missed, expected, "without event {n}");
    }
}

/// Upstream: A wrong or repeated event type is announced as it arrived. (cri-o#6531, #6631)
///
/// Here: A duplicate event is announced once, in any order. A DELETED whose own statuses still show
/// its subject only causes an inspection. (invariants 2, 6)
#[test]
fn a14_duplicate_event_is_announced_once() {
    let run = |times: usize| {
        let mut t = Script::confirmed();
        for step in &life() {
            t.node.clone_from(&step.node);
            for _ in 0..times {
                t.tell(step.event, step.id);
            }
        }
        t.run(60_000);
        (t.announced.clone(), t.get("p").status)
    };
    assert_eq!(run(1), run(2));
    assert_eq!(run(1), run(3));
    // Every one of them once more at the end, in the wrong order.
    let mut t = Script::confirmed();
    life().iter().for_each(|step| t.live(step));
    let told = t.announced.clone();
    for step in life().iter().rev() {
        t.live(step);
    }
    assert_eq!(t.announced, told);

    // CRI-O up to 1.27.0 says DELETED where it means STOPPED.
    let mut t = running();
    t.node = vec![ready(), c(Exited)];
    t.tell(Deleted, "c");
    assert_eq!(
        (t.said(ContainerDied, "c"), t.said(ContainerRemoved, "c")),
        (1, 0)
    );
    assert!(t.wants_only("p"));
}

/// Upstream: STOPPED may arrive before STARTED, and an exit may never be reported; the last write
/// wins. (containerd#7111, #10603, cri-o#8980, #9840)
///
/// Here: All 24 orders of the four events, with a list at any point that shows any state, end in
/// the same state; Died is announced once. An id first learned as removed is never announced.
/// (invariants 2, 6)
#[test]
fn a15_every_order_ends_the_same() {
    let sent = [
        (Created, IsCreated),
        (Started, Running),
        (Stopped, Exited),
        (Deleted, Exited),
    ];
    for order in permutations(4) {
        for (at, shown) in (0..=4).flat_map(|at| {
            let states = [Some(IsCreated), Some(Running), Some(Exited), None];
            states.map(|shown| (at, shown))
        }) {
            let case = format!("{order:?}, a list at {at} that shows {shown:?}");
            let mut t = Script::confirmed();
            t.node = vec![ready()];
            t.tell(Started, "s");
            for n in 0..=4 {
                if n == at {
                    t.node = [ready()].into_iter().chain(shown.map(c)).collect();
                    t.relist();
                    t.settle();
                }
                if let Some((event, of)) = order.get(n).map(|&o| sent[o]) {
                    let own = (event != Deleted).then(|| c(of));
                    t.event(event, "c", s(), own.as_slice());
                }
            }
            // An id first learned as removed is never announced.
            let silent = order[0] == 3 && !(at == 0 && shown.is_some());
            let once = usize::from(!silent);
            let end = t.ends.iter().find(|r| r.id.as_str() == "c");
            let end = end.map(|r| (r.exit_code, r.removed, r.incarnation));
            assert_eq!(end, (!silent).then_some((Some(3), true, 0)), "{case}");
            // A list that shows it after its DELETED is not believed at once, and is shown.
            let removed_before = order.iter().position(|&o| o == 3) < Some(at);
            let state = |shown| match shown {
                IsCreated => ContainerState::Created,
                Running => ContainerState::Running,
                _ => ContainerState::Exited,
            };
            let expected = shown.filter(|_| removed_before).map(state);
            assert_eq!(t.shows("p"), expected, "{case}");
            t.node = vec![ready()];
            t.relist();
            t.run(20_000);
            assert_eq!(t.get("p").status.containers.len(), 0, "{case}");
            assert_eq!(t.machine.counters().overruled, 0, "{case}");
            assert_eq!(
                t.said(ContainerDied, "c"),
                once,
                "{case}: {:?}",
                t.announced
            );
            assert_eq!(t.said(ContainerRemoved, "c"), once, "{case}");
            assert!(t.said(ContainerStarted, "c") <= once, "{case}");
        }
    }
}

/// All orders of the first so many numbers.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for at in 0..count {
            let mut order = shorter.clone();
            order.insert(at, count - 1);
            all.push(order);
        }
    }
    all
}

/// Upstream: The first review asked what happens when the stream closes, and left it open: the list
/// runs first, then the subscribe. (k#111384)
///
/// Here: A list follows every subscribe, also if another list is in flight. The stream is trusted
/// only when that list is complete and the call has stood for 1 s.
#[test]
fn a17_every_subscribe_is_followed_by_a_list() {
    let confirmed = |t: &Script| {
        let stream = t.health().stream;
        matches!(stream, StreamState::Subscribed { confirmed, .. } if confirmed)
    };
    let mut t = Script::new();
    t.settle();
    for _ in 0..3 {
        // One that is in flight does not count: it began before.
        t.relist();
        t.pass(10);
        t.subscribe();
        t.list(&[]);
        assert_eq!(t.lists_wanted(), 1, "at once, with the end of that one");
        t.pass(1_100);
        assert!(!confirmed(&t));
        t.list(&[]);
        assert!(confirmed(&t));
        t.run(100_000);
        assert!(t.health().period > Duration::from_secs(5));
        t.stream_ends(StreamEnd::Ended(None));
        assert_eq!(t.health().period, Duration::from_secs(1));
    }
}
