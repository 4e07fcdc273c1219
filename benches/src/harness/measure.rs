//! The measurements, one function for each workload.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use pleg_runtime::clock::wall;

use super::run::{Cut, Pair, Played, Run, SubjectOptions};
use super::{Point, Workload, trouble, workers};
use crate::node::Work;
use crate::protocol::{Counted, Faults, Histogram, Recorded, Stale};
use crate::random::Random;
use crate::results::{Sample, load, now};
use crate::stats::quantile;
use crate::subject::Kind;
use crate::usage::Usage;

/// How long a subject may take to show what has happened. Upstream's evented design takes up to 300 s
/// for a change that no event reported; a longer time is recorded as "gave up".
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a cache is read.
const READING: Duration = Duration::from_secs(2);

/// The most events of which every change is sent to the subject to compute how stale a cache was: all of it is
/// one message, with what the pod was like each time.
const HISTORY: u64 = 35_000;

/// How long a node is idle before it is watched: our lists come every minute then.
const SETTLING: f64 = 66.0;

/// In how many windows an idle node is watched.
const WINDOWS: u32 = 3;

/// Measures one point. An idle node gives several samples.
///
/// # Errors
/// If a process ends, or says nothing for too long.
pub(super) fn measure(run: &Run, point: &Point, rep: u32) -> Result<Vec<Sample>> {
    let mut sample = new_sample(point, rep);
    let figures = match point.workload {
        Workload::Relists { relists } => self::relists(run, point, relists)?,
        Workload::Idle { seconds } => return idle(run, point, seconds, rep),
        Workload::OwnWrites { parallel, times } => {
            workers::own_writes(run, point, parallel, times)?
        }
        Workload::Churn {
            per_hundred_seconds,
            seconds,
        } => workers::churn(run, point, per_hundred_seconds, seconds)?,
        Workload::Restarts { rate, seconds } => {
            let count = (rate * seconds / 4).max(1);
            churn(run, point, Work::Restarts { count }, f64::from(rate))?
        }
        Workload::Lifecycles {
            per_ten_seconds,
            seconds,
        } => {
            let count = (per_ten_seconds * seconds / 10).max(1);
            // Four events for each container and four for the sandbox.
            let events = f64::from(4 + 4 * point.containers);
            let rate = f64::from(per_ten_seconds) / 10.0 * events;
            churn(run, point, Work::Lifecycles { count }, rate)?
        }
        Workload::Storm | Workload::Dropping => {
            let pods = point.pods;
            burst(run, point, Work::Deaths { pods }, rep)?
        }
        Workload::Flood { events } => {
            let count = events / 4;
            burst(run, point, Work::Restarts { count }, rep)?
        }
        Workload::Cut { down_ms } => {
            let reset = false;
            cut(run, point, Cut { down_ms, reset }, rep)?
        }
        Workload::Reset => {
            let (down_ms, reset) = (0, true);
            cut(run, point, Cut { down_ms, reset }, rep)?
        }
        Workload::Lossy { per_million } => {
            let faults = Faults {
                dropped: per_million,
                doubled: per_million,
                ..Faults::default()
            };
            faulty_stream(run, point, faults)?
        }
        Workload::Late { per_million, by_ms } => {
            let faults = Faults {
                late: per_million,
                late_ms: by_ms,
                ..Faults::default()
            };
            faulty_stream(run, point, faults)?
        }
        Workload::Memory => memory(run, point)?,
        Workload::Stalled { rate, seconds } => trouble::stalled(run, point, rate, seconds)?,
        Workload::Reads => reads(run, point)?,
        Workload::HungPod { seconds } => trouble::hung_pod(run, point, seconds)?,
        Workload::SlowList { list_ms, seconds } => {
            trouble::slow_list(run, point, list_ms, seconds)?
        }
        Workload::Stall { settled } => trouble::stall(run, point, settled, rep)?,
        Workload::Frozen { settled } => trouble::frozen(run, point, settled, false, rep)?,
        Workload::Probed { settled } => trouble::frozen(run, point, settled, true, rep)?,
        Workload::Flapping { seconds } => trouble::flapping(run, point, seconds)?,
        Workload::Bloat { relists, .. } => self::relists(run, point, relists)?,
    };
    sample.metrics = figures.metrics;
    Ok(vec![sample])
}

