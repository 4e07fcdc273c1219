//! A container belongs to the pod of its sandbox (invariant 1).

use pleg_core::{EventType, Id, LifecycleType, ReportedState};

use crate::script::{Script, container, exited, sandbox, status};
use EventType::{Started, Stopped};
use LifecycleType::ContainerDied;

/// A container whose label names another uid than its sandbox's metadata belongs to its sandbox's
/// pod, as soon as its sandbox is known.
#[test]
fn a15_container_moves_to_the_pod_of_its_sandbox() {
    let mut t = Script::confirmed();
    t.node = vec![sandbox("s", "m", ReportedState::Running)];
    t.relist();
    t.settle();
    t.run(2_000);
    t.node.push(container("c", "l", ReportedState::Running));
    t.event(
        Started,
        "c",
        None,
        &[status("c", "l", ReportedState::Running)],
    );
    t.run(5_000);
    let ids = |t: &Script, pod: &str| -> Vec<Id> {
        let view = t.get(pod);
        view.status
            .containers
            .iter()
            .map(|c| c.id.clone())
            .collect()
    };
    assert_eq!((ids(&t, "m"), ids(&t, "l")), (vec!["c".into()], vec![]));
    let mut dead = exited("c", "l", 3, "Error");
    dead.identity.sandbox = Some("s".into());
    t.node[1] = dead;
    t.event(
        Stopped,
        "c",
        Some(sandbox("s", "m", ReportedState::Running)),
        &[],
    );
    t.run(2_000);
    assert_eq!(t.said(ContainerDied, "c"), 1);
}

/// The sandbox becomes known after its container.
#[test]
fn a15_container_moves_when_its_sandbox_is_learned() {
    let mut t = Script::confirmed();
    t.node = vec![container("c", "l", ReportedState::Running)];
    t.relist();
    t.settle();
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.node.push(sandbox("s", "m", ReportedState::Running));
    t.event(
        Started,
        "s",
        Some(sandbox("s", "m", ReportedState::Running)),
        &[],
    );
    t.run(3_000);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}
