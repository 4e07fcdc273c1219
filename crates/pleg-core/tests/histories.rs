//! Histories that broke earlier wordings of the design, one test each.

mod script;

use pleg_core::ContainerState::{Exited, Running};
use pleg_core::{CallErrorKind, PodUid};
use script::*;

fn ended(id: &str, code: i32) -> pleg_core::Report {
    status(id, EXITED, Some(code))
}

/// History 1.
#[test]
fn late_event_of_a_removed_id_announces_nothing() {
    let mut t = Script::with(&["web"]);
    t.show(ended("web", 1));
    t.event(Stopped, "web", Some(ended("web", 1)));
    t.remove("web");
    t.event(Deleted, "web", None);
    assert_eq!(t.announced(), ["Died web 1", "Removed web 1"]);
    t.event(Stopped, "web", Some(ended("web", 1)));
    t.pass(70_000);
    assert_eq!(t.announced(), [""; 0]);
}

/// History 2.
#[test]
fn relist_that_overlaps_a_pod_read_shows_nothing_of_it() {
    let mut t = Script::with(&[]);
    t.holds_relists = true;
    t.core.relist_now(
        pleg_core::Instant::from_nanos(t.ms() * 1_000_000 + 999_999),
        pleg_core::WaiterId::new(9),
    );
    t.settle();
    let began = t.ms();
    let rows_of_the_relist = t.rows.clone();
    t.show(status("web", RUNNING, None));
    t.wait(1, began + 1);
    t.pass(10);
    assert_eq!(t.announced(), ["Started web"]);
    let now = std::mem::replace(&mut t.rows, rows_of_the_relist);
    t.answer_next(began + 1);
    t.rows = now;
    t.holds_relists = false;
    t.pass(1_000);
    assert_eq!(t.announced(), [""; 0]);
    assert_eq!(t.cached("web"), Some(Running));
}

/// The relist overlaps a read that succeeded and one that fails.
#[test]
fn relist_older_than_a_finished_read_never_counts() {
    let mut t = Script::with(&[]);
    t.holds_relists = true;
    t.core.relist_now(
        pleg_core::Instant::from_nanos(t.ms() * 1_000_000 + 999_999),
        pleg_core::WaiterId::new(9),
    );
    t.settle();
    let began = t.ms();
    let rows_of_the_relist = t.rows.clone();
    t.show(status("web", RUNNING, None));
    t.wait(1, began + 1);
    t.pass(10);
    t.holds_pod_lists = true;
    t.pod_lists_fail = true;
    t.wait(2, t.ms());
    t.pass(10);
    let now = std::mem::replace(&mut t.rows, rows_of_the_relist);
    t.pending.rotate_left(0);
    t.answer_next(began + 1);
    t.rows = now;
    t.answer_next(began + 12);
    t.pod_lists_fail = false;
    t.holds_pod_lists = false;
    t.holds_relists = false;
    t.pass(5_000);
    assert_eq!(t.announced(), ["Started web"]);
}

/// History 3.
#[test]
fn row_and_status_that_disagree_are_announced_once() {
    for (row, shown) in [(EXITED, RUNNING), (RUNNING, EXITED)] {
        let mut t = Script::with(&["web"]);
        t.show(status("web", shown, Some(0).filter(|_| shown == EXITED)));
        t.rows.insert("web".into(), status("web", row, None));
        t.pass(600_000);
        let announced = t.announced();
        assert!(announced.len() <= 1, "{announced:?}");
    }
}

/// History 4.
#[test]
fn stopped_without_status_and_a_read_that_lags_is_read_again() {
    let mut t = Script::with(&["web"]);
    t.event(Stopped, "web", None);
    t.pass(50);
    assert_eq!(t.cached("web"), Some(Running), "the read lags");
    t.show(ended("web", 3));
    t.pass(100);
    assert_eq!(t.announced(), ["Died web 3"]);
}

