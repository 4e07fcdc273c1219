//! Decisions that depend on earlier ones.

use crate::actions::{Actions, Desired};
use crate::backoff::BackOff;
use crate::history::PodHistory;
use crate::names;
use crate::probe::{ProbeKind, ProbeResults};
use crate::spec::PodSpec;
use crate::spec::RestartPolicy::{Always, Never, OnFailure};
use pleg::core::{CallError, CallErrorKind};
use pleg::{ContainerState, Exit, PodView};

use super::support::*;

/// The worker of one pod.
struct Worker {
    spec: PodSpec,
    history: PodHistory,
    back_off: BackOff,
}

impl Worker {
    fn new(spec: PodSpec) -> Self {
        Self {
            spec,
            history: PodHistory::default(),
            back_off: BackOff::default(),
        }
    }

    fn actions(&mut self, seconds: u32, view: &PodView, desired: &Desired<'_>) -> Actions {
        let (history, back_off) = (&mut self.history, &mut self.back_off);
        decide(desired, view, history, back_off, at(seconds))
    }

    fn run(&mut self, seconds: u32, view: &PodView) -> String {
        let spec = self.spec.clone();
        words(&self.actions(seconds, view, &Desired::run(&spec)))
    }

    fn terminate(&mut self, seconds: u32, view: &PodView) -> Actions {
        let spec = self.spec.clone();
        self.actions(seconds, view, &Desired::terminate(Some(&spec), None))
    }
}

#[test]
fn attempt_of_a_create_without_effect_is_not_used_again() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let nothing = view(1, &[], &[]);
    assert_eq!(worker.run(1, &nothing), "create sandbox 0");
    assert_eq!(worker.run(2, &nothing), "create sandbox 1");
    let pod = view(3, &[ready(2)], &[]);
    assert_eq!(worker.run(3, &pod), "start a 0");
    assert_eq!(worker.run(4, &pod), "start a 1");
}

#[test]
fn attempt_of_a_removed_container_is_not_used_again() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let mut record = Exit::new("a-4", "a", at(1));
    record.attempt = 4;
    let pod = view(2, &[ready(0)], &[]);
    worker.history.observe(&pod.status, &[record], at(2));
    assert_eq!(worker.run(2, &pod), "start a 5");
}

#[test]
fn newest_end_is_that_of_the_highest_attempt_whenever_it_was_detected() {
    let mut worker = Worker::new(spec(OnFailure, &["a"]));
    let record = |attempt: u32, code, detected| {
        let mut record = Exit::new(format!("a-{attempt}"), "a", at(detected));
        (record.attempt, record.exit_code) = (attempt, Some(code));
        record
    };
    let pod = view(9, &[ready(0)], &[]);
    let late = [record(1, 0, 5), record(0, 1, 7)];
    worker.history.observe(&pod.status, &late, at(9));
    assert_eq!(
        worker.run(9, &pod),
        "stop sandbox-0, terminating, Succeeded"
    );
}

#[test]
fn known_exit_code_is_kept_when_a_later_status_lacks_it() {
    let mut worker = Worker::new(spec(OnFailure, &["a"]));
    let known = view(5, &[ready(0)], &[exited("a", 0)]);
    worker.history.observe(&known.status, &[], at(5));
    let unknown = view(6, &[ready(0)], &[exited("a", None)]);
    assert_eq!(
        worker.run(6, &unknown),
        "stop sandbox-0, terminating, Succeeded"
    );
}

#[test]
fn changed_container_has_a_back_off_of_its_own() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let ended = |seconds| view(seconds, &[ready(0)], &[exited("a", 1)]);
    assert_eq!(worker.run(3, &ended(3)), "start a 1");
    assert_eq!(worker.run(4, &ended(4)), "a backs off 10s");
    worker.spec.containers[0].hash = "changed".to_owned();
    assert_eq!(worker.run(5, &ended(5)), "start a 2");
}

