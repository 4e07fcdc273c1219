//! What the kubelet says about its PLEG: its health, its metrics, its log.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use pleg::core::Instant;
use pleg::runtime::clock::{Clock, wall};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::kinds::{KUBELET_OTHER, KUBELET_PLEG, KUBELET_SLOW, KUBELET_STOPPED, KUBELET_UNHEALTHY};
use super::sample::{Sample, Samples};
use super::{HostTarget, command, on_host, within};
use crate::agent_client::get_from;
use crate::bounded;
use crate::kubelet::find_process;
use crate::picture::finding::{Finding, Severity};
use crate::proc::{Proc, Process};

/// How long the kubelet may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long the kubelet's relist may take before it is worth a warning, in seconds.
const SLOW: f64 = 1.0;
/// How recent the last complaint in the log is if the PLEG is still unhealthy. The kubelet repeats it every
/// 5 s at least.
const RECENT: f64 = 60.0;
/// What a kubelet logs of its PLEG until its first relist has ended.
const STARTS: &str = "pleg has yet to be successful";
/// How long that may take, in seconds.
const STARTED: f64 = 60.0;
/// How old a line of the log may be, in seconds.
const OLDEST: f64 = 900.0;
/// The most bytes of the log.
const MOST_LOG: u64 = 8 << 20;
/// The units that contain a kubelet: of kubeadm, Bottlerocket and most others, k3s, RKE2, k0s, MicroK8s, Canonical
/// Kubernetes.
const UNITS: [&str; 9] = [
    "kubelet",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "k0scontroller",
    "k0sworker",
    "snap.microk8s.daemon-kubelite",
    "snap.k8s.kubelet",
];
/// The files of those that do not write to the journal: RKE2, Talos, k3s without systemd.
const FILES: [&str; 4] = [
    "/var/lib/rancher/rke2/agent/logs/kubelet.log",
    "/var/log/kubelet.log",
    "/var/log/k3s.log",
    "/var/log/k3s-agent.log",
];

/// The kubelet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kubelet {
    pub(crate) pid: u32,
    /// It was stopped at the start and at the end.
    pub(crate) stopped: bool,
    /// The endpoint of its runtime, if that is not the examined one. Nothing else of it was read then.
    pub(crate) other_runtime: Option<String>,
    pub(crate) healthz: Option<Healthz>,
    pub(crate) relists: Option<Relists>,
    pub(crate) journal: Option<Journal>,
}

/// The answer of `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Healthz {
    /// It accepted the connection, but did not answer.
    pub(crate) silent: bool,
    pub(crate) healthy: bool,
    /// The names of the checks that failed.
    pub(crate) failed: Vec<String>,
}

/// From the kubelet's metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Relists {
    /// How many relists ended during the examination.
    pub(crate) count: u64,
    /// Their mean duration; if there was none, that of all since the kubelet's start.
    pub(crate) mean_seconds: Option<f64>,
    /// How long ago the kubelet saw its PLEG active.
    pub(crate) last_seen_seconds: Option<f64>,
}

/// What the kubelet logged in the last quarter of an hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Journal {
    pub(crate) lines: u64,
    /// Lines with "PLEG is not healthy".
    pub(crate) unhealthy: u64,
    /// Lines with "skipping pod synchronization".
    pub(crate) skipped: u64,
    /// How long ago the last of the former was logged.
    pub(crate) ago_seconds: Option<f64>,
    /// Since when the PLEG was not active, as that line says, for example `3m5.6s`.
    pub(crate) inactive: Option<String>,
    /// More than this is unhealthy.
    pub(crate) threshold: Option<String>,
}

