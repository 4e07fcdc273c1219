//! What is measured, how often and in which order: quick, within half an hour, or in full.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use pleg_runtime::clock::Clock;

use super::measure::{idle, measure};
use super::signals::{listen, may_go_on};
use super::{Point, Run, Workload};
use crate::payload::Profile;
use crate::results::{Line, Machine, Results, Writer};
use crate::subject::Kind;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// At most three minutes: whether it works, and the order of magnitude.
    Quick,
    /// At most half an hour on two cores: every target.
    Run,
    /// Hours: every node size and payload, and windows of ten minutes.
    Full,
}

/// Points that are compared with each other, and how often each is measured.
struct Group {
    reps: u32,
    points: Vec<Point>,
}

/// A group of one point for each subject.
fn group(reps: u32, workload: Workload, pods: u32, subjects: &[Kind]) -> Group {
    let point = |&subject| Point {
        workload,
        subject,
        pods,
        containers: 1,
        profile: Profile::Typical,
        latency: 0,
        page: None,
    };
    Group {
        reps,
        points: subjects.iter().map(point).collect(),
    }
}

impl Group {
    /// These subjects, too, on nodes of so many pods.
    fn and(mut self, pods: u32, subjects: &[Kind]) -> Self {
        let mut others = self.points.clone();
        others.retain(|point| subjects.contains(&point.subject));
        others.iter_mut().for_each(|point| point.pods = pods);
        self.points.extend(others);
        self
    }

    fn with(mut self, change: impl Fn(&mut Point)) -> Self {
        self.points.iter_mut().for_each(change);
        self
    }
}

const GENERATORS: [Kind; 5] = [
    Kind::Generic,
    Kind::BestGeneric,
    Kind::Evented,
    Kind::Hint,
    Kind::Ours,
];

fn quick() -> Vec<Group> {
    use Kind::{Decode, Drain, Evented, Generic, Ours};
    use Workload::{Cut, Flood, Frozen, HungPod, Memory, Reads, Relists, Restarts, Storm};
    vec![
        group(2, Relists { relists: 50 }, 1000, &[Decode, Generic, Ours]),
        group(
            2,
            Restarts {
                rate: 100,
                seconds: 5,
            },
            1000,
            &[Drain, Generic, Ours],
        ),
        group(2, Storm, 1000, &[Drain, Generic, Ours]),
        group(1, Flood { events: 20_000 }, 1000, &[Drain, Ours]),
        group(1, Cut { down_ms: 0 }, 1000, &[Generic, Evented, Ours]),
        group(1, Cut { down_ms: 400 }, 1000, &[Ours]),
        group(1, Memory, 1000, &[Kind::Owned, Generic, Ours]),
        group(1, stalled(5), 1000, &[Ours]),
        group(1, Reads, 1000, &[Ours]),
        group(1, HungPod { seconds: 5 }, 1000, &[Generic, Ours]),
        group(1, Frozen { settled: 1 }, 1000, &[Ours]),
    ]
}

const fn restarts(rate: u32, seconds: u32) -> Workload {
    Workload::Restarts { rate, seconds }
}

const fn stalled(seconds: u32) -> Workload {
    Workload::Stalled {
        rate: 1000,
        seconds,
    }
}

const fn lifecycles(per_ten_seconds: u32, seconds: u32) -> Workload {
    Workload::Lifecycles {
        per_ten_seconds,
        seconds,
    }
}

/// 1 % of the events lost, and 1 % doubled.
const LOSSY: Workload = Workload::Lossy {
    per_million: 10_000,
};

/// One event of ten is told up to two seconds late.
const LATE: Workload = Workload::Late {
    per_million: 100_000,
    by_ms: 2000,
};

