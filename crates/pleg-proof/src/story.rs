//! One seed's life: trouble, rest, comparison, the end of everything.

use crate::dice::Dice;
use crate::truth;
use crate::weather::{SECOND, Weather};
use crate::world::{Tally, World};

/// One seed: trouble, then rest, then the comparison, then the end of everything.
pub fn live(seed: u64, history: bool) -> Result<Tally, (String, String)> {
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