#[test]
fn restart_count_is_one_more_than_that_of_the_last_container() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let noted = annotated(exited("a", 1), names::RESTART_COUNT, "2");
    let desired = worker.spec.clone();
    let pod = view(3, &[ready(0)], &[attempt(noted, 7)]);
    let start = worker
        .actions(3, &pod, &Desired::run(&desired))
        .start
        .remove(0);
    assert_eq!((start.attempt, start.restart_count), (8, 3));
    let removed = view(60, &[ready(0)], &[]);
    let start = worker
        .actions(60, &removed, &Desired::run(&desired))
        .start
        .remove(0);
    assert_eq!((start.attempt, start.restart_count), (9, 3));
}

#[test]
fn sandbox_that_cannot_be_created_is_tried_every_ten_seconds_and_delays_no_container() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let ended = |sandboxes: &[_]| view(3, sandboxes, &[exited("a", 1)]);
    let failed = ended(&[not_ready(0)]);
    for (seconds, does) in [(3, "create sandbox 1"), (4, ""), (13, "create sandbox 2")] {
        assert_eq!(worker.run(seconds, &failed), does);
    }
    let spec = worker.spec.clone();
    let due = worker.actions(14, &failed, &Desired::run(&spec)).due;
    assert_eq!(due, Some(at(23)));
    let again = ended(&[ready(2), not_ready(0)]);
    assert_eq!(worker.run(15, &again), "start a 1");
}

#[test]
fn restart_is_delayed_until_the_back_off_has_passed() {
    let mut worker = Worker::new(spec(Always, &["a", "b"]));
    let crashed = |n| view(9, &[ready(0)], &[attempt(exited("a", 1), n), running("b")]);
    assert_eq!(worker.run(1, &crashed(0)), "start a 1");
    assert_eq!(worker.run(3, &crashed(1)), "a backs off 10s");
    let spec = worker.spec.clone();
    let actions = worker.actions(12, &crashed(1), &Desired::run(&spec));
    assert_eq!(actions.due, Some(at(13)), "10 s after its end was seen");
    assert_eq!(worker.run(13, &crashed(1)), "start a 2");
    assert_eq!(worker.run(14, &crashed(2)), "a backs off 20s");
}

#[test]
fn exit_code_unknown_after_a_successful_status_counts_as_failure() {
    let mut worker = Worker::new(spec(OnFailure, &["a"]));
    let seen_at = |seconds| view(seconds, &[ready(0)], &[exited("a", None)]);
    assert_eq!(worker.run(5, &seen_at(4)), "inspect, a exit code");
    assert_eq!(
        worker.run(6, &seen_at(5)),
        "inspect, a exit code",
        "not read since"
    );
    assert_eq!(worker.run(7, &seen_at(6)), "start a 1");
}

#[test]
fn exit_code_stays_undecided_while_its_status_fails() {
    let mut worker = Worker::new(spec(OnFailure, &["a"]));
    for container in [
        failing(exited("a", None)),
        status_missing(exited("a", None)),
    ] {
        let pod = |seconds| view(seconds, &[ready(0)], std::slice::from_ref(&container));
        assert_eq!(worker.run(5, &pod(4)), "inspect, a exit code");
        assert_eq!(worker.run(9, &pod(8)), "inspect, a exit code");
    }
    let error = CallError::new("ContainerStatus", CallErrorKind::NotFound, "test");
    assert_eq!(error.kind, CallErrorKind::NotFound);
    assert_eq!(
        worker.run(10, &view(10, &[ready(0)], &[])),
        "start a 1",
        "it is gone"
    );
}

#[test]
fn removed_container_keeps_its_exit_code() {
    let mut worker = Worker::new(spec(OnFailure, &["a", "b"]));
    let both = view(4, &[ready(0)], &[exited("a", 0), running("b")]);
    assert_eq!(worker.run(5, &both), "");
    assert_eq!(worker.run(6, &view(6, &[ready(0)], &[running("b")])), "");
}

