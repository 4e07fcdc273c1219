//! Tests of each rule. A row has the restart policy and the specified containers, the pod, and the expected actions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod history;
mod random;
mod support;

use serde_json::json;

use crate::probe::ProbeResults;

use support::{Worker, check, view};

#[test]
fn containers_own_restart_policy_and_rules_override_the_pods_policy() {
    for (of_pod, own, operator, code, is_restarted) in [
        ("Always a", "Never", "", 1, false),
        ("Never a", "Always", "", 0, true),
        ("Never a", "OnFailure", "", 1, true),
        ("Never a", "OnFailure", "", 0, false),
        ("Always a", "Never", "In", 42, true),
        ("Always a", "Never", "In", 1, false),
        ("Always a", "Never", "NotIn", 42, false),
        ("Always a", "Never", "NotIn", 1, true),
        ("Never a", "", "In", 42, false),
    ] {
        for sandbox in ["ready", "ended"] {
            let mut worker = Worker::new(of_pod);
            let container = &mut worker.spec.containers[0];
            container.restart_policy = Some(own.to_owned()).filter(|own| !own.is_empty());
            let codes = json!({"operator": operator, "values": [42]});
            let rules = json!([{"action": "Restart", "exitCodes": codes}]);
            container.restart_policy_rules = serde_json::from_value(rules).unwrap();
            let pod = format!("sandbox-0 {sandbox}, a exited {code}");
            worker.run(20, &view(9, &pod));
            let actions = &worker.last;
            let is_started = !actions.start.is_empty() || actions.create_sandbox.is_some();
            assert_eq!(is_started, is_restarted, "{:?}: {code}", worker.spec);
            assert_eq!(actions.phase.is_some(), !is_restarted);
        }
    }
}

#[test]
fn sandbox_is_created_used_or_replaced_depending_on_its_state() {
    check(
        "
        Always i j a | no sandbox                                | create sandbox-0
        Always a     | sandbox-3 ended                           | create sandbox-4
        # Of several ready sandboxes, none is used: their containers are stopped first, then the sandboxes.
        Always a     | sandbox-1 ready, sandbox-0 ready          | stop sandbox-1, stop sandbox-0
        Always a     | sandbox-1 ready, sandbox-0 ready, a running | stop a-0, stop sandbox-1
        Always a     | sandbox-1 ended, sandbox-0 ready          | stop sandbox-0
        Always a     | sandbox-0 ready missing                   | status missing
        Always a     | sandbox-1 ready, sandbox-0 ready missing  | start a-0
        Always a     | sandbox-1 ended, sandbox-0 ready missing  | stop sandbox-0
        Always a     | sandbox-0 unknown, a running              | status missing
        # The address of the sandbox is not known yet.
        Always a     | sandbox-0 ready failing                   | inspect, a status missing
        Always a     | sandbox-0 ready failing, a running hash=g | stop a-0
        # A pod that has ended gets no new sandbox.
        Never a b    | sandbox-0 ended, a exited 0               | terminating, terminated, Failed
        OnFailure a b | sandbox-0 ended, a exited 0, b exited 1  | create sandbox-1
        OnFailure a  | sandbox-0 ended, a exited 0               | terminating, terminated, Succeeded
        OnFailure a  | sandbox-0 ended, a exited                 | inspect, a exit code
        ",
    );
    // On the host network the runtime reports no address.
    let mut worker = Worker::new("Always a");
    worker.spec.host_network = Some(true);
    worker.runs("20 read 1 | sandbox-0 ready failing | start a-0");
}

#[test]
fn state_decides_if_regular_container_is_started_stopped_or_restarted() {
    check(
        "
        Always a b    | a running                   | start b-0
        Always a      | a running hash=h            |
        Always a      | a running, z running        |
        Always a      | a-7 exited 1, a-4 exited 1  | start a-8
        # The exit code counts unless the policy is Always.
        Always a      | a exited 0                  | start a-1
        Always a      | a exited                    | start a-1
        OnFailure a b | a exited 0, b exited 3      | start b-1
        Never a       | a exited                    | inspect, a exit code
        OnFailure a b | a exited                    | start b-0, inspect, a exit code
        Never a b     | a exited 1, b running       |
        Never a b     | a exited 0, b exited 3      | stop sandbox-0, terminating, Failed
        Always a      | a-1 created, a running      | remove a-1
        Always a      | a-1 created, a created      | remove a-0
        # A container that may run is not replaced yet.
        Always a      | a running in=7              | stop a-0
        Always a      | a-1 running, a running      | stop a-0
        Always a b    | a running missing           | start b-0, a status missing
        Always a      | a created missing           | a status missing
        Always a      | a exited 1 missing          | start a-1
        Always a      | a running missing hash=g    | stop a-0
        ",
    );
}

