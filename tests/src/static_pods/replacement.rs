//! The time from the death of a container to its replacement running, beside the runtime's own part of
//! it: CreateContainer and StartContainer alone.
//!
//! The runtime's own part is measured on the same daemon, in a pod that has no manifest, which the
//! mini-kubelet leaves alone. Deaths and calls alternate. One container dies at a time, by SIGKILL, for
//! the first time in a run of the mini-kubelet: no back-off delays its replacement.
//!
//! A container runs from the time that the runtime reports as the start of its process. Nothing is asked
//! meanwhile: the line that `static_pods` writes says that the status can be read.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleg::core::{Id, Mode, WallTime};
use pleg::runtime::clock::wall;
use pleg_cri::v1::{ContainerFilter, ContainerState};

use crate::daemon::Daemon;
use crate::kubelet::{Kubelet, Life, Pod};
use crate::wait::{pass_time, until};

use super::manifests::{self, APP, Kind};
use super::number;
use super::process::{Event, Settings, StaticPods};

/// How long nothing happens before each death and each pair of calls.
const QUIET: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

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
            };
            for m in 0..per_block {
                let pod = manifests::pod_name((n * per_block + m) % plan.pods);
                let (replaced, reported) = Box::pin(death(&kubelet, &truth, &pod)).await?;
                block.replaced.push(replaced);
                block.reported.push(reported);
                block.alone.push(Box::pin(alone.create_and_start()).await?);
            }
            kubelet.terminate().await?;
            blocks.push(block);
        }
    }
    print(daemon, plan, &blocks);
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
    pass_time(QUIET).await;
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
    let replaced = Duration::from_nanos(u64::try_from(replaced).context("started before it died")?);
    Ok((replaced, at.since(killed)))
}

async fn process(kubelet: &Kubelet, id: &Id) -> anyhow::Result<Pid> {
    let process = i32::try_from(kubelet.process(id).await)?;
    ensure!(process > 1, "{id} has no process");
    Ok(Pid::from_raw(process))
}

/// When the process of a container that runs was started.
async fn start_of(kubelet: &Kubelet, id: &Id) -> anyhow::Result<WallTime> {
    let status = kubelet.container_status(id).await?;
    let status = status.with_context(|| format!("{id} has no status"))?;
    ensure!(
        status.state() == ContainerState::ContainerRunning,
        "{status:?}"
    );
    Ok(WallTime::from_nanos(status.started_at))
}

/// A pod whose container is replaced without a kubelet.
struct Alone {
    kubelet: Kubelet,
    pod: Pod,
    ids: Vec<Id>,
    attempts: u32,
}

impl Alone {
    async fn start(kubelet: Kubelet) -> anyhow::Result<Self> {
        let pod = kubelet.run_pod("alone").await?;
        let id = kubelet.create(&pod, APP, 0, Life::UntilStopped).await?;
        kubelet.start(&id).await?;
        Ok(Self {
            kubelet,
            pod,
            ids: vec![id],
            attempts: 0,
        })
    }

    /// The time of the calls that replace a container which has ended before. As many ended containers
    /// are kept as a kubelet keeps.
    async fn create_and_start(&mut self) -> anyhow::Result<Duration> {
        self.attempts += 1;
        let (kubelet, old) = (&self.kubelet, self.ids.last().context("no container")?);
        kill(process(kubelet, old).await?, Signal::SIGKILL)?;
        until(PATIENCE, "it has ended", || async {
            let status = kubelet.container_status(old).await.ok()??;
            (status.state() == ContainerState::ContainerExited).then_some(())
        })
        .await?;
        if self.ids.len() > 1 {
            kubelet.remove(&self.ids.remove(0)).await?;
        }
        pass_time(QUIET).await;
        let called = wall();
        let id = kubelet
            .create(&self.pod, APP, self.attempts, Life::UntilStopped)
            .await?;
        kubelet.start(&id).await?;
        let started = start_of(kubelet, &id).await?;
        self.ids.push(id);
        let took = started.nanos_since(called);
        Ok(Duration::from_nanos(
            u64::try_from(took).context("started before the call")?,
        ))
    }
}

/// The value below which that share of the values lies.
fn quantile(values: &[Duration], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort();
    let at = (share * sorted.len() as f64).ceil() as usize;
    let value = sorted.get(at.saturating_sub(1)).or(sorted.last());
    value.map_or(f64::NAN, |v| v.as_secs_f64() * 1e3)
}

/// A table of the quantiles with their ratios, and the least and greatest ratio of the medians of a block.
fn print(daemon: &Daemon, plan: Plan, blocks: &[Block]) {
    println!(
        "{:?}, {} pods: ms from a death to its replacement running, beside create + start alone",
        daemon.version, plan.pods
    );
    println!(
        "mode     deaths |             p50 |             p90 |             p99 | ratios p50 p90 p99 | p50 of blocks"
    );
    for mode in [Mode::Evented, Mode::Polling] {
        let of_mode = || blocks.iter().filter(|b| b.mode == mode);
        let all = |of: fn(&Block) -> &Vec<Duration>| -> Vec<Duration> {
            of_mode().flat_map(of).copied().collect()
        };
        let (replaced, alone) = (all(|b| &b.replaced), all(|b| &b.alone));
        let reported = all(|b| &b.reported);
        let pairs = [0.5, 0.9, 0.99].map(|q| (quantile(&replaced, q), quantile(&alone, q)));
        let texts = pairs.map(|(r, a)| format!("{r:6.1} / {a:6.1}"));
        let ratios = pairs.map(|(r, a)| format!("{:.2}", r / a));
        let of_blocks: Vec<_> = of_mode()
            .map(|b| quantile(&b.replaced, 0.5) / quantile(&b.alone, 0.5))
            .collect();
        let least = of_blocks.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = of_blocks.iter().copied().fold(0.0, f64::max);
        println!(
            "{mode:<8?} {:>6} | {} | {} | {least:.2} to {greatest:.2}; to the report p50 {:.1}, p99 {:.1}",
            replaced.len(),
            texts.join(" | "),
            ratios.join(" "),
            quantile(&reported, 0.5),
            quantile(&reported, 0.99),
        );
    }
}
