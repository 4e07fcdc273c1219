//! Ids that an event names first: orphans, provisional ids, and their pods (invariant 6).

use pleg_core::{ContainerState, EventType, ExpectedEvent, LifecycleType, PodUid, ReportedState};

use crate::script::{Script, exited, nameless, ready, rows, s, status, statuses};
use EventType::{Created, Other, Started, Stopped};
use LifecycleType::ContainerStarted;

/// A container whose own id is used as pod uid, because no answer named its sandbox or its pod,
/// moves to its pod when one does, also if its sandbox was named before.
#[test]
fn container_without_sandbox_and_pod_moves_to_its_pod() {
    let mut t = Script::confirmed();
    let alone = nameless(status("c", "p", ReportedState::Running));
    let mut in_sandbox = alone.clone();
    in_sandbox.identity.sandbox = Some("s".into());
    let node = rows(ReportedState::Running);
    for found in [&[alone][..], &[in_sandbox], &node] {
        t.pass_reading(70_000, found, found);
    }
    assert_eq!(t.view().status.uid, "p".into());
    assert_eq!(t.view().status.containers.len(), 1);
    assert_eq!(t.withdrawn, ["c".into()]);
}

/// An id without a pod is kept as orphan whatever the event type, and never gets a pod of its own.
#[test]
fn id_without_a_pod_is_kept_as_orphan_until_a_list() {
    for (event, statuses) in [
        (Other(9), vec![]),
        (
            Created,
            vec![nameless(status("c", "p", ReportedState::Created))],
        ),
    ] {
        let mut t = Script::confirmed();
        t.event(event, "c", None, &statuses);
        assert!(t.published.is_empty(), "{event:?}: {:?}", t.published);
        t.pass(1_100);
        assert_eq!(t.lists_wanted(), 1, "{event:?}");
    }
}

/// The event of an orphan is joined when a list shows its id.
#[test]
fn event_of_an_orphan_is_joined_when_a_list_shows_its_id() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(Stopped, "c", None, &[]);
    t.event(Other(9), "c", None, &[]);
    t.pass(1_100);
    t.list(&rows(ReportedState::Running));
    t.inspect(&rows(ReportedState::Running), &[]);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
    t.pass(6_000);
    let missed = t.machine.counters().missed;
    assert_eq!(missed[ExpectedEvent::ContainerStopped], 0);
    assert_eq!(missed[ExpectedEvent::ContainerStarted], 1, "it never came");
}

/// An orphan that arrived before a list began, and that the list does not show, is forgotten. One that
/// arrived after the begin is kept for the next list.
#[test]
fn orphan_is_forgotten_if_a_list_begun_later_does_not_show_it() {
    for (arrives_before, died) in [(true, 0), (false, 1)] {
        let mut t = Script::confirmed();
        t.event(Created, "s", s(), &[]);
        t.relist();
        t.pass(10);
        t.event(Stopped, "c", None, &[]);
        if arrives_before {
            t.list(&[ready()]);
            t.pass(1_100);
        }
        t.list(&[ready()]);
        t.relist_shows(&rows(ReportedState::Running));
        while t.inspections_wanted() > 0 {
            t.inspect(&statuses(ReportedState::Running), &[]);
        }
        assert_eq!(t.said(LifecycleType::ContainerDied, "c"), died);
    }
}

/// Its own status names the pod of a subject that is not known.
#[test]
fn subject_whose_own_status_names_its_pod_is_no_orphan() {
    let mut t = Script::confirmed();
    let other = nameless(status("z", "q", ReportedState::Running));
    let own = status("c", "p", ReportedState::Running);
    t.event(Started, "c", None, &[other, own]);
    assert_eq!(t.get("p").status.containers.len(), 2);
    let counters = t.machine.counters();
    assert_eq!(counters.orphans, 0);
}

/// A replay names ids that were removed long ago: only plausible events are recorded.
#[test]
fn implausible_event_of_an_unknown_id_only_causes_an_inspection() {
    // Older than containerd holds events, from before the subscribe, from the future.
    for stamp in [-3_600_000, -10_000, 5_000] {
        let mut t = Script::confirmed();
        t.stamped(stamp, Created, "s", s(), &[]);
        t.inspect(&[], &[]);
        assert!(t.announced.is_empty() && t.published.is_empty(), "{stamp}");
    }
}

