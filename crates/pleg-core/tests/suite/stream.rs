//! Tests which events count as missed, and that the relist period grows only while the open stream misses none.

use pleg_core::CallErrorKind::Failed;
use pleg_core::EventType::{Created, Started, Stopped};
use std::time::Duration;

use crate::node::{created, exited, start_failed};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn event_counts_as_missed_10s_after_read_shows_its_change() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.read();
    t.pass(9_900);
    assert_eq!(t.missed(), (0, 0));
    t.pass(200);
    assert_eq!(t.missed(), (1, 0));
    t.node.exit("web", 0);
    t.read();
    t.pass(10_100);
    assert_eq!(t.missed(), (1, 1));
}

/// A read may show an exit before STOPPED does: CRI-O sends STOPPED seconds after it lists the container as exited.
#[test]
fn event_before_or_soon_after_the_read_counts_as_received() {
    let mut t = Script::with(&["web", "job"]);
    t.event(Started, "web");
    t.node.lag();
    t.node.exit("web", 0);
    t.send(Event::nil(Stopped, "web"));
    t.relist();
    t.node.catch_up();
    t.node.exit("job", 0);
    t.read();
    t.expect(&["Died job 0", "Died web 0"]);
    t.pass(9_000);
    t.event(Stopped, "job");
    t.pass(60_000);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn number_of_expected_events_includes_those_that_arrived() {
    let mut t = Script::with(&["web"]);
    t.exits("web", 0);
    t.starts("job");
    t.pass(300);
    t.node.exit("job", 3);
    t.read();
    t.event(Stopped, "job");
    t.pass(60_000);
    assert_eq!((t.health().loss.expected, t.missed()), (3, (0, 0)));
}

#[test]
fn stopped_is_expected_unless_the_removal_suppresses_it() {
    type Change = fn(&mut Script);
    let is_removed: Change = |t| t.node.remove("web");
    let exits_and_is_removed: Change = |t| {
        t.node.exit("web", 0);
        t.read();
        t.node.remove("web");
    };
    let a_sibling_event_shows_the_exit: Change = |t| {
        t.node.exit("web", 3);
        t.node.create("job");
        t.send(Event::of(Created, created("job")).with(exited("web", 3)));
        t.pass(300);
    };
    // CRI-O sends no STOPPED for a container that was removed before CRI-O's exit handler ran.
    for (change, removal_suppresses_stopped, stopped) in [
        (is_removed, false, 1),
        (is_removed, true, 0),
        (exits_and_is_removed, false, 1),
        (exits_and_is_removed, true, 0),
        (a_sibling_event_shows_the_exit, false, 1),
    ] {
        let mut t = Script::with(&["web"]);
        t.set_profile(|profile| profile.removal_suppresses_stopped = removal_suppresses_stopped);
        change(&mut t);
        t.read();
        t.pass(30_000);
        assert_eq!(t.missed(), (0, stopped));
    }
}

#[test]
fn change_without_an_expected_event_counts_no_event_as_missed() {
    type Change = fn(&mut Script);
    let sandboxes_change: Change = |t| {
        t.node.exit("s", None);
        t.node.start("s2");
        t.read();
        t.node.remove("s");
    };
    let the_stream_was_renewed_just_before: Change = |t| {
        t.subscribe();
        t.pass(5_000);
        t.node.exit("web", 0);
    };
    let the_stream_was_down: Change = |t| {
        t.lose_stream();
        t.node.exit("web", 3);
        t.hold(StatusCalls);
        t.subscribe();
        t.pass(10);
        t.release();
    };
    let the_stream_ends: Change = |t| {
        t.node.exit("web", 0);
        t.read();
        t.lose_stream();
    };
    let it_was_unknown: Change = |t| {
        t.node.become_unknown("web");
        t.read();
        t.node.exit("web", 3);
    };
    let its_end_was_undone: Change = |t| {
        t.send(Event::of(Stopped, exited("web", 1)));
        t.pass(20_000);
        t.subscribe();
        t.pass(20_000);
        t.node.exit("web", 3);
    };
    let it_never_ran: Change = |t| {
        t.node.create("new");
        t.node.set(start_failed("job"));
        t.read();
        t.node.remove("new");
    };
    // Until the status is read, the core cannot know if the start failed.
    let nobody_knows_if_it_ran: Change = |t| {
        t.node.create("job");
        t.read();
        t.node.set(start_failed("job"));
        t.node.fail_status("job", Failed);
    };
    for change in [
        sandboxes_change,
        the_stream_was_renewed_just_before,
        the_stream_was_down,
        the_stream_ends,
        it_was_unknown,
        its_end_was_undone,
        it_never_ran,
        nobody_knows_if_it_ran,
    ] {
        let mut t = Script::with(&["web"]);
        change(&mut t);
        t.read();
        t.pass(60_000);
        assert_eq!(t.core.counters().missed.total(), 0);
    }
}

#[test]
fn event_is_remembered_until_its_id_is_published() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.hold(StatusCalls);
    t.event(Started, "web");
    t.node.start("job");
    t.read();
    t.relist();
    t.pass(2_000);
    t.release();
    t.expect(&["Started job", "Started web"]);
    t.event(Started, "job");
    t.pass(20_000);
    assert_eq!(t.missed(), (0, 0));
}

