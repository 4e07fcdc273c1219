//! Removed ids: tombstones, and removals that reads overrule (invariants 2 and 6).

use pleg_core::{ContainerState, EventType, LifecycleType, PodUid, ReportedState};

use crate::script::{
    Script, container, exited, ready, rows, s, sandbox, status, with_memory_limit,
};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerRemoved, ContainerStarted};

/// A tombstone that a list in flight still showed was inserted again for ever.
#[test]
fn tombstone_shown_by_a_list_in_flight_expires() {
    let mut t = Script::running();
    t.relist();
    t.pass(2);
    t.event(Deleted, "c", s(), &[]);
    t.list(&rows(ReportedState::Running));
    let alive = [ready()];
    for _ in 0..40 {
        t.pass(60_000);
        while t.lists_wanted() > 0 {
            t.list(&alive);
        }
    }
    assert_eq!(t.machine.counters().tombstones, 0);
}

/// containerd 2 lists a sandbox for a moment after its DELETED: the pod was kept for ever.
#[test]
fn pod_kept_for_a_contradiction_is_removed_when_it_is_decided() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(
        Stopped,
        "s",
        Some(sandbox("s", "p", ReportedState::Exited)),
        &[],
    );
    t.event(
        Deleted,
        "s",
        Some(sandbox("s", "p", ReportedState::Exited)),
        &[],
    );
    t.relist_shows(&[sandbox("s", "p", ReportedState::Exited)]);
    t.pass_reading(12_000, &[], &[]);
    assert_eq!(t.machine.counters().overruled, 0);
    assert!(
        format!("{:?}", t.machine).contains("pods: {}, removed_pods: {}"),
        "{:?}",
        t.machine
    );
}

/// The second contradiction of a removal comes after 10 s, also if the pod has a long backoff.
#[test]
fn wrong_removal_is_overruled_after_ten_seconds_despite_a_backoff() {
    let mut t = Script::running();
    // Its sandbox stays unknown: it is inspected with a growing backoff.
    let unknown = [
        sandbox("s", "p", ReportedState::Unknown),
        status("c", "p", ReportedState::Running),
    ];
    t.wait("p", t.now());
    t.pass_reading(
        40_000,
        &[
            sandbox("s", "p", ReportedState::Unknown),
            container("c", "p", ReportedState::Running),
        ],
        &unknown,
    );
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(t.said(ContainerRemoved, "c"), 1);
    t.wait("p", t.now());
    let node = rows(ReportedState::Running);
    t.pass_reading(10_100, &node, &node);
    assert_eq!(t.machine.counters().overruled, 1);
    assert_eq!(t.said(ContainerStarted, "c"), 2);
}

/// A pod that is recorded as gone and listed all the same is published as the newest read showed it,
/// until a list does not show it (invariant 2).
#[test]
fn removed_pod_that_is_listed_is_published_until_a_list_omits_it() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.event(Deleted, "s", None, &[]);
    assert_eq!(t.withdrawn, [PodUid::from("p")]);
    t.relist_shows(&rows(ReportedState::Running));
    t.relist_shows(&rows(ReportedState::Running));
    assert_eq!(t.swept, []);
    let status = &t.view().status;
    let running = |c: &pleg_core::ContainerStatus| c.state == ContainerState::Running;
    assert!(status.active_sandbox().is_some() && status.containers.iter().all(running));
    assert_eq!(status.containers.len(), 1);
    t.relist_shows(&[]);
    assert_eq!(t.withdrawn, [PodUid::from("p"), PodUid::from("p")]);
    t.relist_shows(&[]);
    assert_eq!(t.swept, [PodUid::from("p")]);
}

/// The newest read is the one that began last, not the one that ended last (invariant 2).
#[test]
fn removed_id_is_shown_as_the_read_that_began_last_showed_it() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.pass(1);
    t.wait("p", t.now());
    t.pass(5);
    t.relist_shows(&rows(ReportedState::Running));
    t.inspect(&[ready(), exited("c", "p", 1, "Error")], &[]);
    let states: Vec<_> = t.view().status.containers.iter().map(|c| c.state).collect();
    assert_eq!(states, [ContainerState::Running]);
}

/// A removed id that reads show as exited and then as running is shown without the end.
#[test]
fn removed_id_that_is_shown_running_has_no_exit_code() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.pass(1);
    t.wait("p", t.now());
    t.inspect(&[ready(), exited("c", "p", 7, "Error")], &[]);
    let shown = |t: &Script| t.view().status.containers[0].clone();
    assert_eq!(shown(&t).details.exit_code, Some(7));
    t.relist_shows(&rows(ReportedState::Running));
    assert_eq!(shown(&t).state, ContainerState::Running);
    assert_eq!(shown(&t).details.exit_code, None);
}

