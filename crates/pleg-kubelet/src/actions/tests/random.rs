//! Invariants of every decision, on random pods and histories.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pleg::ContainerState::{Created, Exited};
use pleg::core::{SandboxState, SandboxStatus};
use pleg::{ContainerStatus, PodStatus};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::actions::Actions;

use super::support::*;

const NAMES: [&str; 5] = ["i1", "s1", "i2", "a", "b"];
/// States of sandboxes and containers. A state that is listed twice is drawn twice as often.
const SANDBOX: &str = "ready,ready,ready,ended,ended,unknown,ready missing";
const STATE: &str = "created,running,running,exited,exited 0,exited 1,unknown";
const REST: &str = ",, failing, missing, hash=h, hash=g failing";

fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> {
    select(words.split(',').collect::<Vec<_>>())
}

/// A container in the notation of the tests. The key (attempt and name) keeps duplicates out of a pod.
fn a_container() -> impl Strategy<Value = ((Reverse<u32>, &'static str), String)> {
    let parts = (one_of(STATE), 0..3, one_of(REST), 0..3u32, select(&NAMES));
    parts.prop_map(|(state, sandbox, rest, attempt, name)| {
        let words = format!("{name}-{attempt} {state} in={sandbox}{rest}");
        ((Reverse(attempt), name), words)
    })
}

fn a_pod() -> impl Strategy<Value = String> {
    let parts = (vec(one_of(SANDBOX), 0..3), vec(a_container(), 0..8));
    parts.prop_map(|(sandboxes, containers)| {
        let sandboxes = sandboxes.into_iter().enumerate().rev();
        let mut words: Vec<_> = sandboxes.map(|(n, s)| format!("sandbox-{n} {s}")).collect();
        if words.is_empty() {
            words.push("no sandbox".to_owned());
        }
        words.extend(BTreeMap::from_iter(containers).into_values());
        words.join(", ")
    })
}

fn a_spec() -> impl Strategy<Value = String> {
    let names = subsequence(NAMES.to_vec(), 1..=NAMES.len());
    let parts = (one_of("Always,OnFailure,Never"), names);
    parts.prop_map(|(policy, names)| format!("{policy} {}", names.join(" ")))
}

/// No container is started while one of its name may run, and no sandbox is created while a container may run.
fn check(actions: &Actions, pod: &PodStatus) -> Result<(), TestCaseError> {
    for start in &actions.start {
        for c in pod.containers.iter().filter(|c| *c.name == *start.name) {
            let is_existing = start.existing.as_ref() == Some(&c.id);
            let may_run = match is_existing {
                true => c.status_missing || c.state != Created,
                false => c.state != Exited,
            };
            prop_assert!(!may_run, "{start:?} although {c:?} may run");
        }
        let stops = actions.stop.iter().any(|stop| stop.name == start.name);
        prop_assert!(!stops, "{} is stopped and started in one run", start.name);
        let active = pod.active_sandbox().filter(|s| !s.status_missing);
        prop_assert!(active.is_some_and(|s| Some(&s.id) == actions.sandbox.as_ref()));
    }
    let starts = !actions.start.is_empty() || actions.create_sandbox.is_some();
    prop_assert!(!actions.terminating || !starts);
    let is_ended = |s: &SandboxStatus| s.state == SandboxState::NotReady;
    let is_over =
        pod.sandboxes.iter().all(is_ended) && pod.containers.iter().all(|c| c.state == Exited);
    prop_assert!(actions.create_sandbox.is_none() || is_over);
    let ended = |c: &ContainerStatus| matches!(c.state, Created | Exited);
    prop_assert!(!actions.terminated || pod.containers.iter().all(ended));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_container_starts_while_another_of_its_name_may_run(
        spec in a_spec(),
        runs in vec((a_pod(), 0..40u32, 0..20u32, prop::bool::weighted(0.1)), 1..5),
    ) {
        let (mut worker, mut now) = (Worker::new(&spec), 40);
        let (mut tried, mut sandboxes) = (BTreeSet::new(), BTreeSet::new());
        for (pod, read, later, terminating) in runs {
            now += later;
            worker.terminating = terminating;
            let view = view(read, &pod);
            worker.run(now, &view);
            check(&worker.last, &view.status)?;
            for start in worker.last.start.iter().filter(|s| s.existing.is_none()) {
                let is_new = tried.insert((start.name.clone(), start.attempt));
                prop_assert!(is_new, "{start:?} was tried before");
            }
            if let Some(attempt) = worker.last.create_sandbox {
                prop_assert!(sandboxes.insert(attempt));
            }
        }
    }
}
