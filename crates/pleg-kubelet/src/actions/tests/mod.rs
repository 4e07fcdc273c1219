//! Each rule of the decision: one status of a pod whose worker has just started, and the actions.

#![allow(clippy::unwrap_used, reason = "tests")]

mod history;
mod init;
mod random;
mod support;

use std::sync::Arc;

use crate::actions::Desired;
use crate::backoff::BackOff;
use crate::history::PodHistory;
use crate::probe::ProbeResults;
use crate::spec::RestartPolicy::{self, Always, Never, OnFailure};
use crate::spec::{ExitCodes, PodSpec};
use pleg::ContainerState::Created;
use pleg::PodView;
use pleg::core::{CallError, CallErrorKind, SandboxState};

use support::*;

/// The rule, the containers of the specification, the view, the actions.
type Row<'a> = (&'a str, RestartPolicy, &'a [&'a str], PodView, &'a str);

pub(super) fn check(rows: &[Row<'_>], desired: impl Fn(&PodSpec) -> Desired<'_>) {
    for row in rows {
        let spec = spec(row.1, row.2);
        check_row(row, &desired(&spec));
    }
}

/// Of pods that are to run, whose probes have these results.
pub(super) fn check_with_probes(rows: &[Row<'_>], results: &ProbeResults) {
    for row in rows {
        let spec = spec(row.1, row.2);
        let mut desired = Desired::run(&spec);
        desired.probes = Some(results);
        check_row(row, &desired);
    }
}

fn check_row((rule, _, _, view, expected): &Row<'_>, desired: &Desired<'_>) {
    let (mut history, mut back_off) = (PodHistory::default(), BackOff::default());
    let actions = decide(desired, view, &mut history, &mut back_off, at(20));
    assert_eq!(words(&actions), *expected, "{rule}");
}

pub(super) fn run(spec: &PodSpec) -> Desired<'_> {
    Desired::run(spec)
}

#[test]
fn own_restart_policy_and_exit_codes_of_a_container_decide() {
    let (in_42, not_in_42) = (ExitCodes::In(vec![42]), ExitCodes::NotIn(vec![42]));
    for (of_pod, own, codes, code, is_restarted) in [
        (Always, Some(Never), None, 1, false),
        (Never, Some(Always), None, 0, true),
        (Never, Some(OnFailure), None, 1, true),
        (Never, Some(OnFailure), None, 0, false),
        (Always, Some(Never), Some(&in_42), 42, true),
        (Always, Some(Never), Some(&in_42), 1, false),
        (Always, Some(Never), Some(&not_in_42), 42, false),
        (Always, Some(Never), Some(&not_in_42), 1, true),
        (Never, None, Some(&in_42), 42, false),
    ] {
        let mut spec = spec(of_pod, &["a"]);
        spec.containers[0].restart_policy = own;
        spec.containers[0].restart_on = codes.into_iter().cloned().collect();
        for sandbox in [ready(0), not_ready(0)] {
            let pod = view(9, &[sandbox], &[exited("a", code)]);
            let (mut history, mut back_off) = (PodHistory::default(), BackOff::default());
            let desired = Desired::run(&spec);
            let actions = decide(&desired, &pod, &mut history, &mut back_off, at(20));
            let is_started = !actions.start.is_empty() || actions.create_sandbox.is_some();
            assert_eq!(is_started, is_restarted, "{spec:?}: {code}");
            assert_eq!(actions.phase.is_some(), !is_restarted);
        }
    }
}

#[test]
fn nothing_is_started_before_the_addresses_of_the_sandbox_are_read() {
    let mut unread = ready(0);
    let error = CallError::new("PodSandboxStatus", CallErrorKind::Failed, "test");
    unread.error = Some(Arc::new(error));
    let pod = view(1, &[unread], &[]);
    let mut one = spec(Always, &["a"]);
    let check = |rule, spec: &PodSpec, expected| {
        let row: Row<'_> = (rule, Always, &["a"], pod.clone(), expected);
        check_row(&row, &Desired::run(spec));
    };
    check("a network of its own", &one, "inspect, a status missing");
    one.host_network = true;
    check("the runtime reports none", &one, "start a 0");
}

#[test]
fn changed_container_is_stopped_although_its_sandbox_is_unread() {
    let mut unread = ready(0);
    let error = CallError::new("PodSandboxStatus", CallErrorKind::Failed, "test");
    unread.error = Some(Arc::new(error));
    let pod = view(1, &[unread], &[hash(running("a"), "g")]);
    let one = spec(Always, &["a"]);
    check_row(&("", Always, &["a"], pod, "stop a-0"), &Desired::run(&one));
}

#[test]
fn sandboxes() {
    let unknown = sandbox(0, SandboxState::Unknown { last_ready: None });
    let mut phantom = ready(0);
    phantom.status_missing = true;
    let succeeded = [exited("a", 0), exited("b", 1)];
    check(
        &[
            (
                "no_sandbox_creates_one_and_starts_nothing_yet",
                Always,
                &["a", "b"],
                view(9, &[], &[]),
                "create sandbox 0",
            ),
            (
                "no_sandbox_creates_one_before_init_containers",
                Always,
                &["i", "j", "a"],
                view(9, &[], &[]),
                "create sandbox 0",
            ),
            (
                "ended_sandbox_is_replaced_with_the_next_attempt",
                Always,
                &["a"],
                view(9, &[not_ready(3)], &[]),
                "create sandbox 4",
            ),
            (
                "container_of_an_ended_sandbox_is_stopped_before_another_is_created",
                Always,
                &["a"],
                view(9, &[not_ready(0)], &[running("a")]),
                "stop a-0",
            ),
            (
                "created_container_of_an_ended_sandbox_is_removed_first",
                Always,
                &["a"],
                view(9, &[not_ready(0)], &[container("a", Created)]),
                "remove a-0",
            ),
            (
                "several_ready_sandboxes_are_stopped",
                Always,
                &["a"],
                view(9, &[ready(1), ready(0)], &[]),
                "stop sandbox-1, stop sandbox-0",
            ),
            (
                "containers_are_stopped_before_their_sandboxes",
                Always,
                &["a"],
                view(9, &[ready(1), ready(0)], &[running("a")]),
                "stop a-0, stop sandbox-1",
            ),
            (
                "older_ready_sandbox_is_stopped_before_another_is_created",
                Always,
                &["a"],
                view(9, &[not_ready(1), ready(0)], &[]),
                "stop sandbox-0",
            ),
            (
                "status_missing_ready_sandbox_blocks_another",
                Always,
                &["a"],
                view(9, std::slice::from_ref(&phantom), &[]),
                " status missing",
            ),
            (
                "older_status_missing_sandbox_does_not_stop_the_pod",
                Always,
                &["a"],
                view(9, &[ready(1), phantom.clone()], &[]),
                "start a 0",
            ),
            (
                "older_status_missing_ready_sandbox_is_stopped_before_another_is_created",
                Always,
                &["a"],
                view(9, &[not_ready(1), phantom], &[]),
                "stop sandbox-0",
            ),
            (
                "unknown_sandbox_decides_nothing",
                Always,
                &["a"],
                view(9, &[unknown], &[running("a")]),
                " status missing",
            ),
            (
                "under_never_a_pod_that_has_run_gets_no_other_sandbox",
                Never,
                &["a", "b"],
                view(9, &[not_ready(0)], &[exited("a", 0)]),
                "terminating, terminated, Failed",
            ),
            (
                "under_on_failure_succeeded_containers_are_not_repeated",
                OnFailure,
                &["a", "b"],
                view(9, &[not_ready(0)], &succeeded),
                "create sandbox 1",
            ),
            (
                "under_on_failure_a_pod_that_succeeded_gets_no_other_sandbox",
                OnFailure,
                &["a"],
                view(9, &[not_ready(0)], &succeeded[..1]),
                "terminating, terminated, Succeeded",
            ),
            (
                "under_on_failure_a_missing_exit_code_decides_nothing",
                OnFailure,
                &["a"],
                view(9, &[not_ready(0)], &[exited("a", None)]),
                "inspect, a exit code",
            ),
        ],
        run,
    );
}

#[test]
fn regular_containers() {
    let pod = |containers: &[_]| view(9, &[ready(0)], containers);
    let both = [exited("a", 0), exited("b", 3)];
    let elsewhere = in_sandbox(running("a"), 7);
    let twice = [attempt(running("a"), 1), running("a")];
    check(
        &[
            (
                "missing_container_is_started",
                Always,
                &["a", "b"],
                pod(&[running("a")]),
                "start b 0",
            ),
            (
                "running_container_is_kept",
                Always,
                &["a"],
                pod(&[running("a")]),
                "",
            ),
            (
                "container_with_its_hash_is_kept",
                Always,
                &["a"],
                pod(&[hash(running("a"), "h")]),
                "",
            ),
            (
                "container_with_another_hash_is_stopped",
                Never,
                &["a"],
                pod(&[hash(running("a"), "g")]),
                "stop a-0",
            ),
            (
                "ended_container_is_restarted_under_always",
                Always,
                &["a"],
                pod(&[exited("a", 0)]),
                "start a 1",
            ),
            (
                "missing_exit_code_does_not_matter_under_always",
                Always,
                &["a"],
                pod(&[exited("a", None)]),
                "start a 1",
            ),
            (
                "failed_container_is_restarted_under_on_failure",
                OnFailure,
                &["a", "b"],
                pod(&both),
                "start b 1",
            ),
            (
                "missing_exit_code_decides_nothing_under_on_failure",
                OnFailure,
                &["a"],
                pod(&[exited("a", None)]),
                "inspect, a exit code",
            ),
            (
                "missing_exit_code_decides_nothing_under_never",
                Never,
                &["a"],
                pod(&[exited("a", None)]),
                "inspect, a exit code",
            ),
            (
                "missing_exit_code_of_one_does_not_withhold_another",
                OnFailure,
                &["a", "b"],
                pod(&[exited("a", None)]),
                "start b 0, inspect, a exit code",
            ),
            (
                "ended_container_is_left_under_never",
                Never,
                &["a", "b"],
                pod(&[exited("a", 1), running("b")]),
                "",
            ),
            (
                "pod_with_all_ended_stops_its_sandbox_with_the_phase",
                Never,
                &["a", "b"],
                pod(&both),
                "stop sandbox-0, terminating, Failed",
            ),
            (
                "pod_with_all_succeeded_stops_its_sandbox_with_the_phase",
                OnFailure,
                &["a"],
                pod(&both[..1]),
                "stop sandbox-0, terminating, Succeeded",
            ),
            (
                "created_container_is_started",
                Always,
                &["a"],
                pod(&[container("a", Created)]),
                "start existing a-0",
            ),
            (
                "created_container_with_another_hash_is_removed",
                Always,
                &["a"],
                pod(&[hash(container("a", Created), "g")]),
                "remove a-0",
            ),
            (
                "created_container_beside_a_running_one_is_removed",
                Always,
                &["a"],
                pod(&[attempt(container("a", Created), 1), running("a")]),
                "remove a-1",
            ),
            (
                "of_two_created_containers_the_older_is_removed_and_none_started",
                Always,
                &["a"],
                pod(&[attempt(container("a", Created), 1), container("a", Created)]),
                "remove a-0",
            ),
            (
                "unknown_container_is_stopped_and_not_replaced_yet",
                Always,
                &["a"],
                pod(&[container("a", UNKNOWN)]),
                "stop a-0",
            ),
            (
                "status_missing_running_container_blocks_its_name",
                Always,
                &["a", "b"],
                pod(&[status_missing(running("a"))]),
                "start b 0, a status missing",
            ),
            (
                "status_missing_created_container_blocks_its_name",
                Always,
                &["a"],
                pod(&[status_missing(container("a", Created))]),
                "a status missing",
            ),
            (
                "status_missing_ended_container_blocks_nothing",
                Always,
                &["a"],
                pod(&[status_missing(exited("a", 1))]),
                "start a 1",
            ),
            (
                "status_missing_running_container_with_another_hash_is_stopped",
                Always,
                &["a"],
                pod(&[status_missing(hash(running("a"), "g"))]),
                "stop a-0",
            ),
            (
                "container_of_another_sandbox_is_stopped_and_not_replaced_yet",
                Always,
                &["a"],
                pod(&[elsewhere]),
                "stop a-0",
            ),
            (
                "of_two_running_containers_the_older_is_stopped",
                Always,
                &["a"],
                pod(&twice),
                "stop a-0",
            ),
            (
                "container_that_is_not_in_the_specification_is_left",
                Always,
                &["a"],
                pod(&[running("a"), running("z")]),
                "",
            ),
            (
                "attempt_follows_the_highest_that_exists",
                Always,
                &["a"],
                pod(&[attempt(exited("a", 1), 4), attempt(exited("a", 1), 7)]),
                "start a 8",
            ),
        ],
        run,
    );
}
