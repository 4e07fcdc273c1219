//! Measures subjects on real containerd with real pods.
//!
//! Each subject has its own containerd daemon and pods. The idle phase runs on all daemons at the same time, so that
//! other load on the machine affects all of them; the other phases run on one daemon after the other. The CPU time of a
//! daemon is that of its own process, without shims, runc and containers.
//!
//! On success, error and termination signal the harness removes the daemons and their pods. (If the harness was killed
//! with SIGKILL, run `scripts/containerd.sh down DIR` with the directory that it left in /tmp.)

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use pleg_core::{Id, PodUid};
use pleg_runtime::Runtime as _;
use pleg_runtime::clock::wall;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::{lives, usage};
use tokio::net::UnixStream;

use super::child::Subject;
use super::measure::{SETTLING, latencies};
use super::{Point, Workload, pause, terminated};
use crate::protocol::{ContainerChange, ExpectedPod, Order, Usage};
use crate::results::{Metrics, Sample, Writer, load, now};
use crate::subject::Kind;

/// The number of pods that the harness creates in parallel.
const PARALLEL_PODS: usize = 5;

/// The time for which a container runs, and then stays exited: even a subject that lists once a second sees both.
const LINGER: Duration = Duration::from_millis(1500);

/// The settings of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// The number of pods on each daemon.
    #[arg(long, default_value_t = 80)]
    pods: u32,
    /// The number of pods that are created and removed, with two deaths each.
    #[arg(long, default_value_t = 20)]
    churned: u32,
    /// The number of restarts of one pod, which is read after each call.
    #[arg(long, default_value_t = 10)]
    restarts: u32,
    /// The duration of the idle phase, in seconds.
    #[arg(long, default_value_t = 300.0)]
    idle: f64,
    /// Measure only this version of containerd: 1.7 or 2.
    #[arg(long)]
    version: Option<String>,
    /// Measure only these subjects.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Generic, Kind::Hint, Kind::Ours])]
    subjects: Vec<Kind>,
}

/// Measures on real daemons and writes the results to the given file.
///
/// # Errors
/// If a daemon does not start, a subject fails, or the process receives a termination signal.
pub(crate) async fn real(settings: &Settings, out: &Path) -> Result<()> {
    let mut writer = Writer::create(out, "real")?;
    tokio::select! {
        result = terminated() => result,
        measured = Box::pin(on_all(settings, &mut writer)) => measured,
    }
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
        tracing::info!("{} pods on {} for {subject:?}", settings.pods, node.name);
        nodes.push(node);
    }
    for node in &mut nodes {
        let metrics = Box::pin(node.start()).await?;
        writer.write(&node.sample(Workload::Storm { call_ms: 0 }, metrics))?;
    }
    pause(SETTLING).await;
    let seconds = settings.idle;
    tracing::info!("{seconds} s idle");
    let mut before = Vec::new();
    for node in &mut nodes {
        before.push(node.used().await?);
    }
    pause(seconds).await;
    for (node, before) in nodes.iter_mut().zip(before) {
        let metrics = node.used().await?.since(&before, seconds);
        writer.write(&node.sample(Workload::Idle { seconds }, metrics))?;
    }
    for node in &mut nodes {
        tracing::info!("changes for {:?}", node.subject);
        let (seconds, metrics) = Box::pin(node.changes(settings.churned)).await?;
        writer.write(&node.sample(Workload::Changes { rate: 0, seconds }, metrics))?;
        let reads = Box::pin(node.own_writes(settings.restarts)).await?;
        let own_writes = Workload::OwnWrites {
            workers: 1,
            times: settings.restarts,
            call_ms: 0,
        };
        writer.write(&node.sample(own_writes, reads))?;
    }
    nodes.iter().try_for_each(|node| node.daemon.down())
}

/// A containerd daemon with its pods, for one measured subject.
struct Node {
    kubelet: Kubelet,
    daemon: Daemon,
    /// The daemon's process.
    pid: u32,
    /// The name and version that the daemon reports.
    name: String,
    subject: Kind,
    process: Option<Subject>,
    /// The pods that exist during the whole measurement.
    idle_pods: Vec<ExpectedPod>,
}

/// The resource usage of a subject, and the CPU time of its daemon.
struct Used {
    subject: Usage,
    daemon: Duration,
}