/// Asks the kubelet, and reads its log. The error says what could not be read.
pub(super) async fn collect(
    target: &HostTarget,
    clock: Clock,
    until: Instant,
) -> (Option<Kubelet>, Option<String>) {
    let (root, socket) = (target.root.clone(), target.socket.clone());
    let find = move || {
        let proc = Proc::below(&root);
        let processes = proc.processes().ok()?;
        let found = find_process(&proc, &processes, socket.as_deref())?;
        let started = processes.get(&found.pid).zip(proc.boot());
        Some((
            found,
            started.map(|(process, boot)| process.started_at(boot)),
        ))
    };
    let (process, started) = match within(DEADLINE, find).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            return (
                None,
                Some("the kubelet: no process of it is visible".to_owned()),
            );
        }
        Err(why) => return (None, Some(format!("the kubelet: {why}"))),
    };
    if process.other_runtime.is_some() {
        let kubelet = Kubelet {
            pid: process.pid,
            other_runtime: process.other_runtime,
            ..Kubelet::default()
        };
        return (Some(kubelet), None);
    }
    let proc = Proc::below(&target.root);
    let stopped = || proc.process(process.pid).is_some_and(|p| p.is_stopped());
    let stopped_first = stopped();
    let address = SocketAddr::from(([127, 0, 0, 1], process.healthz_port));
    let (healthz, journal, before) = tokio::join!(
        healthz(address),
        log(target, process.log_file, started),
        metrics(target)
    );
    clock.sleep_until(until).await;
    let after = metrics(target).await;
    let kubelet = Kubelet {
        pid: process.pid,
        stopped: stopped_first && stopped(),
        other_runtime: None,
        healthz,
        relists: after.map(|after| relists(before.as_deref(), &after)),
        journal: journal.clone().ok(),
    };
    let why = journal.err().map(|why| format!("the kubelet's log: {why}"));
    (Some(kubelet), why)
}

async fn healthz(address: SocketAddr) -> Option<Healthz> {
    match tokio::time::timeout(DEADLINE, get_from(address, "/healthz")).await {
        Err(_) => Some(Healthz {
            silent: true,
            ..Healthz::default()
        }),
        // Nothing listens, or something else.
        Ok(Err(_)) => None,
        Ok(Ok((status, text))) => Some(Healthz {
            silent: false,
            healthy: status.is_success(),
            failed: failed_checks(&text),
        }),
    }
}

/// The names of failed checks: lines such as `[-]syncloop failed: reason withheld`.
fn failed_checks(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("[-]"));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .take(10)
        .map(|name| name.chars().take(40).collect())
        .collect()
}

/// The metrics of the read-only port, if there is one.
async fn metrics(target: &HostTarget) -> Option<String> {
    let answer = tokio::time::timeout(DEADLINE, get_from(target.read_only, "/metrics"));
    let (status, text) = answer.await.ok()?.ok()?;
    status.is_success().then_some(text)
}

fn relists(before: Option<&str>, after: &str) -> Relists {
    let value = |text: &str, name: &str| -> Option<f64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line?.trim().parse().ok()
    };
    let sum_and_count = |text: &str| {
        let name = "kubelet_pleg_relist_duration_seconds";
        Some((
            value(text, &format!("{name}_sum"))?,
            value(text, &format!("{name}_count"))?,
        ))
    };
    let last = sum_and_count(after);
    let first = before.and_then(sum_and_count);
    let during = last
        .zip(first)
        .map(|((sum, count), (s, c))| (sum - s, count - c));
    let during = during.filter(|(_, count)| *count >= 1.0);
    let mean = during.or(last).filter(|(_, count)| *count >= 1.0);
    let seen = value(after, "kubelet_pleg_last_seen_seconds").filter(|seen| *seen > 0.0);
    Relists {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a count"
        )]
        count: during.map_or(0, |(_, count)| count as u64),
        mean_seconds: mean.map(|(sum, count)| sum / count),
        last_seen_seconds: seen.map(|seen| (now() - seen).max(0.0)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "to the millisecond it is exact")]
fn now() -> f64 {
    wall().as_nanos() as f64 / 1e9
}

/// What two samples show of the kubelet's process.
pub(super) fn assess(samples: &Samples) -> Option<Kubelet> {
    let found = samples.end.kubelet.as_ref()?;
    let stopped = |sample: &Sample| {
        sample
            .processes
            .get(&found.pid)
            .is_some_and(Process::is_stopped)
    };
    Some(Kubelet {
        pid: found.pid,
        stopped: stopped(&samples.begin) && stopped(&samples.end),
        other_runtime: found.other_runtime.clone(),
        ..Kubelet::default()
    })
}

/// Reads the log of the last quarter of an hour, from the files and from the journal.
async fn log(
    target: &HostTarget,
    file: Option<PathBuf>,
    started: Option<f64>,
) -> Result<Journal, String> {
    let root = target.root.clone();
    let files = move || {
        let known = FILES.iter().map(|file| on_host(&root, file));
        let texts = known
            .chain(file)
            .filter_map(|file| bounded::read_end(&file, MOST_LOG).ok());
        texts.collect::<Vec<String>>()
    };
    let (files, journal) = tokio::join!(within(DEADLINE, files), journal(target));
    let mut texts = files.unwrap_or_default();
    texts.extend(journal.clone().ok().flatten());
    let mut log = Journal::default();
    for text in &texts {
        log.add(text, now(), started);
    }
    if log.lines > 0 {
        return Ok(log);
    }
    journal?;
    Err(format!(
        "no line of the last 15 min in the journal (units {}) nor in {}",
        UNITS.join(", "),
        FILES.join(", ")
    ))
}

