//! The time from the death of a container to its replacement running, beside the runtime's own parts of
//! it (the time until its STOPPED event, and CreateContainer and StartContainer [`alone`]), and beside
//! upstream's [`generators`].
//!
//! The runtime's own parts are measured on the same daemon, in a pod that has no manifest, which the
//! mini-kubelet leaves alone. Deaths and calls alternate. The events are timed between two runs of the
//! mini-kubelet, because containerd 1.7 sends each to one subscriber only. One container dies at a time,
//! by SIGKILL, for the first time in a run of the mini-kubelet: no back-off delays its replacement. The
//! deaths fall everywhere in a second, for whoever lists once a second.
//!
//! A container runs from the time that the runtime reports as the start of its process. Nothing is asked
//! meanwhile: the line that `static_pods` writes says that the status can be read.

mod alone;
mod generators;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use pleg::core::{Id, Mode};
use pleg::runtime::clock::wall;
use pleg_cri::v1::{ContainerFilter, ContainerState};

use crate::daemon::Daemon;
use crate::environment::number;
use crate::kubelet::Kubelet;
use crate::wait::{pass_time, until};

use super::manifests::{self, Kind};
use super::process::{Event, Settings, StaticPods};
use alone::{Alone, nanos, process, start_of};

/// How long nothing happens before each death and each pair of calls.
const QUIET: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing happens for [`QUIET`] and, before the `n`th of so many deaths, for its part of a second more.
async fn pause(n: u32, deaths: u32) {
    pass_time(QUIET + Duration::from_secs(1) * n / deaths.max(1)).await;
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many pods there are.
    pub pods: u32,
    /// How many deaths there are in each mode at least.
    pub deaths: u32,
}

impl Plan {
    /// A short one, or what the environment says.
    ///
    /// # Errors
    /// If that is no number.
    pub fn from_env() -> anyhow::Result<Self> {
        Ok(Self {
            pods: number("PLEG_KUBELET_PODS", 10)?,
            deaths: number("PLEG_KUBELET_DEATHS", 20)?,
        })
    }
}

/// What was measured in one run of the mini-kubelet, in which every pod lost its container once at most.
#[derive(Clone, Debug)]
struct Block {
    mode: Mode,
    /// From the kill to the start of the replacement's process.
    replaced: Vec<Duration>,
    /// From the kill to the line that says so.
    reported: Vec<Duration>,
    /// From the call of CreateContainer to the start of the process.
    alone: Vec<Duration>,
    /// From the kill of a container to its STOPPED event.
    stopped: Vec<Duration>,
}

/// Measures on that daemon and prints what came of it.
///
/// # Errors
/// If a container is not replaced, or the runtime does not do what it is asked to.
pub async fn measure(daemon: &Daemon, plan: Plan) -> anyhow::Result<()> {
    let settings = Settings::of(daemon, Mode::Evented);
    let truth = Kubelet::new(daemon)?;
    let mut kubelet = StaticPods::new(settings)?;
    let dir = kubelet.settings.manifests();
    manifests::write(&dir, Kind::Single, plan.pods, &daemon.image)?;
    kubelet.start().await?;
    until(PATIENCE * 5, "all pods run", || async {
        let running = running(&truth).await.ok()?;
        (running.len() == plan.pods as usize).then_some(())
    })
    .await?;
    kubelet.terminate().await?;
    let mut alone = Box::pin(Alone::start(truth.clone())).await?;

    let per_block = plan.pods.min(20);
    let mut blocks: Vec<Block> = Vec::new();
    for n in 0..plan.deaths.div_ceil(per_block) {
        for mode in [Mode::Evented, Mode::Polling] {
            kubelet.settings.mode = mode;
            kubelet.start().await?;
            pass_time(Duration::from_secs(2)).await;
            let mut block = Block {
                mode,
                replaced: Vec::new(),
                reported: Vec::new(),
                alone: Vec::new(),
                stopped: Vec::new(),
            };
            Box::pin(alone.take_late_event()).await?;
            for m in 0..per_block {
                let pod = manifests::pod_name((n * per_block + m) % plan.pods);
                pause(m, per_block).await;
                let (replaced, reported) = Box::pin(death(&kubelet, &truth, &pod)).await?;
                block.replaced.push(replaced);
                block.reported.push(reported);
                block.alone.push(Box::pin(alone.create_and_start()).await?);
            }
            kubelet.terminate().await?;
            block.stopped = Box::pin(alone.stop_events(daemon, per_block)).await?;
            blocks.push(block);
        }
    }
    print(daemon, plan, &blocks);
    let by_generator = Box::pin(generators::measure(daemon, &mut alone, plan.deaths / 2)).await?;
    print_generators(&by_generator);
    Ok(())
}