/// A container that is not the subject of its event is inspected a second later.
#[test]
fn provisional_id_is_inspected_after_a_second() {
    let mut t = Script::confirmed();
    t.event(
        Started,
        "s",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    t.pass(900);
    assert_eq!(t.inspections_wanted(), 0);
    t.pass(200);
    assert_eq!(t.inspections_wanted(), 1);
}

/// A container belongs to its sandbox's pod, also if the sandbox status in the event lacks
/// metadata.
#[test]
fn sandbox_status_without_metadata_belongs_to_the_known_pod() {
    let mut t = Script::running();
    let bare = nameless(ready());
    t.event(
        Created,
        "d",
        Some(bare),
        &[nameless(status("d", "p", ReportedState::Created))],
    );
    assert_eq!(t.view().status.uid, PodUid::from("p"));
    assert_eq!(t.view().status.containers.len(), 2);
}

/// The sandbox's id is used as pod uid until an answer names the pod.
#[test]
fn sandbox_moves_to_its_pod_when_the_pod_becomes_known() {
    let mut t = Script::confirmed();
    t.event(Created, "s", Some(nameless(ready())), &[]);
    assert_eq!(t.view().status.uid, PodUid::from("s"));
    t.event(Started, "s", s(), &[]);
    assert_eq!(t.view().status.uid, PodUid::from("p"));
    assert_eq!(t.withdrawn, [PodUid::from("s")]);
    assert_eq!(t.said(ContainerStarted, "s"), 1);
}

/// So does a container from an event that did not name its sandbox.
#[test]
fn container_moves_to_its_pod_when_the_pod_becomes_known() {
    let mut t = Script::confirmed();
    t.event(
        Created,
        "s",
        Some(nameless(ready())),
        &[nameless(status("c", "p", ReportedState::Running))],
    );
    t.wait("p", t.now());
    t.list(&rows(ReportedState::Running));
    assert_eq!(t.view().status.uid, PodUid::from("p"));
    assert_eq!(t.view().status.containers.len(), 1);
    assert_eq!(t.withdrawn, [PodUid::from("s")]);
}

/// A container status does not name its sandbox; the event does.
#[test]
fn container_from_an_event_is_active_at_once() {
    let t = Script::running();
    assert!(t.view().status.containers[0].active);
    assert_eq!(t.inspections_wanted(), 0);
}

/// A name or a sandbox that becomes known later is published.
#[test]
fn identity_that_becomes_known_is_published() {
    let mut t = Script::confirmed();
    t.event(
        Started,
        "s",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    t.relist_shows(&rows(ReportedState::Running));
    assert!(t.view().status.containers[0].active);
}

/// The container's status came first in an event of its pod, which did not name its sandbox.
#[test]
fn event_names_the_sandbox_of_a_container_that_already_runs() {
    let mut t = Script::confirmed();
    let c = [status("c", "p", ReportedState::Running)];
    t.event(Started, "s", s(), &c);
    assert!(!t.view().status.containers[0].active);
    t.event(Started, "c", s(), &c);
    assert!(t.view().status.containers[0].active);
}

/// Reads that began after the event of an orphan have overruled what it reported.
#[test]
fn event_of_an_orphan_is_not_joined_if_it_was_overruled_since() {
    let mut t = Script::confirmed();
    t.event(Stopped, "c", None, &[]);
    let ended = [exited("c", "p", 3, "Error")];
    t.event(Created, "c", s(), &ended);
    t.pass(1_100);
    assert_eq!(t.lists_wanted(), 1);
    for _ in 0..2 {
        t.wait("p", t.now());
        while t.inspections_wanted() > 0 {
            t.inspect(&statuses(ReportedState::Running), &[]);
        }
        t.pass(100);
    }
    assert_eq!(t.machine.counters().overruled, 1);
    t.list(&rows(ReportedState::Running));
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
    let c = &t.get("p").status.containers[0];
    assert_eq!(c.state, ContainerState::Running);
}