/// The relist shows the id but overlaps a pod read, so a later read publishes the id.
#[test]
fn event_of_an_id_in_an_overlapping_relist_is_remembered() {
    let mut t = Script::with(&[]);
    t.slow_read(PodLists);
    t.starts("web");
    t.relist();
    t.release();
    t.pass(20_000);
    t.expect(&["Started web"]);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn event_on_an_earlier_stream_does_not_count_as_arrived() {
    let mut t = Script::with(&["web"]);
    t.node.lag();
    t.node.exit("web", 0);
    t.send(Event::nil(Stopped, "web"));
    t.subscribe();
    t.pass(12_000);
    t.read();
    t.node.catch_up();
    t.pass(22_000);
    t.expect(&["Died web 0"]);
    assert_eq!(t.missed(), (0, 1));
}

#[test]
fn relist_period_grows_once_stream_is_open_and_delivers_events() {
    let mut t = Script::new();
    t.node.start("s");
    t.node.start("web");
    t.pass(30_000);
    assert_eq!(t.period(), 1, "no stream");
    t.subscribe();
    t.pass(900);
    assert_eq!(t.period(), 1, "not confirmed");
    t.pass(100_000);
    assert_eq!(t.period(), 10, "no event yet");
    t.event(Started, "web");
    t.pass(300_000);
    assert_eq!(t.period(), 60);
}

fn quiet() -> Script {
    let mut t = Script::with(&["web", "job"]);
    t.event(Started, "web");
    t.pass(300_000);
    assert_eq!(t.period(), 60);
    t.forget();
    t
}

#[test]
fn failed_relist_or_lost_stream_shortens_the_relist_period() {
    let mut t = quiet();
    t.node.relists_fail = Some(Failed);
    t.relist();
    assert_eq!(t.period(), 1);
    let mut t = quiet();
    t.lose_stream();
    t.pass(10_000);
    assert_eq!(t.period(), 1);
}

#[test]
fn relist_period_does_not_grow_while_an_event_is_expected() {
    let mut t = Script::with(&["web"]);
    t.subscribe();
    t.event(Started, "web");
    t.pass(12_000);
    t.read();
    let before = t.period();
    t.node.exit("web", 0);
    t.read();
    t.relist();
    t.relist();
    assert_eq!(t.period(), before);
    t.event(Stopped, "web");
    assert_eq!(t.period(), before * 4);
}

#[test]
fn missed_event_keeps_relist_period_short_until_an_event_arrives() {
    let mut t = quiet();
    t.node.exit("web", 0);
    t.read();
    t.pass(10_100);
    assert_eq!(t.period(), 1);
    t.pass(100_000);
    assert_eq!(t.period(), 1);
    t.event(Started, "job");
    t.pass(100_000);
    assert!(t.period() > 8);
}

#[test]
fn lossy_stream_keeps_relist_period_shortest_for_ten_minutes() {
    let mut t = quiet();
    t.node.exit("web", 0);
    t.node.exit("job", 0);
    t.read();
    t.pass(20_000);
    t.event(Started, "web");
    t.pass(400_000);
    assert_eq!(t.period(), 1);
    assert_eq!(t.degraded(), ["stream_lossy"]);
    t.pass(500_000);
    assert!(t.period() > 30);
    assert_eq!(t.degraded(), [""; 0]);
}

#[test]
fn polling_mode_lists_the_node_once_a_period() {
    for (period, relists) in [(1_000, 99), (2_500, 39)] {
        let mut t = Script::polling(|s| s.relist_period = Duration::from_millis(period));
        t.node.start("s");
        t.pass(100_000);
        let made = t.count("relist");
        assert!((relists - 2..=relists + 2).contains(&made), "{made}");
    }
}

#[test]
fn subscribe_call_is_followed_by_a_relist() {
    let mut t = quiet();
    t.lose_stream();
    t.forget();
    t.node.exit("web", 3);
    t.slow_relist();
    t.node.exit("job", 4);
    t.subscribe();
    t.answer(Relists);
    t.release();
    t.expect(&["Died web 3", "Died job 4"]);
    t.expect_calls(&["relist", "status web", "relist", "status job"]);
    t.pass(20_000);
    assert_eq!(t.missed(), (0, 0), "no stream could report the exits");
}

#[test]
fn stream_that_is_mute_for_ten_minutes_is_subscribed_again() {
    for (may_crash, renewed) in [(false, 1), (true, 0)] {
        let mut t = quiet();
        t.set_profile(|profile| profile.disconnect_may_crash = may_crash);
        t.node.exit("web", 0);
        t.read();
        t.pass(605_000);
        assert_eq!(t.resubscribes, 0);
        t.pass(10_000);
        assert_eq!(t.resubscribes, renewed);
    }
}

#[test]
fn recovery_from_outage_starts_relist_unless_a_relist_ended_it() {
    let mut t = quiet();
    t.node.stop_runtime();
    t.read();
    assert!(t.core.is_runtime_failing());
    t.node.pod_lists_fail = None;
    t.forget();
    t.read();
    t.expect_calls(&["list p", "relist", "version"]);
    t.node.relists_fail = None;
    t.relist();
    t.expect_calls(&["relist"]);
}

/// `Version` fails, and relists are slow. If each end of an outage cancelled the relist in flight, no relist would end.
#[test]
fn relist_in_flight_survives_the_end_of_an_outage() {
    let mut t = quiet();
    t.node.versions_fail = Some(Failed);
    t.slow_relist();
    t.pass(1_100);
    assert!(t.core.is_runtime_failing());
    t.read();
    assert_eq!(t.in_flight(Relists), 1);
    t.release();
    assert!(t.listed[0].is_ok());
}
