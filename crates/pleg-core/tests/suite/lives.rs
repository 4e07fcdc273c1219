//! The life of one container between two relists.

use pleg_core::EventType::{Created, Deleted, Started, Stopped};
use pleg_core::ReportedState;

use crate::node::{created, exited, running};
use crate::script::{Event, Relists, Script};

#[test]
fn life_between_two_relists_is_announced_by_reads_for_events() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.event(Started, "web");
    t.node.exit("web", 3);
    t.event(Stopped, "web");
    t.expect(&["Started web", "Died web 3"]);
    t.node.remove("web");
    t.event(Deleted, "web");
    t.pass(300);
    t.expect(&["Removed web 3"]);
    assert_eq!(t.count("relist"), 0);
}

/// The runtime may have replayed its events.
#[test]
fn life_that_no_read_shows_is_not_announced() {
    let mut t = Script::with(&[]);
    t.send(Event::of(Started, running("web")));
    t.send(Event::of(Stopped, exited("web", 3)));
    t.send(Event::nil(Deleted, "web"));
    t.pass(20_000);
    t.expect_nothing();
    assert!(t.core.is_idle());
}

/// The relist was requested before the container existed.
#[test]
fn relist_from_before_a_beginning_proves_no_absence() {
    let mut t = Script::with(&[]);
    t.hold(Relists);
    t.relist();
    t.evaluate(Relists);
    t.node.start("web");
    t.event(Started, "web");
    t.release();
    t.pass(300);
    t.expect(&["Started web"]);
}

/// At any point a relist may show any state of the container.
#[test]
fn events_of_a_life_in_any_order_announce_it_once() {
    let states = [
        Some(created("web")),
        Some(running("web")),
        Some(exited("web", 3)),
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
                    Some(2) => t.send(Event::of(Stopped, exited("web", 3))),
                    Some(_) => t.send(Event::nil(Deleted, "web")),
                    None => {}
                }
            }
            t.node.remove("web");
            t.relist();
            t.pass(30_000);
            assert_eq!(t.cached("web"), "none", "{case}");
            let announced = t.announced();
            let has_code = announced.iter().any(|event| event.ends_with(" 3"));
            assert_eq!(has_code, !announced.is_empty(), "{case}: {announced:?}");
            // The code is announced as Changed if STOPPED arrives after the relist that shows the removal.
            let lives = announced.iter().filter(|event| !event.starts_with("Ch"));
            let lives: Vec<_> = lives.map(|event| event.trim_end_matches(" 3")).collect();
            let life = ["Started web", "Died web", "Removed web"];
            assert!(life.ends_with(&lives), "{case}: {lives:?}");
            let is_shown = shown
                .as_ref()
                .is_some_and(|row| row.shown > ReportedState::Created);
            assert!(!is_shown || lives == life, "{case}: {lives:?}");
        }
    }
}

/// All orders of four events.
fn orders() -> Vec<Vec<usize>> {
    let digits = (0..256).map(|n| vec![n / 64, n / 16 % 4, n / 4 % 4, n % 4]);
    let is_order = |order: &Vec<usize>| (0..4).all(|event| order.contains(&event));
    digits.filter(is_order).collect()
}
