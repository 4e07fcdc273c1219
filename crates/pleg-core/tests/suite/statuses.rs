//! Tests the status of a pod: its sandboxes and containers, their order, and its addresses.

use std::sync::Arc;

use pleg_core::EventType::{Deleted, Started};
use pleg_core::{Details, Report, SandboxDetails};

use crate::node::{exited, running};
use crate::script::{Event, Script};

/// Pod statuses in upstream's events had one sandbox, no active containers, unsorted ids: init containers ran again.
#[test]
fn status_has_all_sandboxes_and_containers_newest_first() {
    let mut t = Script::with(&["web"]);
    t.exits("web", 0);
    t.exits("s", 0);
    let mut web1 = running("web1");
    web1.identity.sandbox = Some("s1".into());
    t.node.set(web1);
    t.starts("s1");
    t.event(Started, "web1");
    t.pass(300);
    let status = t.status("p");
    let sandboxes: Vec<_> = status.sandboxes.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(sandboxes, ["s1", "s"]);
    let containers = status.containers.iter();
    let containers: Vec<_> = containers.map(|c| (c.id.as_str(), c.active)).collect();
    assert_eq!(containers, [("web1", true), ("web", false)]);
    assert_eq!(status.container("web").unwrap().id.as_str(), "web1");
}

/// Upstream's evented PLEG deletes the whole pod from its cache when DELETED of the old sandbox arrives.
#[test]
fn pod_stays_cached_if_an_old_sandbox_is_removed() {
    for event in [
        Event::of(Deleted, exited("s", None)),
        Event::nil(Deleted, "s").unnamed(),
    ] {
        let mut t = Script::with(&["web"]);
        t.starts("s1");
        t.exits("s", 0);
        t.node.remove("s");
        t.send(event);
        t.pass(500);
        t.expect(&["Died s", "Started s1", "Removed s"]);
        assert_eq!(t.cached("s1"), "Ready");
        assert_eq!(t.cached("web"), "Running");
    }
}

/// Upstream's TestEventedPLEG_getPodIPs and TestRelistIPChange.
#[test]
fn addresses_are_those_of_the_last_ready_sandbox() {
    let addressed = |id: &str, ips: &[&str]| {
        let mut details = SandboxDetails::default();
        details.ips = ips.iter().map(|&ip| ip.into()).collect();
        let mut sandbox = running(id);
        sandbox.details = Details::Sandbox(Arc::new(details));
        sandbox
    };
    let show = |t: &mut Script, status: Report| -> Vec<String> {
        t.node.set(status);
        t.read_details();
        t.status("p").ips.iter().map(ToString::to_string).collect()
    };
    let (had, none) = (["10.0.0.1", "fd00::1"], [""; 0]);
    let mut t = Script::with(&[]);
    assert_eq!(show(&mut t, addressed("s", &had)), had);
    assert_eq!(show(&mut t, exited("s", None)), had, "s has ended");
    assert_eq!(show(&mut t, running("s1")), none, "s1 has no address yet");
    let new = ["10.0.0.2"];
    assert_eq!(show(&mut t, addressed("s1", &new)), new);

    let mut t = Script::with(&[]);
    assert_eq!(show(&mut t, exited("s", None)), none, "s never had one");

    let mut t = Script::with(&[]);
    show(&mut t, addressed("s", &had));
    t.node.remove("s");
    assert_eq!(show(&mut t, exited("web", 3)), had, "its sandbox is gone");
}
