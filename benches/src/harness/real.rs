//! The same peers on a real containerd, with as many real pods as the machine bears: what they
//! cost over idle minutes, the daemon's part included, and how soon they know over a churn.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use futures::{StreamExt as _, TryStreamExt as _};
use pleg_runtime::clock::Clock;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::lives;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::child::Process;
use crate::peer::Kind;
use crate::protocol::{Histogram, PeerAnswer, PeerOrder, Recorded};
use crate::results::{self, Line, Machine, Writer};
use crate::usage::Usage;

/// What is done to each peer.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// How many pods there are.
    #[arg(long, default_value_t = 80)]
    pub pods: u32,
    /// How many of the node's pods the churn brings up and takes down, two containers and a crash
    /// each.
    #[arg(long, default_value_t = 20)]
    pub churned: u32,
    /// How long nothing happens, in seconds.
    #[arg(long, default_value_t = 600)]
    pub idle: u32,
    /// How often it is all done; the order of the peers is turned round each time.
    #[arg(long, default_value_t = 1)]
    pub reps: u32,
    /// Only this containerd: 1.7 or 2.
    #[arg(long)]
    pub version: Option<String>,
    /// Only these peers.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Generic, Kind::Hint, Kind::Ours])]
    pub peers: Vec<Kind>,
}

/// What a peer has cost on a real runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealSample {
    /// Which containerd.
    pub daemon: String,
    /// Which peer.
    pub peer: Kind,
    /// `idle` or `churn`.
    pub phase: String,
    /// How many pods there were beside those of the churn.
    pub pods: u32,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Which repetition.
    pub rep: u32,
    /// When it began.
    pub at: String,
    /// The load average of one minute before it.
    pub load: f64,
    /// The peer's CPU time in ns.
    pub cpu: i64,
    /// How often it was woken.
    pub woken: i64,
    /// The most memory that it ever held, in KiB.
    pub peak_kib: i64,
    /// The daemon's CPU time in ns, to its 10 ms.
    pub daemon_cpu: i64,
    /// How long after a change its cache showed it, in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Histogram,
}

