//! Measures subjects on real containerd with real pods: the CPU time of subject and daemon on an idle
//! node, and the latency of changes while pods are created and removed (churn).
//!
//! Each subject has its own daemon and pods. All daemons are idle at the same time, so that other load on
//! the machine affects all of them. The churn runs on one daemon after the other, while the other daemons
//! and their subjects are idle. The versions of containerd are measured one after the other.
//!
//! The CPU time of a daemon is that of its own process. Shims, runc and containers are other processes
//! and are not included.
//!
//! The daemons and their pods are removed on success, error, panic and termination signal. (After a
//! SIGKILL, run `scripts/containerd.sh down` with the directory in /tmp.)

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use pleg_cri::v1::ContainerState;
use pleg_runtime::Runtime as _;
use pleg_runtime::clock::Clock;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::{lives, usage};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::child::{Process, Subject};
use super::measure::SETTLE_TIME;
use super::signals::terminated;
use crate::node::ExpectedPod;
use crate::protocol::Histogram;
use crate::results::{self, Line, Machine, Writer};
use crate::subject::Kind;
use crate::usage::Usage;

/// The number of pods that are created in parallel.
const PARALLEL_PODS: usize = 5;

/// The duration of each state in the churn: long enough for subjects that list once a second.
const STATE_DURATION: Duration = Duration::from_millis(1500);

/// The time after the churn in which subjects that list once a second see the last change.
const LAST_POLL: Duration = Duration::from_secs(2);

/// The settings of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The number of pods on each daemon.
    #[arg(long, default_value_t = 80)]
    pub pods: u32,
    /// The number of pods that are created and removed, with two containers and one crash each.
    #[arg(long, default_value_t = 15)]
    pub churned: u32,
    /// The duration of the idle phase, in seconds.
    #[arg(long, default_value_t = 600)]
    pub idle: u32,
    /// The number of repetitions. The order of the subjects is reversed each time.
    #[arg(long, default_value_t = 1)]
    pub reps: u32,
    /// Measure only this version of containerd: 1.7 or 2.
    #[arg(long)]
    pub version: Option<String>,
    /// Measure only these subjects. Each has its own daemon and pods. `drain` shows the cost of the daemon
    /// without calls.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Generic, Kind::Hint, Kind::Ours])]
    pub subjects: Vec<Kind>,
}

/// A measurement of a subject on a real runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealSample {
    /// The name and version that the daemon reports.
    pub daemon: String,
    /// The subject.
    pub subject: Kind,
    /// `idle` or `churn`.
    pub phase: String,
    /// The number of idle pods on its daemon.
    pub pods: u32,
    /// The duration, in seconds.
    pub seconds: f64,
    /// The repetition.
    pub rep: u32,
    /// The start time.
    pub at: String,
    /// The one-minute load average before the measurement.
    pub load: f64,
    /// The subject's CPU time in ns.
    pub cpu: i64,
    /// The number of wake-ups of the subject.
    pub woken: i64,
    /// The peak of the subject's resident memory, in KiB.
    pub peak_kib: i64,
    /// The CPU time of the daemon's process in ns, without shims.
    pub daemon_cpu: i64,
    /// The latencies until the cache showed each change, in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Histogram,
}

/// Measures on real daemons and appends the results to the file.
///
/// # Errors
/// If a daemon does not start, a subject fails, or a termination signal is received.
pub fn real(settings: &Settings, seed: u64, out: &Path) -> Result<()> {
    let mut writer = Writer::open(out)?;
    writer.write(&Line::Machine(Machine::here(seed, "real")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Dropping a daemon stops it.
        tokio::select! {
            result = terminated() => result,
            measured = on_all(settings, &mut writer) => measured,
        }
    })
}

async fn on_all(settings: &Settings, writer: &mut Writer) -> Result<()> {
    for (name, version) in [("1.7", Version::V1_7), ("2", Version::V2)] {
        if settings.version.as_deref().is_none_or(|only| only == name) {
            let measured = Box::pin(on_version(settings, version, writer)).await;
            measured.with_context(|| format!("containerd {name}"))?;
        }
    }
    Ok(())
}

async fn on_version(settings: &Settings, version: Version, writer: &mut Writer) -> Result<()> {
    let mut nodes = Vec::new();
    for &subject in &settings.subjects {
        let node = Box::pin(Node::up(version, subject, settings.pods)).await?;
        tracing::info!(
            "{} pods on {} for {}",
            settings.pods,
            node.name,
            subject.name()
        );
        nodes.push(node);
    }
    for rep in 0..settings.reps {
        let mut benches = Vec::new();
        for node in &nodes {
            benches.push(Box::pin(Bench::start(node, rep)).await?);
        }
        pass_time(SETTLE_TIME).await;
        tracing::info!("{} s idle", settings.idle);
        for bench in &mut benches {
            bench.begin("idle")?;
        }
        pass_time(Duration::from_secs(settings.idle.into())).await;
        for bench in &mut benches {
            writer.write(&Line::Real(bench.end()?))?;
        }
        if !rep.is_multiple_of(2) {
            benches.reverse();
        }
        for bench in &mut benches {
            tracing::info!("churn for {}", bench.node.subject.name());
            bench.begin("churn")?;
            let kubelet = &bench.node.kubelet;
            Box::pin(lives::churn(
                kubelet,
                settings.churned,
                PARALLEL_PODS,
                STATE_DURATION,
            ))
            .await?;
            // A comparison of the cache would cost the subject time.
            pass_time(LAST_POLL).await;
            writer.write(&Line::Real(bench.end()?))?;
        }
    }
    nodes.iter().try_for_each(|node| node.daemon.down())
}

