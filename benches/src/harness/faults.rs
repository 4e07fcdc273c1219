//! The measurements of faults: hung pods, slow lists, stalled consumers, faulty and silent streams,
//! flapping connections, a frozen runtime.

use std::time::Duration;

use anyhow::{Context as _, Result};
use pleg_runtime::clock::wall;

use super::Point;
use super::measure::{Figures, TIME_LIMIT, compare, offset_in_second};
use super::run::{Pair, Run, SubjectOptions};
use crate::node::Changes;
use crate::protocol::{CallFaults, EventFaults, Play};

/// Events per second during a fault.
const RATE: u32 = 100;

/// The time limit until a change is visible, in addition to the delay of slow lists.
const VISIBILITY_LIMIT: Duration = Duration::from_millis(2500);

/// The time limit until a subject reports a frozen runtime, in addition to its relist period. Upstream
/// takes three minutes, which is recorded as "gave up".
const DETECTION_LIMIT: Duration = Duration::from_secs(10);

/// The time limit until a cache is correct after faults of the event stream.
const RECOVERY_LIMIT: Duration = Duration::from_secs(90);

const fn restarts(seconds: u32) -> u32 {
    RATE * seconds / 4
}

pub(super) fn hung_pod(run: &Run, point: &Point, seconds: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let hung = pair.expected()?.into_iter().next().context("no pods")?.uid;
    pair.set_call_faults(CallFaults {
        hung_pod: true,
        ..CallFaults::default()
    })?;
    let count = restarts(seconds);
    during(
        &mut pair,
        Changes::RestartsExceptFirst { count },
        seconds,
        VISIBILITY_LIMIT,
        |uid| uid != hung,
    )
}

pub(super) fn slow_list(run: &Run, point: &Point, list_ms: u32, seconds: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.set_call_faults(CallFaults {
        slow_list: list_ms.into(),
        ..CallFaults::default()
    })?;
    let count = restarts(seconds);
    let seen = VISIBILITY_LIMIT + Duration::from_millis(list_ms.into());
    during(
        &mut pair,
        Changes::Restarts { count },
        seconds,
        seen,
        |_| true,
    )
}

/// The consumer does not read announcements.
pub(super) fn stalled_consumer(
    run: &Run,
    point: &Point,
    rate: u32,
    seconds: u32,
) -> Result<Figures> {
    let how = SubjectOptions {
        stalled: true,
        ..SubjectOptions::default()
    };
    let mut pair = run.start(point, &how)?;
    let count = rate * seconds / 4;
    let (events, expected) = pair.plan(Changes::Restarts { count })?;
    pair.discard()?;
    let watching = Duration::from_secs(seconds.into());
    pair.begin_watch(watching, false)?;
    let played = pair.play(f64::from(rate), EventFaults::default())?;
    let watched = pair.end_watch(watching)?;
    pair.wait_for(expected, events, TIME_LIMIT)?;
    pair.reached(TIME_LIMIT)?;
    let mut figures = Figures::default();
    figures.played(&played);
    figures.put("unready", watched.unready as f64);
    // A container exits with each restart.
    let received = pair.subject.recorded()?.exits;
    figures.put("ends_untold", f64::from(count) - received as f64);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

/// Measures the cache and the health of the subject during the changes and for `after`. `counts` selects
/// the pods.
fn during(
    pair: &mut Pair,
    changes: Changes,
    seconds: u32,
    after: Duration,
    counts: impl Fn(&str) -> bool,
) -> Result<Figures> {
    pair.plan(changes)?;
    pair.subject.record()?;
    let watching = Duration::from_secs(seconds.into()) + after;
    pair.begin_watch(watching, false)?;
    let played = pair.play(f64::from(RATE), EventFaults::default())?;
    let watched = pair.end_watch(watching)?;
    let mut figures = Figures::default();
    figures.stale(&pair.stale(counts)?, &played);
    figures.put("unready", watched.unready as f64);
    Ok(figures)
}

/// The event stream stays open and delivers nothing.
pub(super) fn silent_stream(run: &Run, point: &Point, settled: u32, rep: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (period, mut figures) = settle(&mut pair, settled, fault_offset(run, settled, rep))?;
    let (events, expected) = pair.plan(Changes::Deaths { pods: 1 })?;
    let time_limit = TIME_LIMIT + period;
    pair.wait_for(expected, events, time_limit)?;
    let played = pair.play(
        0.0,
        EventFaults {
            dropped: 1_000_000,
            ..EventFaults::default()
        },
    )?;
    match pair.reached(time_limit)?.at {
        Some(seen) => figures.put("stale", (seen - played.last) as f64),
        None => figures.put("gave_up", time_limit.as_nanos() as f64),
    }
    Ok(figures)
}

/// `probing`: the subject probes the runtime once a second.
pub(super) fn frozen(
    run: &Run,
    point: &Point,
    settled: u32,
    probing: bool,
    rep: u32,
) -> Result<Figures> {
    let how = SubjectOptions {
        probing,
        ..SubjectOptions::default()
    };
    let mut pair = run.start(point, &how)?;
    let (period, mut figures) = settle(&mut pair, settled, fault_offset(run, settled, rep))?;
    let time_limit = DETECTION_LIMIT + period;
    let at = wall().as_nanos();
    pair.freeze()?;
    pair.begin_watch(time_limit, true)?;
    match pair.end_watch(time_limit)?.first_problem {
        Some(first_problem) => figures.put("noticed", (first_problem - at) as f64),
        None => figures.put("gave_up", time_limit.as_nanos() as f64),
    }
    Ok(figures)
}

/// The offset of a fault within the relist period: one minute if the node has been idle long enough for
/// this project, otherwise one second.
fn fault_offset(run: &Run, settled: u32, rep: u32) -> Duration {
    let offset = offset_in_second(run, rep);
    if settled > 120 { offset * 60 } else { offset }
}

/// Waits on the idle node, `longer` in addition. Returns the relist period of the subject after that.
fn settle(pair: &mut Pair, seconds: u32, longer: Duration) -> Result<(Duration, Figures)> {
    pair.window(f64::from(seconds) + longer.as_secs_f64())?;
    pair.begin_watch(Duration::ZERO, false)?;
    let period = pair.end_watch(Duration::ZERO)?.period;
    let mut figures = Figures::default();
    if let Some(period) = period {
        figures.put("period", period as f64);
    }
    Ok((Duration::from_nanos(period.unwrap_or(0)), figures))
}

/// Some events are lost, duplicated or late.
pub(super) fn faulty_stream(run: &Run, point: &Point, faults: EventFaults) -> Result<Figures> {
    let play = Play {
        rate: 400.0,
        faults,
        cut_every: 0,
    };
    until_recovered(run, point, 500, play)
}

/// Every connection is cut once a second.
pub(super) fn flapping(run: &Run, point: &Point, seconds: u32) -> Result<Figures> {
    let play = Play {
        rate: f64::from(RATE),
        faults: EventFaults::default(),
        cut_every: 1000,
    };
    until_recovered(run, point, restarts(seconds), play)
}

/// Measures the cache during `count` restarts, until it shows all of them.
fn until_recovered(run: &Run, point: &Point, count: u32, play: Play) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (events, expected) = pair.plan(Changes::Restarts { count })?;
    pair.subject.record()?;
    pair.wait_for(expected, events, RECOVERY_LIMIT)?;
    let played = pair.play_with(play)?;
    pair.reached(RECOVERY_LIMIT)?;
    let mut figures = Figures::default();
    figures.stale(&pair.stale(|_| true)?, &played);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}
