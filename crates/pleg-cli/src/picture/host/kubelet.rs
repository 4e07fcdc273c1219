//! What the kubelet says about its PLEG: its health, its metrics, its log.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::process::Stdio;
use std::time::Duration;

use pleg::core::Instant;
use pleg::runtime::clock::{Clock, wall};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::{HostTarget, command, within};
use crate::agent_client::get_from;
use crate::kubelet::find_process;
use crate::picture::finding::{Finding, Layer, Severity};
use crate::proc::Proc;

/// How long the kubelet may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long the kubelet's relist may take before it is worth a warning, in seconds.
const SLOW: f64 = 1.0;
/// How recent the last complaint in the log is if the PLEG is still unhealthy. The kubelet repeats it every
/// 5 s at least.
const RECENT: f64 = 60.0;
/// What a kubelet logs of its PLEG until its first relist has ended.
const STARTS: &str = "pleg has yet to be successful";
/// How long that may take, in seconds. Its first relist begins after one second.
const STARTED: f64 = 10.0;
/// The most bytes of the log.
const MOST_LOG: u64 = 8 << 20;
/// The units that contain a kubelet.
const UNITS: [&str; 6] = [
    "kubelet",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "snap.microk8s.daemon-kubelite",
];

/// The kubelet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kubelet {
    pub(crate) pid: u32,
    /// It was stopped at the begin and at the end.
    pub(crate) stopped: bool,
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
    let found = within(DEADLINE, move || find_process(&root, socket.as_deref())).await;
    let process = match found {
        Ok(Some(process)) => process,
        Ok(None) => return (None, None),
        Err(why) => return (None, Some(format!("the kubelet: {why}"))),
    };
    let proc = Proc::below(&target.root);
    let stopped = || proc.process(process.pid).is_some_and(|p| p.is_stopped());
    let stopped_first = stopped();
    let address = SocketAddr::from(([127, 0, 0, 1], process.healthz_port));
    let (healthz, journal, before) =
        tokio::join!(healthz(address), journal(target), metrics(target));
    clock.sleep_until(until).await;
    let after = metrics(target).await;
    let kubelet = Kubelet {
        pid: process.pid,
        stopped: stopped_first && stopped(),
        healthz,
        relists: after.map(|after| relists(before.as_deref(), &after)),
        journal: journal.clone().ok().flatten(),
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

/// Reads the log of the last quarter of an hour, if there is a journal.
async fn journal(target: &HostTarget) -> Result<Option<Journal>, String> {
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
        Ok(Ok(_)) => Ok(Some(Journal::parse(&String::from_utf8_lossy(&text), now()))),
    }
}

impl Journal {
    fn parse(text: &str, now: f64) -> Self {
        let mut journal = Self::default();
        let starts = starts(text);
        for line in text.lines() {
            if starts.iter().any(|start| start.contains(&time(line))) && line.contains(STARTS) {
                continue;
            }
            if line
                .to_ascii_lowercase()
                .contains("skipping pod synchronization")
            {
                journal.skipped += 1;
            }
            if let Some((_, why)) = line.split_once("PLEG is not healthy") {
                journal.unhealthy += 1;
                let ago = now - time(line);
                journal.ago_seconds = (!ago.is_nan()).then_some(ago.max(0.0));
                journal.inactive = duration_after(why, "active ");
                journal.threshold = duration_after(why, "threshold is ");
            }
        }
        journal
    }

    fn is_recent(&self) -> bool {
        self.ago_seconds.is_some_and(|ago| ago <= RECENT)
    }
}

/// When the line was logged, in seconds of Unix time; NaN if it does not say.
fn time(line: &str) -> f64 {
    let time = line.split_whitespace().next();
    time.and_then(|time| time.parse().ok()).unwrap_or(f64::NAN)
}