#[test]
fn ended_pod_is_not_started_again_when_its_containers_are_removed() {
    let mut worker = Worker::new(spec(Never, &["a"]));
    let ended = view(4, &[not_ready(0)], &[exited("a", 0)]);
    let terminated = "terminating, terminated, Succeeded";
    assert_eq!(worker.run(5, &ended), terminated);
    assert_eq!(worker.run(6, &view(6, &[], &[])), terminated);
}

#[test]
fn changed_resources_are_set_and_read_back() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    worker.spec.containers[0].resources = Some(memory(64));
    let with = |seconds, bytes| view(seconds, &[ready(0)], &[with_memory(running("a"), bytes)]);
    assert_eq!(worker.run(5, &with(4, 64)), "");
    worker.spec.containers[0].resources = Some(memory(32));
    assert_eq!(worker.run(6, &with(4, 64)), "resize a-0");
    assert_eq!(worker.run(7, &with(4, 64)), "inspect", "an old status");
    assert_eq!(worker.run(8, &with(8, 32)), "");
}

/// The call failed, or the runtime rounds what it is given.
#[test]
fn change_of_resources_without_effect_is_repeated_ever_more_rarely() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    worker.spec.containers[0].resources = Some(memory(64));
    let pod = |seconds| view(seconds, &[ready(0)], &[with_memory(running("a"), 60)]);
    for (seconds, due) in [(5, 15), (15, 35), (35, 75), (75, 155)] {
        assert_eq!(worker.run(seconds, &pod(seconds)), "resize a-0");
        let spec = worker.spec.clone();
        let later = worker.actions(seconds + 2, &pod(seconds + 2), &Desired::run(&spec));
        assert_eq!((words(&later), later.due), (String::new(), Some(at(due))));
    }
    let unreported = view(160, &[ready(0)], &[running("a")]);
    assert_eq!(worker.run(160, &unreported), "");
}

#[test]
fn stop_without_effect_is_repeated_after_ten_seconds() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let unknown = view(4, &[ready(0)], &[container("a", UNKNOWN)]);
    assert_eq!(worker.run(5, &unknown), "stop a-0");
    let spec = worker.spec.clone();
    let actions = worker.actions(6, &unknown, &Desired::run(&spec));
    assert_eq!(
        (words(&actions), actions.due),
        (String::new(), Some(at(15)))
    );
    assert_eq!(worker.run(15, &unknown), "stop a-0");
    let ended = view(16, &[ready(0)], &[exited("a", 137)]);
    assert_eq!(worker.run(16, &ended), "start a 1");
}

#[test]
fn created_container_that_did_not_start_is_removed_and_created_again() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = container("a", ContainerState::Created);
    let pod = |seconds| view(seconds, &[ready(0)], std::slice::from_ref(&created));
    assert_eq!(worker.run(5, &pod(4)), "start existing a-0");
    assert_eq!(
        worker.run(6, &pod(4)),
        "",
        "the start may still take effect"
    );
    assert_eq!(worker.run(15, &pod(4)), "inspect");
    assert_eq!(worker.run(15, &pod(15)), "remove a-0");
    assert_eq!(worker.run(16, &view(16, &[ready(0)], &[])), "start a 1");
}

/// containerd sends no event of it.
#[test]
fn exit_code_of_a_start_that_failed_late_is_read_before_the_container_is_removed() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = view(4, &[ready(0)], &[container("a", ContainerState::Created)]);
    assert_eq!(worker.run(5, &created), "start existing a-0");
    assert_eq!(worker.run(15, &created), "inspect");
    let ended = view(15, &[ready(0)], &[exited("a", 128)]);
    assert_eq!(worker.run(15, &ended), "start a 1");
}