/// History 5.
#[test]
fn short_life_between_two_reads_is_announced() {
    let mut t = Script::with(&[]);
    t.event(Started, "web", None);
    t.event(Stopped, "web", Some(ended("web", 3)));
    t.event(Deleted, "web", None);
    t.pass(1_000);
    assert_eq!(
        t.announced(),
        ["Started web", "Died web 3", "Removed web 3"]
    );
    assert!(t.cached("web").is_none());
}

#[test]
fn replayed_short_life_announces_nothing() {
    let mut t = Script::with(&[]);
    t.event_of_age(Stopped, "web", Some(ended("web", 3)), 60_000);
    t.pass(1_000);
    assert_eq!(t.announced(), [""; 0]);
}

/// History 6.
#[test]
fn replay_of_many_stale_events_costs_a_few_relists() {
    let mut t = Script::with(&[]);
    for n in 0..500 {
        let mut own = status(&format!("old{n}"), RUNNING, None);
        own.identity.pod = Some(format!("pod{n}").into());
        t.event_of_age(Started, &format!("old{n}"), Some(own), 60_000);
    }
    t.calls.clear();
    t.pass(30_000);
    assert!(t.calls.len() <= 50, "{:?}", t.calls);
    assert_eq!(t.announced(), [""; 0]);
}

/// History 7.
#[test]
fn failing_relists_do_not_stop_the_reads_of_a_crowd() {
    let mut t = Script::with(&[]);
    t.relists_fail = true;
    t.pass(61_000);
    t.calls.clear();
    for n in 0..20 {
        let id = format!("new{n}");
        let mut own = status(&id, RUNNING, None);
        own.identity.pod = Some(format!("pod{n}").into());
        t.event(Started, &id, Some(own));
    }
    t.pass(1_000);
    assert!(t.calls.iter().filter(|call| *call == "list").count() >= 20);
    assert!(t.calls.iter().filter(|call| *call == "relist").count() <= 2);
}

/// History 8.
#[test]
fn deleted_during_a_read_that_shows_the_id_leaves_no_ghost() {
    let mut t = Script::with(&[]);
    t.show(status("web", RUNNING, None));
    t.holds_statuses = true;
    t.wait(1, t.ms());
    t.pass(1);
    t.event(Deleted, "web", None);
    let began = t.ms();
    t.answer_next(began);
    assert_eq!(t.cached("web"), Some(Running));
    t.holds_statuses = false;
    t.remove("web");
    t.pass(300);
    assert_eq!(t.cached("web"), None);
}

/// History 9.
#[test]
fn failing_status_does_not_slow_down_later_reads() {
    let mut t = Script::with(&["web", "job"]);
    t.show(status("web", EXITED, None));
    t.statuses
        .insert("web".into(), Err(CallErrorKind::DeadlineExceeded));
    t.event(Stopped, "web", None);
    t.pass(100);
    assert_eq!(t.cached("web"), Some(Exited));
    t.calls.clear();
    t.wait(1, t.ms());
    t.pass(10);
    assert_eq!(t.calls, ["list"], "the status is not repeated");
    assert!(t.answers[&1].is_ok());
}

/// History 10.
#[test]
fn death_during_the_first_read_is_not_initial() {
    let mut t = Script::bare();
    t.show(status("s", RUNNING, None));
    t.show(status("web", RUNNING, None));
    t.statuses.insert("web".into(), Ok(ended("web", 3)));
    t.settle();
    let announced = t.announced();
    assert_eq!(
        announced,
        ["Started s initial", "Started web initial", "Died web 3"]
    );
}

#[test]
fn container_that_had_ended_is_announced_as_died_only() {
    let mut t = Script::bare();
    t.show(status("s", RUNNING, None));
    t.show(ended("web", 3));
    t.settle();
    assert_eq!(t.announced(), ["Started s initial", "Died web 3 initial"]);
}

