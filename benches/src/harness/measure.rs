//! The measurements, one function for each workload.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use pleg_runtime::clock::wall;

use super::run::{Cut, Pair, Run, SubjectOptions};
use super::{Point, Workload, faults, workers};
use crate::node::Changes;
use crate::protocol::{Counted, EventFaults, Histogram, Played, Stale};
use crate::random::Random;
use crate::results::{Sample, load, now};
use crate::stats::quantile;
use crate::subject::Kind;
use crate::usage::Usage;

/// The time limit until a subject shows a change. Upstream's evented design takes up to 300 s for a
/// change without an event; a longer time is recorded as "gave up".
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The duration of the reads of a cache.
const READ_DURATION: Duration = Duration::from_secs(2);

/// The maximum number of events for which the staleness of a cache is computed: all changes are sent to the
/// subject in one message.
const MAX_HISTORY: u64 = 35_000;

/// How long a node is idle before it is measured: this project then lists once a minute.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(66);

/// The number of windows in which an idle node is measured.
const WINDOWS: u32 = 3;

/// Measures one point. An idle node gives several samples.
///
/// # Errors
/// If a process ends, or does not answer in time.
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
            planned_changes(run, point, Changes::Restarts { count }, f64::from(rate))?
        }
        Workload::Lifecycles {
            per_ten_seconds,
            seconds,
        } => {
            let count = (per_ten_seconds * seconds / 10).max(1);
            // Four events for each container and four for the sandbox.
            let events = f64::from(4 + 4 * point.containers);
            let rate = f64::from(per_ten_seconds) / 10.0 * events;
            planned_changes(run, point, Changes::Lifecycles { count }, rate)?
        }
        Workload::Storm | Workload::Dropping => {
            let pods = point.pods;
            burst(run, point, Changes::Deaths { pods }, rep)?
        }
        Workload::Flood { events } => {
            let count = events / 4;
            burst(run, point, Changes::Restarts { count }, rep)?
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
            let event_faults = EventFaults {
                dropped: per_million,
                duplicated: per_million,
                ..EventFaults::default()
            };
            faults::faulty_stream(run, point, event_faults)?
        }
        Workload::Late { per_million, by_ms } => {
            let event_faults = EventFaults {
                late: per_million,
                late_ms: by_ms,
                ..EventFaults::default()
            };
            faults::faulty_stream(run, point, event_faults)?
        }
        Workload::Memory => memory(run, point)?,
        Workload::StalledConsumer { rate, seconds } => {
            faults::stalled_consumer(run, point, rate, seconds)?
        }
        Workload::Reads => reads(run, point)?,
        Workload::HungPod { seconds } => faults::hung_pod(run, point, seconds)?,
        Workload::SlowList { list_ms, seconds } => faults::slow_list(run, point, list_ms, seconds)?,
        Workload::SilentStream { settled } => faults::silent_stream(run, point, settled, rep)?,
        Workload::Frozen { settled } => faults::frozen(run, point, settled, false, rep)?,
        Workload::Probed { settled } => faults::frozen(run, point, settled, true, rep)?,
        Workload::Flapping { seconds } => faults::flapping(run, point, seconds)?,
        Workload::ExitedContainers { relists, .. } => self::relists(run, point, relists)?,
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

/// Metrics by name.
#[derive(Default)]
pub(super) struct Figures {
    metrics: BTreeMap<String, f64>,
}

