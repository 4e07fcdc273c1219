//! The subjects on real containerds, with as many real pods as the machine bears: what they cost over
//! idle minutes, the daemon's part included, and how soon they know over a churn.
//!
//! Each subject has a daemon and pods of its own, and they are all idle at the same time: whatever else
//! happens to the machine happens to all of them. The churn, which is work for it, is one daemon's
//! after the other; the other daemons are idle meanwhile, with their subjects. The versions of
//! containerd follow one another.
//!
//! The CPU time of a daemon is that of its own process. Shims, runc and what runs in the pods are
//! other processes, and not in it.
//!
//! However this ends, the daemons go, with all their pods: an error, a panic and a signal all drop
//! what there is. (After a SIGKILL, `scripts/containerd.sh down` takes the directory in /tmp.)

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use futures::{StreamExt as _, TryStreamExt as _};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pleg_cri::v1::ContainerState;
use pleg_runtime::Runtime as _;
use pleg_runtime::clock::Clock;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::lives;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::child::Process;
use super::signals::terminated;
use crate::node::Truth;
use crate::protocol::{Histogram, Recorded, SubjectAnswer, SubjectOrder};
use crate::results::{self, Line, Machine, Writer};
use crate::subject::Kind;
use crate::usage::Usage;

/// How long a node is idle before it is watched: our lists come every minute then.
const SETTLING: Duration = Duration::from_secs(66);

/// How many pods come up or live at once.
const AT_ONCE: usize = 5;

/// How long each state of the churn lasts: long enough for whoever asks once a second.
const LINGER: Duration = Duration::from_millis(1500);

/// Until whoever asks once a second has seen the last of a churn.
const AFTERMATH: Duration = Duration::from_secs(2);

/// What is done to each subject.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// How many pods there are on each daemon.
    #[arg(long, default_value_t = 80)]
    pub pods: u32,
    /// How many of the node's pods the churn brings up and takes down, two containers and a crash
    /// each.
    #[arg(long, default_value_t = 15)]
    pub churned: u32,
    /// How long nothing happens, in seconds.
    #[arg(long, default_value_t = 600)]
    pub idle: u32,
    /// How often it is all done; the order of the churns is turned round each time.
    #[arg(long, default_value_t = 1)]
    pub reps: u32,
    /// Only this containerd: 1.7 or 2.
    #[arg(long)]
    pub version: Option<String>,
    /// Only these subjects; each has a daemon and pods of its own. With `drain` it shows what a daemon
    /// does of its own accord.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Generic, Kind::Hint, Kind::Ours])]
    pub subjects: Vec<Kind>,
}

/// What a subject has cost on a real runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealSample {
    /// Which containerd, as it says itself.
    pub daemon: String,
    /// Which subject.
    pub subject: Kind,
    /// `idle` or `churn`.
    pub phase: String,
    /// How many pods there were on its daemon, beside those of the churn.
    pub pods: u32,
    /// How long it went on, in seconds.
    pub seconds: f64,
    /// Which repetition.
    pub rep: u32,
    /// When it began.
    pub at: String,
    /// The load average of one minute before it.
    pub load: f64,
    /// The subject's CPU time in ns.
    pub cpu: i64,
    /// How often it was woken.
    pub woken: i64,
    /// The most memory that it ever held, in KiB.
    pub peak_kib: i64,
    /// The CPU time of the daemon's own process in ns; shims are processes of their own.
    pub daemon_cpu: i64,
    /// How long after a change its cache showed it, in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Histogram,
}

