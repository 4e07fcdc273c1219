//! The rules of init containers and sidecars, of probes, and of the end of a pod.

use crate::actions::Desired;
use crate::probe::{ProbeKind, ProbeResults};
use crate::spec::RestartPolicy::{Always, Never, OnFailure};
use pleg::ContainerState::Created;

use super::support::*;
use super::{check, check_with_probes, run};

#[test]
fn init_containers_and_sidecars() {
    let pod = |containers: &[_]| view(9, &[ready(0)], containers);
    let done = |name| exited(name, 0);
    let older = [exited("i", 0), exited("a", 0)];
    check(
        &[
            (
                "first_init_container_is_started_alone",
                Always,
                &["i", "j", "a"],
                pod(&[]),
                "start i 0",
            ),
            (
                "running_init_container_withholds_the_rest",
                Always,
                &["i", "a"],
                pod(&[running("i")]),
                "",
            ),
            (
                "succeeded_init_container_is_followed_by_the_next",
                Always,
                &["i1", "i2", "a"],
                pod(&[done("i1")]),
                "start i2 0",
            ),
            (
                "regular_containers_follow_the_last_init_container",
                Always,
                &["i1", "i2", "a", "b"],
                pod(&[done("i2"), done("i1")]),
                "start a 0, start b 0",
            ),
            (
                "removed_init_container_is_not_repeated_after_a_later_one",
                Always,
                &["i1", "i2", "a"],
                pod(&[done("i2")]),
                "start a 0",
            ),
            (
                "init_containers_are_not_repeated_once_a_regular_one_exists",
                Always,
                &["i", "a"],
                pod(&[running("a")]),
                "",
            ),
            (
                "init_containers_of_another_sandbox_do_not_count",
                Always,
                &["i", "a"],
                view(9, &[ready(1), not_ready(0)], &older),
                "start i 1",
            ),
            (
                "failed_init_container_is_restarted",
                OnFailure,
                &["i", "a"],
                pod(&[exited("i", 1)]),
                "start i 1",
            ),
            (
                "failed_init_container_ends_the_pod_under_never",
                Never,
                &["i", "a"],
                pod(&[exited("i", 1)]),
                "stop sandbox-0, terminating, Failed",
            ),
            (
                "missing_exit_code_of_an_init_container_decides_nothing",
                Always,
                &["i", "a"],
                pod(&[exited("i", None)]),
                "inspect, i exit code",
            ),
            (
                "unknown_init_container_is_stopped",
                Always,
                &["i", "a"],
                pod(&[container("i", UNKNOWN)]),
                "stop i-0",
            ),
            (
                "status_missing_init_container_withholds_the_rest",
                Always,
                &["i", "a"],
                pod(&[status_missing(running("i"))]),
                "i status missing",
            ),
            (
                "running_sidecar_is_followed_by_the_next",
                Always,
                &["s", "i", "a"],
                pod(&[running("s")]),
                "start i 0",
            ),
            (
                "regular_containers_follow_a_running_sidecar",
                Always,
                &["i", "s", "a"],
                pod(&[running("s"), done("i")]),
                "start a 0",
            ),
            (
                "ended_sidecar_is_restarted_under_never",
                Never,
                &["s", "a"],
                pod(&[exited("s", 0), running("a")]),
                "start s 1",
            ),
            (
                "ended_sidecar_is_restarted_while_init_containers_run",
                Always,
                &["s", "i", "a"],
                pod(&[running("i"), exited("s", 1)]),
                "start s 1",
            ),
            (
                "missing_sidecar_is_started_beside_regular_containers",
                Always,
                &["s", "a"],
                pod(&[running("a")]),
                "start s 0",
            ),
            (
                "status_missing_sidecar_withholds_the_next",
                Always,
                &["s", "a"],
                pod(&[status_missing(running("s"))]),
                "s status missing",
            ),
            (
                "sidecar_with_another_hash_is_stopped",
                Always,
                &["s", "a"],
                pod(&[hash(running("s"), "g"), running("a")]),
                "stop s-0",
            ),
            (
                "ended_pod_stops_its_sidecars_last_first",
                Never,
                &["s1", "s2", "a"],
                pod(&[exited("a", 0), running("s2"), running("s1")]),
                "stop s2-0, terminating, Succeeded",
            ),
            (
                "ended_pod_does_not_restart_its_sidecars",
                Never,
                &["s", "a"],
                pod(&[exited("a", 0), exited("s", 1)]),
                "stop sandbox-0, terminating, Succeeded",
            ),
        ],
        run,
    );
}

