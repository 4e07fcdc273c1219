//! Measures memory, descriptors and tasks of the process `static_pods` while pods crash for hours.

use std::time::Duration;

use anyhow::ensure;
use pleg::core::Mode;

use crate::daemon::Daemon;
use crate::environment::number;
use crate::usage;
use crate::wait::pass_time;

use super::manifests::{self, Kind};
use super::process::StaticPods;

/// The number of first samples that are ignored: memory grows for 10 minutes, while the process stores removed ids.
const SETTLED: usize = 12;
/// The minimum number of samples, one a minute, in each half of the run after [`SETTLED`].
const HALF: usize = 10;
/// The measured quantities (RSS in KiB, descriptors and tasks), and by how much each may grow in addition to 10 %.
const MEASURED: [(&str, f64); 3] = [("RSS", 1024.0), ("descriptors", 4.0), ("tasks", 8.0)];

/// Runs for `PLEG_KUBELET_MINUTES` minutes, and prints a sample of the daemon each minute. With enough samples (see
/// `HALF`), the maximum of their second half may exceed that of the first half only as `MEASURED` allows.
pub async fn watch(daemon: &Daemon) -> anyhow::Result<()> {
    let mut kubelet = StaticPods::new(daemon, Mode::Evented)?;
    let pods = number("PLEG_KUBELET_PODS", 10)?;
    manifests::write(&kubelet.manifests, Kind::Crashing, pods, &daemon.image)?;
    kubelet.start().await?;
    let mut samples = Vec::new();
    for minute in 0..=number("PLEG_KUBELET_MINUTES", 2)? {
        if minute > 0 {
            pass_time(Duration::from_secs(60)).await;
        }
        let now = sample(&kubelet).await?;
        println!("{minute} min: {now:?} (RSS in KiB, descriptors, tasks)");
        samples.push(now);
    }
    kubelet.terminate().await?;
    let settled = samples.get(SETTLED..).unwrap_or_default();
    if settled.len() < 2 * HALF {
        println!("too short to say whether it grows");
        return Ok(());
    }
    let (first, second) = settled.split_at(settled.len() / 2);
    for (n, (what, slack)) in MEASURED.into_iter().enumerate() {
        let most = |half: &[[f64; 3]]| half.iter().map(|s| s[n]).fold(0.0, f64::max);
        let (before, after) = (most(first), most(second));
        println!("most {what}: {before}, then {after}");
        ensure!(after <= before * 1.1 + slack, "{what} grow");
    }
    Ok(())
}

async fn sample(kubelet: &StaticPods) -> anyhow::Result<[f64; 3]> {
    let pid = kubelet.pid()?;
    let metrics = kubelet.get("/metrics").await?;
    let tasks = metrics.lines().filter_map(|line| {
        let value = line.strip_prefix("static_pods_alive_tasks")?;
        value.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    let resident = usage::status(pid, "VmRSS:")?;
    Ok([resident as f64, descriptors as f64, tasks.sum()])
}