impl Figures {
    pub(super) fn put(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.to_owned(), value);
    }

    /// The quantiles of a distribution.
    pub(super) fn quantiles(&mut self, name: &str, of: &Histogram) {
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

    /// The resource usage of the subject and of the runtime, and the number of calls.
    fn used(&mut self, subject: &Usage, runtime: &Counted) {
        self.put("subject_cpu", subject.cpu as f64);
        self.put("subject_woken", subject.woken as f64);
        self.put("subject_peak_kib", subject.peak_kib as f64);
        self.put("subject_resident_kib", subject.resident_kib as f64);
        self.put("runtime_cpu", runtime.usage.cpu as f64);
        self.put("calls_unary", runtime.unary() as f64);
    }

    /// How stale the cache was: per minute of the workload, and for each change.
    pub(super) fn stale(&mut self, stale: &Stale, played: &Played) {
        let minutes = (played.last - played.first) as f64 / 60e9;
        if minutes > 0.0 {
            self.put("stale_per_minute", stale.wrong as f64 / minutes);
        }
        self.put("unseen", stale.unseen as f64);
        self.quantiles("lag", &stale.lag);
    }

    pub(super) fn played(&mut self, played: &Played) {
        self.put("events", played.sent as f64);
        self.put("sent_in", (played.last - played.first) as f64);
        self.put("send_blocked", played.blocked as f64);
        self.put("events_dropped", played.dropped as f64);
    }
}

/// Converts values to a histogram.
fn each(values: &[u64]) -> Histogram {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().map(|v| (v, 1)).collect()
}

fn relists(run: &Run, point: &Point, count: u32) -> Result<Figures> {
    let without_timer = point.subject == Kind::Generic;
    let mut pair = run.start(
        point,
        &SubjectOptions {
            without_timer,
            ..SubjectOptions::default()
        },
    )?;
    let before = pair.counted()?;
    let spent = pair.relist(count)?;
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    // Two calls are a relist. A subject may also relist by itself, and one relist was not measured.
    let relists = match counted.lists() {
        0 => f64::from(count),
        lists => lists as f64 / 2.0,
    };
    let made = f64::from(count) / f64::from(count + 1) * relists;
    figures.put("synced_in", pair.synced_in as f64);
    figures.put("relist_cpu", spent.usage.cpu as f64 / made);
    figures.put("runtime_relist_cpu", counted.usage.cpu as f64 / relists);
    figures.quantiles("relist", &each(&spent.took));
    Ok(figures)
}

/// Measures an idle node. Each window is a repetition.
fn idle(run: &Run, point: &Point, seconds: u32, rep: u32) -> Result<Vec<Sample>> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.window(SETTLE_TIME.as_secs_f64())?;
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

/// Measures usage and calls in a window.
pub(super) fn used_in_window(pair: &mut Pair, seconds: f64, figures: &mut Figures) -> Result<()> {
    let before = pair.subject.used()?.0;
    let counted = pair.window(seconds)?;
    let usage = pair.subject.used()?.0.since(&before);
    figures.put("seconds", seconds);
    figures.used(&usage, &counted);
    Ok(())
}

/// The offset of a fault within the one-second relist period: random, and equal for all subjects of one
/// repetition.
pub(super) fn offset_in_second(run: &Run, rep: u32) -> Duration {
    let mut random = Random::new(run.seed ^ u64::from(rep));
    Duration::from_micros(random.below(1_000_000) as u64)
}