/// Measures on real daemons and adds what came of it to the file.
///
/// # Errors
/// If a daemon does not start here, or a peer fails.
pub fn real(settings: &Settings, seed: u64, out: &Path) -> Result<()> {
    let mut writer = Writer::open(out)?;
    writer.write(&Line::Machine(Machine::here(seed, "real")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    for (name, version) in [("1.7", Version::V1_7), ("2", Version::V2)] {
        if settings.version.as_deref().is_none_or(|only| only == name) {
            let measured = on_daemon(settings, version, &mut writer);
            runtime
                .block_on(measured)
                .with_context(|| format!("containerd {name}"))?;
        }
    }
    Ok(())
}

async fn on_daemon(settings: &Settings, version: Version, writer: &mut Writer) -> Result<()> {
    let Some(daemon) = Daemon::up(version)? else {
        bail!("no containerd can be started here");
    };
    let kubelet = Kubelet::new(&daemon)?;
    let standing: Vec<Pod> = futures::stream::iter(0..settings.pods)
        .map(|n| standing_pod(&kubelet, n))
        .buffer_unordered(4)
        .try_collect()
        .await?;
    tracing::info!("{} pods stand on {}", standing.len(), daemon.endpoint);
    let pid = server_of(&daemon).await?;
    for rep in 0..settings.reps {
        let mut peers = settings.peers.clone();
        if !rep.is_multiple_of(2) {
            peers.reverse();
        }
        for peer in peers {
            let mut bench = Bench::start(&daemon, pid, peer, settings.pods, rep)?;
            // Its first reads, and the stream's first event, are no part of what follows.
            Box::pin(lives::life_of_a_pod(&kubelet, 0, Duration::ZERO)).await?;
            let_pass(Duration::from_secs(5)).await;
            bench.begin("idle")?;
            let_pass(Duration::from_secs(settings.idle.into())).await;
            writer.write(&Line::Real(bench.end()?))?;
            bench.begin("churn")?;
            // Long enough in each state for whoever asks once a second.
            let linger = Duration::from_millis(2500);
            Box::pin(lives::churn(&kubelet, settings.churned, 4, linger)).await?;
            let_pass(Duration::from_secs(2)).await;
            writer.write(&Line::Real(bench.end()?))?;
        }
    }
    daemon.down()
}

async fn standing_pod(kubelet: &Kubelet, n: u32) -> Result<Pod> {
    let pod = kubelet.run_pod(&format!("standing-{n}")).await?;
    let creating = kubelet.create(&pod, "app", 0, Life::UntilStopped);
    let app = Box::pin(creating).await?;
    kubelet.start(&app).await?;
    Ok(pod)
}

async fn let_pass(time: Duration) {
    let clock = Clock::start();
    clock.sleep_until(clock.now().after(time)).await;
}

/// The daemon's process.
async fn server_of(daemon: &Daemon) -> Result<i32> {
    let stream = UnixStream::connect(daemon.endpoint.path()).await?;
    stream
        .peer_cred()?
        .pid()
        .context("nobody knows who serves that socket")
}

/// One peer on one daemon.
struct Bench {
    process: Process<PeerOrder, PeerAnswer>,
    daemon: i32,
    clock: Clock,
    before: Option<(Usage, i64, pleg_core::Instant)>,
    sample: RealSample,
}

impl Bench {
    fn start(daemon: &Daemon, pid: i32, peer: Kind, pods: u32, rep: u32) -> Result<Self> {
        let name = peer.to_possible_value().context("a peer without a name")?;
        let socket = daemon.endpoint.path().display().to_string();
        let args = ["peer", name.get_name(), "--socket", &socket].map(str::to_owned);
        Ok(Self {
            process: Process::start(&std::env::current_exe()?, &args)?,
            daemon: pid,
            clock: Clock::start(),
            before: None,
            sample: RealSample {
                daemon: format!("{:?}", daemon.version)
                    .trim_start_matches('V')
                    .replace('_', "."),
                peer,
                phase: String::new(),
                pods,
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
        })
    }

    fn begin(&mut self, phase: &str) -> Result<()> {
        phase.clone_into(&mut self.sample.phase);
        self.sample.at = results::now();
        self.sample.load = results::load();
        let PeerAnswer::Used { usage, .. } = self.process.ask(&PeerOrder::Record)? else {
            bail!("an answer to another order")
        };
        self.before = Some((usage, cpu_of(self.daemon)?, self.clock.now()));
        Ok(())
    }

    fn end(&mut self) -> Result<RealSample> {
        let (usage, daemon_cpu, began) = self.before.take().context("it was not begun")?;
        let PeerAnswer::Used { usage: now, .. } = self.process.ask(&PeerOrder::Use)? else {
            bail!("an answer to another order")
        };
        let used = now.since(&usage);
        let seconds = self.clock.now().since(began).as_secs_f64();
        let daemon_cpu = cpu_of(self.daemon)? - daemon_cpu;
        let PeerAnswer::Recorded(Recorded { end_to_end, .. }) =
            self.process.ask(&PeerOrder::Recorded)?
        else {
            bail!("an answer to another order")
        };
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

/// The CPU time of a process, in ns. The system counts it in hundredths of a second.
fn cpu_of(pid: i32) -> Result<i64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field is the name, in brackets, and may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<i64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse().ok())
        .collect();
    ensure!(ticks.len() == 2, "{path} is not as expected");
    Ok(ticks.iter().sum::<i64>() * 10_000_000)
}

/// Value at that part of a distribution.
#[must_use]
pub fn at_part(latency: &Histogram, part: f64) -> Option<u64> {
    let sorted: BTreeMap<u64, u64> = latency.iter().copied().collect();
    let total: u64 = sorted.values().sum();
    let mut seen = 0;
    for (value, count) in sorted {
        seen += count;
        if seen as f64 >= part * total as f64 {
            return Some(value);
        }
    }
    None
}
