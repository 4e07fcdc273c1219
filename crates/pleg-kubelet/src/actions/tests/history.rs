//! Decisions that depend on earlier decisions.

use crate::probe::ProbeKind::Liveness;

use super::support::*;

#[test]
fn worker_reuses_no_attempt_number_and_forgets_no_exit_code() {
    timelines(
        "
        The attempt of a create without effect is not used again: Always a
        1 | no sandbox      | create sandbox-0
        2 | no sandbox      | create sandbox-1
        3 | sandbox-2 ready | start a-0
        4 | sandbox-2 ready | start a-1

        A container of an earlier attempt that appears late is removed: Always a
        5 read 4 |             | start a-0
        6 read 4 |             | start a-1
        7        | a created   | remove a-0
        8        | a-1 created | start existing a-1

        A sandbox that cannot be created is tried every 10 s, and delays no container: Always a
        3  | sandbox-0 ended, a exited 1 | create sandbox-1
        4  | sandbox-0 ended, a exited 1 |
        13 | sandbox-0 ended, a exited 1 | create sandbox-2
        14 | sandbox-0 ended, a exited 1 | | 23
        15 | sandbox-2 ready, sandbox-0 ended, a exited 1 | start a-1

        A known exit code stays when a later status lacks it: OnFailure a b
        5 | a exited 0, b running |
        6 | a exited, b running   |
        7 | b running             |
        8 | a exited, b exited 0  | stop sandbox-0, terminating, Succeeded

        An exit code that a later, successful status lacks counts as a failure: OnFailure a
        5 read 4 | a exited | inspect, a exit code
        6 read 5 | a exited | inspect, a exit code
        7 read 6 | a exited | start a-1

        An unknown exit code is awaited while status calls fail, until the container is gone: OnFailure a
        5 read 4 | a exited failing | inspect, a exit code
        9 read 8 | a exited failing | inspect, a exit code
        9 read 8 | a exited missing | inspect, a exit code
        10       |                  | start a-1

        An ended pod is not started again when its containers are removed: Never a
        5 | sandbox-0 ended, a exited 0 | terminating, terminated, Succeeded
        6 | no sandbox                  | terminating, terminated, Succeeded
        ",
    );
}

#[test]
fn exit_of_highest_attempt_counts_in_any_order_of_detection() {
    let mut worker = Worker::new("Always a");
    worker.observe_exit(4, None, 2);
    worker.runs("2 | | start a-5");

    let mut worker = Worker::new("OnFailure a");
    worker.observe_exit(1, Some(0), 5);
    worker.observe_exit(0, Some(1), 7);
    worker.runs("9 | | stop sandbox-0, terminating, Succeeded");

    // The container was removed before it ran, so the policy `Never` does not prevent another one.
    let mut worker = Worker::new("Never a");
    worker.runs("5 read 4 | a created | start existing a-0");
    worker.runs("15 | a created | remove a-0");
    worker.observe_exit(0, None, 16);
    worker.runs("16 | | start a-1");
}

#[test]
fn restart_count_is_the_last_containers_count_plus_one() {
    let mut worker = Worker::new("Always a");
    for row in ["3 | a-7 exited 1 count=2 | start a-8", "60 | | start a-9"] {
        worker.runs(row);
        assert_eq!(worker.last.start[0].restart_count, 3);
    }
}

#[test]
fn restart_is_delayed_until_the_back_off_has_passed() {
    let mut worker = Worker::new("Always a b");
    worker.runs(
        "
        1  | a exited 1, b running   | start a-1
        # 10 s after the worker saw the exit.
        3  | a-1 exited 1, b running | a backs off 10s
        12 | a-1 exited 1, b running | a backs off 10s | 13
        13 | a-1 exited 1, b running | start a-2
        14 | a-2 exited 1, b running | a backs off 20s
        ",
    );
    // A container with a changed image has a new back-off, so it starts at once.
    worker.spec.containers[0].image = Some("changed".to_owned());
    worker.runs("15 | a-2 exited 1, b running | start a-3");
}

#[test]
fn changed_resources_are_set_again_until_the_runtime_reports_them() {
    let mut worker = Worker::new("Always a");
    worker.spec.containers[0].resources = memory(64);
    worker.runs("5 | a running memory=64 |");
    worker.spec.containers[0].resources = memory(32);
    worker.runs(
        "
        6        | a running memory=64 | resize a-0
        7 read 4 | a running memory=64 | inspect
        8        | a running memory=32 |
        ",
    );
    // The resize calls fail, or the runtime rounds the memory limit. In the last row, the runtime reports no resources.
    let mut worker = Worker::new("Always a");
    worker.spec.containers[0].resources = memory(64);
    worker.runs(
        "
        5   | a running memory=60 | resize a-0
        7   | a running memory=60 | | 15
        15  | a running memory=60 | resize a-0
        17  | a running memory=60 | | 35
        35  | a running memory=60 | resize a-0
        37  | a running memory=60 | | 75
        160 | a running           |
        ",
    );
}

