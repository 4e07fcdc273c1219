//! E1 to E3 and E7 (upstream's evented_test.go up to 1.37) and G20 (generic_test.go up to 1.35), each with its
//! deviation. E4 to E6 are about the reader: `pleg-evented`, tests/suite/failures.rs.

use std::sync::Arc;

use pleg_core::EventType::{Created, Deleted, Other, Started, Stopped};
use pleg_core::{Details, Report, SandboxDetails};

use crate::node::{exited, running};
use crate::script::{Event, Relists, Script};

/// Upstream's TestHealthyEventedPLEG (≤ 1.36): unhealthy when 100 of 100 events wait.
#[test]
fn e1_backlog_is_reported_and_the_node_stays_ready() {
    let mut t = Script::with(&[]);
    // Nothing but a relist shows these ids, and it hangs.
    t.hold(Relists);
    t.relist();
    (0..100).for_each(|n| t.send(Event::nil(Stopped, &format!("x{n}")).unnamed()));
    t.pass(1_900);
    assert_eq!(t.degraded(), [""; 0]);
    t.pass(600);
    assert_eq!(t.degraded(), ["backlog"]);
    t.pass(20_000);
    assert_eq!(t.degraded(), ["backlog", "list_slow"]);
    assert!(t.is_ready());
    t.release();
    t.pass(1_500);
    assert_eq!(t.degraded(), [""; 0]);
}

/// Upstream's TestUpdateRunningPodMetric (≤ 1.36): 5 pods run, 2 end: 5, then 3.
#[test]
fn e2_running_pods_fall_with_the_events() {
    let mut t = Script::new();
    t.settle();
    t.subscribe();
    for pod in ["p0", "p1", "p2", "p3", "p4"] {
        t.starts(&format!("{pod}/s"));
    }
    t.pass(300);
    assert_eq!(t.core.state_counts().running_pods, 5);
    for id in ["p0/s", "p1/s"] {
        t.exits(id, None);
    }
    assert_eq!(t.core.state_counts().running_pods, 3);
}

/// A sandbox with addresses.
fn addressed(mut sandbox: Report, ips: &[&str]) -> Report {
    let mut details = SandboxDetails::default();
    details.ips = ips.iter().map(|&ip| ip.into()).collect();
    sandbox.details = Details::Sandbox(Arc::new(details));
    sandbox
}

/// Upstream's TestEventedPLEG_getPodIPs (≤ 1.36), and G13, TestRelistIPChange: new addresses; none while a sandbox is
/// ready; none if there were none; the old ones when all sandboxes have ended or are gone.
#[test]
fn e3_pod_addresses_follow_the_sandboxes() {
    let show = |t: &mut Script, sandbox: Report| -> Vec<String> {
        t.node.set(sandbox);
        t.read_details();
        let status = t.status("p");
        status.ips.iter().map(ToString::to_string).collect()
    };
    let had = ["10.0.0.1", "fd00::1"];
    let mut t = Script::with(&[]);
    assert_eq!(show(&mut t, addressed(running("s"), &had)), had, "new ones");
    assert_eq!(show(&mut t, exited("s", None)), had, "those from before");
    let ready = show(&mut t, running("s1"));
    assert_eq!(ready, [""; 0], "one is ready and has none yet");
    let ready = show(&mut t, addressed(running("s1"), &["10.0.0.2"]));
    assert_eq!(ready, ["10.0.0.2"], "new ones");

    let mut t = Script::with(&[]);
    let ended = show(&mut t, exited("s", None));
    assert_eq!(ended, [""; 0], "there never were any");

    // Its sandbox is gone, and a container that has exited is left.
    let mut t = Script::with(&[]);
    show(&mut t, addressed(running("s"), &had));
    t.node.remove("s");
    assert_eq!(show(&mut t, exited("web", 3)), had);
}

/// Upstream's TestProcessCRIEventsRequestsRelistOnlyForStoppedEvents (1.37): a list for each STOPPED, no other.
#[test]
fn e7_every_event_that_is_not_published_causes_one_read() {
    let calls = |change: fn(&mut Script), event: Event| {
        let mut t = Script::with(&["web"]);
        change(&mut t);
        t.send(event);
        t.pass(400);
        t.calls()
    };
    let none: fn(&mut Script) = |_| ();
    let exits: fn(&mut Script) = |t| t.node.exit("web", 2);
    let gone: fn(&mut Script) = |t| t.node.remove("web");
    let db: fn(&mut Script) = |t| t.node.start("db");
    let code_is_read: &[&str] = &["list p", "status web"];
    for (change, event, expected) in [
        (exits, Event::of(Stopped, exited("web", 2)), &[][..]),
        (exits, Event::nil(Stopped, "web"), code_is_read),
        (exits, Event::nil(Stopped, "web").unnamed(), code_is_read),
        (none, Event::of(Created, running("web")), &[]),
        (none, Event::of(Started, running("web")), &[]),
        (none, Event::nil(Started, "web").unnamed(), &[]),
        (none, Event::nil(Other(9), "web"), &["list p"]),
        (gone, Event::nil(Deleted, "web"), &["list p"]),
        (gone, Event::nil(Deleted, "web").unnamed(), &["list p"]),
        (db, Event::of(Started, running("db")), &["list p"]),
        (db, Event::nil(Started, "db"), &["list p", "status db"]),
    ] {
        assert_eq!(calls(change, event), expected);
    }
}

/// Upstream's TestWatchConditions (≤ 1.35): a pod is inspected with every list until a condition holds.
#[test]
fn g20_caller_requests_each_reinspection() {
    let mut t = Script::polled(&["web"]);
    t.pass(10_000);
    let calls = t.calls();
    assert!(calls.iter().all(|call| call == "relist"), "{calls:?}");
    for _ in 0..3 {
        let request = t.request_reinspect("p");
        assert!(t.is_answered(request));
    }
    t.pass(500);
    assert_eq!(t.count("status s web"), 3);
    assert_eq!(t.announced_all(), ["PodSync p"; 3]);
    // Of a pod that has ended, of one that is gone, and of one that never was.
    t.node.exit("web", 3);
    t.node.exit("s", None);
    t.pass(2_000);
    let request = t.request_reinspect("p");
    assert_eq!(t.answered(request, "web"), "Exited 3");
    t.node.remove("web");
    t.node.remove("s");
    t.pass(2_000);
    for pod in ["p", "nobody"] {
        let request = t.request_reinspect(pod);
        assert!(t.view(request).status.is_nothing());
        assert!(!t.core.owes_read(&pod.into()));
    }
}
