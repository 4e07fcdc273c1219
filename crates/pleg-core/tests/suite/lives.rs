//! A container that ran between two reads is announced if an event reported it.

use pleg_core::EventType::{Created, Deleted, Started, Stopped};

use crate::node::{created, exited, running};
use crate::script::{Event, PodLists, Relists, Script};

const LIFE: [&str; 3] = ["Started web", "Died web 3", "Removed web 3"];

const UNKNOWN_END: [&str; 3] = ["Started web", "Died web", "Removed web"];

fn stopped() -> Event {
    Event::of(Stopped, exited("web", 3))
}

#[test]
fn container_that_ran_between_two_reads_is_announced() {
    let created = || Event::of(Created, created("web"));
    let started = || Event::of(Started, running("web"));
    let nil = |what| Event::nil(what, "web");
    let life = [nil(Created), nil(Started), stopped(), nil(Deleted)];
    let end_unseen = [created(), nil(Started), nil(Stopped), nil(Deleted)];
    for (events, announced) in [
        (&[started(), stopped()][..], &LIFE[..]),
        (&life, &LIFE),
        (&[started(), nil(Deleted)], &UNKNOWN_END),
        (&end_unseen, &UNKNOWN_END),
        (&[created(), nil(Deleted)], &[]),
        (&[stopped().aged(60_000)], &[]),
        // STOPPED is older than the stream, so the runtime may have replayed it. DELETED alone announces nothing.
        (&[stopped().aged(60_000), nil(Deleted)], &[]),
        (&[started().aged(60_000), stopped().aged(60_000)], &[]),
    ] {
        for are_taken_together in [false, true] {
            let mut t = Script::with(&[]);
            let (last, earlier) = events.split_last().unwrap();
            for event in earlier.iter().cloned() {
                match are_taken_together {
                    true => t.queue(event),
                    false => t.send(event),
                }
            }
            t.send(last.clone());
            t.pass(5_000);
            t.expect(announced);
        }
    }
}

#[test]
fn late_event_does_not_announce_a_container_twice() {
    let mut t = Script::with(&[]);
    t.send(Event::of(Started, exited("web", 3)));
    t.pass(300);
    t.expect(&LIFE);
    t.send(stopped());
    t.pass(70_000);
    t.expect_nothing();
}

/// A worker's read did not list the container, which lived briefly, and its events arrive after that read began.
#[test]
fn delayed_events_of_a_short_lived_container_are_not_forgotten() {
    let mut t = Script::with(&[]);
    t.send(Event::of(Created, created("web")));
    t.hold(PodLists);
    t.read();
    t.send(Event::nil(Started, "web"));
    t.send(Event::nil(Stopped, "web"));
    t.release();
    t.pass(300);
    t.expect(&UNKNOWN_END);
}

/// The relist was requested before the container existed, and ends after the container's event arrived.
#[test]
fn relist_requested_before_a_creation_does_not_prove_removal() {
    let mut t = Script::with(&[]);
    t.slow_relist();
    t.starts("web");
    t.release();
    t.pass(300);
    t.expect(&["Started web"]);
}

/// Sends the four events of a container in every order, with a relist between them that shows any of its states.
#[test]
fn start_and_end_are_announced_once_in_any_event_order() {
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
                    Some(2) => t.send(stopped()),
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
            assert!(has_code, "{case}");
            // If STOPPED arrives after the relist that shows the removal, the exit code is announced by
            // ContainerChanged.
            let lives = announced.iter().filter(|event| !event.starts_with("Ch"));
            let lives: Vec<_> = lives.map(|event| event.trim_end_matches(" 3")).collect();
            assert_eq!(lives, UNKNOWN_END, "{case}");
        }
    }
}

/// All orders of four events.
fn orders() -> Vec<Vec<usize>> {
    let digits = (0..256).map(|n| vec![n / 64, n / 16 % 4, n / 4 % 4, n % 4]);
    let is_order = |order: &Vec<usize>| (0..4).all(|event| order.contains(&event));
    digits.filter(is_order).collect()
}

#[test]
fn stopped_event_from_before_a_resubscribe_still_announces_the_container() {
    let mut t = Script::with(&[]);
    t.hold(PodLists);
    t.hold(Relists);
    t.send(stopped());
    t.lose_stream();
    t.subscribe();
    t.release();
    t.expect(&LIFE);
}
