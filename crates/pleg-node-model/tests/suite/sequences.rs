//! Tests which events each runtime sends from the creation of a pod to its removal.

use crate::common::Recorder;
use pleg_node_model::Profile;

/// A paragraph has a runtime with versions, preparing steps, `=>`, the steps under test, and the events of these steps.
///
/// The first two paragraphs test exits, a restart, and the removal of all containers and sandboxes. A repeated stop or
/// removal sends no second event, and the name of a removed sandbox is free again.
const BY_RUNTIME: &str = "\
containerd 2.0.0 2.4.0: run S, remove-sandbox S => run S, create S A, start A, create S B, start B, \
exit A 1, create S A', start A', remove A, exit A' 0, stop B, stop-sandbox S, stop-sandbox S, remove A', \
remove B, remove B, remove-sandbox S, remove-sandbox S
CREATED(S) READY []
STARTED(S) READY []
CREATED(A) READY [A:CREATED]
STARTED(A) READY [A:RUNNING]
CREATED(B) READY [A:RUNNING, B:CREATED]
STARTED(B) READY [A:RUNNING, B:RUNNING]
STOPPED(A) READY [A:EXITED=1 Error, B:RUNNING]
CREATED(A') READY [A':CREATED, A:EXITED=1 Error, B:RUNNING]
STARTED(A') READY [A':RUNNING, A:EXITED=1 Error, B:RUNNING]
DELETED(A) READY [A':RUNNING, B:RUNNING]
STOPPED(A') READY [A':EXITED=0 Completed, B:RUNNING]
STOPPED(B) READY [A':EXITED=0 Completed, B:EXITED=137 Error]
STOPPED(S) NOTREADY [A':EXITED=0 Completed, B:EXITED=137 Error]
DELETED(A') NOTREADY [B:EXITED=137 Error]
DELETED(B) NOTREADY []
DELETED(S) NOTREADY since Go's zero time []

cri-o 1.36.3 1.30.1 1.28.0 1.27.1: run S, remove-sandbox S => run S, create S A, start A, exit A 1, \
create S A', start A', remove A, exit A' 0, stop-sandbox S, stop-sandbox S, remove A', remove A', \
remove-sandbox S, remove-sandbox S
STARTED(S) READY []
CREATED(A) READY [A:CREATED]
STARTED(A) READY [A:RUNNING]
STOPPED(A) READY [A:EXITED=1 Error]
CREATED(A') READY [A':CREATED, A:EXITED=1 Error]
STARTED(A') READY [A':RUNNING, A:EXITED=1 Error]
DELETED(A) READY [A':RUNNING]
STOPPED(A') READY [A':EXITED=0 Completed]
STOPPED(S) NOTREADY [A':EXITED=0 Completed]
DELETED(A') NOTREADY []

cri-o-disabled 1.36.3: run S => create S A, start A, remove-sandbox S

containerd 1.6.20: run S => create S A, start A, remove-sandbox S

containerd 1.7.24: run S, create S A, start A => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) nil []

containerd 2.1.0: run S, create S A, start A => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) NOTREADY since Go's zero time []

cri-o 1.36.3: run S, create S A, start A => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]

containerd 1.7.24: run S, create S A, start A, stop-sandbox S => run S', create S' B, start B
CREATED(S') READY []
STARTED(S') READY []
CREATED(B) READY [B:CREATED]
STARTED(B) READY [B:RUNNING]

cri-o 1.36.3: run S, create S A, start A, stop-sandbox S => run S', create S' B, start B
STARTED(S') READY [A:EXITED=137 Error]
CREATED(B) READY [A:EXITED=137 Error, B:CREATED]
STARTED(B) READY [A:EXITED=137 Error, B:RUNNING]

cri-o 1.27.0: run S, create S A, start A => stop A
STOPPED(A) READY [A:EXITED=137 Error]
DELETED(A) READY [A:EXITED=137 Error]

cri-o 1.30.9 1.35.0: run S, create S A, start A, stop A => remove A
DELETED(A) READY []

cri-o 1.31.0 1.34.11: run S, create S A, start A, stop A => remove A
DELETED(A) READY [empty]

containerd 2.1.0: run S, create S A => fail-start A, create S B
CREATED(B) READY [A:EXITED=128 StartError, B:CREATED]

cri-o 1.36.3: run S, create S A => fail-start A, create S B
CREATED(B) READY [B:CREATED]

containerd 2.1.0: run S, create S A, start A => kill-sandbox S, kill-sandbox S
STOPPED(S) NOTREADY [A:RUNNING]

containerd 2.1.0: run S, share S, create S A, start A => kill-sandbox S, kill-sandbox S
STOPPED(S) NOTREADY [A:RUNNING]
STOPPED(A) NOTREADY [A:EXITED=137 Error]

cri-o 1.36.3: run S, create S A, start A => kill-sandbox S

cri-o 1.36.3: run S, share S, create S A, start A => kill-sandbox S, kill-sandbox S
STOPPED(S) NOTREADY [A:RUNNING]
STOPPED(A) NOTREADY [A:EXITED=137 Error]";

#[test]
fn events_from_pod_creation_to_removal_depend_on_runtime() {
    for case in BY_RUNTIME.split("\n\n") {
        let (title, expected) = case.split_once('\n').unwrap_or((case, ""));
        let (runtime, steps) = title.split_once(": ").unwrap();
        let (before, steps) = steps.split_once(" => ").unwrap();
        let (name, versions) = runtime.split_once(' ').unwrap();
        for version in versions.split(' ') {
            let mut r = Recorder::new(match name {
                "containerd" => Profile::containerd(version),
                "cri-o" => Profile::crio(version),
                _ => Profile::crio_disabled(version),
            });
            r.play(before);
            let expected: Vec<_> = expected.lines().collect();
            assert_eq!(r.play(steps), expected, "{title}");
        }
    }
}