#[test]
fn probes() {
    let pod = |name| view(9, &[ready(0)], &[running(name)]);
    let names: &[&str] = &["s", "a"];
    let mut results = ProbeResults::default();
    let rule = "sidecar_that_has_not_started_withholds_the_next";
    check_with_probes(&[(rule, Always, names, pod("s"), "")], &results);
    results.started.insert("s".to_owned());
    let rule = "sidecar_that_has_started_is_followed_by_the_next";
    check_with_probes(&[(rule, Always, names, pod("s"), "start a 0")], &results);
    results.failed.insert("a-0".into(), ProbeKind::Liveness);
    let rule = "unhealthy_container_is_stopped_and_not_replaced_yet";
    check_with_probes(&[(rule, Always, &["a"], pod("a"), "stop a-0")], &results);
}

#[test]
fn termination() {
    let pod = |containers: &[_]| view(9, &[ready(0)], containers);
    let names: &[&str] = &["s1", "s2", "a", "b"];
    let all = [running("b"), running("a"), running("s2"), running("s1")];
    check(
        &[
            (
                "regular_containers_are_stopped_before_sidecars",
                Always,
                names,
                pod(&all),
                "stop b-0, stop a-0, terminating",
            ),
            (
                "last_sidecar_is_stopped_first",
                Always,
                names,
                pod(&[exited("b", 0), exited("a", 0), running("s2"), running("s1")]),
                "stop s2-0, terminating",
            ),
            (
                "first_sidecar_is_stopped_last",
                Always,
                names,
                pod(&[exited("s2", 0), running("s1")]),
                "stop s1-0, terminating",
            ),
            (
                "unknown_container_is_stopped",
                Always,
                names,
                pod(&[container("a", UNKNOWN)]),
                "stop a-0, terminating",
            ),
            (
                "status_missing_container_is_stopped",
                Always,
                names,
                pod(&[status_missing(running("a"))]),
                "stop a-0, terminating",
            ),
            (
                "container_that_is_not_in_the_specification_is_stopped",
                Always,
                names,
                pod(&[running("z")]),
                "stop z-0, terminating",
            ),
            (
                "sandbox_is_stopped_after_its_containers",
                Always,
                names,
                pod(&[exited("a", 0)]),
                "stop sandbox-0, terminating",
            ),
            (
                "created_container_does_not_withhold_the_sandbox",
                Always,
                names,
                pod(&[container("a", Created)]),
                "stop sandbox-0, terminating",
            ),
            (
                "pod_is_terminated_when_nothing_runs",
                Always,
                &["a"],
                view(9, &[not_ready(0)], &[exited("a", 0)]),
                "terminating, terminated, Succeeded",
            ),
            (
                "missing_exit_code_does_not_withhold_the_end",
                Always,
                &["a"],
                view(9, &[not_ready(0)], &[exited("a", None)]),
                "inspect, a exit code, terminating, terminated",
            ),
            (
                "nothing_is_terminated",
                Always,
                &["a"],
                view(9, &[], &[]),
                "terminating, terminated, Failed",
            ),
        ],
        |spec| Desired::terminate(Some(spec), None),
    );
    let rows = [(
        "without_a_specification_all_are_stopped_together",
        Always,
        names,
        pod(&all[2..]),
        "stop s2-0, stop s1-0, terminating",
    )];
    check(&rows, |_| Desired::terminate(None, None));
}