fn run_half_an_hour() -> Vec<Group> {
    use Kind::{BestGeneric, Decode, Drain, Evented, Generic, Hint, Ours, Owned};
    use Workload::{
        Bloat, Cut, Dropping, Flapping, Flood, Frozen, HungPod, Idle, Memory, Probed, Reads,
        Relists, Reset, SlowList, Stall, Storm,
    };
    const BLOAT: Workload = Bloat {
        relists: 20,
        ended: 18_500,
    };
    const SLOW: Workload = SlowList {
        list_ms: 5000,
        seconds: 4,
    };
    const MANY: Workload = Relists { relists: 200 };
    const FEW: Workload = Relists { relists: 20 };
    let large = |p: &mut Point| {
        p.containers = 2;
        p.page = Some(5000);
    };
    vec![
        group(5, MANY, 110, &[Decode, Generic, Ours]),
        group(9, MANY, 1000, &[Decode, Generic, Ours]),
        group(3, FEW, 10_000, &[Decode, Generic, Ours]).with(large),
        group(5, restarts(100, 5), 1000, &[Drain, Generic, Ours]),
        group(1, restarts(100, 5), 1000, &[Evented, Hint]),
        group(2, restarts(1000, 3), 1000, &[Drain, Generic, Hint, Ours]),
        group(5, restarts(10_000, 3), 1000, &[Drain, Ours]),
        group(1, restarts(10_000, 3), 1000, &[Generic]),
        group(1, lifecycles(10, 6), 1000, &GENERATORS),
        group(1, lifecycles(160, 4), 1000, &GENERATORS),
        // Short, and the scheduler decides much of it: its interval is wide.
        group(25, Storm, 1000, &[Drain, Ours]),
        group(1, Storm, 1000, &[Generic, BestGeneric, Evented, Hint]),
        group(5, Storm, 1000, &[Generic, Ours]).with(|p| p.latency = 1),
        group(7, Flood { events: 40_000 }, 1000, &[Drain, Ours]),
        group(5, Cut { down_ms: 0 }, 1000, &[Generic, Ours]),
        group(1, Cut { down_ms: 0 }, 1000, &[Evented, Hint]),
        group(3, Cut { down_ms: 400 }, 1000, &[Ours]),
        group(1, Cut { down_ms: 400 }, 1000, &[Generic]),
        group(2, Reset, 1000, &[Ours]),
        group(1, Reset, 1000, &[Hint]),
        group(3, Dropping, 1000, &[Generic, Evented, Hint, Ours]),
        group(1, LOSSY, 1000, &[Generic, Hint, Ours]),
        group(1, LATE, 1000, &[Hint, Ours]),
        group(1, HungPod { seconds: 5 }, 1000, &[Generic, Hint, Ours]),
        group(1, SLOW, 1000, &[Generic, Hint, Ours]),
        group(1, Stall { settled: 4 }, 1000, &[Generic]),
        group(2, Stall { settled: 4 }, 1000, &[Ours]),
        group(2, Frozen { settled: 4 }, 1000, &[Ours]),
        group(3, Probed { settled: 4 }, 1000, &[Ours]),
        group(1, Flapping { seconds: 6 }, 1000, &[Generic, Ours]),
        group(1, BLOAT, 1000, &[Generic, Ours]).with(|p| p.page = Some(5000)),
        group(2, Memory, 1000, &[Owned, Generic, Ours]),
        group(1, stalled(60), 1000, &[Evented, Ours]),
        group(5, Reads, 1000, &[Ours]),
        group(1, Reads, 1000, &[Generic]),
        // All at the same time.
        group(1, Idle { seconds: 600 }, 1000, &GENERATORS).and(110, &[Generic, Ours]),
    ]
}