/// An overruled removal keeps the details that reads showed meanwhile (found by seed 34572).
#[test]
fn overruled_removal_keeps_the_exit_code_that_was_read() {
    // First learned as removed: nothing else is known of it.
    let mut t = Script::confirmed();
    let rows = rows(ReportedState::Exited);
    t.event(Created, "s", s(), &[]);
    t.event(Deleted, "c", s(), &[]);
    t.pass(1);
    t.relist_shows(&rows);
    t.wait("p", t.now());
    t.inspect(&[ready(), exited("c", "p", 7, "Error")], &[]);
    let code = |t: &Script| t.view().status.containers[0].details.exit_code;
    assert_eq!(code(&t), Some(7));
    t.pass(10_000);
    while t.lists_wanted() > 0 {
        t.list(&rows);
    }
    t.pass(10);
    t.relist_shows(&rows);
    assert_eq!(t.machine.counters().overruled, 1);
    assert_eq!(code(&t), Some(7));
}

/// The same if a list showed it as UNKNOWN meanwhile (found by seed 155367).
#[test]
fn overruled_removal_keeps_what_was_read_before_a_list_showed_unknown() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(Deleted, "c", s(), &[]);
    t.pass(1);
    t.relist_shows(&rows(ReportedState::Exited));
    t.wait("p", t.now());
    t.inspect(&[ready(), exited("c", "p", 7, "Error")], &[]);
    t.pass(10_000);
    while t.lists_wanted() > 0 {
        t.list(&rows(ReportedState::Unknown));
    }
    t.pass(10);
    t.relist_shows(&rows(ReportedState::Unknown));
    t.pass(10);
    t.relist_shows(&rows(ReportedState::Exited));
    assert_eq!(t.machine.counters().overruled, 1);
    let view = t.view();
    let container = &view.status.containers[0];
    assert_eq!(container.state, ContainerState::Exited);
    assert_eq!(container.details.exit_code, Some(7));
}

/// What is first learned of as removed and then listed is published, as of no read: a list does
/// not confirm a pod of which it contradicts something.
#[test]
fn id_first_learned_as_removed_is_published_if_it_is_listed() {
    let mut t = Script::confirmed();
    t.event(Deleted, "s", None, &[]);
    t.pass(1);
    t.relist_shows(&[ready()]);
    let held = t.published.last().expect("something is published");
    assert!(held.status.active_sandbox().is_some());
    assert_eq!((&held.status.uid, held.as_of), (&PodUid::from("p"), None));
    t.relist_shows(&[]);
    t.relist_shows(&[]);
    assert_eq!(t.swept, [PodUid::from("p")]);
}

/// The second contradiction is requested also if its instant has passed, because the read in
/// between took that long.
#[test]
fn each_of_two_wrong_removals_is_overruled_after_ten_seconds() {
    let mut t = Script::running();
    t.event(
        Created,
        "d",
        s(),
        &[status("d", "p", ReportedState::Created)],
    );
    let [first, second] = rows(ReportedState::Running);
    let all = [first, second, container("d", "p", ReportedState::Created)];
    t.event(Deleted, "c", s(), &[]);
    t.relist_shows(&all);
    let tenth_second = t.now().after(std::time::Duration::from_millis(9_998));
    t.event(Deleted, "d", s(), &[]);
    t.relist_shows(&all);
    while t.now() < tenth_second {
        t.pass(1);
        if t.lists_wanted() > 0 {
            t.list(&all);
        }
    }
    t.pass(2);
    assert_eq!(t.lists_wanted(), 1);
    t.pass(20);
    t.list(&all);
    assert_eq!(t.machine.counters().overruled, 1);
    assert_eq!(t.lists_wanted(), 1);
    t.list(&all);
    assert_eq!(t.machine.counters().overruled, 2);
}

/// The list that contradicts a removal took so long that the instant of the second read has passed
/// when it ends: the pod is inspected all the same. Otherwise the removal would never be decided.
#[test]
fn wrong_removal_is_overruled_after_a_slow_list() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspect(&[ready()], &["c"]);
    assert_eq!(t.said(ContainerRemoved, "c"), 1);
    t.pass_to_list();
    t.pass(11_000);
    let node = rows(ReportedState::Running);
    t.pass_reading(20_000, &node, &node);
    assert_eq!(t.machine.counters().overruled, 1);
    assert_eq!(t.said(ContainerStarted, "c"), 2);
}

/// For a DELETED without statuses, the kind was a guess.
#[test]
fn overruled_removal_of_an_unknown_kind_restores_the_sandbox() {
    let mut t = Script::confirmed();
    t.event(Deleted, "s", None, &[]);
    t.wait("p", t.now());
    let found = [ready()];
    t.pass_reading(10_500, &found, &found);
    assert_eq!(t.view().status.sandboxes.len(), 1);
}

