//! The runtime is away for a while (invariant 11).

use std::time::Duration;

use pleg_core::{CallErrorKind, EventType, LifecycleType, StreamEnd};

use super::{ended, listed};
use crate::script::{Script, s};
use EventType::Stopped;
use LifecycleType::ContainerDied;

/// The runtime is down for ten minutes, while a worker asks for its pod every ten seconds.
#[test]
fn a4_outage_delays_no_death() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    for ms in 0..600_000_u64 {
        if ms % 10_000 == 0 {
            t.wait("p", t.now());
        }
        t.pass(1);
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Unavailable);
        }
        while t.inspection_wanted().is_some() {
            t.inspection_fails(&[]);
        }
    }
    t.node[1] = ended("c", 3, "Error");
    t.subscribe();
    let back = t.now();
    while t.said(ContainerDied, "c") == 0 && t.now().since(back) < Duration::from_secs(120) {
        t.run(1);
    }
    assert!(t.now().since(back) < Duration::from_secs(2));
}

/// After the outage a container exits with an event without statuses: its exit code is read.
#[test]
fn a4_exit_code_is_read_after_an_outage() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    for ms in 0..70_000_u64 {
        if ms % 10_000 == 0 {
            t.wait("p", t.now());
        }
        t.pass(1);
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Unavailable);
        }
        while t.inspection_wanted().is_some() {
            t.inspection_fails(&[]);
        }
    }
    t.subscribe();
    t.run(20_000);
    t.node[1] = ended("c", 3, "Error");
    t.event(Stopped, "c", s(), &[]);
    t.run(100);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// An inspection that fails counts against its pod only if the runtime as a whole works.
#[test]
fn a4_failure_in_an_outage_does_not_count_against_the_pod() {
    for outage in [true, false] {
        let mut t = listed(&["c"]);
        if outage {
            t.relist();
            t.list_fails(CallErrorKind::Unavailable);
        }
        t.wait("p", t.now());
        t.inspection_fails(&[]);
        let failing = t.health().failing;
        assert_eq!(failing, usize::from(!outage));
    }
}

/// The first complete list after an outage ends the backoff of every pod, unless another one did so
/// within the last minute.
#[test]
fn a4_outages_end_a_backoff_once_a_minute() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    let mut outage_ends_backoff = || {
        t.relist();
        t.list_fails(CallErrorKind::Unavailable);
        t.request_relist("p");
        t.inspection_fails(&[]);
        assert_eq!(t.inspections_wanted(), 0, "the pod waits out its backoff");
        let rows = t.node.clone();
        t.relist_shows(&rows);
        let ends = t.inspections_wanted() == 1;
        t.pass(1_000);
        let backoff_is_over = t.inspections_wanted() == 1;
        t.run(30_000);
        (ends, backoff_is_over)
    };
    assert_eq!(outage_ends_backoff(), (true, true));
    assert_eq!(outage_ends_backoff(), (false, true));
    assert_eq!(outage_ends_backoff(), (true, true));
}

/// A read that was issued in the outage fails after the list that ends it has shown an exit.
#[test]
fn a4_read_that_failed_in_the_outage_does_not_release_died() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.wait("p", t.now());
    assert_eq!(t.inspections_wanted(), 1);
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    let rows = t.node.clone();
    t.list(&rows);
    t.inspection_fails(&[]);
    t.run(10_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// A read fails before the first list of the outage does, and so counts against its pod.
#[test]
fn a4_failure_before_the_first_failed_list_does_not_release_died() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.node[1] = ended("c", 3, "Error");
    let rows = t.node.clone();
    t.relist_shows(&rows);
    t.run(10_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// Another outage ends exactly a minute later.
#[test]
fn a4_outages_that_end_a_minute_apart_both_end_a_backoff() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    let outage = |t: &mut Script| {
        t.relist();
        t.list_fails(CallErrorKind::Unavailable);
        t.request_relist("p");
        t.inspection_fails(&[]);
        let rows = t.node.clone();
        t.relist_shows(&rows);
        assert_eq!(t.inspections_wanted(), 1);
    };
    outage(&mut t);
    let again = t.now().after(Duration::from_secs(60));
    // Each of the three reads takes a millisecond.
    let left = again.since(t.now()).as_millis() as u64 - 3;
    t.run(left);
    outage(&mut t);
    assert_eq!(t.now(), again);
}

#[test]
fn a4_failure_of_a_read_requested_before_the_outage_does_not_count_against_the_pod() {
    let mut t = listed(&["c"]);
    t.wait("p", t.now());
    t.pass(5);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    let rows = t.node.clone();
    t.relist_shows(&rows);
    t.inspection_fails(&[]);
    assert_eq!(t.health().failing, 0);
}
