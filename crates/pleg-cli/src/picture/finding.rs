//! A finding: a cause, how bad it is, the figures that show it, and what to do.

use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;

/// How bad a finding is. The exit code of `pleg doctor` follows from the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Worth knowing. Nothing needs to be done.
    Info,
    /// The PLEG is slower or costs more than it should, or will become unhealthy.
    Warning,
    /// The PLEG is unhealthy, or pods are stuck.
    Critical,
}

/// Where the cause is. Findings of one severity are shown in this order: a cause below explains what is
/// above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layer {
    /// The kernel, disks, mounts, systemd.
    Host,
    /// The process of the container runtime.
    Runtime,
    /// A shim, or what else belongs to one pod.
    Pod,
    /// The runtime's lists and status calls.
    Calls,
    /// The runtime's event stream.
    Stream,
    /// The network plugin.
    Network,
    /// The kubelet.
    Kubelet,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// Stable; the heading of its section in docs/runbook.md.
    pub(crate) code: &'static str,
    pub(crate) layer: Layer,
    pub(crate) severity: Severity,
    /// One sentence.
    pub(crate) summary: String,
    /// The figures that show it, one line each.
    pub(crate) evidence: Vec<String>,
    /// What to do next, with the values filled in.
    pub(crate) next: String,
    /// The codes of findings that this one explains, where both are found.
    #[serde(skip)]
    pub(crate) explains: &'static [&'static str],
    /// What to do next kills or removes something.
    #[serde(skip)]
    pub(crate) destroys: bool,
}

impl Finding {
    pub(crate) fn new(
        code: &'static str,
        layer: Layer,
        severity: Severity,
        summary: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            code,
            layer,
            severity,
            summary: summary.into(),
            evidence: Vec::new(),
            next: next.into(),
            explains: &[],
            destroys: false,
        }
    }

    /// The same with a line of evidence.
    pub(crate) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// The same, whose advice kills or removes something.
    pub(crate) const fn destroys(mut self) -> Self {
        self.destroys = true;
        self
    }

    /// The same as the cause of other findings.
    pub(crate) const fn explains(mut self, codes: &'static [&'static str]) -> Self {
        self.explains = codes;
        self
    }
}

/// Puts the worst first. Of equally bad ones the cause comes before what it explains: a cause is as bad
/// as the worst finding that it explains.
pub(crate) fn sort(findings: &mut [Finding]) {
    // Causes of causes: a chain is no longer than the layers.
    for _ in 0..4 {
        for at in 0..findings.len() {
            let explained = |other: &&Finding| findings[at].explains.contains(&other.code);
            let worst = findings.iter().filter(explained).map(|f| f.severity).max();
            if let Some(worst) = worst {
                findings[at].severity = findings[at].severity.max(worst);
            }
        }
    }
    let causes: Vec<&[&str]> = findings.iter().map(|finding| finding.explains).collect();
    let is_explained = |code: &str| causes.iter().any(|explained| explained.contains(&code));
    findings.sort_by_key(|finding| {
        let layer = match finding.severity {
            // Where nothing is wrong, the host's load explains nothing and is the least interesting.
            Severity::Info => -(finding.layer as i32),
            _ => finding.layer as i32,
        };
        let explained = is_explained(finding.code);
        (Reverse(finding.severity), layer, explained)
    });
}

/// Replaces advice that kills or removes something while the first finding is trouble of the host: a pod that hangs because
/// its disk does is not helped by that, and its data may be lost.
pub(crate) fn withhold_destruction(findings: &mut [Finding]) {
    let [first, others @ ..] = findings else {
        return;
    };
    if first.layer != Layer::Host || first.severity == Severity::Info {
        return;
    }
    for finding in others.iter_mut().filter(|finding| finding.destroys) {
        finding.next = "Repair first what the first finding names; kill and remove nothing before. Then examine again.".to_owned();
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Runtime => "runtime",
            Self::Pod => "pod",
            Self::Calls => "calls",
            Self::Stream => "stream",
            Self::Network => "network",
            Self::Kubelet => "kubelet",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: &'static str, layer: Layer, severity: Severity) -> Finding {
        Finding::new(code, layer, severity, code, "")
    }

    #[test]
    fn cause_precedes_what_it_explains() {
        let mut all = [
            finding("list_slow", Layer::Calls, Severity::Critical),
            finding("dead_containers", Layer::Calls, Severity::Info),
            finding("io_pressure", Layer::Host, Severity::Warning).explains(&["list_slow"]),
        ];
        sort(&mut all);
        let codes: Vec<_> = all.iter().map(|f| f.code).collect();
        assert_eq!(codes, ["io_pressure", "list_slow", "dead_containers"]);
        assert_eq!(all[0].severity, Severity::Critical);
    }

    #[test]
    fn no_destructive_advice_while_the_host_is_in_trouble() {
        let advice = |severity| {
            let mut all = [
                finding("io_pressure", Layer::Host, severity),
                finding("shim_zombie", Layer::Pod, Severity::Warning).destroys(),
                finding("stream_lossy", Layer::Stream, Severity::Warning),
            ];
            sort(&mut all);
            withhold_destruction(&mut all);
            let of = |code: &str| all.iter().find(|f| f.code == code).unwrap().next.clone();
            (of("shim_zombie"), of("stream_lossy"))
        };
        let (shim, stream) = advice(Severity::Warning);
        assert!(shim.contains("kill and remove nothing"), "{shim}");
        assert_eq!(stream, "");
        let (shim, stream) = advice(Severity::Info);
        assert_eq!((&*shim, &*stream), ("", ""), "it explains nothing");
    }

    #[test]
    fn cause_in_the_same_layer_precedes_what_it_explains() {
        let mut all = [
            finding("list_failed", Layer::Calls, Severity::Critical),
            finding("list_large", Layer::Calls, Severity::Warning).explains(&["list_failed"]),
        ];
        sort(&mut all);
        assert_eq!(all[0].code, "list_large");
    }

    #[test]
    fn cause_that_explains_nothing_found_keeps_its_severity() {
        let mut all = [
            finding("io_pressure", Layer::Host, Severity::Info).explains(&["list_slow"]),
            finding("stream_lossy", Layer::Stream, Severity::Warning),
        ];
        sort(&mut all);
        assert_eq!(all[0].code, "stream_lossy");
        assert_eq!(all[1].severity, Severity::Info);
    }
}