/// History 11.
#[test]
fn relist_replaces_the_rows_of_a_pod_that_waits() {
    let mut t = Script::bare();
    t.holds_statuses = true;
    for n in 0..12 {
        let mut s = status(&format!("s{n}"), RUNNING, None);
        s.identity.pod = Some(format!("pod{n}").into());
        t.show(s);
    }
    t.settle();
    t.pass(200);
    assert_eq!(t.pending.len(), 8, "as many as there are slots");
    t.pass(100);
    assert_eq!(
        t.pending.len(),
        12,
        "slow reads have given their slots back"
    );
    t.pass(5_000);
    assert_eq!(t.pending.len(), 12, "no status is read twice");
}

/// History 12: a slow runtime reports late.
#[test]
fn event_that_comes_within_ten_seconds_is_not_missed() {
    let mut t = Script::with(&["web"]);
    t.show(ended("web", 0));
    t.wait(1, t.ms());
    t.pass(9_000);
    t.event(Stopped, "web", Some(ended("web", 0)));
    t.pass(60_000);
    assert_eq!(t.core.counters().missed.total(), 0);
}

#[test]
fn failed_start_owes_no_event() {
    let mut t = Script::with(&[]);
    let mut failed = status("web", EXITED, Some(128));
    if let pleg_core::Details::Container(details) = &mut failed.details {
        std::sync::Arc::make_mut(details).reason = "StartError".into();
    }
    t.show(failed);
    t.wait(1, t.ms());
    t.pass(70_000);
    assert_eq!(t.core.counters().missed.total(), 0);
}

#[test]
fn first_read_of_a_pod_after_the_baseline_expects_nothing() {
    let mut t = Script::started_with(&["web"]);
    t.lose_stream();
    t.show(ended("web", 3));
    t.holds_statuses = true;
    t.subscribe();
    t.pass(10);
    t.holds_statuses = false;
    while !t.pending.is_empty() {
        let now = t.ms();
        t.answer_next(now);
    }
    t.pass(20_000);
    assert_eq!(t.announced().last().map(String::as_str), Some("Died web 3"));
    assert_eq!(t.core.counters().missed.total(), 0);
}

/// History 13.
#[test]
fn end_that_an_event_of_a_sibling_shows_still_owes_its_stopped() {
    let mut t = Script::with(&["web"]);
    t.pass(30_000);
    t.show(ended("web", 3));
    t.show(status("job", CREATED, None));
    let statuses = [status("job", CREATED, None), ended("web", 3)];
    t.event_with(Created, "job", statuses.to_vec());
    assert_eq!(
        t.announced(),
        [""; 0],
        "nothing in an event but an own end records anything"
    );
    t.pass(300);
    assert_eq!(t.announced(), ["Changed job", "Died web 3"]);
    t.pass(11_000);
    assert_eq!(t.core.counters().missed.container_stopped, 1);
}

/// History 14.
#[test]
fn listed_id_without_status_is_marked_and_looked_at_again() {
    let mut t = Script::with(&["web"]);
    t.show(status("web", EXITED, None));
    t.statuses.remove("web");
    t.wait(1, t.ms());
    t.pass(10);
    let view = t.answers[&1].as_ref().unwrap();
    let web = view.status.container("web").unwrap();
    assert!(web.status_missing && web.state == Exited);
    t.calls.clear();
    t.wait(2, t.ms());
    t.pass(10);
    assert_eq!(t.calls, ["list"], "its status is not repeated");
    assert!(t.answers.contains_key(&2));
    t.calls.clear();
    t.pass(60_000);
    let statuses = t.calls.iter().filter(|call| *call == "web").count();
    assert!((5..=8).contains(&statuses), "{:?}", t.calls);
}

#[test]
fn id_that_vanishes_between_row_and_status_is_gone_at_the_next_look() {
    let mut t = Script::with(&["web"]);
    t.show(status("web", EXITED, None));
    t.statuses.remove("web");
    t.wait(1, t.ms());
    t.pass(50);
    let view = t.answers[&1].as_ref().unwrap();
    assert!(view.status.container("web").unwrap().status_missing);
    t.remove("web");
    t.calls.clear();
    t.pass(100);
    assert_eq!(t.calls, ["list"], "the mark and the absence prove it");
    assert_eq!(t.announced(), ["Died web", "Removed web"]);
}

