//! A1 to A4, A6, A8 and A16: the evented PLEG, as reported upstream. Which status a worker gets, and
//! what timestamps decide. The other entries are in evented_events.rs.

use std::time::Duration;

use pleg_core::ReportedState::{Created as IsCreated, Exited, Running};
use pleg_core::{ContainerState, Details, EventType, LifecycleType, RuntimeEvent};

use super::life::{c, in_sandbox, life, running};
use crate::script::{Script, ready, s, sandbox, status, with_memory_limit};
use EventType::{Created, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerStarted, PodSync};

/// Upstream: With events enabled, a pod worker recorded no time of its last sync. Two syncs in a
/// row got the same old status, and both created the container. (k#120941, k#120140, k#121003,
/// containerd#9070; k#120942)
///
/// Here: A worker that asks for a status newer than an instant gets one from a read of that pod
/// that began after it. Earlier reads, events and timers answer no waiter. (invariants 3, 4)
#[test]
fn a1_no_sync_sees_a_status_from_before_the_last_one() {
    let mut t = Script::confirmed();
    t.live(&life()[1]);
    // Reads that began before the sync ended, and show no container.
    t.relist();
    let early = t.wait("p", t.now());
    t.pass(5);
    // The first sync has created "c" now. No event reports it.
    let after = t.now();
    let sync = t.wait("p", after);
    let before = [ready()];
    t.list(&before);
    t.inspect(&before, &[]);
    assert!(t.answer_of(early).is_some());
    // An event with statuses from before, and time passes.
    t.event(Started, "s", s(), &[]);
    t.pass(10_000);
    assert_eq!(t.answer_of(sync), None);
    assert!(t.wants_only("p"), "one read is asked for it");
    t.inspect(&[ready(), c(IsCreated)], &[]);
    let view = t.view_for(sync);
    assert!(view.as_of > Some(after));
    assert_eq!(view.status.containers.len(), 1);
}

/// Upstream: A ticker advances the cache's global time every 5 s without a read. A worker continues
/// with the snapshot of a CREATED event and starts a static pod's container again: address in use.
/// (k#121349, k#122721, k#123087; revert k#122697)
///
/// Here: No timer and no event makes a status fresher. A snapshot that shows Created may be in the
/// cache, but it answers no waiter. (invariants 3, 4)
#[test]
fn a2_no_timer_lets_a_sync_act_on_a_created_snapshot() {
    let mut t = running();
    let known = t.get("p").as_of;
    t.node.push(in_sandbox(status("d", "p", IsCreated)));
    t.tell(Created, "d");
    // The sync ends here; its read does not answer, and time goes by without any list.
    let after = t.now();
    let sync = t.wait("p", after);
    t.pass(10_000);
    t.tell(Created, "d");
    let again = t.wait("p", after);
    assert_eq!((t.answer_of(sync), t.answer_of(again)), (None, None));
    let view = t.get("p");
    assert_eq!(view.as_of, known, "nothing has become fresher");
    let d = view.status.container("d").map(|d| d.state);
    assert_eq!(d, Some(ContainerState::Created));
    t.node[2] = in_sandbox(status("d", "p", Running));
    t.settle();
    let view = t.view_for(sync);
    let d = view.status.container("d").map(|d| d.state);
    assert_eq!(d, Some(ContainerState::Running));
    assert!(view.as_of > Some(after));
}

/// Upstream: An event's timestamp in nanoseconds was used as seconds. The cache entry lay far in
/// the future, nothing could replace it, and a resize was never seen. (k#124297, k#125624)
///
/// Here: Timestamps of a runtime order nothing. A timestamp that is not in nanoseconds is ignored
/// and counted. The next read applies in any case. (invariants 2, 3, 7)
#[test]
fn a3_a_stamp_in_any_unit_yields_to_the_next_read() {
    let now = 1_700_000_000_000_000_000_i64;
    let stamps = [
        0,
        -6_795_364_578_871_345_152,
        now / 1_000_000_000,
        now / 1_000_000,
        now / 1_000,
        now,
        i64::MAX,
        i64::MIN,
    ];
    for stamp in stamps {
        for known in [false, true] {
            let mut t = if known {
                running()
            } else {
                Script::confirmed()
            };
            let mut event = RuntimeEvent::new("c", Started);
            event.created_at = stamp;
            event.sandbox = s();
            event.containers = vec![c(Running)];
            t.deliver(event);
            t.node = vec![ready(), c(Exited)];
            let before = t.now();
            t.relist();
            t.settle();
            assert_eq!(t.shows("p"), Some(ContainerState::Exited), "{stamp}");
            assert!(t.get("p").as_of > Some(before), "{stamp}");
            assert_eq!(t.said(ContainerDied, "c"), 1, "{stamp}");
        }
    }
}

