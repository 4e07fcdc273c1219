//! A finding: a cause, its severity, the figures that show it, and the next step.

use std::cmp::Reverse;

use itertools::Itertools as _;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::text::more;

/// The severity of a finding. The worst severity decides the exit code of `pleg doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Worth knowing. Nothing needs to be done.
    Info,
    /// The PLEG is slower or costs more than it should, or will become unhealthy.
    Warning,
    /// The PLEG is unhealthy, or pods are stuck.
    Critical,
}

/// The layer of the cause. Findings of equal severity are shown in this order, as lower layers explain higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layer {
    /// The kernel, disks, mounts, systemd.
    Host,
    /// The process of the container runtime.
    Runtime,
    /// A shim or another process of one pod.
    Pod,
    Calls,
    Stream,
    Network,
    Kubelet,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The stable code of the finding. A section of docs/runbook.md has it as its heading.
    pub(crate) code: Code,
    pub(crate) layer: Layer,
    pub(crate) severity: Severity,
    pub(crate) summary: String,
    pub(crate) evidence: Vec<String>,
    pub(crate) next: String,
    pub(crate) seconds: Option<f64>,
    pub(crate) not_ready: bool,
    /// The code of the finding that explains this one, and is shown before it.
    pub(crate) cause: Option<Code>,
    /// The codes of the findings that this one explains if they are found together.
    #[serde(skip)]
    pub(crate) explains: Codes,
}

type Code = &'static str;
/// Codes of findings, separated by spaces.
pub(crate) type Codes = &'static str;

pub(crate) fn contains(codes: Codes, code: &str) -> bool {
    codes.split(' ').any(|other| other == code)
}

/// The findings whose advice kills or removes something.
const DESTROY: Codes = "list_failed list_slow list_large dead_containers dead_sandboxes pods_hung pods_failing \
                        container_runs_twice sandbox_twice shim_missing shim_zombie init_gone";
/// The findings that follow from the lists of the runtime. They are made only if the lists are current.
pub(crate) const FROM_LISTS: Codes = "ended_container_runs shim_missing shim_orphaned init_gone";
/// The findings that may follow if the runtime does not answer or cannot be reached.
const ANSWERS: Codes = "list_slow list_failed status_slow pods_hung pods_failing stream_down never_listed stale \
                        runtime_status_failed runtime_silent backlog";
/// The findings that may follow if systemd, a limit of the host or the runtime's process delays the runtime's answers.
const CALLS: Codes = "runtime_silent runtime_status_failed list_slow list_failed status_slow pods_hung pods_failing backlog";
/// The findings that may follow if the runtime or the node lacks CPU, memory, threads or a usable disk or mount.
pub(super) const STARVED: Codes = "runtime_silent runtime_unreachable list_slow list_failed status_slow pods_hung \
                                   pods_failing daemon_blocked daemon_restarted runc_hangs shim_blocked shim_zombie \
                                   init_gone container_blocked blocked_tasks kubelet_pleg_unhealthy \
                                   runtime_status_failed backlog";
/// The findings that may follow if a process of a pod does not react.
const OF_POD: Codes = "status_slow pods_hung pods_failing init_gone shim_zombie runc_hangs";

