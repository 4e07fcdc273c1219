//! The measurements of each mode. Smoke runs all in parallel, other modes only those whose subjects mostly wait.

mod child;
mod measure;
mod real;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::join_all;
use pleg_runtime::clock::Clock;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::results::Writer;
use crate::subject::Kind;
use measure::Run;

pub(crate) use real::{Settings as Real, real};

/// A workload, which answers one question of docs/benchmarks.md.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub(crate) enum Workload {
    /// An idle node.
    Idle { seconds: f64 },
    /// Containers die and are replaced. The subject only observes these changes.
    Changes {
        /// Events per second; 0 on real runtimes, where the rate of events is not fixed.
        rate: u32,
        seconds: f64,
    },
    /// Pod workers restart their pods, and read the status of a pod after every call.
    OwnWrites {
        workers: u32,
        /// The number of restarts of each pod. A restart makes four calls.
        times: u32,
        /// The duration of each call.
        call_ms: u64,
    },
    /// Pod workers create, stop and remove pods.
    Churn { pods_per_second: f64, seconds: f64 },
    /// A PLEG starts, and then the containers of all pods exit at the same time.
    Storm { call_ms: u64 },
    /// The memory of a PLEG on a node without changes, and the memory that each additional pod takes.
    Memory,
}

/// One measurement: of a subject, under a workload, on a node with this number of pods.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    #[serde(flatten)]
    pub(crate) workload: Workload,
    pub(crate) subject: Kind,
    pub(crate) pods: u64,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (subject, pods, workload) = (self.subject.name(), self.pods, self.workload);
        write!(f, "{subject} · {pods} pods · {workload:?}")
    }
}

/// The mode of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Takes seconds, to test the benchmarks themselves.
    Smoke,
    /// Takes at most four minutes, to show the order of magnitude of the results.
    Quick,
    /// Takes at most 25 minutes.
    Run,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Run => "run",
        }
    }
}

/// Measurements that docs/benchmarks.md compares with each other.
struct Group {
    reps: u32,
    /// True if the harness makes all measurements of a repetition at the same time.
    parallel: bool,
    points: Vec<Point>,
}

use Kind::{Generic, Hint, Ours, RuntimeAlone};

const GENERATORS: &[Kind] = &[Generic, Hint, Ours];
const WITH_RUNTIME: &[Kind] = &[RuntimeAlone, Generic, Hint, Ours];

fn group(reps: u32, workload: Workload, sizes: &[u64], subjects: &[Kind]) -> Group {
    let of_size = |&pods: &u64| {
        let point = move |&subject| Point {
            workload,
            subject,
            pods,
        };
        subjects.iter().map(point)
    };
    Group {
        reps,
        parallel: matches!(workload, Workload::Idle { .. } | Workload::Churn { .. }),
        points: sizes.iter().flat_map(of_size).collect(),
    }
}

/// The groups of measurements of a mode, in the order of the questions in docs/benchmarks.md.
fn groups(mode: Mode) -> Vec<Group> {
    use Workload::{Changes, Churn, Idle, Memory, OwnWrites, Storm};
    let own_writes = |workers, times, call_ms| OwnWrites {
        workers,
        times,
        call_ms,
    };
    let churn = |pods_per_second, seconds| Churn {
        pods_per_second,
        seconds,
    };
    let changes = |rate, seconds| Changes { rate, seconds };
    match mode {
        Mode::Smoke => {
            let workloads = [
                (Idle { seconds: 0.5 }, GENERATORS),
                (changes(100, 1.0), WITH_RUNTIME),
                (own_writes(2, 1, 1), GENERATORS),
                (churn(2.0, 1.0), GENERATORS),
                (Storm { call_ms: 0 }, WITH_RUNTIME),
                (Memory, GENERATORS),
            ];
            let points = workloads.map(|(workload, of)| group(1, workload, &[40], of).points);
            vec![Group {
                reps: 1,
                parallel: true,
                points: points.concat(),
            }]
        }
        Mode::Quick => {
            let mut groups = vec![
                group(1, Idle { seconds: 10.0 }, &[110, 1000], GENERATORS),
                group(1, changes(100, 5.0), &[1000], WITH_RUNTIME),
                group(1, own_writes(10, 2, 5), &[1000], GENERATORS),
                group(2, Storm { call_ms: 0 }, &[1000], WITH_RUNTIME),
                group(1, Memory, &[1000], GENERATORS),
            ];
            let rates = [0.5, 2.0, 8.0];
            groups.extend(rates.map(|rate| group(1, churn(rate, 6.0), &[110, 500], GENERATORS)));
            groups
        }
        Mode::Run => {
            let mut groups = vec![
                group(2, Idle { seconds: 80.0 }, &[110, 1000], GENERATORS),
                group(3, changes(100, 10.0), &[1000], WITH_RUNTIME),
                group(3, changes(1000, 5.0), &[1000], WITH_RUNTIME),
                group(3, own_writes(1, 20, 5), &[1000], GENERATORS),
                group(3, own_writes(10, 10, 0), &[1000], GENERATORS),
                group(3, own_writes(10, 5, 5), &[1000], GENERATORS),
                group(2, own_writes(10, 1, 50), &[1000], GENERATORS),
                group(2, own_writes(100, 1, 5), &[1000], GENERATORS),
                // Repeat nine times: chance decides how soon a subject that lists once a second sees the exits.
                group(9, Storm { call_ms: 0 }, &[1000], WITH_RUNTIME),
                group(2, Storm { call_ms: 1 }, &[1000], GENERATORS),
                group(2, Memory, &[1000], GENERATORS),
            ];
            let rates = [0.25, 1.0, 3.0, 8.0];
            groups.extend(rates.map(|rate| group(3, churn(rate, 12.0), &[110, 500], GENERATORS)));
            groups
        }
    }
}