/// Its replacement waits for it, unlike for garbage.
#[test]
fn removal_that_a_container_waits_for_is_repeated_every_ten_seconds() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = container("a", ContainerState::Created);
    let pod = |seconds| view(seconds, &[ready(0)], std::slice::from_ref(&created));
    assert_eq!(worker.run(5, &pod(4)), "start existing a-0");
    for seconds in [15, 25, 35, 45, 55, 65] {
        assert_eq!(worker.run(seconds, &pod(seconds)), "remove a-0");
        assert_eq!(worker.run(seconds + 9, &pod(seconds + 9)), "");
    }
}

#[test]
fn container_whose_create_was_overtaken_is_removed() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let nothing = view(4, &[ready(0)], &[]);
    assert_eq!(worker.run(5, &nothing), "start a 0");
    assert_eq!(worker.run(6, &nothing), "start a 1");
    let late = |attempt_: u32| attempt(container("a", ContainerState::Created), attempt_);
    assert_eq!(
        worker.run(7, &view(7, &[ready(0)], &[late(0)])),
        "remove a-0"
    );
    assert_eq!(
        worker.run(8, &view(8, &[ready(0)], &[late(1)])),
        "start existing a-1"
    );
}

#[test]
fn start_does_not_delay_the_stop_of_the_container() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = container("a", ContainerState::Created);
    let pod = view(4, &[ready(0)], &[created]);
    assert_eq!(worker.run(5, &pod), "start existing a-0");
    let runs = view(6, &[ready(0)], &[running("a")]);
    assert_eq!(words(&worker.terminate(6, &runs)), "stop a-0, terminating");
}

#[test]
fn sidecars_get_what_is_left_of_the_grace_period() {
    let mut worker = Worker::new(spec(Always, &["s1", "s2", "a"]));
    let grace = |actions: Actions| actions.stop[0].grace;
    let all = view(
        4,
        &[ready(0)],
        &[running("a"), running("s2"), running("s1")],
    );
    assert_eq!(grace(worker.terminate(5, &all)), 30 * SECOND);
    let sidecars = view(15, &[ready(0)], &[running("s2"), running("s1")]);
    assert_eq!(grace(worker.terminate(15, &sidecars)), 20 * SECOND);
    let last = view(40, &[ready(0)], &[running("s1")]);
    assert_eq!(grace(worker.terminate(40, &last)), 2 * SECOND, "never less");
}

#[test]
fn stop_that_failed_uses_up_no_grace_period() {
    let mut worker = Worker::new(spec(Always, &["s1", "a"]));
    let grace = |actions: Actions| actions.stop[0].grace;
    let all = |seconds| view(seconds, &[ready(0)], &[running("a"), running("s1")]);
    assert_eq!(grace(worker.terminate(5, &all(4))), 30 * SECOND);
    // The runtime was down.
    assert_eq!(grace(worker.terminate(50, &all(49))), 30 * SECOND);
    let ended = view(52, &[ready(0)], &[exited("a", 0), running("s1")]);
    assert_eq!(grace(worker.terminate(52, &ended)), 28 * SECOND);
}

/// The container ended by a stop whose call failed, because the runtime went down.
#[test]
fn outage_after_a_stop_uses_up_no_grace_period() {
    let mut worker = Worker::new(spec(Always, &["s1", "a"]));
    let all = view(4, &[ready(0)], &[running("a"), running("s1")]);
    let _ = worker.terminate(5, &all);
    worker.history.stops_have_failed();
    let ended = view(50, &[ready(0)], &[exited("a", 0), running("s1")]);
    let stop = worker.terminate(50, &ended).stop;
    assert_eq!(stop[0].grace, 30 * SECOND);
}

#[test]
fn stuck_container_that_is_started_after_all_is_not_replaced() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = || hash(container("a", ContainerState::Created), "g");
    let pod = |seconds| view(seconds, &[ready(0)], &[created()]);
    for seconds in [5, 20, 240] {
        assert_eq!(worker.run(seconds, &pod(seconds)), "remove a-0");
    }
    // The specification is the earlier one again.
    worker.spec.containers[0].hash = "g".to_owned();
    assert_eq!(worker.run(260, &pod(260)), "start existing a-0");
}