/// The layer and the severity of a finding, and the findings that it explains if they are found together.
fn kind(code: &str) -> (Layer, Severity, Codes) {
    use Layer::{Calls, Host, Kubelet, Network, Pod, Runtime, Stream};
    use Severity::{Critical, Info, Warning};
    match code {
        "mount_hangs" | "disk_readonly" | "disk_full" | "disk_inodes" => (Host, Critical, STARVED),
        "daemon_cpu_limit" | "daemon_memory_limit" => (Host, Warning, STARVED),
        "daemon_pids_limit" => (Host, Warning, STARVED),
        "systemd_silent" => (Host, Critical, CALLS),
        "host_descriptors" | "host_pids" => (Host, Warning, CALLS),
        "clock_step" => (Host, Warning, ""),
        "mount_slow" | "systemd_old" | "blocked_tasks" => (Host, Info, ""),
        "io_pressure" | "memory_pressure" | "cpu_pressure" => (Host, Info, ""),
        "runtime_silent" | "runtime_unreachable" => (Runtime, Critical, ANSWERS),
        "not_examined" => (Runtime, Warning, ANSWERS),
        "daemon_stopped" | "daemon_frozen" | "runc_hangs" => (Runtime, Critical, CALLS),
        "daemon_blocked" | "daemon_descriptors" => (Runtime, Warning, CALLS),
        "runtime_not_ready" | "runtime_status_failed" => (Runtime, Critical, ""),
        "daemon_restarted" => (Runtime, Info, ""),
        // The runtime has lost its data about the containers, which also causes the findings in `lost`.
        "ended_container_runs" => {
            let lost = "shim_orphaned init_gone pods_failing status_slow shim_missing";
            (Pod, Critical, lost)
        }
        "shim_stopped" | "shim_blocked" | "container_frozen" => (Pod, Critical, OF_POD),
        "container_blocked" | "shim_missing" => (Pod, Warning, OF_POD),
        "shim_zombie" => (Pod, Warning, "status_slow pods_hung pods_failing init_gone"),
        "init_gone" | "pods_hung" | "container_runs_twice" => (Pod, Critical, ""),
        "shim_orphaned" | "pods_failing" | "status_slow" => (Pod, Warning, ""),
        "sandbox_twice" | "container_not_started" => (Pod, Warning, ""),
        // A sandbox without containers is normal while an image cannot be pulled.
        "sandbox_empty" => (Pod, Info, ""),
        "containers_restart" => (Pod, Info, "dead_containers"),
        "list_failed" => (Calls, Critical, "never_listed stale"),
        "list_slow" => (Calls, Warning, "never_listed stale status_slow"),
        "list_large" => (Calls, Critical, "list_failed list_slow"),
        "dead_containers" | "dead_sandboxes" => (Calls, Warning, "list_slow list_large"),
        "filters_ignored" => (Calls, Warning, "list_slow"),
        "never_listed" | "stale" => (Calls, Critical, ""),
        "stream_silent" => (Stream, Warning, "stream_lossy"),
        "stream_down" | "stream_lossy" => (Stream, Warning, ""),
        "stream_not_examined" | "stream_disabled" => (Stream, Info, ""),
        "network_not_ready" => (Network, Critical, ""),
        "sandbox_without_address" => (Network, Warning, ""),
        "stalled" | "closed" | "kubelet_stopped" => (Kubelet, Critical, ""),
        "kubelet_pleg_unhealthy" => (Kubelet, Critical, ""),
        "backlog" | "unacknowledged" | "kubelet_other_runtime" => (Kubelet, Warning, ""),
        "kubelet_unhealthy" | "kubelet_relist_slow" => (Kubelet, Warning, ""),
        other => {
            debug_assert!(false, "{other} is missing here");
            (Host, Info, "")
        }
    }
}

fn first_of<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    const SHOWN: usize = 3;
    let names: Vec<&str> = names.unique().collect();
    names.first()?;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    let more = more(names.len().saturating_sub(SHOWN));
    Some([Some(shown), more].into_iter().flatten().join(" "))
}

impl Finding {
    pub(crate) fn new(code: Code, summary: impl Into<String>, next: impl Into<String>) -> Self {
        #[cfg(test)]
        tests::check_runbook(code);
        let (layer, severity, explains) = kind(code);
        Self {
            code,
            layer,
            severity,
            summary: summary.into(),
            evidence: Vec::new(),
            next: next.into(),
            seconds: None,
            not_ready: false,
            cause: None,
            explains,
        }
    }

    /// One finding about pods; each line has a pod's name and the evidence. `{}` in the summary stands for the names.
    pub(crate) fn about(
        code: &'static str,
        lines: impl IntoIterator<Item = (String, String)>,
        summary: &str,
        next: impl Into<String>,
    ) -> Option<Self> {
        let lines: Vec<(String, String)> = lines.into_iter().collect();
        let names = first_of(lines.iter().map(|(name, _)| &**name))?;
        let finding = Self::new(code, summary.replace("{}", &names), next);
        Some(finding.because_of(lines.iter().map(|(name, line)| format!("{name}: {line}"))))
    }

    pub(crate) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Adds `lines` to the evidence. Keeps ten lines in all; if there are more, a further line has the number left out.
    pub(crate) fn because_of(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        const SHOWN: usize = 10;
        self.evidence.extend(lines);
        let more = more(self.evidence.len().saturating_sub(SHOWN));
        self.evidence.truncate(SHOWN);
        self.evidence.extend(more);
        self
    }

    pub(crate) const fn lasting(mut self, seconds: Option<f64>) -> Self {
        self.seconds = seconds;
        self
    }

    pub(crate) const fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    pub(crate) fn destroys(&self) -> bool {
        contains(DESTROY, self.code)
    }
}

