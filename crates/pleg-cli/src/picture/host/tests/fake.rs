//! A directory that looks like the root of a host, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::super::sample::{Sample, Samples, Subject};
use crate::picture::finding::{Finding, Severity};

pub(crate) struct FakeHost(TempDir);

impl FakeHost {
    /// A host whose processes are visible and that runs only `init`.
    pub(crate) fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("proc/uptime", "5000.00 9000.00\n");
        fs::create_dir_all(host.root().join("proc/self/ns")).unwrap();
        let namespace = host.root().join("proc/self/ns/pid");
        symlink("pid:[4026531836]", namespace).unwrap();
        host.process(1, "init", 'S', 0);
        host.arguments(1, &["/sbin/init"]);
        host
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.root().join(path)).unwrap();
    }

    /// Adds or replaces a process. It started 1,000 s after the boot.
    pub(crate) fn process(&self, pid: u32, name: &str, state: char, parent: u32) {
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
    pub(crate) fn busy(&self, pid: u32, name: &str, ticks: u64) {
        self.write(&format!("proc/{pid}/stat"), &stat(pid, name, 'S', 1, ticks));
    }

    pub(crate) fn arguments(&self, pid: u32, arguments: &[&str]) {
        let line = arguments.join("\0") + "\0";
        self.write(&format!("proc/{pid}/cmdline"), &line);
    }

    pub(crate) fn thread(&self, pid: u32, thread: u32, state: char, switches: u64, at: &str) {
        let dir = format!("proc/{pid}/task/{thread}");
        self.write(&format!("{dir}/stat"), &stat(thread, "x", state, 1, 0));
        self.write(&format!("{dir}/status"), &status(switches));
        self.write(&format!("{dir}/wchan"), at);
    }

    /// Two samples 4 s apart, and this change in between.
    pub(crate) fn samples(&self, daemon: Option<u32>, change: impl FnOnce(&Self)) -> Samples {
        let root = self.root().to_owned();
        let subject = Subject {
            root,
            daemon,
            thorough: true,
            ..Subject::default()
        };
        let begin = Sample::take(&subject, &Sample::default()).unwrap();
        change(self);
        let end = Sample::take(&subject, &begin).unwrap();
        let (begin, end) = (Arc::new(begin), Arc::new(end));
        Samples {
            begin,
            end,
            apart: Duration::from_secs(4),
        }
    }

    pub(crate) fn link(&self, path: &str, target: &Path) {
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

pub(crate) fn codes(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    findings.iter().map(|f| (f.code, f.severity)).collect()
}