fn full() -> Vec<Group> {
    use Kind::{Decode, Drain, Evented, Generic, GenericPlain, Hint, Ours};
    use Workload::{
        Cut, Dropping, Flood, Idle, Lifecycles, Lossy, Memory, Reads, Relists, Reset, Restarts,
        Storm,
    };
    let mut groups = Vec::new();
    for profile in [Profile::Lean, Profile::Typical, Profile::Fat] {
        for pods in [110, 500, 1000, 5000, 10_000] {
            for containers in [1, 2, 3] {
                let set = |p: &mut Point| {
                    (p.profile, p.containers) = (profile, containers);
                    // What a single message cannot hold is streamed; fat rows in smaller pages.
                    let rows = if profile == Profile::Fat { 2000 } else { 5000 };
                    p.page = (pods * containers > 10_000 || pods > 2000).then_some(rows);
                };
                groups.push(
                    group(10, Relists { relists: 200 }, pods, &[Decode, Generic, Ours]).with(set),
                );
            }
        }
    }
    for pods in [110, 1000] {
        for rate in [100, 1000, 10_000] {
            let subjects = [Drain, Generic, GenericPlain, Evented, Hint, Ours];
            groups.push(group(10, Restarts { rate, seconds: 20 }, pods, &subjects));
        }
        for per_ten_seconds in [1, 10, 160] {
            groups.push(group(
                3,
                Lifecycles {
                    per_ten_seconds,
                    seconds: 60,
                },
                pods,
                &GENERATORS,
            ));
        }
        groups.push(group(2, Idle { seconds: 600 }, pods, &GENERATORS));
        groups.push(group(10, Memory, pods, &[Kind::Owned, Generic, Ours]));
        groups.push(group(10, Storm, pods, &[Drain, Generic, Ours]));
        for latency in [1, 10, 100] {
            let slow = |p: &mut Point| p.latency = latency;
            groups.push(group(3, Storm, pods, &[Generic, Hint, Ours]).with(slow));
        }
    }
    groups.push(group(5, stalled(60), 1000, &[Generic, Evented, Hint, Ours]));
    groups.push(group(10, Reads, 1000, &[Generic, Ours]));
    for per_million in [100, 10_000] {
        groups.push(group(
            3,
            Lossy { per_million },
            1000,
            &[Generic, Evented, Hint, Ours],
        ));
    }
    groups.push(group(3, LATE, 1000, &[Generic, Hint, Ours]));
    for down_ms in [0, 400, 30_000] {
        groups.push(group(
            10,
            Cut { down_ms },
            1000,
            &[Generic, Evented, Hint, Ours],
        ));
    }
    groups.push(group(10, Reset, 1000, &[Evented, Hint, Ours]));
    groups.push(group(10, Dropping, 1000, &[Generic, Evented, Hint, Ours]));
    groups.push(group(10, Flood { events: 100_000 }, 1000, &[Drain, Ours]));
    groups.extend(full_trouble());
    groups
}

/// What goes wrong, for longer, on a node where lists have become rare.
fn full_trouble() -> Vec<Group> {
    use Kind::{Evented, Generic, Hint, Ours};
    use Workload::{Bloat, Flapping, Frozen, HungPod, Probed, SlowList, Stall};
    const SUBJECTS: [Kind; 4] = [Generic, Evented, Hint, Ours];
    let slow = SlowList {
        list_ms: 5000,
        seconds: 60,
    };
    let bloat = Bloat {
        relists: 200,
        ended: 18_500,
    };
    vec![
        group(3, HungPod { seconds: 200 }, 1000, &SUBJECTS),
        group(3, slow, 1000, &SUBJECTS),
        group(5, Stall { settled: 130 }, 1000, &SUBJECTS),
        group(5, Frozen { settled: 130 }, 1000, &SUBJECTS),
        group(5, Probed { settled: 130 }, 1000, &[Ours]),
        group(5, Flapping { seconds: 6 }, 1000, &SUBJECTS),
        group(10, bloat, 1000, &[Generic, Ours]).with(|p| p.page = Some(5000)),
    ]
}

