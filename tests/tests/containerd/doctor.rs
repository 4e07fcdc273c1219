//! `pleg doctor` on a real containerd: one trouble after the other.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleg::core::Id;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::environment::{built, number};
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::wait::until;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{SOON, with_daemon};

#[tokio::test(flavor = "multi_thread")]
async fn planted_trouble_is_the_first_finding() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        let kubelet = Kubelet::new(daemon)?;
        let pods = run_pods(&kubelet, 6).await?;
        let report = examine(daemon).await?;
        let findings = findings(&report)?;
        let bad = findings.iter().find(|f| f["severity"] != "info");
        ensure!(bad.is_none(), "{bad:#?}");
        // The stopped shim does not reap the container's process.
        let (pod, id) = &pods[3];
        let shim = shim_of(pod).await?;
        kill(shim, Signal::SIGSTOP)?;
        let process = kubelet.process(id).await;
        kill(pid(process)?, Signal::SIGKILL)?;
        let report = examine(daemon).await?;
        kill(shim, Signal::SIGCONT)?;
        expect(&report, "shim_stopped", "test/pod-3")?;
        let all = report["findings"].to_string();
        ensure!(all.contains("\"init_gone\""), "{all}");
        let daemon_pid = listener(daemon).await?;
        let spare = limit_descriptors(daemon_pid).await?;
        let report = examine(daemon).await?;
        spare.restore(daemon_pid).await?;
        expect(&report, "daemon_descriptors", "")?;
        daemon.freeze()?;
        let report = examine(daemon).await;
        daemon.unfreeze()?;
        expect(&report?, "daemon_stopped", "containerd")
    })
    .await
}

/// For `PLEG_DOCTOR_RUNS` runs of doctor, an agent beside them: pods are restarted all the time, and a process
/// uses all of a CPU.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a long one: just examine-healthy"]
async fn healthy_node_under_load_has_no_finding_above_information() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        let kubelet = Kubelet::new(daemon)?;
        let pods = run_pods(&kubelet, 80).await?;
        let log = daemon.dir.join("agent.log");
        let _agent = start_agent(daemon, &log)?;
        let mut hog = Command::new("sh");
        let _hog = hog
            .args(["-c", "while :; do :; done"])
            .kill_on_drop(true)
            .spawn()?;
        let restarts = restart(&kubelet, &pods[..10]);
        let examine = async {
            for run in 1..=number("PLEG_DOCTOR_RUNS", 2)? {
                let report = examine(daemon).await?;
                let findings = findings(&report)?;
                let bad = findings.iter().find(|f| f["severity"] != "info");
                ensure!(bad.is_none(), "run {run}: {bad:#?}");
            }
            anyhow::Ok(())
        };
        tokio::select! {
            result = examine => result?,
            error = restarts => return error,
        }
        let reported = reported(&log)?;
        ensure!(reported.is_empty(), "the agent reported {reported:#?}");
        Ok(())
    })
    .await
}

async fn run_pods(kubelet: &Kubelet, number: usize) -> anyhow::Result<Vec<(Pod, Id)>> {
    let mut pods = Vec::new();
    for n in 0..number {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        let id = kubelet.run(&pod, "app", 0, Life::UntilStopped).await?;
        pods.push((pod, id));
    }
    Ok(pods)
}

/// Stops and starts containers until it fails.
async fn restart(kubelet: &Kubelet, pods: &[(Pod, Id)]) -> anyhow::Result<()> {
    let mut pods = pods.to_vec();
    for attempt in 1.. {
        for (pod, id) in &mut pods {
            kubelet.stop(id).await?;
            kubelet.remove(id).await?;
            *id = kubelet
                .create(pod, "app", attempt, Life::UntilStopped)
                .await?;
            kubelet.start(id).await?;
        }
    }
    Ok(())
}

/// An agent that logs to a file.
fn start_agent(daemon: &Daemon, log: &Path) -> anyhow::Result<Child> {
    let listen = format!("unix://{}", daemon.dir.join("agent.sock").display());
    let mut command = Command::new(built("pleg")?);
    let command = command
        .args(["agent", "-v", "--log-format", "json", "--listen", &listen])
        .arg("-r")
        .arg(daemon.endpoint.to_string())
        .stdout(Stdio::null())
        .stderr(fs::File::create(log)?);
    Ok(command.kill_on_drop(true).spawn()?)
}