/// Upstream: One runtime stamps a sandbox status in seconds, another in nanoseconds, a third not at
/// all; the kubelet compared that timestamp with events. (k#126414, k#126415, k#127195, k#127814,
/// cri-o#8582)
///
/// Here: That timestamp is not read. The local clock says when a call began; an event is joined
/// with what the call showed, whether older or newer. (invariants 2, 3)
#[test]
fn a4_no_stamp_decides_between_an_event_and_a_read() {
    // The sandbox's own stamp: none, in seconds, in nanoseconds.
    for created_at in [None, Some(1_700_000_000), Some(1_700_000_000_000_000_000)] {
        for event_ms in [-200_000, -1_000, 0, 900] {
            let mut t = running();
            let mut ready = ready();
            ready.identity.created_at = created_at.and_then(pleg_core::WallTime::claimed);
            t.node = vec![ready.clone(), c(Exited)];
            t.wait("p", t.now());
            t.settle();
            let read = t.get("p");
            // Its snapshot is from before the exit.
            t.stamped(event_ms, Started, "c", Some(ready.clone()), &[c(Running)]);
            assert_eq!(t.shows("p"), Some(ContainerState::Exited), "{event_ms}");
            assert_eq!(t.get("p").as_of, read.as_of);
            // And a new one, with any timestamp.
            t.node[0].shown = Exited;
            t.stamped(
                event_ms,
                Stopped,
                "s",
                Some(t.node[0].clone()),
                &[c(Exited)],
            );
            assert!(t.get("p").status.active_sandbox().is_none(), "{event_ms}");
        }
    }
}

/// Upstream: An event stamped before the end of the sync does not release the worker; it waits for
/// the ticker or for the list after 300 s. Deleting a pod took 18 s instead of 4 s. (k#124704,
/// k#124953, k#127954)
///
/// Here: A waiter causes a read at once, after a sync, a stop and a removal alike, and waits for
/// one call only. (invariant 4)
#[test]
fn a6_a_waiter_causes_a_read_at_once() {
    // After a sync, after the kubelet has stopped the pod, after it has removed it.
    for (step, then) in [(3, "runs"), (6, "ended"), (7, "gone")] {
        let mut t = Script::confirmed();
        life()[..=step].iter().for_each(|step| t.live(step));
        let lists = t.machine.counters().lists;
        t.pass(2);
        let after = t.now();
        let sync = t.wait("p", after);
        assert!(t.wants_only("p"), "{then}");
        t.settle();
        let took = t.now().since(after);
        assert_eq!(
            took,
            Duration::from_millis(1),
            "{then}: the call's own time"
        );
        assert!(t.view_for(sync).as_of > Some(after));
        assert_eq!(t.view_for(sync).status.is_nothing(), then == "gone");
        assert_eq!(t.machine.counters().lists, lists);
    }
}

/// Upstream: No event reports changed resources: the end of a resize was seen with the list after
/// 300 s. (k#129829)
///
/// Here: `request_reinspect` reads the pod at once and announces PodSync; no list is needed.
#[test]
fn a8_a_resize_is_seen_at_once() {
    let mut t = running();
    t.node = vec![ready(), c(Running)];
    t.run(60_000);
    let lists = t.machine.counters().lists;
    t.node[1] = with_memory_limit(t.node[1].clone(), 1 << 30);
    let asked = t.now();
    let request = t.request_reinspect("p");
    t.settle();
    let view = t.view_for(request);
    let shown = &view.status.container("c").expect("it runs").details;
    assert_eq!(Details::Container(shown.clone()), t.node[1].details);
    assert_eq!(t.said(PodSync, "p"), 1);
    assert!(t.now().since(asked) <= Duration::from_millis(1));
    assert_eq!(t.machine.counters().lists, lists);
}

/// Upstream: A sandbox's own CREATED releases the worker with a status that has no containers.
/// (k#129355)
///
/// Here: What an event does not mention is unchanged. An event is announced but satisfies no
/// waiter; the worker is answered by a read. (invariants 4, 7)
#[test]
fn a16_a_sandbox_only_snapshot_hides_no_container() {
    let mut t = running();
    let known = t.get("p").as_of;
    // The second attempt's sandbox, stamped last and without any container.
    let second = || {
        let mut second = sandbox("s2", "p", Running);
        second.identity.attempt = 1;
        second
    };
    t.event(Created, "s2", Some(second()), &[]);
    assert_eq!(t.said(ContainerStarted, "s2"), 1, "it wakes the worker");
    let view = t.get("p");
    assert_eq!(
        (view.status.sandboxes.len(), view.status.containers.len()),
        (2, 1)
    );
    assert_eq!(view.as_of, known, "and proves nothing to it");
    let sync = t.wait("p", t.now());
    t.event(Started, "s2", Some(second()), &[]);
    t.pass(10_000);
    assert_eq!(t.answer_of(sync), None);
    let mut created = status("d", "p", IsCreated);
    created.identity.sandbox = Some("s2".into());
    t.node = vec![ready(), c(Running), second(), created];
    t.settle();
    assert_eq!(t.view_for(sync).status.containers.len(), 2);
}