/// Sorts findings: the worst first. A cause precedes what it explains, and is at least as severe. Keeps each code once.
pub(crate) fn arrange(findings: Vec<Finding>) -> Vec<Finding> {
    let mut findings = findings.into_iter().unique_by(|f| f.code).collect_vec();
    // Each pass makes a cause as severe as what it explains. No chain of causes needs more than four passes.
    for _ in 0..4 {
        for at in 0..findings.len() {
            let explained = |other: &&Finding| contains(findings[at].explains, other.code);
            let worst = findings.iter().filter(explained).map(|f| f.severity).max();
            findings[at].severity = findings[at].severity.max(worst.unwrap_or(Severity::Info));
        }
    }
    findings.sort_by_key(|finding| {
        let layer = match finding.severity {
            // Among findings of severity `Info`, those about the host come last, because they explain nothing.
            Severity::Info => -(finding.layer as i32),
            _ => finding.layer as i32,
        };
        (Reverse(finding.severity), layer)
    });
    let mut arranged = Vec::new();
    while !findings.is_empty() {
        let explains = |f: &Finding, code| f.code != code && contains(f.explains, code);
        let is_explained = |code| findings.iter().any(|f| explains(f, code));
        let cause = findings.iter().position(|f| !is_explained(f.code));
        // If all remaining findings are explained by others, in a circle, the worst one counts as the cause.
        let cause = findings.remove(cause.unwrap_or(0));
        place(cause, &mut findings, &mut arranged);
    }
    // If the host is the cause, following the others' advice to kill or remove something could lose a pod's data.
    if let [first, others @ ..] = &mut *arranged
        && first.layer == Layer::Host
        && first.severity != Severity::Info
    {
        for finding in others.iter_mut().filter(|finding| finding.destroys()) {
            finding.next = "Repair what the first finding names; until then, kill and remove nothing. Then examine again.".to_owned();
        }
    }
    arranged
}

/// Moves `cause`, and then those findings of `rest` that `cause` explains, to `arranged`.
fn place(cause: Finding, rest: &mut Vec<Finding>, arranged: &mut Vec<Finding>) {
    let (code, explains) = (cause.code, cause.explains);
    arranged.push(cause);
    let explained = |finding: &mut Finding| contains(explains, finding.code);
    let explained: Vec<Finding> = rest.extract_if(.., explained).collect();
    for mut finding in explained {
        finding.cause = Some(code);
        place(finding, rest, arranged);
    }
}

#[cfg(test)]
mod tests {
    use super::Severity::{Critical, Info, Warning};
    use super::*;
    use crate::text::lower;

    /// Fails if the runbook has no section for the code. Called for every finding that a test makes.
    pub(super) fn check_runbook(code: &str) {
        let runbook = include_str!("../../../../docs/runbook.md");
        let heading = format!("\n### {code}\n");
        assert!(runbook.contains(&heading), "{code} is missing");
    }

    /// A finding from its code, its severity and the findings that it explains.
    fn found(text: &'static str) -> Finding {
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let finding = Finding::new(word(), "", "");
        let (severity, explains) = (word(), word());
        let mut all = [Info, Warning, Critical].into_iter();
        let severity = all.find(|one| lower(one) == severity).unwrap();
        Finding {
            explains,
            ..finding.severity(severity)
        }
    }

    fn arranged(all: &'static str) -> Vec<Finding> {
        arrange(all.split("; ").map(found).collect())
    }

    /// Each row: findings => their order, severity and cause. Row 1: several layers; row 2: one layer; row 3: no cause.
    const ARRANGED: &str = "
stale critical; runtime_silent critical; list_slow warning stale; dead_containers info; io_pressure warning list_slow \
=> io_pressure critical ; list_slow critical io_pressure; stale critical list_slow; runtime_silent critical ; dead_containers info
list_failed critical; list_large warning list_failed => list_large critical ; list_failed critical list_large
io_pressure info list_slow; stream_lossy warning => stream_lossy warning ; io_pressure info";

    #[test]
    fn cause_precedes_explained_findings_and_gets_the_worst_severity() {
        for row in ARRANGED.trim().lines() {
            let (all, expected) = row.split_once(" => ").unwrap();
            let cause = |f: &Finding| f.cause.unwrap_or_default();
            let shown = |f: &Finding| format!("{} {} {}", f.code, lower(f.severity), cause(f));
            assert_eq!(arranged(all).iter().map(shown).join("; ").trim(), expected);
        }
        assert_eq!(arranged("stale info closed; closed info stale").len(), 2);
        assert_eq!(arranged("stale critical; stale info").len(), 1);
        let causes_of_backlog = ["runtime_silent", "runc_hangs", "disk_full"];
        assert!(causes_of_backlog.map(|code| contains(kind(code).2, "backlog")) == [true; 3]);
    }

    #[test]
    fn no_destructive_advice_while_the_host_is_in_trouble() {
        let warning = "io_pressure warning; shim_zombie warning; stream_lossy warning";
        let info = "io_pressure info; shim_zombie warning; stream_lossy warning";
        for (all, expected) in [(warning, "shim_zombie"), (info, "")] {
            let mut all = arranged(all);
            all.retain(|finding| finding.next.contains("kill and remove nothing"));
            assert_eq!(all.iter().map(|finding| finding.code).join(" "), expected);
        }
    }

    #[test]
    fn names_and_lines_beyond_the_limit_are_only_counted() {
        let lines = (0..30).map(|n| (format!("p{n}"), "line".to_owned()));
        let finding = Finding::about("shim_stopped", lines, "{} stopped", "").unwrap();
        assert_eq!(finding.summary, "p0, p1, p2 and 27 more stopped");
        let evidence = (finding.evidence.len(), &*finding.evidence[10]);
        assert_eq!(evidence, (11, "and 20 more"));
    }
}