/// Reads the journal of the last quarter of an hour, if there is one.
async fn journal(target: &HostTarget) -> Result<Option<String>, String> {
    let units = UNITS.iter().flat_map(|unit| ["--unit", unit]);
    let child = command(&target.journalctl)
        .args([
            "--since=-15min",
            "--output=short-unix",
            "--no-pager",
            "--quiet",
            "--lines=20000",
        ])
        .args(units)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let output = child.stdout.take().ok_or("it has no output")?;
    let mut text = Vec::new();
    let read = async {
        output.take(MOST_LOG).read_to_end(&mut text).await?;
        child.wait().await
    };
    match tokio::time::timeout(DEADLINE, read).await {
        Err(_) => Err(format!(
            "journalctl did not end within {} s",
            DEADLINE.as_secs()
        )),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
    }
}

impl Journal {
    /// Counts the lines that this kubelet has logged in the last quarter of an hour, if it started then.
    fn add(&mut self, text: &str, now: f64, started: Option<f64>) {
        for line in text.lines() {
            let at = time(line, now);
            let age = at.zip(started).map(|(at, started)| at - started);
            // The time of the boot is known to the second.
            if age.is_some_and(|age| age < -1.0) || at.is_some_and(|at| now - at > OLDEST) {
                continue;
            }
            self.lines += 1;
            if line.contains(STARTS) && age.is_some_and(|age| age < STARTED) {
                continue;
            }
            if line
                .to_ascii_lowercase()
                .contains("skipping pod synchronization")
            {
                self.skipped += 1;
            }
            if let Some((_, why)) = line.split_once("PLEG is not healthy") {
                self.unhealthy += 1;
                self.ago_seconds = at.map(|at| (now - at).max(0.0));
                self.inactive = duration_after(why, "active ");
                self.threshold = duration_after(why, "threshold is ");
            }
        }
    }

    fn is_recent(&self) -> bool {
        self.ago_seconds.is_some_and(|ago| ago <= RECENT)
    }
}

/// When the line was logged, in seconds of Unix time: as the journal writes it, JSON, or klog without a year.
fn time(line: &str, now: f64) -> Option<f64> {
    let first = line.split_whitespace().next()?;
    let unix = || first.parse().ok();
    let json = || {
        let (_, rest) = line.split_once("\"ts\":")?;
        let millis = rest.split([',', '}']).next()?.trim().parse::<f64>().ok()?;
        Some(millis / 1e3)
    };
    let at: f64 = unix().or_else(json).or_else(|| klog_time(line, now))?;
    // With another time zone than the kubelet's, nothing is known.
    (at <= now + RECENT).then_some(at)
}

/// `E1124 12:00:10.000000`, in the local time zone.
fn klog_time(line: &str, now: f64) -> Option<f64> {
    let stamp = line.get(1..21)?;
    let zone = TimeZone::system();
    let now = Timestamp::from_second(now as i64)
        .ok()?
        .to_zoned(zone.clone());
    let of_year = |year: i16| {
        let time = DateTime::strptime("%Y %m%d %H:%M:%S%.f", format!("{year} {stamp}")).ok()?;
        let time = time.to_zoned(zone.clone()).ok()?.timestamp();
        Some(time.as_second() as f64)
    };
    let this = of_year(now.year())?;
    match this > now.timestamp().as_second() as f64 + 86_400.0 {
        true => of_year(now.year() - 1),
        false => Some(this),
    }
}

/// Go's spelling of a duration after these words. Nothing else of a log line is recorded.
fn duration_after(text: &str, words: &str) -> Option<String> {
    let (_, rest) = text.split_once(words)?;
    let duration: String = rest
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's'))
        .collect();
    (1..=20).contains(&duration.len()).then_some(duration)
}

