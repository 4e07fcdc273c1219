//! The measurements of pod workers that change the node themselves.

use std::time::Duration;

use anyhow::Result;

use super::Point;
use super::measure::{Figures, used_in_window};
use super::run::{Run, SubjectOptions};
use crate::protocol::CallFaults;

/// The maximum idle time before pod workers start, in seconds, and how long they run before the measurement:
/// longer than the lifetime of a pod.
const CHURN_SETTLING: f64 = 8.0;
const CHURN_BEGIN: f64 = 4.5;

/// Reads of pod workers after their own changes.
pub(super) fn own_writes(run: &Run, point: &Point, parallel: u32, times: u32) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.set_call_faults(CallFaults {
        call_ms: point.latency,
        ..CallFaults::default()
    })?;
    let (before, used) = (pair.counted()?, pair.subject.used()?.0);
    let recorded = pair.restart(parallel, times)?;
    let counted = pair.counted()?.since(&before);
    let used = pair.subject.used()?.0.since(&used);
    let mut figures = Figures::default();
    // A read of each pod comes before its first restart.
    let reads = f64::from(4 * times + 1) * f64::from(parallel);
    figures.put("calls_per_read", counted.reads() as f64 / reads);
    figures.put("cpu_per_read", used.cpu as f64 / reads);
    figures.put("runtime_cpu_per_read", counted.usage.cpu as f64 / reads);
    figures.quantiles("read", &recorded.in_process);
    figures.put("calls_unary", counted.unary() as f64);
    figures.put("own_wrong_reads", recorded.wrong_reads as f64);
    Ok(figures)
}

pub(super) fn churn(
    run: &Run,
    point: &Point,
    per_hundred_seconds: u32,
    seconds: u32,
) -> Result<Figures> {
    let mut pair = run.start(point, &SubjectOptions::default())?;
    pair.window(CHURN_SETTLING.min(seconds.into()))?;
    // The number of pods is constant after the first pods are removed.
    let rate = f64::from(per_hundred_seconds) / 100.0;
    let whole = CHURN_BEGIN + f64::from(seconds);
    pair.begin_churn(rate, Duration::from_secs_f64(whole))?;
    pair.window(CHURN_BEGIN)?;
    pair.take_reads()?;
    let mut figures = Figures::default();
    used_in_window(&mut pair, f64::from(seconds), &mut figures)?;
    let recorded = pair.take_reads()?;
    figures.quantiles("read", &recorded.in_process);
    figures.put("own_wrong_reads", recorded.wrong_reads as f64);
    Ok(figures)
}
