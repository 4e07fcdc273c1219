//! Reads `/proc`.
//!
//! A command line is read only of a process whose name says that it matters: the read takes a lock of that
//! process's memory, and a process in state D may hold it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) use crate::process::Process;

/// A thread in state D. If it is in that state later and has not run in between, it was blocked all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// How often it has been switched out.
    switches: Option<u64>,
    /// The function of the kernel in which it waits.
    pub(super) at: Option<String>,
}

impl Blocked {
    pub(super) fn since(&self, before: &Self) -> bool {
        self.switches.is_some() && self.switches == before.switches
    }
}

/// The `/proc` below a root.
#[derive(Clone, Debug)]
pub(super) struct Proc(PathBuf);

impl Proc {
    pub(super) fn below(root: &Path) -> Self {
        Self(root.join("proc"))
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Whether the processes of the host are visible from here.
    pub(super) fn shows_host(&self) -> bool {
        crate::kubelet::host_is_visible(&self.0)
    }

    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        let bytes = fs::read(self.path(path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All processes.
    pub(super) fn processes(&self) -> io::Result<BTreeMap<u32, Process>> {
        let entries = fs::read_dir(&self.0)?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // A process may end at any time.
        let processes = pids.filter_map(|pid: u32| Some((pid, self.process(pid)?)));
        Ok(processes.collect())
    }

    pub(super) fn process(&self, pid: u32) -> Option<Process> {
        Process::parse(&self.read(&format!("{pid}/stat")).ok()?)
    }

    pub(super) fn arguments(&self, pid: u32) -> Option<Vec<String>> {
        let line = self.read(&format!("{pid}/cmdline")).ok()?;
        let line = line.strip_suffix('\0').unwrap_or(&line);
        Some(line.split('\0').map(str::to_owned).collect())
    }

    /// The threads of a process that are in state D.
    pub(super) fn blocked_threads(&self, pid: u32) -> BTreeMap<u32, Blocked> {
        let Ok(entries) = fs::read_dir(self.path(&format!("{pid}/task"))) else {
            return BTreeMap::new();
        };
        let threads = entries.flatten().filter_map(|entry| {
            let thread: u32 = entry.file_name().to_str()?.parse().ok()?;
            let dir = format!("{pid}/task/{thread}");
            let stat = Process::parse(&self.read(&format!("{dir}/stat")).ok()?)?;
            (stat.state == 'D').then(|| (thread, self.blocked(&dir)))
        });
        threads.collect()
    }

    /// How long the threads of a process have waited for a CPU.
    pub(super) fn waited(&self, pid: u32) -> Option<Duration> {
        let entries = fs::read_dir(self.path(&format!("{pid}/task"))).ok()?;
        let waited = entries.flatten().filter_map(|entry| {
            // The time on a CPU, and the time of waiting for one, in nanoseconds.
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let nanos = text.split_whitespace().nth(1)?.parse().ok()?;
            Some(Duration::from_nanos(nanos))
        });
        waited.reduce(Duration::saturating_add)
    }

    /// Why the process or thread of this directory is in state D.
    pub(super) fn blocked(&self, dir: &str) -> Blocked {
        let status = self.read(&format!("{dir}/status")).unwrap_or_default();
        let count = |field: &str| status.lines().find_map(|line| number(line, field));
        let at = self.read(&format!("{dir}/wchan")).ok();
        Blocked {
            switches: count("voluntary_ctxt_switches:")
                .zip(count("nonvoluntary_ctxt_switches:"))
                .map(|(a, b)| a.saturating_add(b)),
            at: at.filter(|function| !function.is_empty() && function != "0"),
        }
    }

    /// The number of open descriptors of a process and its soft limit.
    pub(super) fn descriptors(&self, pid: u32) -> Option<(u64, u64)> {
        let open = fs::read_dir(self.path(&format!("{pid}/fd"))).ok()?.count();
        let limits = self.read(&format!("{pid}/limits")).ok()?;
        let limit = limits
            .lines()
            .find_map(|line| number(line, "Max open files"))?;
        Some((u64::try_from(open).ok()?, limit))
    }

    /// The open files of the system and their limit.
    pub(super) fn files(&self) -> Option<(u64, u64)> {
        let text = self.read("sys/fs/file-nr").ok()?;
        let mut numbers = text.split_whitespace().map(|n| n.parse().ok());
        let (open, _, limit) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some((open?, limit?))
    }

    /// How long the system has been up, in seconds.
    pub(super) fn uptime(&self) -> Option<f64> {
        let text = self.read("uptime").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

/// The first number after the name of the field.
fn number(line: &str, field: &str) -> Option<u64> {
    let rest = line.strip_prefix(field)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::host::fake::FakeHost;

    #[test]
    fn own_process_is_read() {
        let proc = Proc::below(Path::new("/"));
        let own = proc.process(std::process::id()).unwrap();
        assert!(proc.waited(own.pid).is_some());
        assert!(own.threads > 1 && own.resident() > 1 << 20, "{own:?}");
        assert!(own.age(proc.uptime().unwrap()) < 3600.0 * 24.0);
        let (open, limit) = proc.descriptors(own.pid).unwrap();
        assert!(open > 2 && open < limit, "{open} of {limit}");
        assert!(proc.processes().unwrap().contains_key(&own.pid));
        assert!(proc.files().is_some_and(|(open, limit)| open < limit));
    }

    #[test]
    fn thread_is_blocked_if_it_has_not_run_in_between() {
        let host = FakeHost::new();
        host.process(10, "containerd", 'S', 1);
        host.thread(10, 11, 'D', 5, "nfs_wait");
        host.thread(10, 12, 'D', 5, "io_schedule");
        host.thread(10, 13, 'S', 5, "futex");
        let proc = Proc::below(host.root());
        let before = proc.blocked_threads(10);
        assert_eq!(before.keys().collect::<Vec<_>>(), [&11, &12]);
        assert_eq!(before[&11].at.as_deref(), Some("nfs_wait"));
        host.thread(10, 12, 'D', 6, "io_schedule");
        let after = proc.blocked_threads(10);
        assert!(after[&11].since(&before[&11]));
        assert!(!after[&12].since(&before[&12]));
    }
}
