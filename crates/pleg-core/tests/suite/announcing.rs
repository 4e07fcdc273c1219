//! Tests that each change is announced once, `initial` if it precedes the generator's start; and late exit codes.

use pleg_core::CallErrorKind::{DeadlineExceeded, Failed, NotFound};
use pleg_core::EventType::{Started, Stopped};
use pleg_core::WallTime;

use crate::node::{WALL, exited, running, start_failed, with};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn state_in_the_first_relist_is_announced_as_initial() {
    let mut t = Script::new();
    t.node.start("s");
    t.node.start("web");
    t.node.exit("job", 3);
    t.node.create("new");
    t.node.become_unknown("odd");
    t.settle();
    t.expect(&[
        "Started s initial",
        "Died job 3 initial",
        "Changed new initial",
        "Changed odd initial",
        "Started web initial",
    ]);
    assert!(t.is_synced);
    t.pass(10_000);
    t.expect_nothing();
}

#[test]
fn nothing_is_announced_before_the_first_complete_relist() {
    let mut t = Script::new();
    t.node.start("s");
    t.node.start("web");
    t.node.start("job");
    t.node.relists_fail = Some(Failed);
    t.subscribe();
    let worker = t.read();
    assert_eq!(t.answered(worker, "web"), "Running");
    t.node.remove("job");
    t.read();
    t.send(Event::of(Stopped, exited("job", 3)));
    t.expect_nothing();
    t.node.relists_fail = None;
    t.pass(1_500);
    t.expect(&["Started s initial", "Started web initial"]);
    t.send(Event::of(Stopped, exited("job", 3)));
    t.expect_nothing();
}

#[test]
fn sandbox_first_read_after_its_end_announces_its_start() {
    let mut t = Script::with(&[]);
    let mut sandbox = exited("q/s", None);
    sandbox.identity.created_at = Some(WallTime::from_nanos(WALL));
    t.node.set(sandbox);
    t.relist();
    t.expect(&["Started q/s", "Died q/s"]);
}

/// containerd replays STOPPED, and a worker reads the pod before the first relist ends.
#[test]
fn death_before_the_generator_started_is_announced_as_initial() {
    let mut t = Script::new();
    t.hold(Relists);
    t.node.start("s");
    t.node.exit("web", 3);
    t.subscribe();
    t.send(Event::of(Stopped, exited("web", 3)).aged(60_000));
    let worker = t.read();
    t.pass(300);
    assert!(t.is_answered(worker));
    t.expect_nothing();
    t.release();
    t.pass(10_000);
    t.expect(&["Started s initial", "Died web 3 initial"]);
}

#[test]
fn death_during_the_first_status_reads_is_not_marked_initial() {
    let mut t = Script::new();
    t.node.start("s");
    t.node.start("web");
    t.hold(StatusCalls);
    t.settle();
    t.node.exit("web", 3);
    t.release();
    t.expect(&["Started s initial", "Started web initial", "Died web 3"]);
}

#[test]
fn start_in_first_relist_is_marked_initial_despite_later_removal() {
    for is_late in [false, true] {
        let mut t = Script::new();
        t.node.start("s");
        t.node.relists_fail = Some(Failed);
        t.subscribe();
        t.read();
        t.node.start("web");
        t.slow_read(PodLists);
        t.node.relists_fail = None;
        t.pass(1_500);
        t.node.remove("web");
        let mut event = Some(Event::of(Stopped, exited("web", 3)));
        let early = event.take_if(|_| !is_late);
        early.into_iter().for_each(|event| t.send(event));
        t.relist();
        t.fail(PodLists);
        event.into_iter().for_each(|event| t.send(event));
        t.release();
        t.pass(1_000);
        let events = "Started s initial, Started web initial, Died web 3, Removed web 3";
        t.expect(&events.split(", ").collect::<Vec<_>>());
    }
}

#[test]
fn death_after_the_first_pod_read_is_not_marked_initial() {
    let mut t = Script::new();
    t.hold(Relists);
    t.node.start("s");
    t.node.start("web");
    t.read();
    t.node.exit("web", 3);
    t.release();
    t.pass(150);
    t.expect(&["Started s initial", "Started web initial", "Died web 3"]);
}

#[test]
fn death_before_generator_start_is_initial_if_status_call_fails() {
    let mut t = Script::new();
    t.node.start("s");
    t.node.exit("web", 3);
    t.node.fail_status("web", Failed);
    t.settle();
    t.node.remove("web");
    t.node.heal_status("web");
    t.pass(5_000);
    t.expect(&["Started s initial", "Died web initial", "Removed web"]);
}

#[test]
fn late_event_of_a_removed_id_announces_nothing() {
    let mut t = Script::with(&["web"]);
    t.exits("web", 1);
    t.removes("web");
    t.pass(300);
    t.expect(&["Died web 1", "Removed web 1"]);
    t.subscribe();
    t.pass(60_000);
    for age in [1, 240_000] {
        t.send(Event::of(Started, running("web")).aged(age));
        t.send(Event::of(Stopped, exited("web", 1)).aged(age));
    }
    t.pass(70_000);
    t.expect_nothing();
    assert_eq!(t.cached("web"), "none");
}

