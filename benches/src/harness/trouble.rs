//! The measurements of what goes wrong: pods that hang, lists that crawl, streams that stall or
//! flap, a runtime that stops.

use std::time::Duration;

use anyhow::{Context as _, Result};
use pleg_runtime::clock::wall;

use super::Point;
use super::measure::{Figures, PATIENCE, compare, phase};
use super::run::{Pair, Run, SubjectOptions};
use crate::node::Work;
use crate::protocol::{ENDS_TAKEN, Faults, Trouble};

/// Events a second, while something is wrong.
const RATE: u32 = 100;

/// How long a change may stay unseen before it counts as never seen, besides what makes lists slow.
const SEEN: Duration = Duration::from_millis(2500);

/// How long a subject may take to notice that the runtime does nothing any more, besides the period of
/// its lists. Upstream takes three minutes; that it takes longer than this is said, not waited for.
const NOTICED: Duration = Duration::from_secs(10);

/// How long a cache may take to be right again after the stream has flapped.
const RIGHT: Duration = Duration::from_secs(90);

const fn restarts(seconds: u32) -> u32 {
    RATE * seconds / 4
}

pub(super) fn hung_pod(run: &Run, point: &Point, seconds: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let hung = pair.truth()?.into_iter().next().context("no pods")?.uid;
    pair.set_trouble(Trouble {
        hung_pod: true,
        ..Trouble::default()
    })?;
    let count = restarts(seconds);
    during(&mut pair, Work::Around { count }, seconds, SEEN, |uid| {
        uid != hung
    })
}

pub(super) fn slow_list(run: &Run, point: &Point, list_ms: u32, seconds: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.set_trouble(Trouble {
        slow_list: list_ms.into(),
        ..Trouble::default()
    })?;
    let count = restarts(seconds);
    let seen = SEEN + Duration::from_millis(list_ms.into());
    during(&mut pair, Work::Restarts { count }, seconds, seen, |_| true)
}

/// Nobody takes what the subject announces.
pub(super) fn stalled(run: &Run, point: &Point, rate: u32, seconds: u32) -> Result<Figures> {
    let how = SubjectOptions {
        stalled: true,
        ..SubjectOptions::default()
    };
    let mut pair = run.start(point, &how)?;
    let count = rate * seconds / 4;
    let (events, truth) = pair.plan(Work::Restarts { count })?;
    pair.count()?;
    let watching = Duration::from_secs(seconds.into());
    pair.begin_watch(watching, false)?;
    let played = pair.play(f64::from(rate), Faults::default())?;
    let watched = pair.end_watch(watching)?;
    pair.wait_for(truth, events, PATIENCE)?;
    pair.reached(PATIENCE)?;
    let mut figures = Figures::default();
    figures.played(&played);
    figures.put("unready", watched.unready as f64);
    let recorded = pair.recorded()?;
    // A container ends with each restart.
    let sent = recorded.counts.get(ENDS_TAKEN).copied().unwrap_or(0);
    figures.put("ends_untold", f64::from(count) - sent as f64);
    figures.counted(&recorded);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

/// What the subject shows and says while that happens, of the pods that count, and for a while after.
fn during(
    pair: &mut Pair,
    work: Work,
    seconds: u32,
    after: Duration,
    counts: impl Fn(&str) -> bool,
) -> Result<Figures> {
    pair.plan(work)?;
    pair.record()?;
    let watching = Duration::from_secs(seconds.into()) + after;
    pair.begin_watch(watching, false)?;
    let played = pair.play(f64::from(RATE), Faults::default())?;
    let watched = pair.end_watch(watching)?;
    let mut figures = Figures::default();
    figures.played(&played);
    figures.stale(&pair.stale(counts)?, &played);
    figures.put("unready", watched.unready as f64);
    figures.counted(&pair.recorded()?);
    Ok(figures)
}

pub(super) fn stall(run: &Run, point: &Point, settled: u32, rep: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (period, mut figures) = settle(&mut pair, settled, place(run, settled, rep))?;
    let (events, truth) = pair.plan(Work::Deaths { pods: 1 })?;
    let patience = PATIENCE + period;
    pair.wait_for(truth, events, patience)?;
    let played = pair.play(
        0.0,
        Faults {
            dropped: 1_000_000,
            ..Faults::default()
        },
    )?;
    match pair.reached(patience)?.at {
        Some(seen) => figures.put("stale", (seen - played.last) as f64),
        None => figures.put("gave_up", patience.as_nanos() as f64),
    }
    Ok(figures)
}

/// `probing`: the subject asks for a sign of life once a second.
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
    let (period, mut figures) = settle(&mut pair, settled, place(run, settled, rep))?;
    let patience = NOTICED + period;
    let at = wall().as_nanos();
    pair.freeze()?;
    pair.begin_watch(patience, true)?;
    match pair.end_watch(patience)?.unwell {
        Some(unwell) => figures.put("noticed", (unwell - at) as f64),
        None => figures.put("gave_up", patience.as_nanos() as f64),
    }
    Ok(figures)
}

/// At which place of the relist period a fault begins: of the period of this project if the node has
/// settled for long enough, else of the second of those that list once a second.
fn place(run: &Run, settled: u32, rep: u32) -> Duration {
    let phase = phase(run, rep);
    if settled > 120 { phase * 60 } else { phase }
}

/// Nothing happens for a while, and a little longer; how often the subject lists everything then.
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

pub(super) fn flapping(run: &Run, point: &Point, seconds: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let count = restarts(seconds);
    let (events, truth) = pair.plan(Work::Restarts { count })?;
    pair.record()?;
    let before = pair.counted()?;
    pair.wait_for(truth, events, RIGHT)?;
    let played = pair.play_cut(f64::from(RATE), Faults::default(), 1000)?;
    let reached = pair.reached(RIGHT)?;
    let mut figures = Figures::default();
    figures.played(&played);
    figures.asked(&pair.counted()?.since(&before));
    match reached.at {
        Some(at) => figures.put("after_last", (at - played.last) as f64),
        None => figures.put("gave_up", RIGHT.as_nanos() as f64),
    }
    figures.stale(&pair.stale(|_| true)?, &played);
    figures.counted(&pair.recorded()?);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}