fn new_sample(point: &Point, rep: u32) -> Sample {
    Sample {
        point: point.clone(),
        rep,
        at: now(),
        load: load(),
        metrics: BTreeMap::new(),
    }
}

/// Figures by name.
#[derive(Default)]
pub(super) struct Figures {
    metrics: BTreeMap<String, f64>,
}

impl Figures {
    pub(super) fn put(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.to_owned(), value);
    }

    /// The quantiles of a distribution.
    pub(super) fn spread(&mut self, name: &str, of: &Histogram) {
        let named = [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p999", 0.999),
            ("max", 1.0),
        ];
        for (suffix, part) in named {
            if let Some(value) = quantile(of, part) {
                self.put(&format!("{name}_{suffix}"), value as f64);
            }
        }
        self.put(
            &format!("{name}_count"),
            of.iter().map(|(_, n)| *n).sum::<u64>() as f64,
        );
    }

    fn used(&mut self, by: &str, usage: &Usage) {
        self.put(&format!("{by}_cpu"), usage.cpu as f64);
        self.put(&format!("{by}_woken"), usage.woken as f64);
        self.put(&format!("{by}_preempted"), usage.preempted as f64);
        self.put(&format!("{by}_peak_kib"), usage.peak_kib as f64);
        self.put(&format!("{by}_resident_kib"), usage.resident_kib as f64);
    }

    pub(super) fn asked(&mut self, counted: &Counted) {
        for (method, calls) in &counted.calls {
            self.put(&format!("calls_{method}"), *calls as f64);
        }
        self.put("calls_lists", counted.lists() as f64);
        self.put("calls_unary", counted.unary() as f64);
    }

    pub(super) fn counted(&mut self, recorded: &Recorded) {
        for (name, count) in &recorded.counts {
            self.put(&format!("own_{name}"), *count as f64);
        }
    }

    /// How stale the cache was: pod by pod, a minute of such work, and change by change.
    pub(super) fn stale(&mut self, stale: &Stale, played: &Played) {
        let minutes = (played.last - played.first) as f64 / 60e9;
        if minutes > 0.0 {
            self.put("stale_per_minute", stale.wrong as f64 / minutes);
        }
        self.put("unseen", stale.unseen as f64);
        self.spread("lag", &stale.lag);
        for (half, of) in ["earlier", "later"].into_iter().zip(&stale.halves) {
            if let Some(lag) = quantile(of, 0.5) {
                self.put(&format!("lag_{half}_p50"), lag as f64);
            }
        }
    }

    pub(super) fn played(&mut self, played: &Played) {
        self.put("events", played.sent as f64);
        self.put("sent_in", (played.last - played.first) as f64);
        self.put("generator_late", played.late as f64);
        self.put("send_blocked", played.blocked as f64);
        self.put("events_dropped", played.dropped as f64);
    }
}

/// Values as a distribution of their own.
fn each(values: &[u64]) -> Histogram {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().map(|v| (v, 1)).collect()
}

fn relists(run: &Run, point: &Point, count: u32) -> Result<Figures> {
    let by_hand = matches!(point.subject, Kind::Generic | Kind::GenericPlain);
    let mut pair = run.start(
        point,
        &SubjectOptions {
            by_hand,
            ..SubjectOptions::default()
        },
    )?;
    let before = pair.counted()?;
    let spent = pair.relist(count)?;
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    // Whoever lists by itself has done some of its own meanwhile: two calls make a relist, and
    // one was made before those that count.
    let relists = match counted.lists() {
        0 => f64::from(count),
        lists => lists as f64 / 2.0,
    };
    let made = f64::from(count) / f64::from(count + 1) * relists;
    figures.put("relists", relists);
    figures.put("synced_in", pair.synced_in as f64);
    if let (Kind::Decode, Some(bytes)) = (point.subject, spent.bytes) {
        figures.put("wire_bytes", bytes as f64);
    }
    figures.put("relist_cpu", spent.usage.cpu as f64 / made);
    figures.put("relist_woken", spent.usage.woken as f64 / made);
    figures.put("runtime_relist_cpu", counted.usage.cpu as f64 / relists);
    figures.spread("relist", &each(&spent.took));
    figures.put("subject_peak_kib", spent.usage.peak_kib as f64);
    figures.asked(&counted);
    Ok(figures)
}

