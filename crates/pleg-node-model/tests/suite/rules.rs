//! Tests each rule of the model alone.

use crate::common::{Recorder, id, pod};
use pleg_node_model::{
    Kind, Label, NewContainer, Node, Overrides, Profile, Refused, Shown, Skew, Source, State, Step,
};

/// A sandbox S with a running container A.
fn running(profile: Profile) -> Recorder {
    let mut r = Recorder::new(profile);
    r.play("run S, create S A, start A");
    r
}

fn containerd() -> Profile {
    Profile::containerd("2.1.0")
}

fn list_shows(node: &Node, at: u64) -> Option<Shown> {
    node.object("A").unwrap().shown(at, Source::List)
}

#[test]
fn name_of_sandbox_or_container_is_reserved_until_removal() {
    let mut r = running(containerd());
    let again = |node: &mut Node| node.run_sandbox("S2", &pod(), 0, 9_000);
    assert_eq!(again(&mut r.node), Err(Refused::NameTaken(id("S"))));
    let second = NewContainer::new("B", "S", "a");
    let taken = r.node.create_container(second, 9_000);
    assert_eq!(taken, Err(Refused::NameTaken(id("A"))));
    r.node.remove_sandbox(&id("S"), 10_000);
    assert!(again(&mut r.node).is_ok());
}

#[test]
fn container_starts_once_and_only_in_ready_sandbox() {
    let mut r = running(containerd());
    let again = r.node.start(&id("A"), 9_000);
    assert_eq!(again, Err(Refused::WrongState(State::Running)));
    r.play("create S B");
    r.node.kill_sandbox(&id("S"), 9_000);
    let refused = r.node.start(&id("B"), 9_100);
    assert_eq!(refused, Err(Refused::WrongState(State::Exited)));
    let unknown = r.node.start(&id("X"), 9_200);
    assert_eq!(unknown, Err(Refused::NotFound(id("X"))));
}

#[test]
fn some_runtime_versions_report_the_oom_reason_late() {
    for (profile, in_event) in [
        (Profile::containerd("1.7.24"), "Error"),
        (Profile::containerd("2.2.7"), "Error"),
        (Profile::containerd("2.3.0"), "OOMKilled"),
        (Profile::crio("1.36.3"), "OOMKilled"),
    ] {
        let mut r = running(profile);
        let events = r.node.oom_kill(&id("A"), 20_000, 9_000);
        let event = r.node.event(&events[0], events[0].at).unwrap();
        assert_eq!(event.containers[0].as_ref().unwrap().reason, in_event);
        let later = r.node.status("A", Kind::Container, 20_000).unwrap();
        assert_eq!((later.exit_code, later.reason), (Some(137), "OOMKilled"));
    }
}

#[test]
fn status_can_first_show_no_or_a_wrong_exit_code() {
    let mut r = running(containerd());
    r.node.exit(&id("A"), 3, "Error", 9_000);
    let code = |node: &Node, at| node.status("A", Kind::Container, at).unwrap().exit_code;
    for early in [None, Some(255)] {
        let exit = &mut r.node.object_mut("A").unwrap().exit;
        (exit.code_known_at, exit.early_code) = (10_000, early);
        assert_eq!(code(&r.node, 9_500), early);
        assert_eq!(code(&r.node, 10_000), Some(3));
    }
}

#[test]
fn lists_and_statuses_can_lag_behind_changes() {
    let mut r = running(containerd());
    r.node.exit(&id("A"), 3, "Error", 9_000);
    r.node.object_mut("A").unwrap().lag(1_000, 2_000);
    assert_eq!(list_shows(&r.node, 9_999), Some(Shown::Running));
    assert_eq!(list_shows(&r.node, 10_000), Some(Shown::Exited));
    let status = |at| r.node.status("A", Kind::Container, at).unwrap().row.shown;
    assert_eq!(status(10_999), Shown::Running);
    assert_eq!(status(11_000), Shown::Exited);
    let event = r.node.object("A").unwrap().shown(9_000, Source::Event);
    assert_eq!(event, Some(Shown::Exited), "events do not lag");
    // If lists show an exit late, they do not show the removal before the exit.
    r.node.object_mut("A").unwrap().lag(5_000, 0);
    r.node.remove_container(&id("A"), 10_000);
    assert_eq!(list_shows(&r.node, 13_999), Some(Shown::Running));
    assert_eq!(list_shows(&r.node, 14_000), None);
}

