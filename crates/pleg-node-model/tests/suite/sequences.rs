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

/// A runtime, the name of the change to a pod with a running container A, and its events.
const BY_RUNTIME: &str = "\
containerd 1.7.24: remove the pod
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) nil []

containerd 2.1.0: remove the pod
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) NOTREADY []

cri-o 1.36.3: remove the pod
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]

containerd 1.7.24: start another sandbox
CREATED(T) READY []
STARTED(T) READY []
CREATED(B) READY [B:CREATED]
STARTED(B) READY [B:RUNNING]

cri-o 1.36.3: start another sandbox
STARTED(T) READY [A:EXITED=137 Error]
CREATED(B) READY [A:EXITED=137 Error, B:CREATED]
STARTED(B) READY [A:EXITED=137 Error, B:RUNNING]

cri-o 1.27.0: stop the container
STOPPED(A) READY [A:EXITED=137 Error]
DELETED(A) READY [A:EXITED=137 Error]

cri-o 1.30.9: remove the stopped container
DELETED(A) READY []

cri-o 1.31.0: remove the stopped container
DELETED(A) READY [empty]

cri-o 1.34.11: remove the stopped container
DELETED(A) READY [empty]

cri-o 1.35.0: remove the stopped container
DELETED(A) READY []";

#[test]
fn events_differ_by_runtime() {
    for case in BY_RUNTIME.split("\n\n") {
        let (title, expected) = case.split_once('\n').unwrap();
        let (runtime, change) = title.split_once(": ").unwrap();
        let mut r = Recorder::new(match runtime.split_once(' ').unwrap() {
            ("containerd", version) => Profile::containerd(version),
            (_, version) => Profile::crio(version),
        });
        let (s, a) = (id("S"), id("A"));
        r.run("S", 0);
        r.start("S", "A", 0);
        match change {
            "remove the stopped container" => r.call(|node, now| node.stop(&a, now)),
            "start another sandbox" => r.call(|node, now| node.stop_sandbox(&s, now)),
            _ => {}
        }
        r.take();
        match change {
            "remove the pod" => r.call(|node, now| node.remove_sandbox(&s, now)),
            "stop the container" => r.call(|node, now| node.stop(&a, now)),
            "remove the stopped container" => r.call(|node, now| node.remove_container(&a, now)),
            _ => {
                r.run("T", 1);
                r.start("T", "B", 0);
            }
        }
        assert_eq!(r.take(), expected.lines().collect::<Vec<_>>(), "{title}");
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