#[test]
fn runtime_call_without_effect_is_repeated_after_ten_seconds() {
    timelines(
        "
        A stop is repeated after 10 s: Always a
        5  | a unknown    | stop a-0
        6  | a unknown    | | 15
        15 | a unknown    | stop a-0
        16 | a exited 137 | start a-1

        A created container that did not start is removed, and created again: Always a
        5 read 4  | a created | start existing a-0
        6 read 4  | a created |
        15 read 4 | a created | inspect
        15        | a created | remove a-0
        16        |           | start a-1

        A read before the removal finds the exit code of a late failed start (containerd sends no event): Always a
        5 read 4  | a created    | start existing a-0
        15 read 4 | a created    | inspect
        15        | a exited 128 | start a-1

        A removal that a container waits for is repeated every 10 s, unlike a removal of garbage: Always a
        5 read 4 | a created | start existing a-0
        15       | a created | remove a-0
        24       | a created |
        25       | a created | remove a-0
        35       | a created | remove a-0

        A container that can neither be started nor removed does not block its name: Always a
        5 read 4 | a created              | start existing a-0
        20       | a created              | remove a-0
        30       | a created              | remove a-0
        240      | a created              | remove a-0
        260      | a created              | remove a-0, start a-1
        270      | a-1 running, a created | remove a-0

        A container that can neither be started nor removed does not block a new sandbox: Always a
        5        | sandbox-0 ended, a created | remove a-0
        20       | sandbox-0 ended, a created | remove a-0
        240      | sandbox-0 ended, a created | remove a-0
        260      | sandbox-0 ended, a created | remove a-0, create sandbox-1

        A container that was not removable, and whose start took effect late, is stopped: Always a
        5        | sandbox-0 ended, a created | remove a-0
        20       | sandbox-0 ended, a created | remove a-0
        240      | sandbox-0 ended, a created | remove a-0
        260      | sandbox-0 ended, a running | stop a-0
        ",
    );
}

#[test]
fn unremovable_container_is_started_if_its_specification_is_restored() {
    let mut worker = Worker::new("Always a");
    worker.runs(
        "
        5   | a created hash=g | remove a-0
        20  | a created hash=g | remove a-0
        240 | a created hash=g | remove a-0
        ",
    );
    // The specification is changed back.
    worker.spec.containers[0].image = Some("g".to_owned());
    worker.runs("260 | a created hash=g | start existing a-0");
}

#[test]
fn containers_are_stopped_within_the_grace_period_of_the_pod() {
    timelines(
        "
        Sidecars get the rest of the grace period, but never less than 2 s: terminating Always s1 s2 a
        5  | a running, s2 running, s1 running | stop a-0, terminating
        15 | s2 running, s1 running            | stop s2-0 within 20, terminating
        40 | s1 running                        | stop s1-0 within 2, terminating

        A stop that failed, because the runtime was down, uses up no grace period: terminating Always s a
        5  | a running, s running              | stop a-0, terminating
        50 | a running, s running              | stop a-0, terminating
        52 | a exited 0, s running             | stop s-0 within 28, terminating
        ",
    );
    // The stop call failed because the runtime went down, but the container ended.
    let mut worker = Worker::new("terminating Always s a");
    worker.runs("5 | a running, s running | stop a-0, terminating");
    worker.history.terminating.clear();
    worker.runs("50 | a exited 0, s running | stop s-0, terminating");
    // A recent start call does not delay the stop.
    let mut worker = Worker::new("Always a");
    worker.runs("5 read 4 | a created | start existing a-0");
    worker.terminating = true;
    worker.runs("6 | a running | stop a-0, terminating");
}

/// A container that is stopped to be replaced has not ended by itself: its exit code does not count.
#[test]
fn container_stopped_for_replacement_is_replaced_whatever_its_exit_code() {
    timelines(
        "
        The container has another hash: Always a
        5 | a running hash=g  | stop a-0
        6 | a exited 0 hash=g | start a-1
        7 | a-1 exited 0      | a backs off 10s

        The container has another hash: Never a
        5 | a running hash=g  | stop a-0
        6 | a exited 0 hash=g | start a-1
        7 | a-1 exited 0      | stop sandbox-0, terminating, Succeeded

        The container's state is unknown: Never a
        5 | a unknown         | stop a-0
        6 | a exited 137      | start a-1

        The container's sandbox died: OnFailure a
        5 | sandbox-0 ended, a running  | stop a-0
        6 | sandbox-0 ended, a exited 0 | create sandbox-1

        The container's sandbox died, and the policy is Never: Never a
        5 | sandbox-0 ended, a running  | stop a-0
        6 | sandbox-0 ended, a exited 0 | terminating, terminated, Succeeded
        ",
    );
    let mut worker = Worker::new("OnFailure a");
    worker.runs("5 | a running hash=g  | stop a-0");
    worker.runs("6 | a exited 0 hash=g | start a-1");
    assert!(worker.last.replaced.contains("a"), "for the status");
}

#[test]
fn container_that_failed_a_probe_is_replaced_unless_it_recovered() {
    let ended = "stop sandbox-0, terminating, Succeeded";
    for (policy, healthy_at, then) in [
        ("OnFailure a", None, "start a-1"),
        ("Never a", None, ended),
        // The stop may still take effect for 10 s.
        ("OnFailure a", Some(14), "start a-1"),
        ("OnFailure a", Some(15), ended),
    ] {
        let mut worker = Worker::new(policy);
        let results = worker.probes.get_or_insert_default();
        results.failed.insert("a-0".into(), Liveness);
        worker.runs("5 read 4 | a running | stop a-0");
        worker.probes = None;
        if let Some(at) = healthy_at {
            worker.runs(&format!("{at} | a running |"));
        }
        // The container handles SIGTERM and exits with 0.
        worker.runs(&format!("60 | a exited 0 | {then}"));
    }
}