/// Measures, and writes the results to a file. `only` selects the measurements whose name contains this text.
///
/// # Errors
/// If a file cannot be written, a measurement fails, or the process receives a termination signal.
pub(crate) async fn run(mode: Mode, only: Option<&str>, out: &Path) -> Result<()> {
    let mut groups = groups(mode);
    for group in &mut groups {
        let is_wanted = |p: &Point| only.is_none_or(|only| p.to_string().contains(only));
        group.points.retain(is_wanted);
    }
    let points: usize = groups.iter().map(|group| group.points.len()).sum();
    ensure!(points > 0, "no point has a name that contains {only:?}");
    let mut writer = Writer::create(out, mode.name())?;
    // The directory for sockets. Dropping `directory` removes it from the file system.
    let directory = tempfile::Builder::new().prefix("pleg-bench-").tempdir()?;
    let run = Run::new(directory.path())?;
    tokio::select! {
        result = terminated() => result,
        result = Box::pin(measure_all(groups, &run, &mut writer)) => result,
    }
}

async fn measure_all(groups: Vec<Group>, run: &Run, writer: &mut Writer) -> Result<()> {
    let clock = Clock::start();
    let began = clock.now();
    for mut group in groups {
        for rep in 0..group.reps {
            let at_once = if group.parallel {
                group.points.len()
            } else {
                1
            };
            for points in group.points.chunks(at_once.max(1)) {
                let seconds = clock.now().since(began).as_secs();
                tracing::info!("{seconds:>5} s · {rep} · {}", points[0]);
                let measuring = points.iter().map(|point| run.measure(point, rep));
                for sample in join_all(measuring).await {
                    writer.write(&sample?)?;
                }
            }
            // The order of subjects alternates, so that changes of the machine over time affect all subjects equally.
            group.points.reverse();
        }
    }
    Ok(())
}

/// Waits for a termination signal, and then returns an error, so that destructors stop processes and remove files.
async fn terminated() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    bail!("terminated by a signal")
}

async fn pause(seconds: f64) {
    let clock = Clock::start();
    let until = clock.now().after(Duration::from_secs_f64(seconds));
    clock.sleep_until(until).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Estimates how long a measurement takes on an otherwise idle machine, in seconds.
    fn duration(of: &Point) -> f64 {
        let kilopods = of.pods as f64 / 1000.0;
        1.0 + match of.workload {
            Workload::Idle { seconds } if seconds > 30.0 => 68.0 + seconds,
            Workload::Idle { seconds } => 2.0 + seconds,
            Workload::Changes { seconds, .. } => 2.5 + seconds,
            Workload::OwnWrites {
                workers,
                times,
                call_ms,
            } => {
                let call = 5e-4 + 1.5e-3 * call_ms as f64;
                f64::from(workers * times * 4) * 4.5 * call
            }
            Workload::Churn { seconds, .. } => 13.0 + seconds,
            Workload::Storm { call_ms } => 2.0 + kilopods * 13.0 * call_ms as f64,
            Workload::Memory => 7.0,
        }
    }

    #[test]
    fn benchmark_modes_stay_within_their_time_limits() {
        for (mode, minutes) in [(Mode::Quick, 4.0), (Mode::Run, 25.0)] {
            let each = groups(mode).into_iter().map(|group| {
                let points = group.points.iter().map(duration);
                let once = match group.parallel {
                    true => points.fold(0.0, f64::max),
                    false => points.sum(),
                };
                once * f64::from(group.reps)
            });
            let whole = each.sum::<f64>() / 60.0;
            assert!(whole < minutes, "{mode:?}: {whole:.1} minutes");
        }
    }
}
