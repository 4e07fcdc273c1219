//! A container belongs to the pod of its sandbox (invariant 1).

use pleg_core::{EventType, Id, LifecycleType, ReportedState};

use crate::script::{Script, container, exited, nameless, sandbox, status};
use EventType::{Created, Started, Stopped};
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

/// The first list shows the sandbox without its pod's uid, a later one with it.
#[test]
fn a15_container_moves_when_a_list_names_the_pod_of_its_sandbox() {
    let mut t = Script::confirmed();
    t.node = vec![
        nameless(sandbox("s", "m", ReportedState::Running)),
        container("c", "l", ReportedState::Running),
    ];
    t.relist();
    t.settle();
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.node[0] = sandbox("s", "m", ReportedState::Running);
    t.relist();
    t.settle();
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// An event names the container without its sandbox, a list its sandbox, and the next list shows that
/// sandbox.
#[test]
fn a15_container_moves_when_its_sandbox_is_listed_after_it() {
    let mut t = Script::confirmed();
    let own = || status("c", "l", ReportedState::Running);
    t.event(Started, "c", None, &[own()]);
    t.node = vec![container("c", "l", ReportedState::Running)];
    t.relist();
    t.settle();
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.node.push(sandbox("s", "m", ReportedState::Running));
    t.relist();
    t.settle();
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// An event names the pod of the sandbox directly after a list has named the sandbox of the container.
#[test]
fn a15_container_moves_when_an_event_follows_the_list_that_names_its_sandbox() {
    let mut t = Script::confirmed();
    let own = || status("c", "l", ReportedState::Running);
    let s = sandbox("s", "m", ReportedState::Running);
    t.event(Started, "c", None, &[own()]);
    t.relist_shows(&[container("c", "l", ReportedState::Running)]);
    t.event(Started, "s", Some(s), &[]);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// A removed container stays where it was.
#[test]
fn a15_removed_container_does_not_move() {
    let mut t = Script::confirmed();
    let own = || status("c", "l", ReportedState::Running);
    t.event(Started, "c", None, &[own()]);
    t.relist_shows(&[container("c", "l", ReportedState::Running)]);
    t.event(EventType::Deleted, "c", None, &[]);
    t.take_announced();
    let s = sandbox("s", "m", ReportedState::Running);
    t.event(Started, "s", Some(s), &[]);
    assert_eq!(t.take_announced(), ["m Started s"]);
}

/// An event about the container has the status of its sandbox without the pod's uid.
#[test]
fn a15_container_moves_when_the_sandbox_of_its_event_gets_a_pod() {
    let mut t = Script::confirmed();
    let own = || status("c", "l", ReportedState::Running);
    let running = |pod| sandbox("s", pod, ReportedState::Running);
    t.event(Started, "c", None, &[own()]);
    t.event(Started, "c", Some(nameless(running("m"))), &[own()]);
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.event(Started, "s", Some(running("m")), &[]);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// A removed container that exists after all awaits its sandbox again.
#[test]
fn a15_container_moves_after_its_removal_was_overruled() {
    let mut t = Script::confirmed();
    t.node = vec![container("c", "l", ReportedState::Running)];
    t.relist();
    t.settle();
    t.event(EventType::Deleted, "c", None, &[]);
    assert!(t.get("l").status.is_nothing());
    t.run(60_000);
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.node.push(sandbox("s", "m", ReportedState::Running));
    t.relist();
    t.settle();
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// CRI-O: an event about another container shows it with the wrong label; its own event names the
/// sandbox (found by seed 217987).
#[test]
fn mislabelled_container_moves_when_its_event_names_the_sandbox() {
    let mut t = Script::confirmed();
    let s = || sandbox("s", "m", ReportedState::Running);
    let mislabelled = || status("c", "l", ReportedState::Created);
    t.event(Started, "s", Some(s()), &[]);
    t.event(Created, "other", Some(s()), &[mislabelled()]);
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.event(Created, "c", Some(s()), &[]);
    assert!(t.get("l").status.is_nothing());
    let ids: Vec<Id> = t
        .get("m")
        .status
        .containers
        .iter()
        .map(|c| c.id.clone())
        .collect();
    assert!(ids.contains(&"c".into()), "{ids:?}");
}

/// A sandbox whose pod no answer has named is removed; then a list of a pod shows it. The answer from
/// that read contains it (found by seed 315199).
#[test]
fn removed_sandbox_is_in_the_answer_of_the_pod_whose_list_shows_it() {
    let mut t = Script::confirmed();
    t.event(
        Stopped,
        "s",
        Some(nameless(sandbox("s", "m", ReportedState::Exited))),
        &[],
    );
    t.pass(1_100);
    t.inspect(&[], &["s"]);
    t.pass_to_list();
    t.list(&[]);
    let waiter = t.wait("m", t.now());
    let listed = [sandbox("s", "m", ReportedState::Exited)];
    while t.answer_of(waiter).is_none() {
        t.inspect_unsettled(&[], &[], &listed);
        t.pass(100);
    }
    assert_eq!(t.view_for(waiter).status.sandboxes.len(), 1);
}

/// A container status names the label's pod, and not the sandbox.
#[test]
fn status_with_another_label_does_not_move_a_container_from_its_sandboxs_pod() {
    let mut t = Script::confirmed();
    t.relist_shows(&[
        sandbox("s", "p", ReportedState::Running),
        container("c", "q", ReportedState::Running),
    ]);
    t.inspect(
        &[
            sandbox("s", "p", ReportedState::Running),
            status("c", "q", ReportedState::Running),
        ],
        &[],
    );
    let containers = |pod: &str| t.get(pod).status.containers.len();
    assert_eq!((containers("p"), containers("q")), (1, 0));
}

/// The event that reports an end also names the pod: Died is announced in that pod.
#[test]
fn end_is_announced_in_the_pod_to_which_its_event_moves_the_id() {
    let mut t = Script::confirmed();
    let s = |shown| sandbox("s", "m", shown);
    t.event(Started, "s", Some(nameless(s(ReportedState::Running))), &[]);
    t.take_announced();
    t.event(Stopped, "s", Some(s(ReportedState::Exited)), &[]);
    let announced = t.take_announced();
    assert!(announced.contains(&"m Died s".into()), "{announced:?}");
}

/// The first event about a sandbox is its removal, and names its pod.
#[test]
fn a15_container_moves_when_the_removal_of_its_sandbox_names_the_pod() {
    let mut t = Script::confirmed();
    t.relist_shows(&[container("c", "l", ReportedState::Running)]);
    let s = sandbox("s", "m", ReportedState::Exited);
    t.event(EventType::Deleted, "s", Some(s), &[]);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// The removal of the sandbox did not name the pod; a late event about the container does.
#[test]
fn a15_container_moves_when_an_event_names_the_pod_of_a_removed_sandbox() {
    let mut t = Script::confirmed();
    t.relist_shows(&[container("c", "l", ReportedState::Running)]);
    t.event(EventType::Deleted, "s", None, &[]);
    let s = sandbox("s", "m", ReportedState::Exited);
    t.event(Started, "c", Some(s), &[]);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}