fn planned_changes(run: &Run, point: &Point, changes: Changes, rate: f64) -> Result<Figures> {
    let mut pair = run.start(
        point,
        &SubjectOptions {
            stamp: true,
            ..SubjectOptions::default()
        },
    )?;
    let (_, _) = pair.plan(changes)?;
    let (before, used) = (pair.counted()?, pair.subject.record()?);
    let played = pair.play(rate, EventFaults::default())?;
    // The next relist shows the last changes.
    pair.window(1.5)?;
    let usage = pair.subject.used()?.0.since(&used);
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    if point.subject.has_cache() && played.sent <= MAX_HISTORY {
        figures.stale(&pair.stale(|_| true)?, &played);
    }
    let recorded = pair.subject.recorded()?;
    figures.played(&played);
    figures.used(&usage, &counted);
    figures.quantiles("latency", &recorded.end_to_end);
    figures.quantiles("in_process", &recorded.in_process);
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

fn burst(run: &Run, point: &Point, changes: Changes, rep: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let (events, expected) = pair.plan(changes)?;
    pair.window(offset_in_second(run, rep).as_secs_f64())?;
    pair.discard()?;
    let before = pair.counted()?;
    let time_limit = TIME_LIMIT + Duration::from_millis(point.latency * u64::from(point.pods) * 4);
    let used = pair.wait_for(expected, events, time_limit)?;
    let played = pair.play(0.0, EventFaults::default())?;
    let reached = pair.reached(time_limit)?;
    let counted = pair.counted()?.since(&before);
    let mut figures = Figures::default();
    figures.played(&played);
    figures.used(&reached.usage.since(&used), &counted);
    match reached.at {
        Some(at) => figures.put("consistent", (at - played.first) as f64),
        None => figures.put("gave_up", time_limit.as_nanos() as f64),
    }
    compare(&mut pair, point.subject, &mut figures)?;
    Ok(figures)
}

fn cut(run: &Run, point: &Point, how: Cut, rep: u32) -> Result<Figures> {
    let mut figures = Figures::default();
    let time_limit = TIME_LIMIT + Duration::from_millis(how.down_ms.into());
    let soon = || {
        wall()
            .after(Duration::from_millis(250) + offset_in_second(run, rep))
            .as_nanos()
    };
    let keeps_evidence = !matches!(point.subject, Kind::Evented | Kind::Hint);
    let settle = |pair: &mut Pair| {
        // As on a node without recent faults.
        pair.window(1.5)
    };
    if keeps_evidence {
        let mut pair = run.start(point, &SubjectOptions::default())?;
        settle(&mut pair)?;
        // No changes: only new evidence is measured.
        let uids = pair.expected()?.into_iter().map(|t| t.uid).collect();
        pair.plan(Changes::Restarts { count: 0 })?;
        let at = soon();
        pair.wait_until_verified(at, uids, time_limit)?;
        let at = pair.cut(at, how)?;
        if let Some(verified) = pair.reached(time_limit)?.at {
            figures.put("verified", (verified - at) as f64);
        }
    }
    // A change happens before a client reconnects.
    let mut pair = run.start(point, &SubjectOptions::default())?;
    settle(&mut pair)?;
    let (events, expected) = pair.plan(Changes::Deaths { pods: 1 })?;
    let at = soon();
    pair.wait_for(expected, events, time_limit)?;
    let at = pair.cut(at, how)?;
    match pair.reached(time_limit)?.at {
        Some(seen) => figures.put("stale", (seen - at) as f64),
        None => figures.put("gave_up", time_limit.as_nanos() as f64),
    }
    Ok(figures)
}

fn memory(run: &Run, point: &Point) -> Result<Figures> {
    let how = SubjectOptions {
        counting: true,
        ..SubjectOptions::default()
    };
    let mut held = Vec::new();
    let mut figures = Figures::default();
    // A connection keeps buffers of its peak load (h2, about 250 KB after the first inspections of many
    // pods), which belong to no pod. Therefore two node sizes are compared.
    for pods in [point.pods, 2 * point.pods] {
        let mut pair = run.start(
            &Point {
                pods,
                ..point.clone()
            },
            &how,
        )?;
        held.extend(pair.subject.used()?.1);
        if point.subject != Kind::Statuses && pods == point.pods {
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

/// Measures reads of the cache by another thread, on an idle node and on a busy node.
fn reads(run: &Run, point: &Point) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    let mut figures = Figures::default();
    let quiet = pair.read(READ_DURATION, None)?;
    pair.plan(Changes::Restarts { count: 1000 })?;
    let busy = pair.read(READ_DURATION, Some(2000.0))?;
    figures.quantiles("read_quiet", &quiet);
    figures.quantiles("read_busy", &busy);
    Ok(figures)
}

/// Counts the containers that the cache lacks, shows in a wrong state, or shows although they do not
/// exist.
pub(super) fn compare(pair: &mut Pair, subject: Kind, figures: &mut Figures) -> Result<()> {
    if subject.has_cache() {
        let (lost, ghosts) = pair.compared()?;
        figures.put("lost", lost as f64);
        figures.put("ghosts", ghosts as f64);
    }
    Ok(())
}