/// Measures on real daemons and adds what came of it to the file.
///
/// # Errors
/// If a daemon does not start here, a subject fails, or a signal ends it.
pub fn real(settings: &Settings, seed: u64, out: &Path) -> Result<()> {
    let mut writer = Writer::open(out)?;
    writer.write(&Line::Machine(Machine::here(seed, "real")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Whatever is dropped on the way out takes its daemon down.
        tokio::select! {
            told = terminated() => told,
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
        let_pass(SETTLING).await;
        tracing::info!("{} s idle", settings.idle);
        for bench in &mut benches {
            bench.begin("idle")?;
        }
        let_pass(Duration::from_secs(settings.idle.into())).await;
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
            Box::pin(lives::churn(kubelet, settings.churned, AT_ONCE, LINGER)).await?;
            // To ask whether it has seen everything would cost the subject time.
            let_pass(AFTERMATH).await;
            writer.write(&Line::Real(bench.end()?))?;
        }
    }
    nodes.iter().try_for_each(|node| node.daemon.down())
}

async fn let_pass(time: Duration) {
    let clock = Clock::start();
    clock.sleep_until(clock.now().after(time)).await;
}

/// A daemon with its pods, for one subject.
struct Node {
    kubelet: Kubelet,
    daemon: Daemon,
    /// The daemon's process.
    pid: Pid,
    /// What it says that it is.
    name: String,
    subject: Kind,
    /// What stands there all the time.
    standing: Vec<Truth>,
}

impl Node {
    async fn up(version: Version, subject: Kind, pods: u32) -> Result<Self> {
        let Some(daemon) = Daemon::up(version)? else {
            bail!("no containerd can be started here");
        };
        let version = daemon.runtime()?.version().await?;
        let kubelet = Kubelet::new(&daemon)?;
        let standing = futures::stream::iter(0..pods)
            .map(|n| standing_pod(&kubelet, n))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(Self {
            pid: server_of(&daemon).await?,
            name: format!("{} {}", version.name, version.version),
            kubelet,
            daemon,
            subject,
            standing,
        })
    }
}

/// What a cache should show of a pod that stays.
async fn standing_pod(kubelet: &Kubelet, n: u32) -> Result<Truth> {
    let pod = kubelet.run_pod(&format!("standing-{n}")).await?;
    let creating = kubelet.create(&pod, "app", 0, Life::UntilStopped);
    let app = Box::pin(creating).await?;
    kubelet.start(&app).await?;
    Ok(Truth {
        uid: pod.uid.to_string(),
        containers: [(app.to_string(), ContainerState::ContainerRunning.into())].into(),
    })
}

/// The daemon's process.
async fn server_of(daemon: &Daemon) -> Result<Pid> {
    let stream = UnixStream::connect(daemon.endpoint.path()).await?;
    let pid = stream.peer_cred()?.pid();
    let pid = pid.context("nobody knows who serves that socket")?;
    Ok(Pid::from_raw(pid))
}

/// What a subject and a daemon had used when something began.
struct Before {
    at: pleg_core::Instant,
    subject: Usage,
    daemon: i64,
}

/// A subject on its node.
struct Bench<'a> {
    process: Process<SubjectOrder, SubjectAnswer>,
    node: &'a Node,
    clock: Clock,
    before: Option<Before>,
    sample: RealSample,
}

impl<'a> Bench<'a> {
    /// A subject that knows what exists, and has heard of a pod's life.
    async fn start(node: &'a Node, rep: u32) -> Result<Self> {
        let name = node.subject.to_possible_value();
        let name = name.context("a subject without a name")?;
        let socket = node.daemon.endpoint.path().display().to_string();
        let args = ["subject", name.get_name(), "--socket", &socket].map(str::to_owned);
        let mut bench = Self {
            process: Process::start(&std::env::current_exe()?, &args)?,
            node,
            clock: Clock::start(),
            before: None,
            sample: RealSample {
                daemon: node.name.clone(),
                subject: node.subject,
                phase: String::new(),
                pods: u32::try_from(node.standing.len())?,
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
        bench.sync()?;
        // Our lists grow rare when the stream has delivered something.
        Box::pin(lives::life_of_a_pod(&node.kubelet, 0, Duration::ZERO)).await?;
        bench.sync()?;
        Ok(bench)
    }

    /// Waits until it shows the pods that stand there.
    fn sync(&mut self) -> Result<()> {
        let truth = self.node.standing.clone();
        self.process.send(&SubjectOrder::Sync { truth })?;
        let SubjectAnswer::Synced { synced } = self.process.receive(Duration::from_secs(450))?
        else {
            bail!("an answer to another order")
        };
        ensure!(
            synced,
            "{} does not come to know what exists",
            self.node.subject.name()
        );
        Ok(())
    }

    fn begin(&mut self, phase: &str) -> Result<()> {
        phase.clone_into(&mut self.sample.phase);
        self.sample.at = results::now();
        self.sample.load = results::load();
        let SubjectAnswer::Used { usage, .. } = self.process.request(&SubjectOrder::Record)? else {
            bail!("an answer to another order")
        };
        self.before = Some(Before {
            subject: usage,
            daemon: cpu_of(self.node.pid)?,
            at: self.clock.now(),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<RealSample> {
        let before = self.before.take().context("it was not begun")?;
        let SubjectAnswer::Used { usage, .. } = self.process.request(&SubjectOrder::Use)? else {
            bail!("an answer to another order")
        };
        let seconds = self.clock.now().since(before.at).as_secs_f64();
        let daemon_cpu = cpu_of(self.node.pid)? - before.daemon;
        let SubjectAnswer::Recorded(Recorded { end_to_end, .. }) =
            self.process.request(&SubjectOrder::Recorded)?
        else {
            bail!("an answer to another order")
        };
        let used = usage.since(&before.subject);
        Ok(RealSample {
            seconds,
            cpu: used.cpu,
            woken: used.woken,
            peak_kib: used.peak_kib,
            daemon_cpu,
            latency: end_to_end,
            ..self.sample.clone()
        })
    }
}

/// The CPU time of all threads of a process, in ns.
fn cpu_of(pid: Pid) -> Result<i64> {
    let time = clock_getcpuclockid(pid).and_then(clock_gettime);
    let time = time.with_context(|| format!("process {pid} is gone"))?;
    Ok(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}