/// Invariant 6: a read that began before a removal may still show the removed id. Its tombstone
/// outlives the read, however many tombstones there are (found by seed 183049).
#[test]
fn tombstone_outlives_reads_begun_before_it() {
    let mut settings = pleg_core::Settings::default();
    settings.tombstones_max = 1;
    let mut t = Script::confirmed_with(settings);
    let alive = status("c", "p", ReportedState::Running);
    t.event(Created, "s", s(), &[]);
    t.event(Started, "c", s(), std::slice::from_ref(&alive));
    t.request_reinspect("p");
    assert_eq!(t.inspections_wanted(), 1);
    for gone in ["c", "x", "y"] {
        t.event(Deleted, gone, s(), &[]);
    }
    t.inspect(&[ready(), alive], &[]);
    assert!(t.get("p").status.containers.is_empty());
    assert_eq!(t.said(ContainerRemoved, "c"), 1);
    assert_eq!(t.machine.counters().tombstones, 1, "the read is over");
}

/// Invariant 6: the number of tombstones is bounded while a read hangs.
#[test]
fn tombstones_are_bounded_while_a_read_hangs() {
    let mut settings = pleg_core::Settings::default();
    settings.tombstones_max = 1;
    let mut t = Script::confirmed_with(settings);
    t.request_reinspect("p");
    for n in 0..100_010 {
        t.event(Deleted, &format!("never-heard-of-{n}"), None, &[]);
        if t.inspections_wanted() == 0 {
            break;
        }
    }
    assert!(t.inspections_wanted() > 0, "it still hangs");
    assert_eq!(t.machine.counters().tombstones, 100_001);
}

/// Tombstones over the maximum were dropped only with the next list, however many there were. Each
/// one that is dropped early is counted.
#[test]
fn tombstones_do_not_exceed_their_maximum_between_lists() {
    let mut settings = pleg_core::Settings::default();
    settings.tombstones_max = 10;
    let mut t = Script::confirmed_with(settings);
    for n in 0..30 {
        let id = format!("never-heard-of-{n}");
        t.event(Deleted, &id, s(), &[]);
        let tombstones = t.machine.counters().tombstones;
        assert!(tombstones <= 10, "{tombstones} tombstones");
    }
    let counters = t.machine.counters();
    assert_eq!((counters.tombstones, counters.tombstones_dropped), (10, 20));
}

/// The row has only id and state, and without the record nothing else is known of the id.
#[test]
fn list_that_shows_an_id_whose_tombstone_was_dropped_is_repeated_at_once() {
    let mut settings = pleg_core::Settings::default();
    settings.tombstones_max = 1;
    let mut t = Script::confirmed_with(settings);
    t.node = ["a", "c", "e"]
        .map(|id| container(id, "p", ReportedState::Running))
        .to_vec();
    t.node.push(ready());
    t.relist();
    t.settle();
    t.relist();
    t.event(Deleted, "c", s(), &[]);
    t.pass(600_000);
    t.event(Deleted, "a", s(), &[]);
    assert_eq!(t.machine.counters().tombstones, 1);
    t.answer_list();
    assert_eq!(t.lists_wanted(), 1);
}

/// A pod whose removed container a list has shown; a list and an inspection that begin at the same
/// instant are requested.
fn reappeared_and_read_twice_at_once() -> Script {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.relist_shows(&rows(ReportedState::Running));
    t.pass(10);
    t.relist();
    t.wait("p", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 1));
    t.list(&rows(ReportedState::Running));
    t
}

/// The list row had no details.
#[test]
fn status_read_at_the_instant_of_a_list_is_shown_of_a_removed_id() {
    let mut t = reappeared_and_read_twice_at_once();
    let c = with_memory_limit(status("c", "p", ReportedState::Running), 7);
    t.inspect(&[ready(), c], &[]);
    assert!(t.get("p").status.containers[0].details.resources.is_some());
}

/// Only a newer read proves that it is absent.
#[test]
fn absence_at_the_instant_of_a_list_does_not_hide_a_removed_id() {
    let mut t = reappeared_and_read_twice_at_once();
    t.inspect(&[ready()], &["c"]);
    assert_eq!(t.get("p").status.containers.len(), 1);
}

/// The list row has no details, but the end was known before the removal.
#[test]
fn removed_id_that_is_listed_as_exited_is_shown_with_its_code() {
    let mut t = Script::running();
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    t.event(Deleted, "c", s(), &[]);
    t.relist_shows(&rows(ReportedState::Exited));
    let shown = t.get("p").status.containers[0].clone();
    assert_eq!(shown.details.exit_code, Some(3));
}

/// A list that began before the end of a pod does not confirm it.
#[test]
fn end_of_a_pod_is_confirmed_by_a_list_begun_after_it() {
    let mut t = Script::running();
    t.relist();
    t.pass(10);
    t.event(Deleted, "c", s(), &[]);
    t.event(Deleted, "s", None, &[]);
    t.list(&[]);
    assert_eq!(t.swept, []);
    t.relist_shows(&[]);
    assert_eq!(t.swept, [PodUid::from("p")]);
}
