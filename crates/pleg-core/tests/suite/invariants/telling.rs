//! Invariant 9 and the rules of announcements: what is announced, once, and with which data.

use pleg_core::{
    EventType, Instant, LifecycleType, List, Output, Reconciler, ReportedState, Rows, RuntimeEvent,
    Settings, WallTime,
};

use crate::script::{Script, exited, nameless, ready, s, sandbox, status};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, PodSync};

/// A kubelet cannot start a container whose name it does not know: when it becomes known, that is
/// announced (found by seed 30461).
#[test]
fn name_that_becomes_known_after_the_state_is_announced_as_pod_sync() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(Created, "c", s(), &[]);
    assert_eq!(t.said(ContainerChanged, "c"), 1);
    let before = t.said(PodSync, "p");
    let named = status("c", "p", ReportedState::Created);
    t.inspect(&[ready(), named.clone()], &[]);
    assert_eq!(
        Some(&t.view().status.containers[0].name),
        named.identity.name.as_ref()
    );
    assert_eq!(t.said(PodSync, "p"), before + 1);
}

/// The terminal record of a container that exited before its pod was named moves to that pod.
/// Otherwise it would miss later details (found by seed 409336).
#[test]
fn terminal_record_moves_with_its_container_to_the_pod_named_later() {
    let mut t = Script::confirmed();
    let unnamed = || Some(nameless(ready()));
    let mut end = exited("c", "p", 5, "Error");
    t.event(Created, "s", unnamed(), &[]);
    t.event(Stopped, "c", unnamed(), &[nameless(end.clone())]);
    let kept = |t: &Script, pod: &str| {
        let ends = t.ends_of.get(pod).into_iter().flatten();
        ends.map(|end| (end.id.to_string(), end.exit_code))
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&t, "s"), [("c".to_owned(), Some(5))]);
    end.identity.sandbox = Some("s".into());
    t.event(Started, "s", s(), &[end]);
    assert_eq!(
        (kept(&t, "s"), kept(&t, "p")),
        (vec![], vec![("c".to_owned(), Some(5))])
    );
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(kept(&t, "s"), []);
    assert_eq!(t.ends_of.get("p").map(|ends| ends[0].removed), Some(true));
}

/// An id first learned as removed is never announced, also if its exit is reported afterwards.
#[test]
fn id_first_learned_as_removed_is_never_announced() {
    let mut t = Script::confirmed();
    t.event(Deleted, "c", s(), &[]);
    t.announced.clear();
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert!(
        t.announced.iter().all(|(_, id, ..)| id != "c"),
        "{:?}",
        t.announced
    );
    assert_eq!(t.said(PodSync, "p"), 0);
}

/// Exit details that arrive after the removal are kept and announced.
#[test]
fn exit_code_after_the_removal_is_announced() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(
        (t.said(ContainerDied, "c"), t.said(ContainerRemoved, "c")),
        (1, 1)
    );
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert!(
        t.announced
            .contains(&(ContainerChanged, "c".to_owned(), 0, Some(3)))
    );
}

/// The reason of an exit may arrive late, also after a STOPPED without statuses.
#[test]
fn exit_reason_is_read_again_after_two_seconds() {
    for sandbox in [s(), None] {
        let mut t = Script::running();
        t.event(Stopped, "c", sandbox, &[]);
        let found = [ready(), exited("c", "p", 137, "Error")];
        t.inspect(&found, &[]);
        t.pass(2_000);
        assert_eq!(t.reads_wanted(), 1);
        t.read(exited("c", "p", 137, "OOMKilled"));
        assert_eq!(&*t.view().status.containers[0].details.reason, "OOMKilled");
        t.pass(5_000);
        assert!(!t.read_wanted());
    }
}

/// Died does not wait for the exit code of a pod that cannot be read. The code is announced when a
/// read returns it.
#[test]
fn died_of_a_failing_pod_is_announced_at_once_and_its_exit_code_later() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.event(Stopped, "c", s(), &[]);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    t.wait("p", t.now());
    t.announced.clear();
    t.inspect(&[ready(), exited("c", "p", 3, "Error")], &[]);
    let said: Vec<_> = t.announced.iter().map(|a| (a.0, a.3)).collect();
    assert_eq!(said, [(ContainerChanged, Some(3)), (PodSync, None)]);
}

/// `happened_at` of a removal is the timestamp of the event that reported it.
#[test]
fn removed_has_the_timestamp_of_its_own_event() {
    let mut t = Script::running();
    let removed = WallTime::from_nanos(1_700_000_000_123_456_789);
    let mut event = RuntimeEvent::new("c", Deleted);
    event.created_at = removed.as_nanos();
    event.sandbox = s();
    t.deliver(event);
    let last = t.events.last().map(|e| (e.event, e.happened_at));
    assert_eq!(last, Some((ContainerRemoved, Some(removed))));
}

/// The reasons of a thousand failed containers are not all read at once.
#[test]
fn concurrent_exit_reason_reads_are_bounded() {
    let mut t = Script::confirmed();
    for n in 0..40 {
        let (pod, sb, c) = (format!("p{n}"), format!("s{n}"), format!("c{n}"));
        let ready = || Some(sandbox(&sb, &pod, ReportedState::Running));
        t.event(Created, &sb, ready(), &[]);
        t.event(
            Created,
            &c,
            ready(),
            &[status(&c, &pod, ReportedState::Created)],
        );
        t.event(Stopped, &c, ready(), &[exited(&c, &pod, 1, "Error")]);
    }
    t.pass(3_000);
    assert_eq!(t.reads_wanted(), 8);
    let mut read = 0;
    while t.reads_wanted() > 0 {
        assert!(t.reads_wanted() <= 8);
        while let Some(id) = t.read_wanted_of() {
            let pod = id.as_str().replace('c', "p");
            t.read(exited(id.as_str(), &pod, 1, "Error"));
            read += 1;
        }
        t.pass(200);
    }
    assert_eq!(read, 40);
}

#[test]
fn list_of_an_empty_node_refreshes_nothing() {
    let origin = Instant::from_nanos(1);
    let mut machine = Reconciler::new(Settings::default(), origin).expect("valid");
    let began = Instant::from_nanos(2);
    let list = List {
        ticket: 1.into(),
        began,
        ended: began,
        rows: Ok(Rows::default()),
    };
    machine.handle_list(began, list);
    let outputs: Vec<_> = std::iter::from_fn(|| machine.poll_output()).collect();
    let is_applied = |o: &Output| matches!(o, Output::ListApplied { .. });
    let refreshes = |o: &Output| matches!(o, Output::Refresh { .. });
    assert!(outputs.iter().any(is_applied), "{outputs:?}");
    assert!(!outputs.iter().any(refreshes), "{outputs:?}");
}