pub(super) fn check(kubelet: Option<&Kubelet>) -> Vec<Finding> {
    let Some(kubelet) = kubelet else {
        return Vec::new();
    };
    let pid = kubelet.pid;
    if let Some(endpoint) = &kubelet.other_runtime {
        let summary = format!("the kubelet (pid {pid}) uses another runtime than the examined one");
        let finding = KUBELET_OTHER.found(
            summary,
            format!("Examine that one: `pleg doctor -r {endpoint}`"),
        );
        return vec![finding.because(format!("its runtime is {endpoint}"))];
    }
    if kubelet.stopped {
        let next = format!(
            "Find out who stopped it (a debugger, SIGSTOP); then continue it: `kill -CONT {pid}`"
        );
        let finding = KUBELET_STOPPED.found(format!("the kubelet is stopped (pid {pid})"), next);
        return vec![finding.because("its state is T at the start and at the end")];
    }
    let findings = [
        pleg_unhealthy(kubelet),
        unhealthy(kubelet),
        relist_slow(kubelet),
    ];
    findings.into_iter().flatten().collect()
}

fn pleg_unhealthy(kubelet: &Kubelet) -> Option<Finding> {
    let mut checks = kubelet.healthz.iter().flat_map(|healthz| &healthz.failed);
    let failed = checks.any(|check| check.eq_ignore_ascii_case("pleg"));
    let journal = kubelet
        .journal
        .as_ref()
        .filter(|journal| journal.unhealthy > 0);
    if !failed && journal.is_none() {
        return None;
    }
    let next = "See the other findings for the cause; if there is none, read the log of the runtime of that time";
    let mut finding = KUBELET_PLEG.found("the kubelet reports that its PLEG is not healthy", next);
    if !failed && !journal.is_some_and(Journal::is_recent) {
        finding.severity = Severity::Warning;
        finding.summary =
            "the kubelet reported in the last quarter of an hour that its PLEG was not healthy"
                .to_owned();
    }
    if failed {
        finding = finding.because("its /healthz names pleg");
    }
    if let Some(journal) = journal {
        let ago = journal
            .ago_seconds
            .map(|ago| format!(", the last {ago:.0} s ago"));
        let ago = ago.unwrap_or_default();
        finding = finding.because(format!(
            "{} times in its log in 15 min{ago}",
            journal.unhealthy
        ));
        let times = journal.inactive.as_ref().zip(journal.threshold.as_ref());
        let active = times
            .map(|(before, most)| format!("last active {before} before; the threshold is {most}"));
        finding.evidence.extend(active);
        if journal.skipped > 0 {
            let skipped = format!(
                "it skipped the synchronization of pods {} times",
                journal.skipped
            );
            finding = finding.because(skipped);
        }
    }
    Some(finding)
}

/// `/healthz` fails for another reason.
fn unhealthy(kubelet: &Kubelet) -> Option<Finding> {
    let healthz = kubelet
        .healthz
        .as_ref()
        .filter(|healthz| !healthz.healthy)?;
    let others = healthz.failed.iter();
    let others = others.filter(|check| !check.eq_ignore_ascii_case("pleg"));
    let others: Vec<&str> = others.map(String::as_str).collect();
    let evidence = match (healthz.silent, others.as_slice()) {
        (true, _) => "its /healthz does not answer within 3 s".to_owned(),
        (false, []) if healthz.failed.is_empty() => "its /healthz fails".to_owned(),
        (false, []) => return None,
        (false, names) => format!("its /healthz fails: {}", names.join(", ")),
    };
    let next = "Read its log. A failed syncloop means that a pod worker or the PLEG blocks it";
    Some(
        KUBELET_UNHEALTHY
            .found("the kubelet is not healthy", next)
            .because(evidence),
    )
}

fn relist_slow(kubelet: &Kubelet) -> Option<Finding> {
    let relists = kubelet.relists.as_ref()?;
    let mean = relists.mean_seconds.filter(|mean| *mean >= SLOW)?;
    let next = "See the findings about lists and statuses; the kubelet reports the PLEG as unhealthy after 3 min";
    let finding = KUBELET_SLOW.found(format!("the kubelet's relist takes {mean:.1} s"), next);
    let mut finding = finding.because(match relists.count {
        0 => "the mean since its start; none ended during the examination".to_owned(),
        n => format!("the mean of {n} during the examination"),
    });
    let seen = relists.last_seen_seconds;
    finding
        .evidence
        .extend(seen.map(|seen| format!("its PLEG was last seen active {seen:.0} s ago")));
    Some(finding)
}

#[cfg(test)]
mod tests;