#[test]
fn start_is_announced_before_the_end_if_the_container_ran() {
    let mut t = Script::with(&[]);
    t.node.create("new");
    t.read();
    t.expect(&["Changed new"]);
    t.read_details();
    t.expect_nothing();
    t.node.exit("web", 3);
    t.node.set(start_failed("job"));
    t.node.set(start_failed("new"));
    t.event(Stopped, "new");
    t.read();
    t.expect(&[
        "Died new 128 StartError",
        "Died job 128 StartError",
        "Started web",
        "Died web 3",
    ]);
}

#[test]
fn change_to_state_unknown_and_back_is_announced() {
    let mut t = Script::with(&["web"]);
    t.node.become_unknown("web");
    t.read();
    t.expect(&["Changed web"]);
    assert_eq!(t.cached("web"), "Unknown (was Running)");
    t.node.start("web");
    t.pass(1_100);
    t.expect(&["Changed web"]);
    assert_eq!(t.cached("web"), "Running");
    t.node.become_unknown("web");
    t.read();
    t.node.exit("web", 3);
    t.read();
    t.expect(&["Changed web", "Died web 3"]);
}

#[test]
fn unknown_state_undoes_no_end_and_is_reread_with_backoff() {
    let mut t = Script::with(&["web", "job"]);
    t.node.exit("web", 3);
    t.read();
    t.pass(20_000);
    t.forget();
    t.node.become_unknown("web");
    t.node.become_unknown("job");
    t.read();
    t.pass(30_000);
    t.expect(&["Changed job"]);
    assert!(!t.core.is_unread(&"p".into()));
    assert_eq!(t.cached("web"), "Exited 3");
    let (now, worker) = (t.now(), t.read_details());
    assert!(t.view(worker).details_as_of > Some(now));
    let retries = t.count("status job");
    assert!((4..=8).contains(&retries), "{retries}");
}

/// The kubelet treats a missing exit code as a failure: it would run a successful OnFailure container again.
#[test]
fn exit_code_within_a_minute_after_the_removal_is_announced() {
    for (late, announced) in [(59_000, Some("Changed web 3")), (61_000, None)] {
        let mut t = Script::with(&["web"]);
        t.removes("web");
        t.pass(300);
        t.expect(&["Died web", "Removed web"]);
        t.pass(late);
        let end = Some(WallTime::from_nanos(WALL));
        let ended = with(exited("web", 3), |details| details.finished_at = end);
        for _ in 0..2 {
            t.send(Event::of(Stopped, ended.clone()));
        }
        assert!(t.announced.iter().all(|event| event.happened_at == end));
        t.expect(announced.as_slice());
    }
}

#[test]
fn died_announcement_has_exit_code_of_event_arriving_during_read() {
    let mut t = Script::with(&["web"]);
    t.hold(PodLists);
    t.read();
    t.node.remove("web");
    t.queue(Event::of(Stopped, exited("web", 3)));
    t.release();
    t.expect(&["Died web 3", "Removed web 3"]);
}

#[test]
fn died_announcement_waits_for_exit_code_until_status_call_fails() {
    for (fault, seconds) in [(Failed, 0), (NotFound, 0), (DeadlineExceeded, 5)] {
        let mut t = Script::with(&["web"]);
        t.node.exit("web", 3);
        t.node.fail_status("web", fault);
        t.send(Event::nil(Stopped, "web"));
        if seconds > 0 {
            t.pass(seconds * 1_000 - 100);
            t.expect_nothing();
            assert_eq!(t.cached("web"), "Running");
        }
        t.pass(200);
        t.expect(&["Died web"]);
    }
}

#[test]
fn died_announcement_waits_a_minute_for_code_while_runtime_fails() {
    for (outage, announced) in [
        (50_000, &["Died web 3"][..]),
        (61_000, &["Died web", "Changed web 3"]),
    ] {
        let mut t = Script::with(&["web"]);
        t.hold(StatusCalls);
        t.node.exit("web", 3);
        t.send(Event::nil(Stopped, "web"));
        t.node.stop_runtime();
        t.release();
        t.pass(outage);
        assert_eq!(t.cached("web"), "Exited error");
        let has_died = t.core.has_died(&"web".into());
        assert_eq!(has_died, outage > 60_000, "Died waits for its code");
        let mut all = t.announced_all();
        t.node.start_runtime();
        t.pass(3_000);
        all.extend(t.announced());
        assert_eq!(all, announced);
    }
}

#[test]
fn status_is_read_again_two_seconds_after_a_nonzero_exit() {
    let killed = with(exited("web", 137), |details| {
        details.reason = "OOMKilled".into();
    });
    for (early, died, late, changed) in [
        (
            exited("web", 137),
            "Died web 137",
            killed,
            Some("Changed web 137 OOMKilled"),
        ),
        (
            exited("web", None),
            "Died web",
            exited("web", 3),
            Some("Changed web 3"),
        ),
        (exited("web", 0), "Died web 0", exited("web", 3), None),
    ] {
        let mut t = Script::with(&["web"]);
        t.node.set(early);
        t.event(Stopped, "web");
        t.expect(&[died]);
        t.forget();
        t.node.set(late);
        t.pass(1_900);
        t.expect_calls(&[]);
        t.pass(200);
        assert_eq!(t.count("status web"), changed.iter().len());
        t.expect(changed.as_slice());
    }
    let mut t = Script::new();
    t.node.start("s");
    t.node.exit("web", 3);
    t.settle();
    t.forget();
    t.pass(5_000);
    assert_eq!(t.count("status web"), 0, "the exit is initial");
}
