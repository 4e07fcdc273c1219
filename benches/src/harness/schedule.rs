//! Measures the groups of a mode one after the other.

use std::path::Path;
use std::thread::ScopedJoinHandle;

use anyhow::{Result, bail};
use pleg_runtime::clock::Clock;

use super::groups::{Group, Parallelism, quick, smoke, standard};
use super::measure::measure;
use super::signals::{check_terminated, listen};
use super::{Point, Run};
use crate::results::{Line, Machine, Results, Sample, Writer};

/// The mode of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Seconds: a smoke test.
    Smoke,
    /// At most three minutes: the order of magnitude.
    Quick,
    /// At most 45 minutes on two cores: every table of the page.
    Run,
}

impl Mode {
    /// Its name in results files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Run => "run",
        }
    }
}

/// Measures, and appends the results to a file. Points that the file already contains are not measured
/// again.
///
/// # Errors
/// If the file cannot be written. A measurement that fails is logged and skipped.
pub fn run(mode: Mode, only: Option<&str>, seed: u64, out: &Path) -> Result<()> {
    let groups = match mode {
        Mode::Smoke => smoke(),
        Mode::Quick => quick(),
        Mode::Run => standard(),
    };
    let mut all = groups.iter().flat_map(|group| &group.points);
    if let Some(only) = only
        && let Some(first) = all.next().map(ToString::to_string)
        && !first.contains(only)
        && !all.any(|point| point.to_string().contains(only))
    {
        bail!("no point has a name that contains {only:?}; the name of the first one is {first:?}");
    }
    let mut done = if out.exists() {
        Results::read(out)?.done()
    } else {
        Default::default()
    };
    let mut writer = Writer::open(out)?;
    writer.write(&Line::Machine(Machine::here(seed, mode.name())))?;
    listen()?;
    // For sockets. It is removed on drop.
    let directory = tempfile::Builder::new().prefix("pleg-bench-").tempdir()?;
    let run = Run::new(directory.path(), seed)?;
    let clock = Clock::start();
    let began = clock.now();
    let mut left = |points: &[Point], rep: u32| -> Vec<(Point, u32)> {
        let mut points: Vec<Point> = points.to_vec();
        // A B, B A, A B, …: changes over time affect all subjects equally.
        if rep % 2 == 1 {
            points.reverse();
        }
        points.retain(|p| done.insert((p.clone(), rep)));
        points.retain(|p| only.is_none_or(|only| p.to_string().contains(only)));
        points.into_iter().map(|point| (point, rep)).collect()
    };
    for Group {
        reps,
        points,
        parallelism,
    } in groups
    {
        let measure = |(point, rep): &(Point, u32)| {
            let elapsed = clock.now().since(began).as_nanos() / 1_000_000_000;
            tracing::info!("{elapsed:>5} s · {rep} · {point}");
            measure(&run, point, *rep)
        };
        let mut write = |samples: Result<Vec<Sample>>| match samples {
            Ok(samples) => {
                let mut lines = samples.into_iter().map(Line::Sample);
                lines.try_for_each(|line| writer.write(&line))
            }
            Err(error) => {
                check_terminated()?;
                tracing::error!("measurement failed: {error:#}");
                Ok(())
            }
        };
        let mut batches: Vec<Vec<(Point, u32)>> = Vec::new();
        for batch in (0..reps).map(|rep| left(&points, rep)) {
            match (parallelism, batches.last_mut()) {
                (Parallelism::Group, Some(all)) => all.extend(batch),
                (Parallelism::None, _) => {
                    batches.extend(batch.into_iter().map(|point| vec![point]));
                }
                _ => batches.push(batch),
            }
        }
        for batch in batches {
            let measured: Vec<_> = std::thread::scope(|scope| {
                let start = |of| scope.spawn(move || measure(of));
                let threads: Vec<_> = batch.iter().map(start).collect();
                threads.into_iter().map(ScopedJoinHandle::join).collect()
            });
            for samples in measured {
                write(samples.unwrap_or_else(|_| bail!("a measurement panicked")))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Workload;
    use crate::subject::Kind;

    /// Estimates the duration of a point on an otherwise idle machine, in seconds: the workload, plus the
    /// overhead that was measured in a quick run.
    fn duration(of: &Point) -> f64 {
        let slow_to_start = f64::from(of.pods) / 1000.0 * 0.3;
        let at_latency = match of.workload {
            Workload::OwnWrites { .. } => 0.0,
            _ => of.latency as f64 * f64::from(of.pods) / 1000.0 * 5.0,
        };
        let gives_up = if of.subject == Kind::Evented {
            20.0
        } else {
            0.0
        };
        let least = 0.3 + slow_to_start + at_latency;
        least
            + match of.workload {
                Workload::Relists { relists } => f64::from(relists * of.pods) * 4e-6,
                Workload::ExitedContainers { relists, .. } => 3.0 + f64::from(relists) * 0.1,
                Workload::Idle { seconds } => 66.0 + 3.0 * f64::from(seconds),
                Workload::Churn { seconds, .. } => 14.0 + f64::from(seconds),
                Workload::OwnWrites { parallel, times } => {
                    let (serial, reads) = match of.subject {
                        Kind::Generic => (4.0, parallel * times * 4),
                        _ => (2.5, times * 4),
                    };
                    let each = serial * (2e-4 + 1e-3 * of.latency as f64);
                    f64::from(reads) * each
                }
                Workload::Restarts { seconds, .. } | Workload::Lifecycles { seconds, .. } => {
                    1.5 + f64::from(seconds)
                }
                Workload::Storm => 0.5,
                Workload::Dropping => 2.0 + gives_up,
                Workload::Reset => 4.5 + gives_up,
                Workload::Flood { events } => f64::from(events) / 20_000.0,
                Workload::Cut { down_ms } => 4.5 + gives_up + 2e-3 * f64::from(down_ms),
                Workload::Lossy { .. } => 8.0,
                Workload::Late { by_ms, .. } => 4.0 + 1e-3 * f64::from(by_ms),
                Workload::Memory => 2.0,
                Workload::StalledConsumer { seconds, .. } => 1.0 + f64::from(seconds),
                Workload::Reads => 4.0,
                Workload::HungPod { seconds } => 2.5 + f64::from(seconds),
                Workload::SlowList { list_ms, seconds } => {
                    2.5 + 1e-3 * f64::from(list_ms) + f64::from(seconds)
                }
                Workload::SilentStream { settled } => 20.0 + 2.0 * f64::from(settled) + gives_up,
                Workload::Frozen { settled } | Workload::Probed { settled } => {
                    4.0 + 2.0 * f64::from(settled)
                }
                Workload::Flapping { seconds } => 1.0 + f64::from(seconds),
            }
    }

    fn total_duration(groups: &[Group]) -> f64 {
        let each = |group: &Group| {
            let of_points = group.points.iter().map(duration);
            let longest = of_points.clone().fold(0.0, f64::max);
            let reps = f64::from(group.reps);
            match group.parallelism {
                Parallelism::None => reps * of_points.sum::<f64>(),
                Parallelism::Repetition => reps * longest,
                Parallelism::Group => longest,
            }
        };
        groups.iter().map(each).sum()
    }

    #[test]
    fn modes_stay_within_their_time() {
        let minutes = total_duration(&standard()) / 60.0;
        assert!(minutes < 45.0, "{minutes:.1} minutes");
        let minutes = total_duration(&quick()) / 60.0;
        assert!(minutes < 3.0, "{minutes:.1} minutes");
    }
}
