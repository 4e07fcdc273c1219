//! The kubelet's reports about its PLEG: in its health, its metrics and its log.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use pleg::core::Instant;
use pleg::runtime::clock::wall;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::agent_client::get_from;
use crate::proc::number;

const DEADLINE: Duration = Duration::from_secs(3);
/// A mean duration of relists of at least this many seconds is a finding.
const SLOW: f64 = 1.0;
/// "PLEG is not healthy" in the log counts as current for this many seconds: the kubelet repeats it every 5 s or less.
const RECENT: f64 = 60.0;
/// The kubelet logs this text until its first relist ends, which is normal in the kubelet's first `STARTED` seconds.
const STARTS: &str = "pleg has yet to be successful";
const STARTED: f64 = 60.0;
/// The age up to which lines of the log count, in seconds.
const OLDEST: f64 = 900.0;
const MOST_LOG: u64 = 8 << 20;
/// The units of kubelets: of kubeadm, Bottlerocket and most others, k3s, RKE2, k0s, MicroK8s, Canonical Kubernetes.
const UNITS: &str = "kubelet, k3s, k3s-agent, rke2-server, rke2-agent, k0scontroller, k0sworker, \
                     snap.microk8s.daemon-kubelite, snap.k8s.kubelet";
/// The log files of kubelets that do not write to the journal: RKE2, Talos, k3s without systemd.
const FILES: &str = "/var/lib/rancher/rke2/agent/logs/kubelet.log, /var/log/kubelet.log, /var/log/k3s.log, \
                     /var/log/k3s-agent.log";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kubelet {
    pub(crate) pid: u32,
    /// True if the kubelet was in state T (stopped by a signal) in both samples.
    pub(crate) stopped: bool,
    /// The kubelet's runtime endpoint, if not the examined one. Then doctor reads no health and no log of the kubelet.
    pub(crate) other_runtime: Option<String>,
    pub(crate) healthz: Option<Healthz>,
    pub(crate) relists: Option<Relists>,
    pub(crate) journal: Option<Journal>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Healthz {
    /// True if a request to `/healthz` led to no answer and no error within `DEADLINE`.
    pub(crate) silent: bool,
    pub(crate) healthy: bool,
    pub(crate) failed: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Relists {
    /// The number of relists that ended during the examination.
    pub(crate) count: u64,
    /// The mean duration of the counted relists, or of all relists since the kubelet's start if none was counted.
    pub(crate) mean_seconds: Option<f64>,
    /// The time since the kubelet last saw its PLEG active.
    pub(crate) last_seen_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Journal {
    pub(crate) lines: u64,
    pub(crate) unhealthy: u64,
    /// Lines with "skipping pod synchronization".
    pub(crate) skipped: u64,
    pub(crate) ago_seconds: Option<f64>,
    /// From the last line with "PLEG is not healthy": how long the PLEG was not active (`3m5.6s`), and the threshold.
    pub(crate) inactive: Option<String>,
    pub(crate) threshold: Option<String>,
}

/// Reads health, metrics and log of the sample's kubelet, unless it uses another runtime. Also returns what failed.
pub(super) async fn ask(
    target: &HostTarget,
    sample: &Sample,
    clock: Clock,
    until: Instant,
) -> (Kubelet, Vec<String>) {
    let mut kubelet = Kubelet::default();
    let (process, found) = match sample.kubelet() {
        Some((seen, found, None)) => (&seen.process, found),
        Some(_) => return (kubelet, Vec::new()),
        None => {
            let why = "the kubelet: its process is not visible".to_owned();
            return (kubelet, vec![why]);
        }
    };
    let boot = Proc::below(&target.root).boot();
    let started = boot.map(|boot| process.started_at(boot));
    let (file, found) = (found.log_file(), found.clone());
    let one = Arc::new(Semaphore::new(1));
    let healthz = async {
        let port = alone(&one, DEADLINE, move || found.healthz_port()).await;
        let port = port.map_err(|why| format!("the kubelet's configuration: {why}"))?;
        Ok::<_, String>(healthz(SocketAddr::from(([127, 0, 0, 1], port))).await)
    };
    let (healthz, journal, before) =
        tokio::join!(healthz, log(target, file, started), metrics(target));
    clock.sleep_until(until).await;
    let after = metrics(target).await;
    kubelet.relists = after.map(|after| relists(before.as_deref(), &after));
    let unread = [healthz.as_ref().err(), journal.as_ref().err()];
    let unread = unread.into_iter().flatten().cloned().collect();
    kubelet.healthz = healthz.ok().flatten();
    kubelet.journal = journal.ok();
    (kubelet, unread)
}

async fn healthz(address: SocketAddr) -> Option<Healthz> {
    let answer = tokio::time::timeout(DEADLINE, get_from(address, "/healthz")).await;
    let silent = answer.is_err();
    // If the request fails, returns `None`: nothing listens on the `/healthz` port, or a program that is not a kubelet.
    let (status, text) = answer.ok().transpose().ok()?.unwrap_or_default();
    // The names of failed checks, in lines such as `[-]syncloop failed: reason withheld`.
    let lines = text.lines().filter_map(|line| line.strip_prefix("[-]"));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let failed = names.map(|name| name.chars().take(40).collect());
    Some(Healthz {
        silent,
        healthy: !silent && status.is_success(),
        failed: failed.take(10).collect(),
    })
}

async fn metrics(target: &HostTarget) -> Option<String> {
    let answer = tokio::time::timeout(DEADLINE, get_from(target.read_only, "/metrics"));
    let (status, text) = answer.await.ok()?.ok()?;
    status.is_success().then_some(text)
}

fn relists(before: Option<&str>, after: &str) -> Relists {
    let sum_and_count = |text: &str| -> Option<(f64, f64)> {
        let sum = number(text, "kubelet_pleg_relist_duration_seconds_sum ");
        sum.zip(number(text, "kubelet_pleg_relist_duration_seconds_count "))
    };
    let last = sum_and_count(after);
    let during = last.zip(before.and_then(sum_and_count));
    let during = during.map(|((sum, count), (s, c))| (sum - s, count - c));
    let during = during.filter(|(_, count)| *count >= 1.0);
    let mean = during.or(last).filter(|(_, count)| *count >= 1.0);
    let seen = number::<f64>(after, "kubelet_pleg_last_seen_seconds ");
    let seen = seen.filter(|seen| *seen > 0.0);
    Relists {
        count: during.map_or(0, |(_, count)| count as u64),
        mean_seconds: mean.map(|(sum, count)| sum / count),
        last_seen_seconds: seen.map(|seen| (now() - seen).max(0.0)),
    }
}

fn now() -> f64 {
    wall().as_nanos() as f64 / 1e9
}

/// The kubelet that uses the socket, in two samples; if there is none, another kubelet.
pub(super) fn assess(samples: &Samples) -> Option<Kubelet> {
    let (seen, _, other_runtime) = samples.end.kubelet()?;
    Some(Kubelet {
        pid: seen.process.pid,
        stopped: samples.lasts(seen).stopped,
        other_runtime: other_runtime.clone(),
        ..Kubelet::default()
    })
}

/// Reads the log of the last quarter of an hour, from the files and from the journal.
async fn log(
    target: &HostTarget,
    file: Option<PathBuf>,
    started: Option<f64>,
) -> Result<Journal, String> {
    let (one, root) = (Arc::new(Semaphore::new(1)), host_files(&target.root));
    let files = move || {
        let known = FILES.split(", ").map(|file| root.join(&file[1..]));
        let files = known.chain(file);
        let texts = files.filter_map(|file| bounded::read_end(&file, MOST_LOG).ok());
        texts.collect::<Vec<String>>()
    };
    let (files, journal) = tokio::join!(alone(&one, DEADLINE, files), journal(target));
    let mut log = Journal::default();
    for text in files.iter().flatten().chain(&journal) {
        log.add(text, now(), started);
    }
    let lacking = "no line of the last 15 min in";
    let why = match journal {
        _ if log.lines > 0 => return Ok(log),
        Ok(_) => format!("{lacking} the journal (units {UNITS}) nor in {FILES}"),
        Err(why) => format!("{why}; {lacking} {FILES}"),
    };
    Err(format!("the kubelet's log: {why}"))
}

async fn journal(target: &HostTarget) -> Result<String, String> {
    let child = command(&target.journalctl)
        .args(["--since=-15min", "--output=short-unix", "--lines=20000"])
        .args(["--no-pager", "--quiet"])
        .args(UNITS.split(", ").map(|unit| format!("--unit={unit}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("journalctl is not installed".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let output = child.stdout.take().ok_or("it has no output")?;
    let mut text = Vec::new();
    let read = async {
        output.take(MOST_LOG).read_to_end(&mut text).await?;
        child.wait().await
    };
    let read = tokio::time::timeout(DEADLINE, read).await;
    let late = |_| format!("journalctl did not end within {} s", DEADLINE.as_secs());
    let status = read.map_err(late)?.map_err(|error| error.to_string())?;
    // If journalctl wrote text, it may have failed only because the text was not read to the end.
    match status.success() || !text.is_empty() {
        true => Ok(String::from_utf8_lossy(&text).into_owned()),
        false => Err(format!("journalctl failed: {status}")),
    }
}

impl Journal {
    /// Counts the lines of the last 15 minutes. Lines of an earlier kubelet, before `started`, do not count.
    fn add(&mut self, text: &str, now: f64, started: Option<f64>) {
        for line in text.lines() {
            let at = time(line, now);
            let age = at.zip(started).map(|(at, started)| at - started);
            // Lines up to 1 s before `started` count: `started` follows from the boot time, in whole seconds.
            if age.is_some_and(|age| age < -1.0) || at.is_some_and(|at| now - at > OLDEST) {
                continue;
            }
            self.lines += 1;
            if line.contains(STARTS) && age.is_some_and(|age| age < STARTED) {
                continue;
            }
            // Some kubelets write "Skipping", others "skipping".
            self.skipped += u64::from(line.contains("kipping pod synchronization"));
            if let Some((_, why)) = line.split_once("PLEG is not healthy") {
                self.unhealthy += 1;
                self.ago_seconds = at.map(|at| (now - at).max(0.0));
                self.inactive = duration_after(why, "active ");
                self.threshold = duration_after(why, "threshold is ");
            }
        }
    }
}

/// The time of a line in Unix seconds. Formats: journal, JSON, klog. Further lines of a klog message have no time.
fn time(line: &str, now: f64) -> Option<f64> {
    let unix = || line.split_whitespace().next()?.parse().ok();
    let unix = || unix().filter(|at: &f64| *at >= 1e9);
    let json = || {
        let (_, rest) = line.split_once("\"ts\":")?;
        let millis: f64 = rest.split([',', '}']).next()?.trim().parse().ok()?;
        Some(millis / 1e3)
    };
    let at: f64 = unix().or_else(json).or_else(|| klog_time(line, now))?;
    // A time in the future is from another time zone, so the time is not known.
    (at <= now + RECENT).then_some(at)
}

/// The time in a klog header such as `E1124 12:00:10.000000`, which has no year and is in the local time zone.
fn klog_time(line: &str, now: f64) -> Option<f64> {
    let (stamp, zone) = (line.get(1..21)?, TimeZone::system());
    let time = Timestamp::from_second(now as i64).ok()?;
    let year = time.to_zoned(zone.clone()).year();
    let mut times = [year, year - 1].into_iter().filter_map(|year| {
        let time = DateTime::strptime("%Y %m%d %H:%M:%S%.f", format!("{year} {stamp}")).ok()?;
        Some(time.to_zoned(zone.clone()).ok()?.timestamp().as_second() as f64)
    });
    // If the time would be in the future, the line is from the year before: in January, a line of December.
    times.find(|time| *time <= now + 86_400.0)
}

/// The duration after `words`, in Go's spelling. Nothing else of a log line is recorded.
fn duration_after(text: &str, words: &str) -> Option<String> {
    let (_, rest) = text.split_once(words)?;
    let of_duration = |c: &char| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's');
    let duration: String = rest.chars().take_while(of_duration).collect();
    (1..=20).contains(&duration.len()).then_some(duration)
}

pub(super) fn check(kubelet: &Kubelet) -> Vec<Finding> {
    let pid = kubelet.pid;
    if let Some(endpoint) = &kubelet.other_runtime {
        let summary = format!("the kubelet (pid {pid}) does not use the examined runtime");
        let next = format!("Examine the kubelet's runtime: `pleg doctor -r {endpoint}`");
        let finding = Finding::new("kubelet_other_runtime", summary, next);
        return vec![finding.because(format!("its runtime is {endpoint}"))];
    }
    if kubelet.stopped {
        let summary = format!("the kubelet is stopped (pid {pid})");
        return vec![Finding::new("kubelet_stopped", summary, stopped(pid)).because(STOPPED)];
    }
    let (pleg, others) = (pleg_unhealthy(kubelet), unhealthy(kubelet));
    let all = [pleg, others, relist_slow(kubelet)];
    all.into_iter().flatten().collect()
}

fn pleg_unhealthy(kubelet: &Kubelet) -> Option<Finding> {
    let mut checks = kubelet.healthz.iter().flat_map(|healthz| &healthz.failed);
    let failed = checks.any(|check| check.eq_ignore_ascii_case("pleg"));
    let journal = kubelet.journal.as_ref();
    let journal = journal.filter(|journal| journal.unhealthy > 0);
    (failed || journal.is_some()).then_some(())?;
    let ago = journal.and_then(|journal| journal.ago_seconds);
    let next = "See the other findings for the cause; if no finding shows it, read the runtime's log of that time";
    let summary = "the kubelet reports that its PLEG is not healthy";
    let mut finding = Finding::new("kubelet_pleg_unhealthy", summary, next);
    if !failed && ago.is_none_or(|ago| ago > RECENT) {
        finding.severity = Severity::Warning;
        let when = "in the last quarter of an hour";
        finding.summary = format!("the kubelet reported {when} that its PLEG was not healthy");
    }
    let finding = finding.because_of(failed.then(|| "its /healthz names pleg".to_owned()));
    let Some(journal) = journal else {
        return Some(finding);
    };
    let ago = ago.map_or_else(String::new, |ago| format!(", the last {ago:.0} s ago"));
    let (times, skips) = (journal.unhealthy, journal.skipped);
    let active = journal.inactive.as_ref().zip(journal.threshold.as_ref());
    let active = active.map(|(a, most)| format!("last active {a} before; the threshold is {most}"));
    let skipped = format!("it skipped the synchronization of pods {skips} times");
    let skipped = (skips > 0).then_some(skipped);
    let finding = finding.because(format!("{times} times in its log in 15 min{ago}"));
    Some(finding.because_of(active.into_iter().chain(skipped)))
}

fn unhealthy(kubelet: &Kubelet) -> Option<Finding> {
    let healthz = kubelet.healthz.as_ref().filter(|h| !h.healthy)?;
    let mut others = healthz.failed.clone();
    others.retain(|check| !check.eq_ignore_ascii_case("pleg"));
    let evidence = match others.join(", ") {
        _ if healthz.silent => "its /healthz does not answer within 3 s".to_owned(),
        _ if healthz.failed.is_empty() => "its /healthz fails".to_owned(),
        others if others.is_empty() => return None,
        others => format!("its /healthz fails: {others}"),
    };
    let next = "Read its log. If the syncloop check fails, a pod worker or the PLEG blocks it";
    Some(Finding::new("kubelet_unhealthy", "the kubelet is not healthy", next).because(evidence))
}

fn relist_slow(kubelet: &Kubelet) -> Option<Finding> {
    let relists = kubelet.relists.as_ref()?;
    let mean = relists.mean_seconds.filter(|mean| *mean >= SLOW)?;
    let next = "See the findings about lists and statuses; the kubelet reports the PLEG as unhealthy after 3 min";
    let summary = format!("the kubelet's relist takes {mean:.1} s");
    let finding = Finding::new("kubelet_relist_slow", summary, next).because(match relists.count {
        0 => "the mean since its start; no relist ended during the examination".to_owned(),
        n => format!("the mean of {n} during the examination"),
    });
    let seen = relists.last_seen_seconds;
    Some(finding.because_of(seen.map(|s| format!("its PLEG was last seen active {s:.0} s ago"))))
}

#[cfg(test)]
mod tests;
