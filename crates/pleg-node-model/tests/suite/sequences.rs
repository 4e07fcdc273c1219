//! The event sequences of a pod's life, by runtime. The steps are the same for every runtime, and the
//! expected events are written out for each.

use crate::common::{Recorder, id, pod};
use pleg_node_model::{GO_ZERO_TIME, Kind, Profile, State};

/// Two containers, an exit, a restart, and the removal of everything. A second stop or removal sends no
/// second event.
fn pod_life(profile: Profile) -> Vec<String> {
    let mut r = Recorder::new(profile);
    let (s, a, a1, b) = (id("S"), id("A"), id("A'"), id("B"));
    r.run("S", 0);
    r.start("S", "A", 0);
    r.start("S", "B", 0);
    r.call(|node, now| node.exit(&a, 1, "Error", now));
    r.start("S", "A'", 1);
    r.call(|node, now| node.remove_container(&a, now));
    r.call(|node, now| node.exit(&a1, 0, "Completed", now));
    r.call(|node, now| node.stop(&b, now));
    r.call(|node, now| node.stop_sandbox(&s, now));
    r.call(|node, now| node.stop_sandbox(&s, now));
    r.call(|node, now| node.remove_container(&a1, now));
    r.call(|node, now| node.remove_container(&b, now));
    r.call(|node, now| node.remove_container(&b, now));
    r.call(|node, now| node.remove_sandbox(&s, now));
    r.call(|node, now| node.remove_sandbox(&s, now));
    assert!(r.node.rows(Kind::Sandbox, None, r.now + 100).is_empty());
    let recorded = r.take();
    r.call(|node, now| node.run_sandbox("S2", &pod(), 0, now).unwrap());
    assert_eq!(r.node.state(&id("S2")), Some(State::Running));
    recorded
}

const CONTAINERD: [&str; 14] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
    "CREATED(B) READY [A:RUNNING, B:CREATED]",
    "STARTED(B) READY [A:RUNNING, B:RUNNING]",
    "STOPPED(A) READY [A:EXITED=1 Error, B:RUNNING]",
    "CREATED(A') READY [A':CREATED, A:EXITED=1 Error, B:RUNNING]",
    "STARTED(A') READY [A':RUNNING, A:EXITED=1 Error, B:RUNNING]",
    "DELETED(A) READY [A':RUNNING, B:RUNNING]",
    "STOPPED(A') READY [A':EXITED=0 Completed, B:RUNNING]",
    "STOPPED(B) READY [A':EXITED=0 Completed, B:EXITED=137 Error]",
    "STOPPED(S) NOTREADY [A':EXITED=0 Completed, B:EXITED=137 Error]",
    "DELETED(A') NOTREADY [B:EXITED=137 Error]",
];

#[test]
fn pod_life_on_containerd() {
    for (version, last) in [
        ("1.7.24", "nil"),
        ("2.0.0", "NOTREADY"),
        ("2.4.0", "NOTREADY"),
    ] {
        let recorded = pod_life(Profile::containerd(version));
        assert_eq!(recorded[..14], CONTAINERD);
        let end = ["DELETED(B) NOTREADY []", &format!("DELETED(S) {last} []")];
        assert_eq!(recorded[14..], end, "{version}");
    }
}

/// The same except for the sandbox: no event for its creation and its removal.
#[test]
fn pod_life_on_crio() {
    for version in ["1.36.3", "1.30.1", "1.28.0", "1.27.1"] {
        let recorded = pod_life(Profile::crio(version));
        assert_eq!(recorded[..13], CONTAINERD[1..], "{version}");
        assert_eq!(recorded[13..], ["DELETED(B) NOTREADY []"], "{version}");
    }
}

#[test]
fn runtimes_without_events_send_none() {
    for profile in [Profile::crio_disabled("1.36.3"), Profile::unimplemented()] {
        assert!(pod_life(profile).is_empty());
    }
}

#[test]
fn crio_sends_empty_status_for_removed_container() {
    for (version, sent) in [
        ("1.30.9", "DELETED(A) READY []"),
        ("1.31.0", "DELETED(A) READY [empty]"),
        ("1.34.11", "DELETED(A) READY [empty]"),
        ("1.35.0", "DELETED(A) READY []"),
    ] {
        let mut r = Recorder::new(Profile::crio(version));
        r.run("S", 0);
        r.create("S", "A", 0);
        r.call(|node, now| node.remove_container(&id("A"), now));
        assert_eq!(r.take()[2], sent, "{version}");
    }
}

#[test]
fn old_crio_sends_deleted_for_stopped_container() {
    let mut r = Recorder::new(Profile::crio("1.27.0"));
    r.run("S", 0);
    r.start("S", "A", 0);
    r.call(|node, now| node.stop(&id("A"), now));
    assert_eq!(
        r.take()[3..],
        [
            "STOPPED(A) READY [A:EXITED=137 Error]",
            "DELETED(A) READY [A:EXITED=137 Error]",
        ]
    );
}

/// Only containerd sends DELETED for the containers of a removed sandbox.
#[test]
fn removal_of_running_pod_by_runtime() {
    for (profile, removals) in [
        (
            Profile::containerd("1.7.24"),
            &["DELETED(A) NOTREADY []", "DELETED(S) nil []"][..],
        ),
        (
            Profile::containerd("2.1.0"),
            &["DELETED(A) NOTREADY []", "DELETED(S) NOTREADY []"],
        ),
        (Profile::crio("1.36.3"), &[]),
    ] {
        let mut r = Recorder::new(profile);
        r.run("S", 0);
        r.start("S", "A", 0);
        r.take();
        r.call(|node, now| node.remove_sandbox(&id("S"), now));
        let recorded = r.take();
        assert_eq!(
            recorded[..2],
            [
                "STOPPED(A) READY [A:EXITED=137 Error]",
                "STOPPED(S) NOTREADY [A:EXITED=137 Error]",
            ]
        );
        assert_eq!(recorded[2..], *removals);
    }
}

/// containerd shows the new sandbox's containers, CRI-O all of the pod.
#[test]
fn second_sandbox_shows_containers_by_runtime() {
    for (profile, shown) in [
        (Profile::containerd("1.7.24"), "[B:RUNNING]"),
        (Profile::containerd("2.1.0"), "[B:RUNNING]"),
        (Profile::crio("1.36.3"), "[A:EXITED=137 Error, B:RUNNING]"),
    ] {
        let mut r = Recorder::new(profile);
        r.run("S", 0);
        r.start("S", "A", 0);
        r.call(|node, now| node.stop_sandbox(&id("S"), now));
        r.run("S2", 1);
        r.start("S2", "B", 0);
        let recorded = r.take();
        assert_eq!(
            recorded.last().unwrap(),
            &format!("STARTED(B) READY {shown}")
        );
    }
}

#[test]
fn containerd_2_reports_a_removed_sandbox_without_creation_time() {
    let mut r = Recorder::new(Profile::containerd("2.1.0"));
    r.run("S", 0);
    let events = r.node.remove_sandbox(&id("S"), 9_000);
    let last = events.last().unwrap();
    let sandbox = r.node.event(last, last.at).unwrap().sandbox.unwrap();
    assert_eq!(sandbox.row.created_at, GO_ZERO_TIME);
    let rows = r.node.rows(Kind::Sandbox, None, last.at);
    assert_eq!(rows.len(), 1, "lists still show it");
}