/// What the agent logged above information, but that there is no network plugin.
fn reported(log: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(log)?;
    let records = text.lines().map(serde_json::from_str);
    let records: Vec<Value> = records.collect::<Result<_, _>>()?;
    ensure!(!records.is_empty(), "the agent did not log its start");
    let above = |record: &Value| record["level"] != "info" && record["condition"] != "NetworkReady";
    Ok(records.into_iter().filter(above).collect())
}

/// That this finding is the first one, and its summary contains the text.
fn expect(report: &Value, code: &str, summary: &str) -> anyhow::Result<()> {
    let findings = findings(report)?;
    let first = findings.first().context("no finding")?;
    ensure!(
        first["code"] == code,
        "{code} is not the first of {:#}",
        report["findings"]
    );
    let text = first["summary"].as_str().unwrap_or_default();
    ensure!(text.contains(summary), "{text}");
    Ok(())
}

/// All findings but one: these daemons have no network plugin, and doctor reports that.
fn findings(report: &Value) -> anyhow::Result<Vec<&Value>> {
    let findings = report["findings"].as_array().context("no findings")?;
    let (network, others): (Vec<_>, _) = findings
        .iter()
        .partition(|f| f["code"] == "network_not_ready");
    ensure!(network.len() <= 1, "{network:?}");
    Ok(others)
}

async fn examine(daemon: &Daemon) -> anyhow::Result<Value> {
    let seconds = number("PLEG_DOCTOR_SECONDS", 3)?;
    let mut command = Command::new(built("pleg")?);
    let command = command.args([
        "doctor",
        "-o",
        "json",
        "--for",
        &format!("{seconds}s"),
        "-r",
    ]);
    let output = command
        .arg(daemon.endpoint.to_string())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(SOON * 3, output)
        .await
        .context("it does not end")??;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .with_context(|| format!("{text}; {}", String::from_utf8_lossy(&output.stderr)))
}

async fn shim_of(pod: &Pod) -> anyhow::Result<Pid> {
    let mut command = Command::new("pgrep");
    let command = command.args(["-f", &format!("containerd-shim.*-id {}", pod.sandbox)]);
    let output = command.stdin(Stdio::null()).output().await?;
    let text = String::from_utf8(output.stdout)?;
    let first = text.lines().next().context("the pod has no shim")?;
    Ok(Pid::from_raw(first.trim().parse()?))
}

fn pid(process: u32) -> anyhow::Result<Pid> {
    ensure!(process > 1, "the container has no process");
    Ok(Pid::from_raw(i32::try_from(process)?))
}

/// The process of the daemon.
async fn listener(daemon: &Daemon) -> anyhow::Result<u32> {
    let stream = tokio::net::UnixStream::connect(daemon.endpoint.path()).await?;
    let pid = stream.peer_cred()?.pid().context("it is not known")?;
    Ok(u32::try_from(pid)?)
}

/// The limit of open files that a process had.
struct Limit(String);

/// Leaves a process only a few descriptors more than it has.
async fn limit_descriptors(process: u32) -> anyhow::Result<Limit> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits"))?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let former = line
        .and_then(|line| line.split_whitespace().next())
        .context("no limit")?;
    let open = until(SOON, "its open files", || async {
        Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count())
    })
    .await?;
    set_limit(process, &format!("{}:", open + 4)).await?;
    Ok(Limit(format!("{former}:")))
}

impl Limit {
    async fn restore(&self, process: u32) -> anyhow::Result<()> {
        set_limit(process, &self.0).await
    }
}

async fn set_limit(process: u32, limit: &str) -> anyhow::Result<()> {
    let mut command = Command::new("prlimit");
    let command = command.args(["--pid", &process.to_string(), &format!("--nofile={limit}")]);
    ensure!(command.status().await?.success(), "prlimit failed");
    Ok(())
}
