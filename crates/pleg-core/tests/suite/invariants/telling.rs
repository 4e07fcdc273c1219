//! Invariant 9 and section 3: what is told, once, and with what.

use pleg_core::{EventType, LifecycleType, ReportedState, RuntimeEvent, WallTime};

use crate::script::{Script, exited, nameless, sandbox, status};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, PodSync};

fn s() -> Option<pleg_core::Report> {
    Some(sandbox("s", "p", ReportedState::Running))
}

fn running() -> Script {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(
        Created,
        "c",
        s(),
        &[status("c", "p", ReportedState::Created)],
    );
    t.event(
        Started,
        "c",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    t
}

/// An end that was told before the pod was named is kept with the pod, and nowhere else: what is
/// learned of it later would be missing there (found by seed 409336).
#[test]
fn terminal_record_moves_with_its_container_to_the_pod_named_later() {
    let mut t = Script::confirmed();
    let unnamed = || Some(nameless(sandbox("s", "p", ReportedState::Running)));
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

/// An id first learned as removed stays silent, also when its exit is told afterwards.
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

/// Exit details are kept even when they arrive after the removal, and said.
#[test]
fn exit_code_after_the_removal_is_announced() {
    let mut t = running();
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

/// The reason of an exit may arrive late, also where the STOPPED came without the status.
#[test]
fn exit_reason_is_read_again_after_two_seconds() {
    let mut t = running();
    t.event(Stopped, "c", s(), &[]);
    t.inspect(
        &[
            sandbox("s", "p", ReportedState::Running),
            exited("c", "p", 137, "Error"),
        ],
        &[],
    );
    t.pass(2_000);
    assert!(t.read_wanted());
    t.read(exited("c", "p", 137, "OOMKilled"));
    assert_eq!(&*t.view().status.containers[0].details.reason, "OOMKilled");
    t.pass(5_000);
    assert!(!t.read_wanted());
}

/// An exit that is known to be clean is not read again.
#[test]
fn zero_exit_is_not_read_again() {
    let mut t = running();
    t.event(Stopped, "c", s(), &[exited("c", "p", 0, "Completed")]);
    t.pass(5_000);
    assert!(!t.read_wanted());
}

/// A Died does not wait for the code of a pod that cannot be read.
#[test]
fn died_of_a_failing_pod_is_announced_at_once() {
    let mut t = running();
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.event(Stopped, "c", s(), &[]);
    assert_eq!(t.said(ContainerDied, "c"), 1);
}

/// Its exit code is said when some read brings it.
#[test]
fn exit_code_read_after_died_is_announced() {
    let mut t = running();
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.event(Stopped, "c", s(), &[]);
    t.wait("p", t.now());
    t.announced.clear();
    t.inspect(&[s().expect("ready"), exited("c", "p", 3, "Error")], &[]);
    let said: Vec<_> = t.announced.iter().map(|a| (a.0, a.3)).collect();
    assert_eq!(said, [(ContainerChanged, Some(3)), (PodSync, None)]);
}

/// When something was removed is the stamp of the event that told of its removal.
#[test]
fn removed_has_the_timestamp_of_its_own_event() {
    let mut t = running();
    let removed = WallTime::from_nanos(1_700_000_000_123_456_789);
    t.deliver(RuntimeEvent {
        id: "c".into(),
        event: Deleted,
        created_at: removed.as_nanos(),
        sandbox: s(),
        containers: Vec::new(),
    });
    let last = t.events.last().map(|e| (e.event, e.happened_at));
    assert_eq!(last, Some((ContainerRemoved, Some(removed))));
}

/// An end that was acknowledged does not come back with its removal.
#[test]
fn acknowledged_terminal_record_does_not_return_with_the_removal() {
    let mut t = running();
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
    assert_eq!(t.ends.len(), 1);
    t.machine.acknowledge(&"c".into());
    t.drain();
    assert!(t.ends.is_empty());
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(t.said(ContainerRemoved, "c"), 1);
    assert!(t.ends.is_empty());
}

/// A thousand bad exits are not read again all at a time.
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