/// The windows of an idle node: each is a repetition of its own.
fn idle(run: &Run, point: &Point, seconds: u32, rep: u32) -> Result<Vec<Sample>> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.window(SETTLING)?;
    let mut samples = Vec::new();
    for window in 0..WINDOWS {
        let mut sample = new_sample(point, rep * WINDOWS + window);
        let mut figures = Figures::default();
        used_in_window(&mut pair, f64::from(seconds), &mut figures)?;
        sample.metrics = figures.metrics;
        samples.push(sample);
    }
    Ok(samples)
}

/// What is used and called in a window of that length.
pub(super) fn used_in_window(pair: &mut Pair, seconds: f64, figures: &mut Figures) -> Result<()> {
    let before = pair.used()?.0;
    let counted = pair.window(seconds)?;
    let usage = pair.used()?.0.since(&before);
    figures.put("seconds", seconds);
    figures.used("subject", &usage);
    figures.used("runtime", &counted.usage);
    figures.asked(&counted);
    Ok(())
}

/// Where in the second of those who list once a second something falls: anywhere, and for all subjects
/// of one repetition in the same place.
pub(super) fn phase(run: &Run, rep: u32) -> Duration {
    let mut random = Random::new(run.seed ^ u64::from(rep));
    Duration::from_micros(random.below(1_000_000) as u64)
}

