//! Random statuses and histories: what must hold for every decision.

use std::collections::BTreeSet;

use crate::actions::{Actions, Desired};
use crate::backoff::BackOff;
use crate::history::PodHistory;
use crate::spec::{PodSpec, RestartPolicy};
use pleg::ContainerState::{self, Created, Exited, Running};
use pleg::core::{SandboxState, SandboxStatus};
use pleg::{ContainerStatus, PodView};
use proptest::prelude::*;

use super::support::*;

const NAMES: [&str; 5] = ["i1", "s1", "i2", "a", "b"];

fn a_container() -> impl Strategy<Value = ContainerStatus> {
    let state = prop::sample::select(vec![Created, Running, Running, Exited, Exited, UNKNOWN]);
    let code = prop::sample::select(vec![None, Some(0), Some(1)]);
    let name = prop::sample::select(NAMES.to_vec());
    let details = (
        code,
        any::<bool>(),
        prop::sample::select(vec![None, Some("h"), Some("g")]),
    );
    (
        name,
        state,
        0..3u32,
        0..3u32,
        prop::bool::weighted(0.2),
        details,
    )
        .prop_map(
            |(name, state, number, sandbox, is_missing, (code, fails, with_hash))| {
                let mut c = exited(name, code.filter(|_| state == Exited));
                c.state = state;
                c = in_sandbox(attempt(c, number), sandbox);
                if let Some(value) = with_hash {
                    c = hash(c, value);
                }
                c.status_missing = is_missing;
                if fails { failing(c) } else { c }
            },
        )
}

fn a_sandbox() -> impl Strategy<Value = SandboxStatus> {
    use SandboxState::{NotReady, Ready, Unknown};
    let states = vec![Ready, Ready, NotReady, Unknown { last_ready: None }];
    (prop::sample::select(states), prop::bool::weighted(0.2)).prop_map(|(state, is_missing)| {
        let mut s = sandbox(0, state);
        s.status_missing = is_missing;
        s
    })
}

fn a_view() -> impl Strategy<Value = PodView> {
    let sandboxes = prop::collection::vec(a_sandbox(), 0..3);
    let containers = prop::collection::vec(a_container(), 0..8);
    (sandboxes, containers, 0..40u32).prop_map(|(mut sandboxes, mut containers, seconds)| {
        for (number, s) in (0..).zip(sandboxes.iter_mut().rev()) {
            s.attempt = number;
            s.id = format!("sandbox-{number}").into();
        }
        let mut ids = BTreeSet::new();
        containers.retain(|c| ids.insert(c.id.clone()));
        containers.sort_by_key(|c| std::cmp::Reverse(c.attempt));
        view(seconds, &sandboxes, &containers)
    })
}

fn a_spec() -> impl Strategy<Value = PodSpec> {
    use RestartPolicy::{Always, Never, OnFailure};
    let names = prop::sample::subsequence(NAMES.to_vec(), 1..=NAMES.len());
    (prop::sample::select(vec![Always, OnFailure, Never]), names)
        .prop_map(|(policy, names)| spec(policy, &names))
}

fn of_name<'a>(view: &'a PodView, name: &str) -> impl Iterator<Item = &'a ContainerStatus> {
    let containers = view.status.containers.iter();
    containers.filter(move |c| *c.name == *name)
}

fn is_live(state: ContainerState) -> bool {
    state != Exited
}

/// Nothing is started beside a container of its name that may run, and no attempt is used twice.
fn check_starts(actions: &Actions, view: &PodView) -> Result<(), TestCaseError> {
    for start in &actions.start {
        for c in of_name(view, &start.name) {
            if start.existing.as_ref() == Some(&c.id) {
                prop_assert_eq!(c.state, Created);
                prop_assert!(!c.status_missing);
                continue;
            }
            prop_assert!(
                !is_live(c.state),
                "{} is started beside {}",
                start.name,
                c.id
            );
            prop_assert!(start.existing.is_some() || c.attempt < start.attempt);
        }
        let stops = actions.stop.iter().any(|stop| stop.name == start.name);
        prop_assert!(!stops, "{} is stopped and started in one run", start.name);
    }
    let names: BTreeSet<_> = actions.start.iter().map(|s| &s.name).collect();
    prop_assert_eq!(names.len(), actions.start.len());
    Ok(())
}

/// A sandbox is created only when nothing of the pod may run, and containers are stopped before
/// their sandboxes.
fn check_sandboxes(actions: &Actions, view: &PodView) -> Result<(), TestCaseError> {
    let status = &view.status;
    if actions.create_sandbox.is_some() {
        let is_ended = |s: &SandboxStatus| s.state == SandboxState::NotReady;
        prop_assert!(status.sandboxes.iter().all(is_ended));
        prop_assert!(status.containers.iter().all(|c| !is_live(c.state)));
        prop_assert!(actions.start.is_empty());
    } else if !actions.start.is_empty() {
        let active = status.active_sandbox().filter(|s| !s.status_missing);
        prop_assert!(active.is_some_and(|s| Some(&s.id) == actions.sandbox.as_ref()));
    }
    for id in &actions.stop_sandboxes {
        let mut inside = status
            .containers
            .iter()
            .filter(|c| c.sandbox.as_ref() == Some(id));
        prop_assert!(inside.all(|c| matches!(c.state, Created | Exited)));
    }
    if actions.terminating {
        prop_assert!(actions.start.is_empty() && actions.create_sandbox.is_none());
    }
    if actions.terminated {
        let runs = |c: &ContainerStatus| !matches!(c.state, Created | Exited);
        prop_assert!(!status.containers.iter().any(runs));
    }
    for id in &actions.remove {
        let c = status.containers.iter().find(|c| c.id == *id);
        prop_assert!(
            c.is_some_and(|c| c.state == Created),
            "only created ones are removed"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_is_started_beside_what_may_run(
        spec in a_spec(),
        views in prop::collection::vec((a_view(), 0..20u32, prop::bool::weighted(0.1)), 1..5),
    ) {
        let (mut history, mut back_off) = (PodHistory::default(), BackOff::default());
        let (mut now, mut tried, mut sandboxes) = (40, BTreeSet::new(), BTreeSet::new());
        for (view, later, terminates) in views {
            now += later;
            let desired = match terminates {
                true => Desired::terminate(Some(&spec), None),
                false => Desired::run(&spec),
            };
            let at = at(now);
            let actions = decide(&desired, &view, &mut history, &mut back_off, at);
            check_starts(&actions, &view)?;
            check_sandboxes(&actions, &view)?;
            for start in actions.start.iter().filter(|s| s.existing.is_none()) {
                let is_new = tried.insert((start.name.clone(), start.attempt));
                prop_assert!(is_new, "{start:?} was tried before");
            }
            if let Some(attempt) = actions.create_sandbox {
                prop_assert!(sandboxes.insert(attempt));
            }
        }
    }
}