#[test]
fn init_containers_run_in_order_and_sidecars_keep_running() {
    check(
        "
        Always i j a       |                          | start i-0
        Always i a         | i running hash=g         |
        Always i1 i2 a     | i1 exited 0              | start i2-0
        Always i1 i2 a b   | i2 exited 0, i1 exited 0 | start a-0, start b-0
        # Init containers are not repeated after a later one has run.
        Always i1 i2 a     | i2 exited 0              | start a-0
        Always i a         | a running                |
        # Init containers of another sandbox do not count.
        Always i a         | sandbox-1 ready, sandbox-0 ended, i exited 0, a exited 0 | start i-1
        OnFailure i a      | i exited 1               | start i-1
        Never i a          | i exited 1               | stop sandbox-0, terminating, Failed
        Always i a         | i exited                 | inspect, i exit code
        Always i a         | i unknown                | stop i-0
        Always i a         | i running missing        | i status missing
        Always s i a       | s running                | start i-0
        Always i s a       | s running, i exited 0    | start a-0
        # A sidecar is restarted, whatever the policy is, until its pod ends.
        Never s a          | s exited 0, a running    | start s-1
        Always s i a       | i running, s exited 1    | start s-1
        Always s a         | a running                | start s-0
        Always s a         | s running missing        | s status missing
        Always s a         | s running hash=g, a running | stop s-0
        Never s1 s2 a      | a exited 0, s2 running, s1 running | stop s2-0, terminating, Succeeded
        Never s a          | a exited 0, s exited 1   | stop sandbox-0, terminating, Succeeded
        ",
    );
}

#[test]
fn sidecar_that_has_not_started_blocks_the_next_container() {
    let mut worker = Worker::new("Always s a");
    worker.probes = Some(ProbeResults::default());
    worker.runs("9 | s running |");
    let results = worker.probes.get_or_insert_default();
    results.started.insert("s".to_owned());
    worker.runs("9 | s running | start a-0");
}

#[test]
fn termination_stops_regular_containers_then_sidecars_then_sandboxes() {
    check(
        "
        terminating Always s1 s2 a b | b running, a running, s2 running, s1 running   | stop b-0, stop a-0, terminating
        # Sidecars are stopped one by one, the last one first.
        terminating Always s1 s2 a b | b exited 0, a exited 0, s2 running, s1 running | stop s2-0, terminating
        terminating Always s1 s2 a b | s2 exited 0, s1 running | stop s1-0, terminating
        terminating Always s1 s2 a b | a unknown               | stop a-0, terminating
        terminating Always s1 s2 a b | a running missing       | stop a-0, terminating
        terminating Always s1 s2 a b | z running               | stop z-0, terminating
        terminating Always s1 s2 a b | a exited 0              | stop sandbox-0, terminating
        terminating Always s1 s2 a b | a created               | stop sandbox-0, terminating
        terminating Always a | sandbox-0 ended, a exited 0     | terminating, terminated, Succeeded
        terminating Always a | sandbox-0 ended, a exited       | inspect, a exit code, terminating, terminated
        terminating Always a | no sandbox                      | terminating, terminated, Failed
        ",
    );
    // Without a specification, all containers are stopped together, with the grace periods of their annotations.
    let mut worker = Worker::new("terminating Always");
    worker.is_unknown = true;
    worker.runs(
        "
        20 | s2 running, s1 running | stop s2-0, stop s1-0, terminating
        40 | a running grace=7, c running grace=0 | stop a-0 within 7, stop c-0 within 2, terminating
        ",
    );
}