impl Used {
    fn since(&self, before: &Self, seconds: f64) -> Metrics {
        let mut metrics = Metrics::default();
        let subject = self.subject.since(&before.subject);
        let daemon = self.daemon.saturating_sub(before.daemon);
        metrics.put("seconds", seconds);
        metrics.put("cpu", subject.cpu as f64);
        metrics.put("woken", subject.woken as f64);
        metrics.put("peak_kib", subject.peak_kib as f64);
        metrics.put("resident_kib", subject.resident_kib as f64);
        metrics.put("runtime_cpu", daemon.as_nanos() as f64);
        metrics
    }
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
        let stream = UnixStream::connect(daemon.endpoint.path()).await?;
        let pid = stream.peer_cred()?.pid();
        Ok(Self {
            pid: u32::try_from(pid.context("the process of the socket is unknown")?)?,
            name: format!("{} {}", version.name, version.version),
            kubelet,
            daemon,
            subject,
            process: None,
            idle_pods,
        })
    }

    fn sample(&self, workload: Workload, metrics: Metrics) -> Sample {
        Sample {
            point: Point {
                workload,
                subject: self.subject,
                pods: self.idle_pods.len() as u64,
            },
            daemon: Some(self.name.clone()),
            rep: 0,
            load: load(),
            ended: now(),
            metrics,
        }
    }

    /// Starts the subject, waits until it is synced, and then runs and removes a pod, so that events reach the subject.
    async fn start(&mut self) -> Result<Metrics> {
        let began = wall();
        let socket = self.daemon.endpoint.path();
        let mut process = Subject::start(&std::env::current_exe()?, self.subject, socket)?;
        process.sync(self.idle_pods.clone()).await?;
        let mut metrics = Metrics::default();
        metrics.put("synced", wall().nanos_since(began) as f64);
        // This project's PLEG lists less often only after the event stream has delivered an event.
        Box::pin(lives::life_of_a_pod(&self.kubelet, 0, Duration::ZERO)).await?;
        process.sync(self.idle_pods.clone()).await?;
        self.process = Some(process);
        Ok(metrics)
    }

    fn process(&mut self) -> Result<&mut Subject> {
        self.process.as_mut().context("the subject is not running")
    }

    async fn used(&mut self) -> Result<Used> {
        Ok(Used {
            subject: self.process()?.request(&Order::Use).await?.usage,
            daemon: usage::cpu(self.pid)?,
        })
    }

    /// Runs pods whose containers exit and are replaced.
    async fn changes(&mut self, pods: u32) -> Result<(f64, Metrics)> {
        let before = self.used().await?;
        self.process()?.request(&Order::Record).await?;
        let began = wall();
        let kubelet = &self.kubelet;
        let made: Vec<_> = futures::stream::iter(0..pods)
            .map(|n| Box::pin(deaths(kubelet, n)))
            .buffer_unordered(PARALLEL_PODS)
            .try_collect()
            .await?;
        pause(LINGER.as_secs_f64()).await;
        let seconds = wall().nanos_since(began) as f64 / 1e9;
        let mut metrics = self.used().await?.since(&before, seconds);
        let seen = self.process()?.request(&Order::Seen).await?.seen;
        latencies(&made.concat(), &seen, &mut metrics);
        Ok((seconds, metrics))
    }

    /// Restarts the container of one pod. The subject reads the status of the pod after each call.
    async fn own_writes(&mut self, times: u32) -> Result<Metrics> {
        let kubelet = self.kubelet.clone();
        let pod = kubelet.run_pod("own").await?;
        let running = kubelet.run(&pod, "app", 0, Life::UntilStopped);
        let mut id = Box::pin(running).await?;
        let mut reads = Vec::new();
        for attempt in 1..=times {
            kubelet.stop(&id).await?;
            reads.extend(self.read(&pod.uid).await?);
            kubelet.remove(&id).await?;
            reads.extend(self.read(&pod.uid).await?);
            let life = Life::UntilStopped;
            id = Box::pin(kubelet.create(&pod, "app", attempt, life)).await?;
            reads.extend(self.read(&pod.uid).await?);
            kubelet.start(&id).await?;
            reads.extend(self.read(&pod.uid).await?);
        }
        remove(&kubelet, &pod).await?;
        let mut metrics = Metrics::default();
        metrics.quantiles("read", reads);
        Ok(metrics)
    }

    async fn read(&mut self, uid: &PodUid) -> Result<Vec<u64>> {
        let uid = uid.to_string();
        Ok(self
            .process()?
            .request(&Order::ReadOwn { uid })
            .await?
            .reads)
    }
}

/// Starts a pod that stays idle. Returns the state of the pod that the subject's cache must show.
async fn idle_pod(kubelet: &Kubelet, n: u32) -> Result<ExpectedPod> {
    let pod = kubelet.run_pod(&format!("idle-{n}")).await?;
    let app = Box::pin(kubelet.run(&pod, "app", 0, Life::UntilStopped)).await?;
    Ok(ExpectedPod {
        uid: pod.uid.to_string(),
        running: [(app.to_string(), true)].into(),
    })
}

/// Runs a pod with a container that exits twice. Returns each death and start, with the time from containerd's status.
async fn deaths(kubelet: &Kubelet, n: u32) -> Result<Vec<ContainerChange>> {
    let pod = kubelet.run_pod(&format!("dying-{n}")).await?;
    let mut made = Vec::new();
    for attempt in 0..2 {
        let life = Life::Exit {
            code: 1,
            after_ms: u64::try_from(LINGER.as_millis())?,
        };
        let id: Id = Box::pin(kubelet.run(&pod, "app", attempt, life)).await?;
        lives::ended(kubelet, &id).await?;
        let status = kubelet.container_status(&id).await?;
        let status = status.context("the container is gone")?;
        let change = |died, at| ContainerChange {
            id: id.to_string(),
            died,
            at,
        };
        made.extend([
            change(false, status.started_at),
            change(true, status.finished_at),
        ]);
        pause(LINGER.as_secs_f64()).await;
    }
    remove(kubelet, &pod).await?;
    Ok(made)
}

async fn remove(kubelet: &Kubelet, pod: &Pod) -> Result<()> {
    kubelet.stop_pod(pod).await?;
    kubelet.remove_pod(pod).await
}