async fn pass_time(time: Duration) {
    let clock = Clock::start();
    clock.sleep_until(clock.now().after(time)).await;
}

/// A daemon with its pods, for one subject.
struct Node {
    kubelet: Kubelet,
    daemon: Daemon,
    /// The daemon's process.
    pid: u32,
    /// The name and version that the daemon reports.
    name: String,
    subject: Kind,
    /// The pods that exist during the whole measurement.
    idle_pods: Vec<ExpectedPod>,
}

impl Node {
    async fn up(version: Version, subject: Kind, pods: u32) -> Result<Self> {
        let Some(daemon) = Daemon::up(version)? else {
            bail!("cannot start containerd on this machine");
        };
        let version = daemon.runtime()?.version().await?;
        let kubelet = Kubelet::new(&daemon)?;
        let idle_pods = futures::stream::iter(0..pods)
            .map(|n| idle_pod(&kubelet, n))
            .buffer_unordered(PARALLEL_PODS)
            .try_collect()
            .await?;
        Ok(Self {
            pid: server_of(&daemon).await?,
            name: format!("{} {}", version.name, version.version),
            kubelet,
            daemon,
            subject,
            idle_pods,
        })
    }
}

/// Starts an idle pod. Returns what the cache must show of it.
async fn idle_pod(kubelet: &Kubelet, n: u32) -> Result<ExpectedPod> {
    let pod = kubelet.run_pod(&format!("idle-{n}")).await?;
    let creating = kubelet.create(&pod, "app", 0, Life::UntilStopped);
    let app = Box::pin(creating).await?;
    kubelet.start(&app).await?;
    Ok(ExpectedPod {
        uid: pod.uid.to_string(),
        containers: [(app.to_string(), ContainerState::ContainerRunning.into())].into(),
    })
}

/// Returns the process id of the daemon.
async fn server_of(daemon: &Daemon) -> Result<u32> {
    let stream = UnixStream::connect(daemon.endpoint.path()).await?;
    let pid = stream.peer_cred()?.pid();
    let pid = pid.context("the process of the socket is unknown")?;
    Ok(u32::try_from(pid)?)
}

/// The usage of a subject and a daemon at the start of a phase.
struct Before {
    at: pleg_core::Instant,
    subject: Usage,
    daemon: Duration,
}

/// A subject on its node.
struct Bench<'a> {
    process: Subject,
    node: &'a Node,
    clock: Clock,
    before: Option<Before>,
    sample: RealSample,
}

impl<'a> Bench<'a> {
    /// Starts a subject. It is synced and has received the events of one pod.
    async fn start(node: &'a Node, rep: u32) -> Result<Self> {
        let name = node.subject.argument();
        let socket = node.daemon.endpoint.path().display().to_string();
        let args = ["subject", &name, "--socket", &socket].map(str::to_owned);
        let mut bench = Self {
            process: Process::start(&std::env::current_exe()?, &args, &[])?,
            node,
            clock: Clock::start(),
            before: None,
            sample: RealSample {
                daemon: node.name.clone(),
                subject: node.subject,
                phase: String::new(),
                pods: u32::try_from(node.idle_pods.len())?,
                seconds: 0.0,
                rep,
                at: String::new(),
                load: 0.0,
                cpu: 0,
                woken: 0,
                peak_kib: 0,
                daemon_cpu: 0,
                latency: Histogram::new(),
            },
        };
        let expected = || node.idle_pods.clone();
        bench.process.sync(expected())?;
        // This project lists less often after the stream has delivered an event.
        Box::pin(lives::life_of_a_pod(&node.kubelet, 0, Duration::ZERO)).await?;
        bench.process.sync(expected())?;
        Ok(bench)
    }

    fn begin(&mut self, phase: &str) -> Result<()> {
        phase.clone_into(&mut self.sample.phase);
        self.sample.at = results::now();
        self.sample.load = results::load();
        let subject = self.process.record()?;
        self.before = Some(Before {
            subject,
            daemon: usage::cpu(self.node.pid)?,
            at: self.clock.now(),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<RealSample> {
        let before = self.before.take().context("the phase was not started")?;
        let used = self.process.used()?.0.since(&before.subject);
        let seconds = self.clock.now().since(before.at).as_secs_f64();
        let daemon_cpu = usage::cpu(self.node.pid)? - before.daemon;
        let latency = self.process.recorded()?.end_to_end;
        Ok(RealSample {
            seconds,
            cpu: used.cpu,
            woken: used.woken,
            peak_kib: used.peak_kib,
            daemon_cpu: i64::try_from(daemon_cpu.as_nanos())?,
            latency,
            ..self.sample.clone()
        })
    }
}
