//! The phases of one world: faults, convergence, quiescence, one missed event, cleanup.

use crate::assertions::{self, CheckResult, Violation};
use crate::coverage::{CoverPoint, Coverage};
use crate::fault_profile::SECOND;
use crate::faults::Fault;
use crate::plan::Plan;
use crate::trace::Trace;
use crate::world::World;

/// A violation in a world.
#[derive(Clone, Debug)]
pub struct Failure {
    pub violation: Violation,
    /// The trace so far, if it was requested.
    pub trace: Trace,
    pub coverage: Coverage,
}

/// The result of a world without violations.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub coverage: Coverage,
    pub trace: Trace,
}

/// Simulates one world.
///
/// # Errors
/// An invariant is violated.
pub fn simulate(plan: &Plan, trace: Trace) -> Result<Simulated, Box<Failure>> {
    let mut world = match World::new(plan.clone(), trace) {
        Ok(world) => world,
        Err(violation) => {
            return Err(Box::new(Failure {
                violation,
                trace: Trace::Off,
                coverage: Coverage::default(),
            }));
        }
    };
    let outcome = run_phases(&mut world);
    let (coverage, trace) = (world.checks.coverage, world.checks.trace);
    match outcome {
        Ok(()) => Ok(Simulated { coverage, trace }),
        Err(violation) => Err(Box::new(Failure {
            violation,
            trace,
            coverage,
        })),
    }
}

fn run_phases(world: &mut World) -> CheckResult {
    world.run(world.plan.fault_secs * SECOND)?;
    let missed = world.missed();
    if world.plan.calm_secs > 0 {
        world.stop_faults();
        world.run(world.plan.calm_secs * SECOND)?;
    }
    check_convergence(world)?;
    let fault_profile = world.plan.fault_profile.clone();
    let counters = world.reconciler.counters();
    if !(fault_profile.false_events() || world.oracle.lists_removed_sandboxes) {
        let contradictions = counters.contradictions + counters.overruled;
        assertions::NO_CONTRADICTION.holds(contradictions == 0, || {
            format!("{contradictions} contradictions without false events")
        })?;
    }
    if fault_profile.loses_nothing() && world.overflows() == 0 {
        assertions::NO_FALSE_MISS.holds(missed == 0, || {
            format!("{missed} events were missed, and nothing was lost")
        })?;
    }
    check_quiescence(world)?;
    check_details(world)?;
    check_missed_event(world)?;
    check_cleanup(world)
}

/// Stops the workload and the faults: one relist later the cache equals the oracle.
fn check_convergence(world: &mut World) -> CheckResult {
    world.stop_workload();
    world.stop_faults();
    world.converge()?;
    // Late events arrive, calls in flight end, the stream is subscribed again.
    world.run(8 * SECOND)?;
    // A list that hangs because of a fault ends at its deadline.
    world.run_until_listed()?;
    world.relist()?;
    world.run(SECOND)?;
    if !world.plan.fault_profile.false_events() {
        world
            .checks
            .equals_oracle(&world.oracle, world.now, false)?;
    }
    world.run(13 * SECOND)?;
    world
        .checks
        .equals_oracle(&world.oracle, world.now, false)?;
    // All backoffs have expired.
    world.run(70 * SECOND)?;
    world.checks.equals_oracle(&world.oracle, world.now, true)?;
    world.checks.all_done(&world.oracle, world.now)?;
    world.take_all()
}

