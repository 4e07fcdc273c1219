//! A finding: a cause, how bad it is, the figures that show it, and what to do.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

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
    /// How long it has lasted, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// The node is not ready because of it.
    pub(crate) not_ready: bool,
    /// The code of the finding that explains it. It follows that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<&'static str>,
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
            seconds: None,
            not_ready: false,
            cause: None,
            explains: &[],
            destroys: false,
        }
    }

    /// The same with a line of evidence.
    pub(crate) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// The same with these lines of evidence too, at most ten in all, and how many more there are.
    pub(crate) fn because_of(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        const SHOWN: usize = 10;
        self.evidence.extend(lines);
        let more = self.evidence.len().saturating_sub(SHOWN);
        self.evidence.truncate(SHOWN);
        let more = (more > 0).then(|| format!("and {more} more"));
        self.evidence.extend(more);
        self
    }

    /// How long it has lasted, as far as that is known.
    pub(crate) fn lasted(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds.unwrap_or_default()).unwrap_or_default()
    }

    /// This finding, with the time for which it has lasted, in seconds.
    pub(crate) const fn lasting(mut self, seconds: Option<f64>) -> Self {
        self.seconds = seconds;
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

/// The table as every command shows it: the worst first, and each cause before what it explains. A cause is as bad
/// as the worst finding that it explains.
pub(crate) fn arrange(mut findings: Vec<Finding>) -> Vec<Finding> {
    // Causes of causes: a chain is no longer than the layers.
    for _ in 0..4 {
        for at in 0..findings.len() {
            let explained = |other: &&Finding| findings[at].explains.contains(&other.code);
            let worst = findings.iter().filter(explained).map(|f| f.severity).max();
            findings[at].severity = findings[at].severity.max(worst.unwrap_or(Severity::Info));
        }
    }
    findings.sort_by_key(|finding| {
        let layer = match finding.severity {
            // Where nothing is wrong, the host's load explains nothing and is the least interesting.
            Severity::Info => -(finding.layer as i32),
            _ => finding.layer as i32,
        };
        (Reverse(finding.severity), layer)
    });
    let is_explained = |code: &str| findings.iter().any(|other| other.explains.contains(&code));
    let (mut rest, mut causes): (Vec<_>, Vec<_>) = findings
        .clone()
        .into_iter()
        .partition(|f| is_explained(f.code));
    // Findings that explain each other have no first cause: the worst is taken for it.
    let mut arranged = Vec::new();
    while !(causes.is_empty() && rest.is_empty()) {
        let cause = match causes.is_empty() {
            true => rest.remove(0),
            false => causes.remove(0),
        };
        let explained = |other: &Finding| cause.explains.contains(&other.code);
        let (of_this, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(explained);
        rest = others;
        let of_this = of_this.into_iter().map(|finding| Finding {
            cause: Some(cause.code),
            ..finding
        });
        causes.splice(0..0, of_this);
        arranged.push(cause);
    }
    withhold_destruction(&mut arranged);
    arranged
}

/// Replaces advice that kills or removes something while the first finding is trouble of the host: a pod that hangs because
/// its disk does is not helped by that, and its data may be lost.
fn withhold_destruction(findings: &mut [Finding]) {
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
        let mut all = vec![
            finding("stale", Layer::Calls, Severity::Critical),
            finding("runtime_silent", Layer::Runtime, Severity::Critical),
            finding("list_slow", Layer::Calls, Severity::Warning).explains(&["stale"]),
            finding("dead_containers", Layer::Calls, Severity::Info),
            finding("io_pressure", Layer::Host, Severity::Warning).explains(&["list_slow"]),
        ];
        all = arrange(all);
        let shown: Vec<_> = all.iter().map(|f| (f.code, f.cause)).collect();
        let expected = [
            ("io_pressure", None),
            ("list_slow", Some("io_pressure")),
            ("stale", Some("list_slow")),
            ("runtime_silent", None),
            ("dead_containers", None),
        ];
        assert_eq!(shown, expected);
        assert_eq!(all[0].severity, Severity::Critical);
        let both = |code, explains| finding(code, Layer::Host, Severity::Info).explains(explains);
        let circle = arrange(vec![both("a", &["b"]), both("b", &["a"])]);
        assert_eq!(circle.len(), 2);
    }

    #[test]
    fn no_destructive_advice_while_the_host_is_in_trouble() {
        let advice = |severity| {
            let mut all = vec![
                finding("io_pressure", Layer::Host, severity),
                finding("shim_zombie", Layer::Pod, Severity::Warning).destroys(),
                finding("stream_lossy", Layer::Stream, Severity::Warning),
            ];
            all = arrange(all);
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
        let all = vec![
            finding("list_failed", Layer::Calls, Severity::Critical),
            finding("list_large", Layer::Calls, Severity::Warning).explains(&["list_failed"]),
        ];
        let all = arrange(all);
        assert_eq!(all[0].code, "list_large");
    }

    #[test]
    fn cause_that_explains_nothing_found_keeps_its_severity() {
        let all = vec![
            finding("io_pressure", Layer::Host, Severity::Info).explains(&["list_slow"]),
            finding("stream_lossy", Layer::Stream, Severity::Warning),
        ];
        let all = arrange(all);
        assert_eq!(all[0].code, "stream_lossy");
        assert_eq!(all[1].severity, Severity::Info);
    }
}