/// Lists and statuses show a wrong report (`Overrides`) until it expires at the instant 10,000.
#[test]
fn overrides_replace_reported_state_until_they_expire() {
    let row_shows_exited = Skew::RowShows(State::Exited);
    let (unknown, exited) = (Some(Shown::Unknown), Some(Shown::Exited));
    let as_is = Some(Shown::Running);
    for (unknown_until, hidden_until, skew, in_list, in_status) in [
        (10_000, 0, None, unknown, unknown),
        (0, 10_000, None, None, None),
        (0, 0, Some(row_shows_exited), exited, as_is),
        (0, 0, Some(Skew::StatusMissing), as_is, None),
    ] {
        let mut r = running(containerd());
        let overrides = Overrides {
            unknown_until,
            hidden_until,
            skew: skew.map(|skew| (skew, 10_000)),
        };
        r.node.object_mut("A").unwrap().overrides = overrides;
        let status = |at| r.node.status("A", Kind::Container, at).map(|s| s.row.shown);
        let shown = |at| (list_shows(&r.node, at), status(at));
        assert_eq!(shown(9_999), (in_list, in_status), "{overrides:?}");
        assert_eq!(shown(10_000), (as_is, as_is), "{overrides:?}");
    }
}

#[test]
fn list_of_one_pod_selects_objects_by_uid_label() {
    let mut r = running(containerd());
    for (name, label) in [("B", Label::Missing), ("C", Label::Wrong("other".into()))] {
        let mut new = NewContainer::new(name, "S", name);
        new.label = label;
        r.node.create_container(new, 9_000).unwrap();
    }
    let listed = |uid| {
        let rows = r.node.rows(Kind::Container, uid, 10_000).into_iter();
        rows.map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(None), ["A", "B", "C"]);
    assert_eq!(listed(Some("uid-p")), ["A"]);
    assert_eq!(listed(Some("other")), ["C"]);
}

/// CRI-O reads the statuses for an event after the change. By then the container may already be gone.
#[test]
fn crio_sends_no_stopped_event_after_container_removal() {
    for (profile, is_sent) in [(containerd(), true), (Profile::crio("1.36.3"), false)] {
        let mut r = running(profile);
        let events = r.node.exit(&id("A"), 0, "Completed", 9_000);
        r.node.remove_container(&id("A"), 10_000);
        let event = r.node.event(&events[0], 11_000);
        assert_eq!(event.is_some(), is_sent);
        assert!(event.is_none_or(|event| event.containers.is_empty()));
    }
}

#[test]
fn removal_of_a_sandbox_can_be_interrupted_after_any_step() {
    let mut r = running(containerd());
    let steps = r.node.removal(&id("S"));
    assert_eq!(steps.len(), 5);
    for step in &steps[..4] {
        r.node.step(step, 9_000);
    }
    assert!(matches!(steps[3], Step::Announce(_)));
    let rows = r.node.rows(Kind::Sandbox, None, r.node.latest());
    assert_eq!(rows.len(), 1, "lists still show the sandbox");
    assert_eq!(r.node.state(&id("S")), Some(State::Exited));
    assert_eq!(r.node.state(&id("A")), Some(State::Removed));
}

#[test]
fn no_two_changes_happen_at_one_instant() {
    let mut r = running(containerd());
    r.node.remove_sandbox(&id("S"), 9_000);
    let changes = r.node.objects().flat_map(|o| &o.history);
    let mut at: Vec<_> = changes.map(|c| c.at).collect();
    at.sort_unstable();
    assert!(at.windows(2).all(|two| two[0] < two[1]), "{at:?}");
    assert_eq!(r.node.latest(), *at.last().unwrap());
}

#[test]
fn node_model_forgets_only_removed_sandboxes_and_containers() {
    let mut r = running(containerd());
    r.node.forget(&id("A"));
    assert!(r.node.object("A").is_some(), "A still exists");
    r.node.remove_container(&id("A"), 9_000);
    r.node.forget(&id("A"));
    assert!(r.node.object("A").is_none());
}
