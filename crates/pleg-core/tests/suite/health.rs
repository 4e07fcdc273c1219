//! Tests when the generator is ready, and which degraded reasons its health has.

use std::time::Duration;

use pleg_core::CallErrorKind::{DeadlineExceeded, Failed};
use pleg_core::EventType::Stopped;
use pleg_core::NotReady;

use crate::script::{Event, Relists, Script};

#[test]
fn node_is_ready_from_its_first_complete_relist() {
    let mut t = Script::new();
    t.node.relists_fail = Some(Failed);
    t.settle();
    assert_eq!(t.health().ready(t.now()), Err(NotReady::NeverListed));
    t.node.relists_fail = None;
    t.pass(1_500);
    assert!(t.is_ready());
}

#[test]
fn node_is_unready_if_last_complete_relist_is_too_old() {
    let mut t = Script::polling(|s| s.unready_after = Duration::from_secs(70));
    t.node.start("s");
    t.hold(Relists);
    t.settle();
    // The age of a list counts from its request.
    t.pass(5_000);
    t.release();
    t.node.relists_fail = Some(Failed);
    t.pass(64_000);
    assert!(t.is_ready());
    assert_eq!(t.degraded(), ["list_failed"]);
    t.pass(2_000);
    let stale = t.health().ready(t.now()).unwrap_err();
    assert_eq!(stale.as_str(), "stale");
    assert!(stale.to_string().ends_with(" ago; threshold is 1m10s"));
    t.node.relists_fail = None;
    t.pass(1_500);
    assert!(t.is_ready());
    assert_eq!(t.degraded(), [""; 0]);
}

/// cri-o#2584: one reply of ListContainers is lost.
#[test]
fn node_stays_ready_if_one_list_reply_is_lost() {
    let mut t = Script::with(&["web"]);
    t.event(pleg_core::EventType::Started, "web");
    t.pass(300_000);
    t.hold(Relists);
    t.await_call("relist");
    t.pass(29_000);
    assert!(t.degraded().contains(&"list_slow"));
    for _ in 0..60 {
        t.pass(1_000);
        assert!(t.is_ready());
        t.release();
    }
}

/// A relist, pod read or status call in flight makes the node unready (`Stalled`) only 5 s after its deadline.
#[test]
fn reconciler_is_not_stalled_while_lists_fail_or_hang() {
    let mut t = Script::with(&["web"]);
    for fault in [None, Some(Failed), Some(DeadlineExceeded)] {
        (t.node.relists_fail, t.node.pod_lists_fail) = (fault, fault);
        t.relist();
        t.read();
        for _ in 0..60 {
            t.pass(1_000);
            let health = t.health();
            assert!(health.ready(t.now()).is_ok(), "{fault:?}: {:?}", health.due);
        }
    }
}

#[test]
fn lost_stream_and_failing_pod_do_not_make_node_unready() {
    let mut t = Script::with(&["web"]);
    t.lose_stream();
    t.node.exit("web", 3);
    t.node.fail_status("web", Failed);
    t.pass(300_000);
    assert!(t.is_ready());
    assert_eq!(t.degraded(), ["stream_down", "pods_failing"]);
}

#[test]
fn event_without_a_finished_read_for_two_seconds_is_backlog() {
    let mut t = Script::with(&["web"]);
    t.node.pod_lists_fail = Some(DeadlineExceeded);
    t.send(Event::nil(Stopped, "web"));
    t.pass(1_000);
    assert_eq!(t.degraded(), [""; 0]);
    t.pass(2_000);
    assert!(t.degraded().contains(&"backlog"), "{:?}", t.degraded());
}