fn churn(run: &Run, point: &Point, work: Work, rate: f64) -> Result<Figures> {
    let mut pair = run.start(
        point,
        &SubjectOptions {
            stamp: true,
            ..SubjectOptions::default()
        },
    )?;
    let (_, _) = pair.plan(work)?;
    let (before, used) = (pair.counted()?, pair.record()?);
    let played = pair.play(rate, Faults::default())?;
    // What is to be seen of the last ones is seen by the next relist.
    pair.window(1.5)?;
    let usage = pair.used()?.0.since(&used);
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    if point.subject.shows() && played.sent <= HISTORY {
        figures.stale(&pair.stale(|_| true)?, &played);
    }
    let recorded = pair.recorded()?;
    figures.played(&played);
    figures.used("subject", &usage);
    figures.used("runtime", &counted.usage);
    figures.asked(&counted);
    figures.counted(&recorded);
    figures.spread("latency", &recorded.end_to_end);
    figures.spread("in_process", &recorded.in_process);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

fn burst(run: &Run, point: &Point, work: Work, rep: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (events, truth) = pair.plan(work)?;
    pair.window(phase(run, rep).as_secs_f64())?;
    pair.count()?;
    let before = pair.counted()?;
    let patience = PATIENCE + Duration::from_millis(point.latency * u64::from(point.pods) * 4);
    let used = pair.wait_for(truth, events, patience)?;
    let played = pair.play(0.0, Faults::default())?;
    let reached = pair.reached(patience)?;
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    figures.played(&played);
    figures.used("subject", &reached.usage.since(&used));
    figures.used("runtime", &counted.usage);
    figures.asked(&counted);
    match reached.at {
        Some(at) => {
            figures.put("consistent", (at - played.first) as f64);
            figures.put("after_last", (at - played.last) as f64);
        }
        None => figures.put("gave_up", patience.as_nanos() as f64),
    }
    figures.counted(&pair.recorded()?);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

fn cut(run: &Run, point: &Point, how: Cut, rep: u32) -> Result<Figures> {
    let mut figures = Figures::default();
    let patience = PATIENCE + Duration::from_millis(how.down_ms.into());
    let soon = || {
        wall()
            .after(Duration::from_millis(250) + phase(run, rep))
            .as_nanos()
    };
    let keeps_evidence = !matches!(point.subject, Kind::Evented | Kind::Hint);
    let evened = |pair: &mut Pair| {
        // As on a node that has been well for a while.
        pair.window(1.5)
    };
    if keeps_evidence {
        let mut pair = run.start(point, &SubjectOptions::default())?;
        evened(&mut pair)?;
        // Nothing happens meanwhile: only evidence is waited for.
        let uids = pair.truth()?.into_iter().map(|t| t.uid).collect();
        pair.plan(Work::Restarts { count: 0 })?;
        let at = soon();
        pair.wait_until_verified(at, uids, patience)?;
        let (at, listening) = pair.cut(at, how)?;
        let reached = pair.reached(patience)?;
        if let Some(verified) = reached.at {
            figures.put("verified", (verified - at) as f64);
            figures.put("verified_after_return", (verified - listening) as f64);
        }
        if point.subject.subscribes() {
            let subscribed = pair.subscribed_since(at)?;
            figures.put("evented_again", (subscribed - listening) as f64);
        }
    }
    // Something happens before anybody is back.
    let mut pair = run.start(point, &SubjectOptions::default())?;
    evened(&mut pair)?;
    let (events, truth) = pair.plan(Work::Deaths { pods: 1 })?;
    let at = soon();
    pair.wait_for(truth, events, patience)?;
    let (at, _) = pair.cut(at, how)?;
    let reached = pair.reached(patience)?;
    match reached.at {
        Some(seen) => figures.put("stale", (seen - at) as f64),
        None => figures.put("gave_up", patience.as_nanos() as f64),
    }
    Ok(figures)
}

fn faulty_stream(run: &Run, point: &Point, faults: Faults) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (events, truth) = pair.plan(Work::Restarts { count: 500 })?;
    pair.record()?;
    let before = pair.counted()?;
    let patience = Duration::from_secs(90);
    pair.wait_for(truth, events, patience)?;
    let played = pair.play(400.0, faults)?;
    let reached = pair.reached(patience)?;
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    figures.played(&played);
    figures.asked(&counted);
    match reached.at {
        Some(at) => figures.put("after_last", (at - played.last) as f64),
        None => figures.put("gave_up", patience.as_nanos() as f64),
    }
    figures.stale(&pair.stale(|_| true)?, &played);
    figures.counted(&pair.recorded()?);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

fn memory(run: &Run, point: &Point) -> Result<Figures> {
    let how = SubjectOptions {
        counting: true,
        ..SubjectOptions::default()
    };
    let mut held = Vec::new();
    let mut figures = Figures::default();
    // What a connection keeps for its busiest moment (h2, some 250 KB after the first inspections of
    // many pods) is no pod's: as many again are compared with so many.
    for pods in [point.pods, 2 * point.pods] {
        let mut pair = run.start(
            &Point {
                pods,
                ..point.clone()
            },
            &how,
        )?;
        held.extend(pair.used()?.1);
        if point.subject != Kind::Owned && pods == point.pods {
            let by = pair.relist(50)?;
            let each = |of: Option<u64>| of.map_or(f64::NAN, |of| of as f64 / 50.0);
            figures.put("allocations", each(by.allocations));
            figures.put("allocated", each(by.bytes));
        }
    }
    if let [once, twice] = held[..] {
        let more = twice as f64 - once as f64;
        figures.put("held_more", more / f64::from(point.pods));
        figures.put("held", once as f64);
    }
    Ok(figures)
}

/// Reads of the cache by another thread, on a quiet node and on a busy one.
fn reads(run: &Run, point: &Point) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let mut figures = Figures::default();
    let quiet = pair.read(READING, None)?;
    pair.plan(Work::Restarts { count: 1000 })?;
    let busy = pair.read(READING, Some(2000.0))?;
    figures.spread("read_quiet", &quiet);
    figures.spread("read_busy", &busy);
    Ok(figures)
}

/// How much of what the cache shows is wrong.
pub(super) fn compare(pair: &mut Pair, subject: Kind, figures: &mut Figures) -> Result<()> {
    if subject.shows() {
        let (lost, ghosts) = pair.compared()?;
        figures.put("lost", lost as f64);
        figures.put("ghosts", ghosts as f64);
    }
    Ok(())
}