/// Its start took effect late.
#[test]
fn stuck_container_that_runs_blocks_a_new_sandbox() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let dead = |seconds, state| view(seconds, &[not_ready(0)], &[container("a", state)]);
    for seconds in [5, 20, 240] {
        let pod = dead(seconds, ContainerState::Created);
        assert_eq!(worker.run(seconds, &pod), "remove a-0");
    }
    let runs = dead(260, ContainerState::Running);
    assert_eq!(worker.run(260, &runs), "stop a-0");
}

#[test]
fn container_that_can_neither_be_started_nor_removed_does_not_block_its_name() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = || container("a", ContainerState::Created);
    let pod = |seconds| view(seconds, &[ready(0)], &[created()]);
    assert_eq!(worker.run(5, &pod(4)), "start existing a-0");
    for seconds in [20, 30, 240] {
        assert_eq!(worker.run(seconds, &pod(seconds)), "remove a-0");
    }
    assert_eq!(worker.run(260, &pod(260)), "remove a-0, start a 1");
    let both = view(270, &[ready(0)], &[attempt(running("a"), 1), created()]);
    assert_eq!(worker.run(270, &both), "remove a-0", "the new one is kept");
}

#[test]
fn container_that_can_neither_be_started_nor_removed_does_not_block_a_new_sandbox() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let created = || container("a", ContainerState::Created);
    worker.run(5, &view(4, &[ready(0)], &[created()]));
    let dead = |seconds| view(seconds, &[not_ready(0)], &[created()]);
    for seconds in [20, 30, 240] {
        assert_eq!(worker.run(seconds, &dead(seconds)), "remove a-0");
    }
    assert_eq!(worker.run(260, &dead(260)), "remove a-0, create sandbox 1");
}

#[test]
fn grace_period_of_an_unknown_specification_is_the_noted_one() {
    let mut worker = Worker::new(spec(Always, &[]));
    let noted = |name, grace| annotated(running(name), names::GRACE_PERIOD, grace);
    let containers = [noted("a", "7"), running("b"), noted("c", "0")];
    let pod = view(4, &[ready(0)], &containers);
    let stop = worker
        .actions(5, &pod, &Desired::terminate(None, None))
        .stop;
    let grace: Vec<_> = stop.iter().map(|stop| stop.grace).collect();
    assert_eq!(grace, [7 * SECOND, 30 * SECOND, 2 * SECOND]);
}

#[test]
fn changed_hash_replaces_a_container_in_two_runs() {
    let mut worker = Worker::new(spec(Always, &["a"]));
    let old = hash(running("a"), "g");
    assert_eq!(worker.run(5, &view(4, &[ready(0)], &[old])), "stop a-0");
    let ended = view(6, &[ready(0)], &[hash(exited("a", 143), "g")]);
    let desired = worker.spec.clone();
    let actions = worker.actions(6, &ended, &Desired::run(&desired));
    assert_eq!(words(&actions), "start a 1");
    assert!(actions.replaced.contains("a"), "for the status");
}

#[test]
fn stopped_container_of_another_hash_is_replaced_whatever_it_exits_with() {
    for policy in [Always, OnFailure, Never] {
        let mut worker = Worker::new(spec(policy, &["a"]));
        let old = hash(running("a"), "g");
        assert_eq!(worker.run(5, &view(4, &[ready(0)], &[old])), "stop a-0");
        let ended = view(6, &[ready(0)], &[hash(exited("a", 0), "g")]);
        assert_eq!(worker.run(6, &ended), "start a 1", "{policy:?}");
        let replacement = view(7, &[ready(0)], &[attempt(exited("a", 0), 1)]);
        let again = worker.run(7, &replacement);
        assert_eq!(again.contains("Succeeded"), policy != Always, "{again}");
    }
}