/// History 15.
#[test]
fn pod_without_label_is_read_by_relists() {
    let mut t = Script::with(&[]);
    let mut web = status("web", RUNNING, None);
    (web.identity.unlabelled, web.identity.pod) = (true, None);
    t.show(web.clone());
    t.event(Started, "web", Some(web.clone()));
    t.pass(1_100);
    assert_eq!(t.announced(), ["Started web"]);
    let mut exited = ended("web", 3);
    (exited.identity.unlabelled, exited.identity.pod) = (true, None);
    t.show(exited);
    t.event(Stopped, "web", None);
    t.pass(1_100);
    assert_eq!(t.announced(), ["Died web 3"]);
    t.wait(1, t.ms());
    t.pass(10);
    assert!(
        t.answers[&1]
            .as_ref()
            .unwrap()
            .status
            .container("web")
            .is_some()
    );
}

/// History 17.
#[test]
fn status_read_by_itself_brings_nothing_back() {
    let mut t = Script::with(&["web"]);
    t.holds_statuses = true;
    t.pass(15_000);
    let began = t.ms();
    t.statuses
        .insert("web".into(), Ok(status("web", RUNNING, None)));
    t.event(Stopped, "web", Some(ended("web", 3)));
    t.event(Deleted, "web", None);
    t.rows.remove("web");
    while !t.pending.is_empty() {
        t.answer_next(began);
    }
    t.holds_statuses = false;
    t.pass(300);
    assert_eq!(t.cached("web"), None);
    t.pass(70_000);
    assert_eq!(t.announced(), ["Died web 3", "Removed web 3"]);
}

/// History 18.
#[test]
fn death_in_an_outage_waits_for_its_exit_code() {
    let mut t = Script::with(&["web"]);
    t.lose_stream();
    t.show(status("web", EXITED, None));
    t.holds_statuses = true;
    t.pass(2_000);
    t.relists_fail = true;
    t.pod_lists_fail = true;
    t.version_fails = true;
    t.pass(2_000);
    t.statuses
        .insert("web".into(), Err(CallErrorKind::Unavailable));
    t.holds_statuses = false;
    while !t.pending.is_empty() {
        let now = t.ms();
        t.answer_next(now);
    }
    t.pass(5_000);
    assert_eq!(t.announced(), [""; 0], "the runtime as a whole fails");
    (t.relists_fail, t.pod_lists_fail, t.version_fails) = (false, false, false);
    t.show(ended("web", 3));
    t.pass(3_000);
    assert_eq!(t.announced(), ["Died web 3"]);
}

/// History 20: a read in flight at a death.
#[test]
fn read_from_before_an_end_causes_no_other_read() {
    let mut t = Script::with(&["web"]);
    t.holds_pod_lists = true;
    t.wait(1, t.ms());
    t.pass(1);
    let began = t.ms();
    t.event(Stopped, "web", Some(ended("web", 3)));
    t.holds_pod_lists = false;
    t.answer_next(began);
    assert_eq!(t.cached("web"), Some(Exited));
    t.calls.clear();
    t.show(ended("web", 3));
    t.pass(1_500);
    assert_eq!(t.calls, [""; 0]);
}

#[test]
fn read_that_lags_behind_an_end_is_repeated_until_it_agrees() {
    let mut t = Script::with(&["web"]);
    t.event(Stopped, "web", Some(ended("web", 3)));
    t.wait(1, t.ms());
    t.pass(1_500);
    assert_eq!(t.cached("web"), Some(Exited));
    assert!(t.calls.iter().filter(|call| *call == "list").count() >= 3);
    t.pass(20_000);
    assert_eq!(
        t.announced(),
        ["Died web 3", "Started web"],
        "the end was wrong"
    );
    assert_eq!(t.core.counters().undone, 1);
}

