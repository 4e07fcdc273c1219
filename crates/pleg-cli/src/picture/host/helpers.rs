//! Programs such as `runc`, which the runtime starts for each operation on a container and waits for.

use serde::{Deserialize, Serialize};

use super::kinds::RUNC_HANGS;
use super::sample::Sample;
use super::shims::{Role, Shims};
use super::{Calls, listed, shorten, what_blocks};
use crate::picture::finding::Finding;
use crate::proc::{Belongs, Proc};

const NAMES: [&str; 5] = ["runc", "crun", "runsc", "youki", "kata-runtime"];
/// One that runs for longer hangs, in seconds: an operation takes some tens of milliseconds.
const LONG: f64 = 10.0;

/// One that hangs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Helper {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// A shim, or the runtime itself.
    pub(crate) parent: u32,
    pub(crate) age_seconds: f64,
    pub(crate) stopped: bool,
    /// The function of the kernel in which it waits.
    pub(crate) at: Option<String>,
}

/// Those whose parent is the runtime or one of its shims. Others are started by people, and may run for long.
pub(super) fn find(proc: &Proc, sample: &Sample, daemon: Option<u32>) -> Vec<Helper> {
    let Some(uptime) = sample.uptime else {
        return Vec::new();
    };
    let named = sample.processes.values();
    let named =
        named.filter(|process| NAMES.contains(&process.name.as_str()) && !process.is_dead());
    let of_runtime = named.filter(|process| {
        let shim = matches!(sample.roles.get(&process.parent), Some(Role::Shim { .. }));
        (shim || daemon == Some(process.parent)) && process.age(uptime) >= LONG
    });
    let trusted = of_runtime.filter(|process| proc.belongs(process.pid) != Some(Belongs::User));
    let helpers = trusted.map(|process| Helper {
        pid: process.pid,
        name: process.name.clone(),
        parent: process.parent,
        age_seconds: super::rounded(process.age(uptime)),
        stopped: process.is_stopped(),
        at: proc.blocked(&process.pid.to_string()).at,
    });
    helpers.take(100).collect()
}

pub(super) fn check(helpers: &[Helper], shims: &Shims, calls: &Calls) -> Option<Finding> {
    let oldest = helpers
        .iter()
        .max_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds))?;
    let owner = |helper: &Helper| {
        let shim = shims.shims.iter().find(|shim| shim.pid == helper.parent);
        shim.map_or_else(|| "the runtime".to_owned(), |shim| calls.pod_of(&shim.id))
    };
    let owners: Vec<String> = helpers.iter().map(owner).collect();
    let summary = format!(
        "{} hangs: it has not ended for {}",
        oldest.name,
        listed(&owners)?
    );
    let pid = oldest.pid;
    let places: Vec<String> = oldest.at.iter().cloned().collect();
    let next = match oldest.stopped {
        true => format!("It is stopped: `kill -CONT {pid}`"),
        false => what_blocks(
            &places,
            format!(
                "See what it waits for: `cat /proc/{pid}/stack; ls -l /proc/{pid}/fd; pgrep -a -P {pid}`"
            ),
        ),
    };
    let mut finding = RUNC_HANGS.found(summary, next);
    let lines = helpers.iter().zip(&owners).map(|(helper, owner)| {
        let at = helper
            .at
            .as_ref()
            .map(|at| format!(", in {at}"))
            .unwrap_or_default();
        format!(
            "{owner}: {} (pid {}) runs for {:.0} s{at}",
            helper.name, helper.pid, helper.age_seconds
        )
    });
    finding.evidence = lines.collect();
    shorten(&mut finding.evidence);
    Some(finding)
}