#[test]
fn stopped_container_of_unknown_state_is_replaced_whatever_it_exits_with() {
    let mut worker = Worker::new(spec(Never, &["a"]));
    let unknown = view(4, &[ready(0)], &[container("a", UNKNOWN)]);
    assert_eq!(worker.run(5, &unknown), "stop a-0");
    let ended = view(6, &[ready(0)], &[exited("a", 137)]);
    assert_eq!(worker.run(6, &ended), "start a 1");
}

#[test]
fn container_that_failed_a_probe_is_replaced_unless_the_policy_is_never() {
    for (policy, then) in [
        (OnFailure, "start a 1"),
        (Never, "stop sandbox-0, terminating, Succeeded"),
    ] {
        let mut worker = Worker::new(spec(policy, &["a"]));
        let mut results = ProbeResults::default();
        results.failed.insert("a-0".into(), ProbeKind::Liveness);
        let spec = worker.spec.clone();
        let mut desired = Desired::run(&spec);
        desired.probes = Some(&results);
        let unhealthy = view(4, &[ready(0)], &[running("a")]);
        assert_eq!(words(&worker.actions(5, &unhealthy, &desired)), "stop a-0");
        // It handles SIGTERM.
        let ended = view(6, &[ready(0)], &[exited("a", 0)]);
        assert_eq!(worker.run(6, &ended), then, "{policy:?}");
    }
}

#[test]
fn container_of_a_sandbox_that_died_runs_again_unless_the_policy_is_never() {
    for (policy, then) in [
        (OnFailure, "create sandbox 1"),
        (Never, "terminating, terminated, Succeeded"),
    ] {
        let mut worker = Worker::new(spec(policy, &["a"]));
        let died = view(4, &[not_ready(0)], &[running("a")]);
        assert_eq!(worker.run(5, &died), "stop a-0");
        let ended = view(6, &[not_ready(0)], &[exited("a", 0)]);
        assert_eq!(worker.run(6, &ended), then, "{policy:?}");
    }
}

/// The exit code counts again: the container has ended by itself.
#[test]
fn container_whose_stop_failed_and_that_is_healthy_again_is_judged_by_its_exit_code() {
    // A stop that was made a short time ago may still take effect.
    for (healthy, then) in [
        (14, "start a 1"),
        (15, "stop sandbox-0, terminating, Succeeded"),
    ] {
        let mut worker = Worker::new(spec(OnFailure, &["a"]));
        let mut results = ProbeResults::default();
        results.failed.insert("a-0".into(), ProbeKind::Liveness);
        let spec = worker.spec.clone();
        let mut desired = Desired::run(&spec);
        desired.probes = Some(&results);
        let runs = |at| view(at, &[ready(0)], &[running("a")]);
        assert_eq!(words(&worker.actions(5, &runs(4), &desired)), "stop a-0");
        assert_eq!(worker.run(healthy, &runs(healthy)), "");
        let ended = view(60, &[ready(0)], &[exited("a", 0)]);
        assert_eq!(worker.run(60, &ended), then, "healthy again at {healthy} s");
    }
}

/// It never ran, so it has not ended.
#[test]
fn removed_container_that_was_not_started_is_replaced_under_never() {
    let mut worker = Worker::new(spec(Never, &["a"]));
    let created = |at| view(at, &[ready(0)], &[container("a", ContainerState::Created)]);
    assert_eq!(worker.run(5, &created(4)), "start existing a-0");
    assert_eq!(worker.run(15, &created(15)), "remove a-0");
    let gone = view(16, &[ready(0)], &[]);
    let record = Exit::new("a-0", "a", at(16));
    worker.history.observe(&gone.status, &[record], at(16));
    assert_eq!(worker.run(16, &gone), "start a 1");
}