/// The running apps, by the name of their pods.
async fn running(truth: &Kubelet) -> anyhow::Result<BTreeMap<String, Id>> {
    let listed = truth.containers(ContainerFilter::default()).await?;
    let running = listed
        .into_iter()
        .filter(|c| c.state() == ContainerState::ContainerRunning);
    Ok(running
        .filter_map(|c| {
            let pod = c.labels.get("io.kubernetes.pod.name")?.clone();
            Some((pod, Id::from(c.id)))
        })
        .collect())
}

/// Kills the app of that pod. Returns the time until its replacement ran, and until that was reported.
async fn death(
    kubelet: &StaticPods,
    truth: &Kubelet,
    pod: &str,
) -> anyhow::Result<(Duration, Duration)> {
    let running = running(truth).await?;
    let old = running
        .get(pod)
        .with_context(|| format!("{pod} does not run"))?;
    let process = process(truth, old).await?;
    let from = kubelet.line_count();
    let (killed, killed_by_wall) = (kubelet.clock.now(), wall());
    kill(process, Signal::SIGKILL)?;
    let (id, at) = kubelet
        .line(
            from,
            PATIENCE,
            &format!("{pod} is replaced"),
            |line| match &line.event {
                Event::Started { id, .. } => Some((Id::from(id.as_str()), line.at)),
                _ => None,
            },
        )
        .await?;
    let started = start_of(truth, &id).await?;
    ensure!(id != *old, "{id} was started twice");
    let replaced = started.nanos_since(killed_by_wall);
    let replaced = nanos(replaced).context("started before it died")?;
    Ok((replaced, at.since(killed)))
}

/// The value below which that share of the values lies.
fn quantile(values: &[Duration], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort();
    let at = (share * sorted.len() as f64).ceil() as usize;
    let value = sorted.get(at.saturating_sub(1)).or(sorted.last());
    value.map_or(f64::NAN, |v| v.as_secs_f64() * 1e3)
}

fn print_generators(measured: &[(&str, Vec<Duration>)]) {
    println!("one worker, ms from a death to its replacement running: p50, p90, p99, most");
    for (name, times) in measured {
        let figures = [0.5, 0.9, 0.99, 1.0].map(|share| format!("{:.1}", quantile(times, share)));
        println!("  {name}, {} deaths: {}", times.len(), figures.join(", "));
    }
}

/// A table of the quantiles with their ratios, and the least and greatest ratio of the medians of a block.
fn print(daemon: &Daemon, plan: Plan, blocks: &[Block]) {
    println!(
        "{:?}, {} pods: ms from a death to its replacement running / create + start alone / the runtime's \
         whole part: the STOPPED event, then create + start",
        daemon.version, plan.pods
    );
    for mode in [Mode::Evented, Mode::Polling] {
        let of_mode = || blocks.iter().filter(|b| b.mode == mode);
        let all = |of: fn(&Block) -> &Vec<Duration>| -> Vec<Duration> {
            of_mode().flat_map(of).copied().collect()
        };
        let (replaced, alone) = (all(|b| &b.replaced), all(|b| &b.alone));
        let (reported, stopped) = (all(|b| &b.reported), all(|b| &b.stopped));
        println!("{mode:?}, {} deaths", replaced.len());
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let [replaced, alone, stopped, reported] =
                [&replaced, &alone, &stopped, &reported].map(|values| quantile(values, share));
            println!(
                "  {name}: {replaced:.1} / {alone:.1} / {stopped:.1} + {alone:.1}: {:.2} x, {:.2} x; to the \
                 report {reported:.1}",
                replaced / alone,
                replaced / (stopped + alone),
            );
        }
        let ratio = |b: &Block| quantile(&b.replaced, 0.5) / quantile(&b.alone, 0.5);
        let ratios: Vec<_> = of_mode().map(ratio).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        println!("  p50 of blocks: {least:.2} x to {greatest:.2} x");
    }
}
