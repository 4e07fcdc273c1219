//! One world's life: trouble, rest, comparison, one event that never comes, the end of everything.

use crate::history::History;
use crate::laws::{self, Broken, Lawful};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::weather::SECOND;
use crate::world::World;

/// A law that a world has broken.
#[derive(Clone, Debug)]
pub struct Failure {
    pub broken: Broken,
    /// The world so far; the history as it was asked for.
    pub history: History,
    pub tally: Tally,
}

/// What came of a world in which every law held.
#[derive(Clone, Debug)]
pub struct Lived {
    pub tally: Tally,
    pub history: History,
}

/// One world, from a plan.
///
/// # Errors
/// A law that is broken.
pub fn live(plan: &Plan, history: History) -> Result<Lived, Box<Failure>> {
    let mut world = match World::new(plan.clone(), history) {
        Ok(world) => world,
        Err(broken) => {
            return Err(Box::new(Failure {
                broken,
                history: History::Off,
                tally: Tally::default(),
            }));
        }
    };
    let outcome = story(&mut world);
    let (tally, history) = (world.checks.tally, world.checks.history);
    match outcome {
        Ok(()) => Ok(Lived { tally, history }),
        Err(broken) => Err(Box::new(Failure {
            broken,
            history,
            tally,
        })),
    }
}

fn story(world: &mut World) -> Lawful {
    world.run(world.plan.trouble * SECOND)?;
    let missed = world.missed();
    if world.plan.calm > 0 {
        world.clear_up();
        world.run(world.plan.calm * SECOND)?;
    }
    rest(world)?;
    let weather = world.plan.weather.clone();
    let counters = world.machine.counters();
    if !(weather.lies() || world.truth.lingering) {
        let quarrels = counters.contradictions + counters.overruled;
        laws::NO_QUARREL.holds(quarrels == 0, || {
            format!("{quarrels} contradictions, and nobody lied")
        })?;
    }
    if weather.loses_nothing() && world.overflows() == 0 {
        laws::NO_FALSE_MISS.holds(missed == 0, || {
            format!("{missed} events were missed, and nothing was lost")
        })?;
    }
    quiet(world)?;
    missing(world)?;
    end(world)
}

/// Nothing happens any more, and no fault either: one audit, and all is as it is.
fn rest(world: &mut World) -> Lawful {
    world.rest();
    world.clear_up();
    world.converge()?;
    // What is late arrives; calls that are under way end; nobody waits for another stream.
    world.run(8 * SECOND)?;
    // The fault that is a list which hangs stops at its deadline.
    world.run_until_listed()?;
    world.relist()?;
    world.run(SECOND)?;
    if !world.plan.weather.lies() {
        world.checks.equals(&world.truth, world.now, false)?;
    }
    world.run(13 * SECOND)?;
    world.checks.equals(&world.truth, world.now, false)?;
    // Backoffs run out.
    world.run(70 * SECOND)?;
    world.checks.equals(&world.truth, world.now, true)?;
    world.checks.complete(&world.truth, world.now)?;
    world.take_all()
}

/// Nothing is owed any more: only lists, ever rarer, unless the last ten minutes hold too many misses.
fn quiet(world: &mut World) -> Lawful {
    let before = (world.checks.tally.clone(), world.inspections_for_waiters());
    world.run(120 * SECOND)?;
    let lists = world.checks.tally.lists - before.0.lists;
    // A probe may find details that nobody has read yet; then the worker of that pod asks for more.
    let asked_for = world.inspections_for_waiters() - before.1;
    let inspections = world.checks.tally.inspections - before.0.inspections - asked_for;
    // A stream that has told nothing yet is trusted for 10 s only, none at all not at all.
    let longest = world.plan.patience.0;
    let held = world.missed() > 0;
    let most = match (world.plan.flavor.streams() && !held, world.is_proven()) {
        (true, true) => 120 / longest + 2,
        (true, false) => 120 / longest.min(10) + 2,
        (false, _) => 130,
    };
    laws::GROWS.holds(inspections == 0 && lists <= most, || {
        format!("{inspections} inspections and {lists} lists in two quiet minutes")
    })
}

/// A container ends and nobody is told: the next list finds it, and it counts.
fn missing(world: &mut World) -> Lawful {
    let streams = world.plan.flavor.streams();
    let before = world.missed();
    // The worker of the pod restarts what has ended, and the miss counts all the same.
    world.suspend_workers(false);
    let Some(life) = world.exit_untold() else {
        return Ok(());
    };
    world.run((world.plan.patience.0 + 6) * SECOND)?;
    let of = Some(world.truth.lives[life].pod);
    world.checks.equals(&world.truth, world.now, true)?;
    let missed = world.missed() - before;
    let due = u64::from(streams);
    laws::MISS_COUNTED
        .holds(missed == due, || {
            let id = &world.truth.lives[life].id;
            format!("nobody told of the end of {id}, and {missed} events count as missed")
        })
        .map_err(|broken| broken.of(of))
}

/// Everything is removed, and in time everything is forgotten.
fn end(world: &mut World) -> Lawful {
    world.suspend_workers(false);
    world.remove_everything()?;
    world.run(75 * SECOND)?;
    world.checks.equals(&world.truth, world.now, true)?;
    world.checks.complete(&world.truth, world.now)?;
    world.take_all()?;
    // Tombstones and terminal records live for 10 minutes, and lists may be a minute apart.
    world.run(740 * SECOND)?;
    world.run_until_listed()?;
    let memory = format!("{:?}", world.machine);
    for trace in ["sbx-", "ctr-", "pod-"] {
        if let Some(at) = memory.find(trace) {
            let some: String = memory[at..].chars().take(40).collect();
            let what = format!("this is never forgotten: {some} in {memory}");
            return Err(laws::FORGOTTEN.broken(what));
        }
    }
    let health = world
        .machine
        .health(pleg_core::Instant::from_nanos(world.now));
    let well = health.synced && health.failing == 0 && health.overdue == 0;
    laws::ALIVE_AND_WELL.holds(well && world.machine.is_idle(), || {
        format!("not well again: {health:?}")
    })
}
