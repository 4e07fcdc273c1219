//! The stream is trusted as far as reads have checked it.

use pleg_core::CallErrorKind::Failed;
use pleg_core::EventType::{Created, Started, Stopped};
use pleg_core::Settings;
use std::time::Duration;

use crate::node::{created, exited, running, start_failed, unlabelled};
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn change_without_its_event_is_missed_after_ten_seconds() {
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

#[test]
fn container_that_ran_and_is_gone_should_have_stopped() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    t.read();
    t.pass(11_000);
    assert_eq!(t.missed(), (0, 1));
}

/// CRI-O sends STOPPED seconds after it lists the container as exited.
#[test]
fn event_before_the_read_or_soon_after_is_not_missed() {
    let mut t = Script::with(&["web", "job"]);
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

/// A read shortly after the subscribe may lag, and show what happened before it.
#[test]
fn view_from_just_after_the_subscribe_expects_nothing() {
    let mut t = Script::with(&["web"]);
    t.subscribe();
    t.pass(5_000);
    t.node.exit("web", 0);
    t.read();
    t.pass(60_000);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn first_read_after_a_subscribe_expects_nothing() {
    let mut t = Script::with(&["web"]);
    t.lose_stream();
    t.node.exit("web", 3);
    t.hold(StatusCalls);
    t.subscribe();
    t.pass(10);
    t.release();
    t.pass(30_000);
    t.expect(&["Died web 3"]);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn sandboxes_never_miss_events() {
    let mut t = Script::with(&["web"]);
    t.node.exit("s", None);
    t.read();
    t.node.start("s2");
    t.read();
    t.node.remove("s");
    t.read();
    t.pass(30_000);
    t.expect(&["Died s", "Started s2", "Removed s"]);
    assert_eq!(t.core.counters().missed.total(), 0);
}

#[test]
fn end_of_what_was_unknown_or_undone_is_not_expected() {
    let mut t = Script::with(&["web", "job"]);
    t.send(Event::of(Stopped, exited("job", 1)));
    t.node.become_unknown("web");
    t.read();
    t.pass(20_000);
    t.expect(&["Died job 1", "Changed web", "Started job"]);
    t.subscribe();
    t.pass(20_000);
    t.node.exit("web", 3);
    t.node.exit("job", 3);
    t.read();
    t.pass(30_000);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn container_that_never_ran_misses_no_stopped() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.node.set(start_failed("job"));
    t.read();
    t.node.remove("web");
    t.read();
    t.pass(30_000);
    assert_eq!(t.missed(), (0, 0));
}

/// Nobody knows if a start has failed before its status was read.
#[test]
fn failed_start_whose_status_fails_misses_no_stopped() {
    let mut t = Script::with(&[]);
    t.node.create("web");
    t.read();
    t.node.set(start_failed("web"));
    t.node.fail_status("web", Failed);
    t.read();
    t.pass(30_000);
    assert_eq!(t.missed(), (0, 0));
}

/// CRI-O sends no STOPPED of what was removed before its handler ran.
#[test]
fn removal_cancels_stopped_where_the_runtime_suppresses_it() {
    for (suppresses, missed) in [(true, 0), (false, 1)] {
        let mut t = Script::with(&["web"]);
        t.set_profile(|profile| profile.removal_suppresses_stopped = suppresses);
        t.node.exit("web", 0);
        t.read();
        t.node.remove("web");
        t.read();
        t.pass(20_000);
        assert_eq!(t.missed(), (0, missed));
    }
}

#[test]
fn end_that_a_sibling_event_shows_still_needs_its_stopped() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.node.create("job");
    t.send(Event::of(Created, created("job")).with(exited("web", 3)));
    t.pass(300);
    t.expect(&["Changed job", "Died web 3"]);
    t.pass(11_000);
    assert_eq!(t.missed(), (0, 1));
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
fn event_of_an_id_without_label_is_remembered() {
    let mut t = Script::with(&[]);
    t.node.set(unlabelled(running("free")));
    t.send(Event::nil(Started, "free"));
    t.pass(20_000);
    t.expect(&["Started free"]);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn event_on_an_earlier_stream_does_not_count() {
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
fn end_of_the_stream_cancels_what_is_expected() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 0);
    t.read();
    t.lose_stream();
    t.pass(20_000);
    assert_eq!(t.missed(), (0, 0));
}

#[test]
fn period_grows_when_the_stream_is_confirmed_and_proven() {
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
fn miss_failed_relist_or_lost_stream_shortens_the_period() {
    let mut t = quiet();
    t.node.exit("web", 0);
    t.read();
    t.pass(10_100);
    assert_eq!(t.period(), 1);
    let mut t = quiet();
    t.node.relists_fail = Some(Failed);
    t.relist();
    assert_eq!(t.period(), 1);
    let mut t = quiet();
    t.lose_stream();
    assert_eq!(t.period(), 1);
    t.pass(10_000);
    assert_eq!(t.period(), 1);
}

#[test]
fn period_does_not_grow_while_something_is_expected() {
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
fn period_stays_short_while_the_stream_is_mute() {
    let mut t = quiet();
    t.node.exit("web", 0);
    t.read();
    t.pass(100_000);
    assert_eq!(t.period(), 1);
    t.event(Started, "job");
    t.pass(100_000);
    assert!(t.period() > 8);
}

#[test]
fn lossy_stream_is_polled_until_ten_minutes_without_a_miss() {
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
fn period_is_at_most_a_third_of_the_unready_threshold() {
    let mut settings = Settings::default();
    settings.unready_after = Duration::from_secs(90);
    let mut t = Script::with_settings(settings);
    t.node.start("s");
    t.subscribe();
    t.event(Started, "s");
    t.pass(300_000);
    assert_eq!(t.period(), 30);
}

#[test]
fn polling_lists_once_a_period() {
    for (period, relists) in [(1_000, 99), (2_500, 39)] {
        let mut t = Script::polling(|s| s.relist_period = Duration::from_millis(period));
        t.node.start("s");
        t.pass(100_000);
        let made = t.count("relist");
        assert!((relists - 2..=relists + 2).contains(&made), "{made}");
    }
}

#[test]
fn subscribe_is_followed_by_a_relist() {
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
    assert_eq!(t.missed(), (0, 0), "the stream could not report it");
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
fn first_success_after_an_outage_starts_a_relist() {
    let mut t = quiet();
    t.node.stop_runtime();
    t.read();
    assert!(t.core.is_runtime_failing());
    t.node.pod_lists_fail = None;
    t.forget();
    t.read();
    t.expect_calls(&["list p", "relist", "version"]);
}

#[test]
fn relist_that_ends_an_outage_is_not_repeated() {
    let mut t = quiet();
    t.node.stop_runtime();
    t.read();
    t.node.relists_fail = None;
    t.forget();
    t.relist();
    t.expect_calls(&["relist"]);
}

/// The relist may hang in the connection to the daemon that was stopped.
#[test]
fn relist_sent_before_an_outage_ended_is_given_up() {
    let mut t = quiet();
    t.hold(Relists);
    t.relist();
    t.node.stop_runtime();
    t.read();
    t.node.start_runtime();
    t.node.exit("web", 3);
    t.node.exit("job", 4);
    t.evaluate(Relists);
    t.node.remove("job");
    t.pass(3_000);
    assert_eq!(t.in_flight(Relists), 2);
    t.forget();
    t.answer(Relists);
    t.expect_nothing();
}
