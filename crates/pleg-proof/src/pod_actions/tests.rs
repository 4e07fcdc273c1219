//! Decisions on statuses as the reconciler gives them.

use pleg_core::{
    ContainerDetails, Id, Identity, Inspection, Instant, Kind, List, Output, PodStatus, Reconciler,
    Report, ReportedState, SandboxDetails, Settings, WallTime,
};

use super::{Policy, Spec, Step, decide};
use crate::runtime::{WALL_ORIGIN, uid};

const APP: Spec = Spec {
    policy: Policy::Always,
    names: &["app"],
};

const ON_FAILURE: Spec = Spec {
    policy: Policy::OnFailure,
    ..APP
};

const NEVER: Spec = Spec {
    policy: Policy::Never,
    ..APP
};

fn identity(kind: Kind, attempt: u32, created: i64) -> Identity {
    let mut identity = Identity::new(kind);
    identity.pod = Some(uid(0));
    identity.attempt = attempt;
    identity.created_at = WallTime::claimed(WALL_ORIGIN + created);
    identity
}

fn sandbox(id: &str, shown: ReportedState, attempt: u32) -> Report {
    let identity = identity(Kind::Sandbox, attempt, i64::from(attempt));
    Report::new(id, shown, identity, SandboxDetails::default())
}

/// A container of the name `app`.
fn app(
    id: &str,
    sandbox: &str,
    shown: ReportedState,
    attempt: u32,
    exit_code: Option<i32>,
) -> Report {
    let mut identity = identity(Kind::Container, attempt, 10 + i64::from(attempt));
    identity.sandbox = Some(sandbox.into());
    identity.name = Some("app".into());
    let mut details = ContainerDetails::default();
    details.exit_code = exit_code;
    Report::new(id, shown, identity, details)
}

/// What the reconciler publishes of a pod of which a list and an inspection show these.
fn status(reports: &[Report]) -> PodStatus {
    let now = Instant::from_nanos(1_000_000);
    let mut status = PodStatus::nothing(uid(0));
    let Ok(mut reconciler) = Reconciler::new(Settings::default(), now) else {
        return status;
    };
    while let Some(output) = reconciler.poll_output() {
        match output {
            Output::List { ticket, .. } => reconciler.handle_list(
                now,
                List {
                    ticket,
                    began: now,
                    ended: now,
                    rows: Ok(reports.iter().cloned().collect()),
                },
            ),
            Output::Inspect { ticket, .. } => reconciler.handle_inspection(
                now,
                Inspection {
                    ticket,
                    began: now,
                    ended: now,
                    found: reports.to_vec(),
                    ..Inspection::new(None)
                },
            ),
            Output::Publish { view, .. } => status = (*view.status).clone(),
            _ => {}
        }
    }
    status
}

fn steps(spec: Option<&Spec>, reports: &[Report]) -> Vec<Step> {
    decide(spec, &status(reports)).steps
}

fn id(id: &str) -> Id {
    id.into()
}

fn create(attempt: Option<u32>) -> Step {
    let name = "app";
    Step::Create { name, attempt }
}

#[test]
fn pod_without_sandbox_gets_sandbox_and_containers() {
    let run = Step::RunSandbox { attempt: 0 };
    assert_eq!(steps(Some(&APP), &[]), [run, create(None)]);
}

#[test]
fn created_container_is_started() {
    let pod = [
        sandbox("s", ReportedState::Running, 0),
        app("c", "s", ReportedState::Created, 0, None),
    ];
    assert_eq!(steps(Some(&APP), &pod), [Step::Start(id("c"))]);
}

#[test]
fn running_and_unknown_containers_are_left_alone() {
    for shown in [ReportedState::Running, ReportedState::Unknown] {
        let pod = [
            sandbox("s", ReportedState::Running, 0),
            app("c", "s", shown, 0, None),
        ];
        assert_eq!(steps(Some(&APP), &pod), [], "{shown:?}");
    }
}

#[test]
fn exited_container_is_restarted_by_policy_and_exit_code() {
    let again = vec![create(Some(3))];
    let done = vec![Step::StopSandbox(id("s"))];
    let cases = [
        (APP, Some(0), again.clone()),
        (APP, None, again.clone()),
        (ON_FAILURE, Some(0), done.clone()),
        (ON_FAILURE, Some(1), again),
        (ON_FAILURE, None, vec![]),
        (NEVER, Some(1), done),
    ];
    for (spec, exit_code, expected) in cases {
        let pod = [
            sandbox("s", ReportedState::Running, 0),
            app("c", "s", ReportedState::Exited, 2, exit_code),
        ];
        let steps = steps(Some(&spec), &pod);
        assert_eq!(steps, expected, "{:?} {exit_code:?}", spec.policy);
    }
}

#[test]
fn surplus_exited_containers_are_removed_and_the_newest_is_kept() {
    let pod = [
        sandbox("s", ReportedState::Running, 0),
        app("a", "s", ReportedState::Exited, 0, Some(1)),
        app("b", "s", ReportedState::Exited, 1, Some(1)),
        app("c", "s", ReportedState::Running, 2, None),
    ];
    assert_eq!(steps(Some(&APP), &pod), [Step::Remove(id("a"))]);
}

/// A creation that took effect late is newer than the container that was started instead of it.
#[test]
fn late_created_container_is_removed_while_another_runs() {
    let pod = [
        sandbox("s", ReportedState::Running, 0),
        app("a", "s", ReportedState::Running, 0, None),
        app("b", "s", ReportedState::Created, 1, None),
        app("c", "s", ReportedState::Exited, 2, Some(0)),
    ];
    assert_eq!(steps(Some(&APP), &pod), [Step::Remove(id("b"))]);
}

#[test]
fn pod_with_ended_sandbox_is_killed_and_begins_again() {
    let pod = [
        sandbox("s", ReportedState::Exited, 4),
        app("c", "s", ReportedState::Running, 0, None),
    ];
    let kill = Step::Stop(id("c"));
    let run = Step::RunSandbox { attempt: 5 };
    let expected = [kill.clone(), run, create(Some(1))];
    assert_eq!(steps(Some(&APP), &pod), expected);
    assert_eq!(steps(Some(&NEVER), &pod), [kill], "it is not restarted");
}

#[test]
fn pod_with_unknown_sandbox_is_left_alone() {
    let pod = [
        sandbox("s", ReportedState::Unknown, 0),
        app("c", "s", ReportedState::Exited, 0, Some(1)),
    ];
    assert_eq!(steps(Some(&APP), &pod), []);
}

#[test]
fn deleted_pod_is_stopped_and_removed() {
    let pod = [
        sandbox("s", ReportedState::Running, 0),
        app("a", "s", ReportedState::Exited, 0, Some(1)),
        app("b", "s", ReportedState::Running, 1, None),
    ];
    let expected = [
        Step::Stop(id("b")),
        Step::StopSandbox(id("s")),
        Step::Remove(id("b")),
        Step::Remove(id("a")),
        Step::RemoveSandbox(id("s")),
    ];
    assert_eq!(steps(None, &pod), expected);
    assert_eq!(steps(None, &[]), []);
}
