//! A directory that looks like the root of a host, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::sample::{Sample, Samples, Subject};
use crate::picture::finding::{Finding, Severity};

pub(super) struct FakeHost(TempDir);

impl FakeHost {
    /// A host whose processes are visible and that runs only `init`.
    pub(super) fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("proc/uptime", "5000.00 9000.00\n");
        fs::create_dir_all(host.root().join("proc/self/ns")).unwrap();
        let namespace = host.root().join("proc/self/ns/pid");
        symlink("pid:[4026531836]", namespace).unwrap();
        host.process(1, "init", 'S', 0);
        host.arguments(1, &["/sbin/init"]);
        host
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.root().join(path)).unwrap();
    }

    /// Adds or replaces a process. It started 1,000 s after the boot.
    pub(super) fn process(&self, pid: u32, name: &str, state: char, parent: u32) {
        self.write(
            &format!("proc/{pid}/stat"),
            &stat(pid, name, state, parent, 0),
        );
        self.write(&format!("proc/{pid}/status"), &status(7));
        self.write(
            &format!("proc/{pid}/cgroup"),
            "0::/system.slice/x.service\n",
        );
    }

    /// The same with a CPU time in clock ticks.
    pub(super) fn busy(&self, pid: u32, name: &str, ticks: u64) {
        self.write(&format!("proc/{pid}/stat"), &stat(pid, name, 'S', 1, ticks));
    }

    pub(super) fn arguments(&self, pid: u32, arguments: &[&str]) {
        let line = arguments.join("\0") + "\0";
        self.write(&format!("proc/{pid}/cmdline"), &line);
    }

    pub(super) fn thread(&self, pid: u32, thread: u32, state: char, switches: u64, at: &str) {
        let dir = format!("proc/{pid}/task/{thread}");
        self.write(&format!("{dir}/stat"), &stat(thread, "x", state, 1, 0));
        self.write(&format!("{dir}/status"), &status(switches));
        self.write(&format!("{dir}/wchan"), at);
    }

    /// What the host shows now of the daemon and of all shims.
    pub(super) fn sample(&self, daemon: Option<u32>) -> Arc<Sample> {
        let subject = Subject {
            root: self.root().to_owned(),
            daemon,
            thorough: true,
            ..Subject::default()
        };
        Arc::new(Sample::take(&subject, None).unwrap())
    }

    /// Two samples 4 s apart, and this change in between.
    pub(super) fn samples(&self, daemon: Option<u32>, change: impl FnOnce(&Self)) -> Samples {
        let begin = self.sample(daemon);
        change(self);
        Samples::new(begin, self.sample(daemon), Duration::from_secs(4))
    }

    pub(super) fn link(&self, path: &str, target: &Path) {
        symlink(target, self.root().join(path)).unwrap();
    }
}

fn stat(pid: u32, name: &str, state: char, parent: u32, ticks: u64) -> String {
    let threads = if state == 'Z' { 1 } else { 4 };
    format!(
        "{pid} ({name}) {state} {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 100000 0 512 0\n"
    )
}

fn status(switches: u64) -> String {
    format!(
        "Uid:\t0\t0\t0\t0\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
    )
}

pub(super) fn codes(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    findings.iter().map(|f| (f.code, f.severity)).collect()
}
