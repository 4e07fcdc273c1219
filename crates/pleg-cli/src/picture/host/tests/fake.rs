//! A directory that looks like the root of a host, for tests.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::super::HostTarget;
use super::super::sample::{Sample, Samples};
use crate::picture::finding::{Finding, Severity};
use crate::proc::HOST_PIDS;

pub(crate) struct FakeHost(TempDir);

impl FakeHost {
    pub(crate) fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("proc/uptime", "5000.00 9000.00\n");
        host.link("proc/self/ns/pid", Path::new(HOST_PIDS));
        host.run(1, "init");
        host
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// A target without a kubelet's read-only port, and with an empty journal.
    pub(in crate::picture::host) fn target(&self) -> HostTarget {
        HostTarget {
            root: self.root().to_owned(),
            journalctl: vec!["true".into()],
            read_only: SocketAddr::from(([127, 0, 0, 1], 1)),
            ..HostTarget::new(None)
        }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.root().join(path)).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &Path) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _earlier = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Adds or replaces a process of root. It started 1,000 s after the boot.
    pub(crate) fn process(&self, pid: u32, name: &str, state: char, parent: u32) {
        self.stat(&pid.to_string(), name, state, parent, 7);
        let group = "0::/system.slice/x.service\n";
        self.write(&format!("proc/{pid}/cgroup"), group);
    }

    /// Adds a process whose parent is `init`, with the command line `line`.
    pub(crate) fn run(&self, pid: u32, line: &str) {
        let program = line.split(' ').next().unwrap();
        self.process(pid, program.rsplit('/').next().unwrap(), 'S', 1);
        let arguments = line.replace(' ', "\0") + "\0";
        self.write(&format!("proc/{pid}/cmdline"), &arguments);
        self.link(&format!("proc/{pid}/root"), self.root());
    }

    /// A thread that has been switched out `switches` times, and the kernel function `at` in which it waits.
    pub(crate) fn thread(&self, pid: u32, thread: u32, state: char, switches: u32, at: &str) {
        let dir = format!("{pid}/task/{thread}");
        self.stat(&dir, "x", state, 1, switches);
        self.write(&format!("proc/{dir}/wchan"), at);
    }

    /// The CPU time is 100 clock ticks for each time that the process or thread was switched out.
    fn stat(&self, dir: &str, name: &str, state: char, parent: u32, switches: u32) {
        let (pid, ticks) = (dir.rsplit('/').next().unwrap(), 100 * switches);
        let threads = if state == 'Z' { 1 } else { 4 };
        let start = format!("{pid} ({name}) {state} {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0");
        let stat = format!("{start} 20 0 {threads} 0 100000 0 512 0\n");
        self.write(&format!("proc/{dir}/stat"), &stat);
        let switched = format!("voluntary_ctxt_switches:\t{switches}");
        let status = format!("Uid:\t0\t0\t0\t0\n{switched}\nnonvoluntary_ctxt_switches:\t0\n");
        self.write(&format!("proc/{dir}/status"), &status);
    }

    /// Takes two samples 4 s apart, with the change `change` in between.
    pub(in crate::picture::host) fn samples(
        &self,
        daemon: Option<u32>,
        change: impl FnOnce(&Self),
    ) -> Samples {
        let take = |before: &Sample| Sample::take(&self.target(), daemon, true, before).unwrap();
        let begin = take(&Sample::default());
        change(self);
        let uptime: f64 = begin.uptime.unwrap_or_default() + 4.0;
        self.write("proc/uptime", &format!("{uptime} 9000.00\n"));
        let end = Arc::new(take(&begin));
        let begin = Arc::new(begin);
        Samples { begin, end }
    }
}

pub(crate) fn codes(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    findings.iter().map(|f| (f.code, f.severity)).collect()
}
