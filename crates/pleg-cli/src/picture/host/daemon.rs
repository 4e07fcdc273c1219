//! The process of the container runtime: the one that listens on the CRI socket.

use tokio::net::UnixStream;

use super::*;

const DEADLINE: Duration = Duration::from_secs(2);
/// The share of open files or threads at which a process or the host is close to its limit.
const FULL: f64 = 0.9;
const YOUNG: f64 = 600.0;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Daemon {
    pub(crate) pid: u32,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) lasting: Lasting,
    pub(crate) descriptors: Option<Open>,
    pub(crate) threads: u64,
    pub(crate) resident_bytes: u64,
    /// The average number of CPUs that the daemon used between the two samples.
    pub(crate) cpus: f64,
    pub(crate) waiting_for_cpu: Option<f64>,
    pub(crate) age_seconds: Option<f64>,
    /// True if another process listened on the socket in the first of the two samples.
    pub(crate) replaced: bool,
}

/// Returns `used` if it is close to its limit.
fn full(used: Option<Open>) -> Option<Open> {
    used.filter(|used| used.limit > 0 && share(used.open, used.limit) >= FULL)
}

/// The process that listens on the socket, unless it is systemd or not visible from here.
pub(super) async fn listener(socket: &Path) -> Result<u32, String> {
    let connect = tokio::time::timeout(DEADLINE, UnixStream::connect(socket));
    let peer = connect.await.map(|stream| stream?.peer_cred());
    let why = match peer.map(|peer| peer.map(|peer| peer.pid().map(u32::try_from))) {
        Ok(Ok(Some(Ok(pid)))) if pid > 1 => return Ok(pid),
        Ok(Ok(Some(Ok(1)))) => "systemd listens for it".to_owned(),
        Ok(Ok(_)) => "it is not visible from here".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no connection within 2 s".to_owned(),
    };
    let socket = socket.display();
    Err(format!("the process that listens on {socket}: {why}"))
}

/// The daemon in two samples. `first` listened in the first sample, `pid` in the second.
pub(super) fn assess(samples: &Samples, first: Option<u32>, pid: u32) -> Option<Daemon> {
    let (end, seen) = (&samples.end, samples.end.processes.get(&pid)?);
    let process = &seen.process;
    let used = |before: &Seen| process.cpu_since(&before.process) / samples.seconds();
    Some(Daemon {
        pid,
        name: process.name.clone(),
        lasting: samples.lasts(seen),
        descriptors: end.descriptors,
        threads: process.threads,
        resident_bytes: process.resident(),
        cpus: rounded(samples.begin.same(process).map_or(0.0, used)),
        waiting_for_cpu: samples.waiting_for_cpu(),
        age_seconds: end.uptime.map(|uptime| rounded(process.age(uptime))),
        replaced: first.is_some_and(|first| first != pid),
    })
}

/// Findings about the daemon and the host's limits. `limited`: the daemon's memory limit explains blocked threads.
pub(super) fn check(host: &Host, limited: bool) -> Vec<Finding> {
    let files = full(host.files).map(|used| {
        let next = "Find the process that has the most: `lsof -n | awk '{print $2, $1}' | sort | uniq -c | sort -n | \
                    tail`; or raise fs.file-max";
        let summary = "the host is close to its limit of open files";
        let why = format!("{used} descriptors are open on the whole host");
        Finding::new("host_descriptors", summary, next).because(why)
    });
    let threads = full(host.threads).map(|used| {
        let next = "Find the process that has the most: `ps -eo nlwp,pid,comm | sort -n | tail`; or raise \
                    kernel.pid_max and kernel.threads-max";
        let summary = "the host is close to its limit of threads";
        let why = format!("{used} threads exist on the whole host");
        Finding::new("host_pids", summary, next).because(why)
    });
    let of_daemon = host.daemon.iter().flat_map(|daemon| {
        let who = format!("{}, pid {}", daemon.name, daemon.pid);
        let open = descriptors(daemon, &who);
        [halted(daemon, limited, &who), open, restarted(daemon, &who)]
    });
    let of_host = [files, threads];
    of_host.into_iter().chain(of_daemon).flatten().collect()
}

fn halted(daemon: &Daemon, limited: bool, who: &str) -> Option<Finding> {
    let (pid, lasting, blocked) = (daemon.pid, &daemon.lasting, &daemon.lasting.blocked);
    let (code, what, next, why) = if lasting.stopped {
        let what = "the runtime is stopped".to_owned();
        ("daemon_stopped", what, stopped(pid), STOPPED.to_owned())
    } else if let Some(group) = &lasting.frozen {
        let what = "the runtime is frozen".to_owned();
        let thaw = thaw(group);
        let next = format!("Find out who froze its control group; then thaw it: {thaw}");
        ("daemon_frozen", what, next, format!("{group} is frozen"))
    } else if !blocked.is_empty() && !limited {
        let threads = blocked.len();
        let what = format!("{threads} threads of the runtime are blocked in the kernel");
        let disk = "Find the disk or mount for which it waits";
        let disk = format!("{disk}: `dmesg`; `cat /proc/{pid}/task/*/stack`");
        let next = what_blocks(blocked, disk);
        ("daemon_blocked", what, next, blocked_evidence(blocked))
    } else {
        return None;
    };
    Some(Finding::new(code, format!("{what} ({who})"), next).because(why))
}

fn descriptors(daemon: &Daemon, who: &str) -> Option<Finding> {
    let (used, pid) = (full(daemon.descriptors)?, daemon.pid);
    let twice = used.limit.saturating_mul(2).max(1024);
    // The kernel accepts no limit of open files above fs.nr_open, by default 2^20.
    let first = match twice > 1 << 20 {
        true => format!("sysctl fs.nr_open={twice} && "),
        false => String::new(),
    };
    let next = format!(
        "Raise the limit: `{first}prlimit --pid {pid} --nofile={twice}:{twice}`, and LimitNOFILE of its unit; see \
         what is open: `ls -l /proc/{pid}/fd`"
    );
    let summary = format!("the runtime is close to its limit of open files ({who})");
    let finding = Finding::new("daemon_descriptors", summary, next);
    Some(finding.because(format!("{used} descriptors are open")))
}

fn restarted(daemon: &Daemon, who: &str) -> Option<Finding> {
    let age = daemon.age_seconds.filter(|age| *age < YOUNG);
    let (when, severity) = match daemon.replaced {
        true => ("during the examination", Severity::Warning),
        false => ("recently", Severity::Info),
    };
    let next = "Read its log for the cause (`journalctl -u containerd -u crio`); look for the OOM killer (`dmesg`)";
    let summary = format!("the runtime restarted {when} ({who})");
    let mut finding = Finding::new("daemon_restarted", summary, next);
    finding.severity = severity;
    let finding = finding.because_of(age.map(|age| format!("the process is {age:.0} s old")));
    (daemon.replaced || age.is_some()).then_some(finding)
}
