//! The laws of the design as a model-based test: random worlds in which the truth is known
//! (`truth`), told badly (`runtime`, `weather`), and compared with what comes out (`checks`).
//! Beside it, one minimal test per law that a reading of the code found broken.
//!
//! `PLEG_LAWS_SEEDS=n` runs n seeds, `PLEG_LAWS_SEED=s` runs one and prints its history.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "laws/checks.rs"]
mod checks;
#[path = "laws/dice.rs"]
mod dice;
#[path = "laws/lagging.rs"]
mod lagging;
#[path = "laws/reading.rs"]
mod reading;
#[path = "laws/replay.rs"]
mod replay;
#[path = "laws/runtime.rs"]
mod runtime;
#[path = "laws/script.rs"]
mod script;
#[path = "laws/state.rs"]
mod state;
#[path = "laws/telling.rs"]
mod telling;
#[path = "laws/truth.rs"]
mod truth;
#[path = "laws/weather.rs"]
mod weather;
#[path = "laws/world.rs"]
mod world;

use dice::Dice;
use weather::{SECOND, Weather};
use world::{Tally, World};

/// One seed: trouble, then rest, then the comparison, then the end of everything.
fn live(seed: u64, history: bool) -> Result<Tally, (String, String)> {
    let weather = Weather::of(&mut Dice::new(seed ^ 0xABCD));
    let mut world = match World::new(seed, weather, history) {
        Ok(world) => world,
        Err(broken) => return Err((broken, String::new())),
    };
    match story(&mut world) {
        Ok(()) => Ok(world.tally),
        Err(broken) => Err((broken, world.checks.history())),
    }
}

fn story(world: &mut World) -> Result<(), String> {
    let weather = world.weather.clone();
    for _ in 0..20 {
        world.run(SECOND)?;
        world.checks.kept_waiting(world.now, 30 * SECOND)?;
    }
    world.rest();
    world.clear_up();
    // What is late arrives; calls that are under way end.
    world.run(8 * SECOND)?;
    world.relist()?;
    world.run(SECOND)?;
    if weather.lies == 0 {
        world.checks.equals(&world.truth, world.now, false)?;
    }
    world.run(13 * SECOND)?;
    world.checks.equals(&world.truth, world.now, false)?;
    // Backoffs run out.
    world.run(70 * SECOND)?;
    world.checks.equals(&world.truth, world.now, true)?;
    world.checks.complete(&world.truth, world.now)?;
    let counters = world.machine.counters();
    if weather.lies == 0 && !weather.lingers && counters.contradictions > 0 {
        return Err(format!(
            "{} contradictions, and nobody lied",
            counters.contradictions
        ));
    }
    if weather.loses_nothing() {
        let missed: u64 = world.machine.counters().missed.iter().sum();
        if missed > 0 {
            return Err(format!(
                "missed {:?}, and nothing was lost",
                world.machine.counters().missed
            ));
        }
    }
    // Nothing is owed any more: only lists, ever rarer.
    let before = world.tally;
    world.run(120 * SECOND)?;
    let (lists, inspections) = (
        world.tally.lists - before.lists,
        world.tally.inspections - before.inspections,
    );
    // A stream that has told nothing yet is trusted for 10 s only.
    let health = world
        .machine
        .health(pleg_core::Instant::from_nanos(world.now));
    let proven = matches!(
        health.stream,
        pleg_core::StreamState::Subscribed { proven: true, .. }
    );
    if inspections > 0 || lists > if proven { 4 } else { 13 } {
        return Err(format!(
            "{inspections} inspections and {lists} lists in two quiet minutes"
        ));
    }
    // Everything is removed, and in time everything is forgotten.
    world.remove_everything();
    world.run(75 * SECOND)?;
    world.checks.equals(&world.truth, world.now, true)?;
    world.checks.complete(&world.truth, world.now)?;
    world.run(1500 * SECOND)?;
    let memory = format!("{:?}", world.machine);
    let known = |l: &&truth::Life| memory.contains(&format!("{:?}", l.id.as_str()));
    if let Some(life) = world.truth.lives.iter().find(known) {
        return Err(format!("{} is never forgotten: {memory}", life.id));
    }
    if memory.contains("uid-of-") {
        return Err(format!("a pod is never forgotten: {memory}"));
    }
    let health = world
        .machine
        .health(pleg_core::Instant::from_nanos(world.now));
    if !health.synced || health.quarantined > 0 || health.overdue > 0 {
        return Err(format!("not well again: {health:?}"));
    }
    if !world.machine.is_idle() {
        return Err("something is under way for ever".to_owned());
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_world_breaks_a_law() {
    if let Some(seed) = number("PLEG_LAWS_SEED") {
        if let Err((broken, history)) = live(seed, true) {
            panic!("{history}\nseed {seed}: {broken}");
        }
        return;
    }
    let seeds = number("PLEG_LAWS_SEEDS").unwrap_or(2000);
    let threads = 2;
    let totals: Vec<(Tally, Vec<(u64, String)>)> = std::thread::scope(|scope| {
        let run = |first: u64| {
            move || {
                let mut total = Tally::default();
                let mut broken = Vec::new();
                for seed in (first..seeds).step_by(threads) {
                    match live(seed, false) {
                        Ok(tally) => {
                            total.steps += tally.steps;
                            total.events += tally.events;
                            total.inspections += tally.inspections;
                            total.lists += tally.lists;
                        }
                        Err((what, _)) => broken.push((seed, what)),
                    }
                }
                (total, broken)
            }
        };
        let running: Vec<_> = (0..threads as u64).map(|n| scope.spawn(run(n))).collect();
        running
            .into_iter()
            .map(|t| t.join().expect("a world that panics"))
            .collect()
    });
    let broken: Vec<_> = totals.iter().flat_map(|t| &t.1).collect();
    for (total, _) in &totals {
        println!("{total:?}");
    }
    for (seed, what) in broken.iter().take(40) {
        println!(
            "seed {seed}: {}",
            what.chars().take(300).collect::<String>()
        );
    }
    if let Some((seed, _)) = broken.first()
        && let Err((what, history)) = live(*seed, true)
    {
        println!("{history}\nseed {seed}: {what}");
    }
    assert!(
        broken.is_empty(),
        "{} of {seeds} seeds break a law",
        broken.len()
    );
}
