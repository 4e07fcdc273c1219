//! The init processes of containers, from the bundle directories of containerd.
//!
//! The working directory of a shim is the bundle of its sandbox. Beside it are the bundles of all
//! containers, each with the PID of its init process in the file `init.pid`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::{Deserialize, Serialize};

use super::sample::Sample;
use crate::bounded;
use crate::proc::{Proc, Process};

/// The most bundles that are read.
const MOST: usize = 4096;

/// A container whose init process is gone, or a zombie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadInit {
    pub(crate) container: String,
    pub(crate) pid: u32,
    pub(crate) zombie: bool,
}

/// The PIDs of init processes, by the ids of the containers whose bundles exist.
pub(super) fn inits(proc: &Proc, sample: &Sample, before: &Sample) -> BTreeMap<String, u32> {
    // Nearly always all shims have the same directory.
    let mut read = BTreeSet::new();
    let mut inits = BTreeMap::new();
    for (shim, _) in sample.shims() {
        let bundle = proc.path(&format!("{shim}/cwd"));
        let directory = fs::read_link(&bundle).ok();
        let directory = directory.and_then(|path| Some(path.parent()?.to_owned()));
        if let Some(directory) = directory
            && read.insert(directory)
            && let Ok(bundles) = fs::read_dir(bundle.join(".."))
        {
            for bundle in bundles.flatten().take(MOST) {
                let container = bundle.file_name().to_string_lossy().into_owned();
                let pid = || {
                    let text = bounded::read(&bundle.path().join("init.pid")).ok()?;
                    text.trim().parse().ok()
                };
                // It never changes.
                let pid = before.inits.get(&container).copied().or_else(pid);
                inits.extend(pid.map(|pid| (container, pid)));
            }
        }
    }
    inits
}

/// The containers whose init process has ended. Their bundles exist until the runtime has noticed.
pub(super) fn dead(sample: &Sample) -> Vec<DeadInit> {
    let dead = sample.inits.iter().filter_map(|(container, pid)| {
        let process = sample.processes.get(pid);
        let ended = process.is_none_or(Process::is_dead);
        ended.then(|| DeadInit {
            container: container.clone(),
            pid: *pid,
            zombie: process.is_some(),
        })
    });
    dead.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::fake::FakeHost;
    use crate::picture::host::shims::assess;

    #[test]
    fn init_that_is_gone_in_both_samples_is_reported() {
        let host = FakeHost::new();
        let task = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
        for (pid, sandbox) in [(10, "s1"), (11, "s2")] {
            host.process(pid, "containerd-shim", 'S', 1);
            host.arguments(pid, &["containerd-shim-runc-v2", "-id", sandbox]);
            let bundle = format!("{task}/{sandbox}");
            host.write(&format!("{bundle}/init.pid"), &format!("{}", pid + 100));
            host.process(pid + 100, "pause", 'S', pid);
            host.link(&format!("proc/{pid}/cwd"), &host.root().join(bundle));
        }
        for (container, pid) in [("c1", "201"), ("c2", "202\n"), ("c3", "203"), ("c4", "x")] {
            host.write(&format!("{task}/{container}/init.pid"), pid);
        }
        host.process(202, "app", 'S', 10);
        let samples = host.samples(None, |host| {
            host.process(203, "app", 'S', 10);
            host.remove("proc/202");
        });
        let shims = assess(&samples);
        let gone = DeadInit {
            container: "c1".to_owned(),
            pid: 201,
            zombie: false,
        };
        assert_eq!(shims.dead_inits, [gone]);
    }
}
