//! A12, A14, A15 and A17: the evented PLEG, as reported upstream. Events that are lost, repeated or out of order.

use pleg_core::EventType::{Created, Deleted, Started, Stopped};
use pleg_core::StreamState;

use super::life::life;
use crate::node::{created, exited, running};
use crate::script::{Event, Relists, Script};

/// Upstream: runtimes lose and delay events, and missed events are not counted.
#[test]
fn a12_one_lost_event_changes_nothing_after_one_relist() {
    let run = |lost: Option<usize>| {
        let mut t = Script::with(&[]);
        let mut stages = Vec::new();
        for (n, step) in life().iter().enumerate() {
            step.happen(&mut t);
            if lost != Some(n) {
                step.report(&mut t);
            }
            t.relist();
            stages.push(t.status("q"));
            t.pass(20_000);
        }
        (stages, t.transitions(), t.missed())
    };
    let (stages, announced, missed) = run(None);
    assert_eq!((announced.len(), missed), (6, (0, 0)));
    for n in 0..8 {
        let (with_loss, announced_then, missed) = run(Some(n));
        assert_eq!(with_loss, stages, "without event {n}");
        assert_eq!(announced_then, announced, "without event {n}");
        // STARTED and STOPPED of the container.
        let expected = (u64::from(n == 3), u64::from(n == 4));
        assert_eq!(missed, expected, "without event {n}");
    }
}

/// Upstream: a wrong or repeated event type is announced as it arrived.
#[test]
fn a14_duplicate_event_is_announced_once() {
    let run = |times: usize| {
        let mut t = Script::with(&[]);
        for step in &life() {
            step.happen(&mut t);
            (0..times).for_each(|_| step.report(&mut t));
            t.pass(300);
        }
        t
    };
    let mut once = run(1);
    let announced = once.announced();
    for times in 2..=3 {
        assert_eq!(run(times).announced(), announced);
    }
    // Each of them once more, in the wrong order.
    life().iter().rev().for_each(|step| step.report(&mut once));
    once.pass(60_000);
    once.expect_nothing();
    assert!(once.status("q").is_nothing());

    // CRI-O up to 1.27.0 sends DELETED for a stop.
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.event(Deleted, "web");
    t.expect(&["Died web 3"]);
    t.pass(20_000);
    t.expect_nothing();
    assert_eq!(t.cached("web"), "Exited 3");
    assert_eq!(t.count("list p"), 1, "a read follows");
}

/// Upstream: STOPPED may arrive before STARTED, and an exit may never be reported; the last write wins.
#[test]
fn a15_every_order_ends_the_same() {
    let ended = || exited("web", 3);
    let states = [
        Some(created("web")),
        Some(running("web")),
        Some(ended()),
        None,
    ];
    for order in orders() {
        for (at, shown) in (0..=4).flat_map(|at| states.iter().map(move |shown| (at, shown))) {
            let case = format!("{order:?}, a relist at {at}, {shown:?}");
            let mut t = Script::with(&[]);
            shown.iter().for_each(|status| t.node.set(status.clone()));
            for n in 0..=4 {
                if n == at {
                    t.relist();
                }
                match order.get(n) {
                    Some(0) => t.send(Event::of(Created, created("web"))),
                    Some(1) => t.send(Event::of(Started, running("web"))),
                    Some(2) => t.send(Event::of(Stopped, ended())),
                    Some(_) => t.send(Event::nil(Deleted, "web")),
                    None => {}
                }
            }
            t.node.remove("web");
            t.relist();
            t.pass(30_000);
            assert_eq!(t.cached("web"), "none", "{case}");
            let announced = t.announced();
            let codes = announced.iter().filter(|event| event.ends_with(" 3"));
            assert!(codes.count() > 0, "{case}: {announced:?}");
            // If a relist proves that it is gone before STOPPED has arrived, the code is announced as Changed.
            let lives = announced
                .iter()
                .filter(|event| !event.starts_with("Changed"));
            let lives: Vec<_> = lives.map(|event| event.trim_end_matches(" 3")).collect();
            assert_eq!(lives, ["Started web", "Died web", "Removed web"], "{case}");
        }
    }
}

/// All orders of four events.
fn orders() -> Vec<Vec<usize>> {
    let digits = (0..256).map(|n| vec![n / 64, n / 16 % 4, n / 4 % 4, n % 4]);
    let is_order = |order: &Vec<usize>| (0..4).all(|event| order.contains(&event));
    digits.filter(is_order).collect()
}

/// Upstream: the list runs first, then the subscribe.
#[test]
fn a17_every_subscribe_is_followed_by_a_relist() {
    let is_confirmed = |t: &Script| {
        let stream = t.health().stream;
        matches!(
            stream,
            StreamState::Subscribed {
                confirmed: true,
                ..
            }
        )
    };
    let mut t = Script::new();
    t.settle();
    for _ in 0..3 {
        t.hold(Relists);
        t.relist();
        t.pass(10);
        t.subscribe();
        // The relist in flight began before the subscribe.
        t.answer(Relists);
        assert_eq!(t.in_flight(Relists), 1, "at once");
        t.pass(1_100);
        assert!(!is_confirmed(&t));
        t.answer(Relists);
        assert!(is_confirmed(&t));
        t.release();
        t.pass(100_000);
        assert!(t.period() > 5);
        t.lose_stream();
        assert_eq!(t.period(), 1);
    }
}