/// The times in which a kubelet started: it reports that its PLEG is not healthy until the first relist has ended. If it
/// says so for longer, no relist succeeds.
fn starts(text: &str) -> Vec<RangeInclusive<f64>> {
    let lines = text.lines().filter(|line| line.contains(STARTS));
    let mut starts: Vec<RangeInclusive<f64>> = Vec::new();
    for at in lines.map(time).filter(|at| at.is_finite()) {
        match starts.last_mut() {
            Some(start) if at - start.end() <= RECENT => *start = *start.start()..=at,
            _ => starts.push(at..=at),
        }
    }
    starts.retain(|start| start.end() - start.start() < STARTED);
    starts
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
    if kubelet.stopped {
        let summary = format!("the kubelet is stopped (pid {})", kubelet.pid);
        let next = "Find out who stopped it (a debugger, SIGSTOP); then send SIGCONT.";
        let finding = Finding::new(
            "kubelet_stopped",
            Layer::Kubelet,
            Severity::Critical,
            summary,
            next,
        );
        return vec![finding.because("its state is T at the begin and at the end")];
    }
    let findings = [
        pleg_unhealthy(kubelet),
        unhealthy(kubelet),
        relist_slow(kubelet),
    ];
    findings.into_iter().flatten().collect()
}

fn pleg_unhealthy(kubelet: &Kubelet) -> Option<Finding> {
    let failed = kubelet.healthz.iter().flat_map(|healthz| &healthz.failed);
    let failed = failed
        .filter(|check| check.eq_ignore_ascii_case("pleg"))
        .count()
        > 0;
    let journal = kubelet
        .journal
        .as_ref()
        .filter(|journal| journal.unhealthy > 0);
    let recent = journal.is_some_and(Journal::is_recent);
    if !failed && journal.is_none() {
        return None;
    }
    let (severity, summary) = if failed || recent {
        (
            Severity::Critical,
            "the kubelet reports that its PLEG is not healthy",
        )
    } else {
        let summary =
            "the kubelet reported in the last quarter of an hour that its PLEG was not healthy";
        (Severity::Warning, summary)
    };
    let next = "See the other findings for the cause; if there is none, read the log of the runtime of that time.";
    let mut finding = Finding::new(
        "kubelet_pleg_unhealthy",
        Layer::Kubelet,
        severity,
        summary,
        next,
    );
    if failed {
        finding = finding.because("its /healthz names pleg");
    }
    if let Some(journal) = journal {
        let times = format!("{} times in its log in 15 min", journal.unhealthy);
        finding = finding.because(match journal.ago_seconds {
            Some(ago) => format!("{times}, the last {ago:.0} s ago"),
            None => times,
        });
        if let Some((inactive, threshold)) =
            journal.inactive.as_ref().zip(journal.threshold.as_ref())
        {
            finding = finding.because(format!(
                "last active {inactive} before; the threshold is {threshold}"
            ));
        }
        if journal.skipped > 0 {
            finding = finding.because(format!(
                "it skipped the synchronization of pods {} times",
                journal.skipped
            ));
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
    let others = healthz
        .failed
        .iter()
        .filter(|check| !check.eq_ignore_ascii_case("pleg"));
    let others: Vec<&str> = others.map(String::as_str).collect();
    let evidence = match (healthz.silent, others.as_slice()) {
        (true, _) => "its /healthz does not answer within 3 s".to_owned(),
        (false, []) if healthz.failed.is_empty() => "its /healthz fails".to_owned(),
        (false, []) => return None,
        (false, names) => format!("its /healthz fails: {}", names.join(", ")),
    };
    let next = "Read its log (journalctl -u kubelet). A failed syncloop means that a pod worker or the PLEG blocks it.";
    let summary = "the kubelet is not healthy";
    let finding = Finding::new(
        "kubelet_unhealthy",
        Layer::Kubelet,
        Severity::Warning,
        summary,
        next,
    );
    Some(finding.because(evidence))
}

fn relist_slow(kubelet: &Kubelet) -> Option<Finding> {
    let relists = kubelet.relists.as_ref()?;
    let mean = relists.mean_seconds.filter(|mean| *mean >= SLOW)?;
    let next = "See the findings about lists and statuses; the kubelet reports the PLEG as unhealthy after 3 min.";
    let summary = format!("the kubelet's relist takes {mean:.1} s");
    let finding = Finding::new(
        "kubelet_relist_slow",
        Layer::Kubelet,
        Severity::Warning,
        summary,
        next,
    );
    let finding = finding.because(match relists.count {
        0 => "the mean since its start; none ended during the examination".to_owned(),
        n => format!("the mean of {n} during the examination"),
    });
    Some(match relists.last_seen_seconds {
        Some(seen) => finding.because(format!("its PLEG was last seen active {seen:.0} s ago")),
        None => finding,
    })
}

#[cfg(test)]
mod tests;