/// Measures, and writes the results into that file; what is there already is not measured again.
///
/// # Errors
/// If the file cannot be written. A measurement that fails is said and left out.
pub fn run(mode: Mode, only: Option<&str>, seed: u64, out: &Path) -> Result<()> {
    let groups = match mode {
        Mode::Quick => quick(),
        Mode::Run => run_half_an_hour(),
        Mode::Full => full(),
    };
    let mut done = if out.exists() {
        Results::read(out)?.done()
    } else {
        Default::default()
    };
    let mut writer = Writer::open(out)?;
    let name = mode.to_possible_value();
    let name = name.as_ref().map_or("", |v| v.get_name());
    writer.write(&Line::Machine(Machine::here(seed, name)))?;
    listen()?;
    let directory = Directory::new()?;
    let run = Run::new(&directory.0, seed)?;
    let clock = Clock::start();
    let began = clock.now();
    for group in groups {
        for rep in 0..group.reps {
            let mut points: Vec<Point> = group.points.clone();
            // A B, B A, A B, …: what changes with time falls on all of them.
            if rep % 2 == 1 {
                points.reverse();
            }
            points.retain(|p| !done.contains(&(p.clone(), rep)));
            points.retain(|p| only.is_none_or(|only| p.to_string().contains(only)));
            let elapsed =
                Duration::from_nanos(clock.now().since(began).as_nanos() as u64).as_secs();
            let said = |p: &Point| tracing::info!("{elapsed:>5} s · {rep} · {p}");
            if let Some(Point {
                workload: Workload::Idle { .. },
                ..
            }) = points.first()
            {
                points.iter().for_each(said);
                for sample in idle(&run, &points, rep)? {
                    writer.write(&Line::Sample(sample))?;
                }
                continue;
            }
            for point in points {
                said(&point);
                match measure(&run, &point, rep) {
                    Ok(sample) => {
                        done.insert((sample.point.clone(), rep));
                        writer.write(&Line::Sample(sample))?;
                    }
                    Err(error) => {
                        may_go_on()?;
                        tracing::error!("not measured: {error:#}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// A directory for sockets, which goes with this.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pleg-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a point takes on a machine that does nothing else, in seconds: what its workload
    /// lasts by itself, and what starting, looking and waiting took besides in a quick run.
    fn lasts(of: &Point) -> f64 {
        let slow_to_start = f64::from(of.pods) / 1000.0 * 0.3;
        let at_latency = of.latency as f64 * f64::from(of.pods) / 1000.0 * 5.0;
        let gives_up = if of.subject == Kind::Evented {
            20.0
        } else {
            0.0
        };
        let least = 0.3 + slow_to_start + at_latency;
        least
            + match of.workload {
                Workload::Relists { relists } => f64::from(relists * of.pods) * 4e-6,
                Workload::Bloat { relists, .. } => 3.0 + f64::from(relists) * 0.1,
                Workload::Idle { seconds } => 66.0 + f64::from(seconds),
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
                Workload::Stalled { seconds, .. } => 1.0 + f64::from(seconds),
                Workload::Reads => 4.0,
                Workload::HungPod { seconds } => 2.5 + f64::from(seconds),
                Workload::SlowList { list_ms, seconds } => {
                    2.5 + 1e-3 * f64::from(list_ms) + f64::from(seconds)
                }
                Workload::Stall { settled } => 1.0 + 2.0 * f64::from(settled) + gives_up,
                Workload::Frozen { settled } | Workload::Probed { settled } => {
                    4.0 + 2.0 * f64::from(settled)
                }
                Workload::Flapping { seconds } => 1.0 + f64::from(seconds),
            }
    }

    fn planned(groups: &[Group]) -> f64 {
        let each = |group: &Group| {
            // An idle node is watched for all subjects at once.
            let idle = matches!(
                group.points.first().map(|p| p.workload),
                Some(Workload::Idle { .. })
            );
            let points = if idle { 1 } else { group.points.len() };
            let once: f64 = group.points.iter().take(points).map(lasts).sum();
            f64::from(group.reps) * once
        };
        groups.iter().map(each).sum()
    }

    #[test]
    fn half_an_hour_is_no_more_than_that() {
        let minutes = planned(&run_half_an_hour()) / 60.0;
        assert!(minutes < 30.0, "{minutes:.1} minutes");
        let minutes = planned(&quick()) / 60.0;
        assert!(minutes < 3.0, "{minutes:.1} minutes");
    }
}
