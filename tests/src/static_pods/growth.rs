//! What the process of `static_pods` holds while pods crash and are restarted for hours.

use std::time::Duration;

use anyhow::ensure;
use pleg::core::Mode;
use pleg_cri::v1::ContainerFilter;

use crate::daemon::Daemon;
use crate::environment::number;
use crate::kubelet::Kubelet;
use crate::usage;
use crate::wait::pass_time;

use super::manifests::{self, Kind};
use super::process::{Event, Settings, StaticPods};

/// Tombstones live for 10 minutes: until then everything grows.
const SETTLED: u32 = 12 * 60;
/// How many samples say something.
const HALF: usize = 10;
/// By which factor the most that is held may vary from half to half.
const TOLERANCE: f64 = 1.1;

/// How long it is watched.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many pods crash.
    pub pods: u32,
    /// For how many minutes.
    pub minutes: u32,
    /// How many seconds there are between two samples.
    pub every: u32,
}

impl Plan {
    /// A short plan, or the plan that the environment defines.
    ///
    /// # Errors
    /// If that is no number.
    pub fn from_env() -> anyhow::Result<Self> {
        Ok(Self {
            pods: number("PLEG_KUBELET_PODS", 10)?,
            minutes: number("PLEG_KUBELET_MINUTES", 2)?,
            every: number("PLEG_KUBELET_SAMPLE_SECONDS", 60)?,
        })
    }
}

/// What the process holds at one time.
#[derive(Clone, Debug)]
struct Sample {
    resident_kib: u64,
    descriptors: usize,
    threads: u64,
    /// None if the process does not say.
    tasks: Option<f64>,
    ended: usize,
    listed: usize,
}

/// Prints a sample at each interval. After a long run, the second half may not hold more than the first.
///
/// # Errors
/// If it does, or the process ends or cannot be asked.
pub async fn watch(daemon: &Daemon, plan: Plan) -> anyhow::Result<()> {
    let mut kubelet = StaticPods::new(Settings::of(daemon, Mode::Evented))?;
    let dir = kubelet.settings.manifests();
    manifests::write(&dir, Kind::Crashing, plan.pods, &daemon.image)?;
    kubelet.start().await?;
    let client = Kubelet::new(daemon)?;
    println!("seconds   RSS KiB  descriptors  threads  tasks    ends  containers");
    let mut samples = Vec::new();
    for n in 0..=plan.minutes * 60 / plan.every.max(1) {
        if n > 0 {
            pass_time(Duration::from_secs(plan.every.into())).await;
        }
        let s = sample(&kubelet, &client).await?;
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
        println!(
            "{:>7} {:>9} {:>12} {:>8} {:>6} {:>7} {:>11}",
            n * plan.every,
            s.resident_kib,
            s.descriptors,
            s.threads,
            or_none(s.tasks),
            s.ended,
            s.listed,
        );
        samples.push(s);
    }
    kubelet.terminate().await?;
    let settled = samples.iter().skip((SETTLED / plan.every.max(1)) as usize);
    is_flat(&settled.cloned().collect::<Vec<_>>())
}

/// The second half holds no more than the first.
fn is_flat(samples: &[Sample]) -> anyhow::Result<()> {
    if samples.len() < 2 * HALF {
        println!("too short to say whether it grows");
        return Ok(());
    }
    let (first, second) = samples.split_at(samples.len() / 2);
    type Value = fn(&Sample) -> f64;
    let all: [(&str, f64, Value); 3] = [
        ("RSS in KiB", 1024.0, |s| s.resident_kib as f64),
        ("descriptors", 4.0, |s| s.descriptors as f64),
        ("tasks", 8.0, |s| s.tasks.unwrap_or(0.0)),
    ];
    for (what, slack, value) in all {
        let most = |half: &[Sample]| half.iter().map(value).fold(0.0, f64::max);
        let (before, after) = (most(first), most(second));
        println!("most {what}: {before}, then {after}");
        ensure!(after <= before * TOLERANCE + slack, "{what} grow");
    }
    Ok(())
}

async fn sample(kubelet: &StaticPods, client: &Kubelet) -> anyhow::Result<Sample> {
    let pid = kubelet.pid()?;
    let metrics = kubelet.get("/metrics").await?;
    let is_end = |line: &super::process::Line| matches!(line.event, Event::Ended { .. });
    Ok(Sample {
        resident_kib: usage::status(pid, "VmRSS:")?,
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        threads: usage::status(pid, "Threads:")?,
        tasks: metric(&metrics, "static_pods_alive_tasks"),
        ended: kubelet.lines().iter().filter(|line| is_end(line)).count(),
        listed: client.containers(ContainerFilter::default()).await?.len(),
    })
}

/// The sum of a metric over its labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{'])
            .then(|| rest.rsplit_once(' ')?.1.parse::<f64>().ok())?
    });
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum())
}