/// Nothing is owed: lists become rarer, unless the last ten minutes hold too many misses.
fn check_quiescence(world: &mut World) -> CheckResult {
    let before = (
        world.checks.coverage.clone(),
        world.inspections_for_waiters(),
    );
    world.run(120 * SECOND)?;
    let lists = world.checks.coverage.lists - before.0.lists;
    // A probe may find unread details; then the worker of that pod requests a read.
    let asked_for = world.inspections_for_waiters() - before.1;
    let inspections = world.checks.coverage.inspections - before.0.inspections - asked_for;
    // A stream without events is trusted for 10 s; a missing stream is not trusted.
    let longest = world.plan.list_limits.0;
    let held = world.missed() > 0;
    let most = match (world.plan.runtime.streams() && !held, world.is_proven()) {
        (true, true) => 120 / longest + 2,
        (true, false) => 120 / longest.min(10) + 2,
        (false, _) => 130,
    };
    assertions::PERIOD_GROWS.holds(inspections == 0 && lists <= most, || {
        format!("{inspections} inspections and {lists} lists in two quiet minutes")
    })
}

/// Nothing happens for a long time: one probe after the other reads the details of every id.
fn check_details(world: &mut World) -> CheckResult {
    let mut seconds = 3600 * world.plan.quiet_hours;
    if world.plan.fault_profile.percent(Fault::Resize) > 0 {
        let ids = world.oracle.all_recent().count() as u64;
        seconds = seconds.max((ids + 2) * 15);
    }
    if seconds == 0 {
        return Ok(());
    }
    world.run(seconds * SECOND)?;
    let hours = world.plan.quiet_hours;
    world
        .checks
        .coverage
        .hit_times(CoverPoint::QuietHours, hours);
    world.checks.details_converged(&world.oracle, world.now)
}

/// A container exits without an event: the next list finds the exit and counts a miss.
fn check_missed_event(world: &mut World) -> CheckResult {
    let streams = world.plan.runtime.streams();
    let before = world.missed();
    // The worker of the pod restarts the container, and the miss counts all the same.
    world.suspend_workers(false);
    let Some(object) = world.exit_without_event() else {
        return Ok(());
    };
    world.run((world.plan.list_limits.0 + 6) * SECOND)?;
    let of = Some(world.oracle.objects[object].pod);
    world.checks.equals_oracle(&world.oracle, world.now, true)?;
    let missed = world.missed() - before;
    let due = u64::from(streams);
    let id = &world.oracle.objects[object].id;
    // An event that was missed in an earlier incarnation of the id is never counted again.
    let counted_before = world.checks.is_overruled(&world.oracle, id);
    // The worker may have removed the container before the miss was counted.
    let suppresses = world.plan.runtime.profile().removal_suppresses_stopped;
    let may_be_suppressed = suppresses && world.oracle.objects[object].removed.is_some();
    let may_lack = missed == 0 && (counted_before || may_be_suppressed);
    assertions::MISS_COUNTED
        .holds(missed == due || may_lack, || {
            let id = &world.oracle.objects[object].id;
            format!("{id} exited without an event, and {missed} events count as missed")
        })
        .map_err(|violation| violation.in_pod(of))
}

/// Removes everything and checks that all records expire.
fn check_cleanup(world: &mut World) -> CheckResult {
    world.suspend_workers(false);
    world.remove_everything()?;
    world.run(75 * SECOND)?;
    world.checks.equals_oracle(&world.oracle, world.now, true)?;
    world.checks.all_done(&world.oracle, world.now)?;
    world.take_all()?;
    // Tombstones and terminal records expire after 10 minutes, and lists may be a minute apart.
    world.run(740 * SECOND)?;
    world.run_until_listed()?;
    let memory = format!("{:?}", world.reconciler);
    for prefix in ["sbx-", "ctr-", "pod-"] {
        if let Some(at) = memory.find(prefix) {
            let some: String = memory[at..].chars().take(40).collect();
            let what = format!("this is never forgotten: {some} in {memory}");
            return Err(assertions::FORGOTTEN.violated(what));
        }
    }
    let health = world
        .reconciler
        .health(pleg_core::Instant::from_nanos(world.now));
    let well = health.synced && health.failing == 0 && health.overdue == 0;
    assertions::RECOVERED.holds(well && world.reconciler.is_idle(), || {
        format!("not well again: {health:?}")
    })
}