#[test]
fn crio_removal_without_an_event_is_noticed() {
    let mut t = Script::with(&["web"]);
    t.show(ended("web", 3));
    t.event(Stopped, "web", Some(ended("web", 3)));
    t.show(status("s", EXITED, None));
    t.event(Stopped, "s", Some(status("s", EXITED, None)));
    t.pass(3_000);
    t.forget();
    t.remove("web");
    t.remove("s");
    t.pass(4_000);
    assert_eq!(t.announced(), ["Removed s", "Removed web 3"]);
    assert!(t.cache[&PodUid::from("p")].status.is_nothing());
}

#[test]
fn period_doubles_on_a_clean_stream_and_shrinks_on_a_miss() {
    let mut t = Script::with(&["web"]);
    t.event(Started, "web", Some(status("web", RUNNING, None)));
    t.pass(300_000);
    assert_eq!(t.period().as_secs(), 60);
    t.show(ended("web", 0));
    while t.core.counters().missed.total() == 0 {
        t.pass(500);
    }
    assert!(t.period().as_secs() <= 2);
}

#[test]
fn idle_hour_costs_few_calls() {
    let mut t = Script::with(&["web"]);
    t.event(Started, "web", Some(status("web", RUNNING, None)));
    t.pass(300_000);
    t.forget();
    t.pass(3_600_000);
    let relists = t.calls.iter().filter(|call| *call == "relist").count();
    let calls = t.calls.len() + relists;
    println!("an idle hour: {calls} calls, {relists} relists");
    assert!(calls <= 361, "{relists} relists, {calls} calls");
}

/// The calls for the life of a pod with one container that nobody but an observer follows, with the durations of
/// real containerd. A list of a pod is two calls.
#[test]
fn life_of_a_pod_costs_an_observer_few_calls() {
    let mut t = Script::bare();
    t.settle();
    t.subscribe();
    t.pass(400_000);
    t.forget();
    let pod_exists = |t: &mut Script, shown| {
        let s = status("s", shown, None);
        t.show(s.clone());
        Some(s)
    };
    let s = pod_exists(&mut t, RUNNING);
    t.event(Created, "s", s.clone());
    t.event(Started, "s", s);
    t.pass(30);
    t.show(status("web", CREATED, None));
    t.event(Created, "web", Some(status("web", CREATED, None)));
    t.pass(35);
    t.show(status("web", RUNNING, None));
    t.event(Started, "web", Some(status("web", RUNNING, None)));
    t.pass(5_000);
    let started = t.calls.clone();
    t.show(ended("web", 0));
    t.event(Stopped, "web", Some(ended("web", 0)));
    t.pass(1_000);
    let s = pod_exists(&mut t, EXITED);
    t.event(Stopped, "s", s);
    t.pass(20);
    t.remove("web");
    t.event(Deleted, "web", None);
    t.pass(10);
    t.remove("s");
    t.event(Deleted, "s", None);
    t.pass(3_000);
    let pod_reads: Vec<_> = t.calls.iter().filter(|call| *call != "relist").collect();
    let lists = pod_reads.iter().filter(|call| **call == "list").count();
    println!("start {started:?}, all {:?}", t.calls);
    // The others are the probe, once in 15 s.
    assert!(lists == 2 && pod_reads.len() <= 4, "{pod_reads:?}");
}

#[test]
fn hung_pod_read_is_named_in_health() {
    let mut t = Script::with(&["web"]);
    t.holds_pod_lists = true;
    t.wait(1, t.ms());
    t.pass(3_000);
    let health = t.health();
    assert_eq!((health.overdue, t.pending.len()), (1, 1));
    assert!(
        health
            .degraded(t.now_instant())
            .iter()
            .any(|d| d.as_str() == "pods_hung")
    );
}
