//! The part of the page about real containerd: one table per version.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::format::{count, loads, nanos, times};
use crate::harness::RealSample;
use crate::protocol::Histogram;
use crate::stats::{median, quantile};
use crate::subject::Kind;

const ABOUT: &str = "\
## On real containerd

Each subject had a containerd of its own with its own pods (a sandbox and a container each). All were idle at
the same time. The churn (pods of two containers are created, one container exits and is restarted, all are
removed) ran on one daemon after the other. The CPU time of a daemon is that of its own process, without
shims, runc and containers. Idle windows are given per hour; figures that were measured several times are
medians. Latency is from the runtime's own time of the change until a consumer sees it in the cache; a state
that no list showed is not among the changes of a subject that polls.
";

const ELSEWHERE: &str = "
Measured elsewhere, with upstream's Go code on containerd 1.7.24, 80 idle pods, 30 s: the generic PLEG took
0.079 s of CPU and 64 MB, the evented one 0.0024 s of CPU, with half of its events repeated.
";

const COLUMNS: [&str; 13] = [
    "subject",
    "pods",
    "idle hour: CPU",
    "idle hour: CPU of the daemon",
    "idle hour: CPU of both",
    "both, compared with generic",
    "idle hour: wake-ups",
    "peak memory",
    "churn: changes",
    "churn: change to visible, p50",
    "churn: p99",
    "churn: CPU",
    "churn: CPU of the daemon",
];

/// Returns the section; empty without samples.
pub(super) fn section(samples: &[RealSample]) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let mut out = ABOUT.to_owned();
    let daemons: BTreeSet<&str> = samples.iter().map(|s| s.daemon.as_str()).collect();
    for daemon in daemons {
        let _ = write!(
            out,
            "\n### {daemon}\n\n| {} |\n|{}\n",
            COLUMNS.join(" | "),
            " --- |".repeat(COLUMNS.len())
        );
        let mut rows: BTreeMap<(u32, Kind), Vec<&RealSample>> = BTreeMap::new();
        for sample in samples.iter().filter(|s| s.daemon == daemon) {
            rows.entry((sample.pods, sample.subject))
                .or_default()
                .push(sample);
        }
        for (&(pods, subject), of) in &rows {
            let generic = rows.get(&(pods, Kind::Generic));
            let _ = writeln!(out, "{}", row(subject, pods, of, generic));
        }
    }
    let of_phases: Vec<f64> = samples.iter().map(|s| s.load).collect();
    let _ = write!(
        out,
        "\nLoad average of the machine before each phase: {}.\n{ELSEWHERE}",
        loads(&of_phases)
    );
    out
}

/// Returns the row of one subject.
fn row(
    subject: Kind,
    pods: u32,
    samples: &[&RealSample],
    generic: Option<&Vec<&RealSample>>,
) -> String {
    let of = |phase: &str, figure: &dyn Fn(&RealSample) -> f64, unit: &dyn Fn(f64) -> String| {
        let values = samples.iter().filter(|s| s.phase == phase);
        let values: Vec<f64> = values.map(|s| figure(s)).collect();
        median(&values).map_or_else(nothing, unit)
    };
    let both = idle_cpu_of_both(samples);
    let compared = both.zip(generic.and_then(|of| idle_cpu_of_both(of)));
    let latency = merged(samples);
    let changes: u64 = latency.iter().map(|(_, n)| n).sum();
    let part = |part| quantile(&latency, part).map_or_else(nothing, |ns| nanos(ns as f64));
    let peak = samples.iter().map(|s| s.peak_kib).max();
    let cells = [
        subject.name().to_owned(),
        pods.to_string(),
        of("idle", &|s| hourly(s.cpu, s), &nanos),
        of("idle", &|s| hourly(s.daemon_cpu, s), &nanos),
        both.map_or_else(nothing, nanos),
        compared.map_or_else(nothing, |(both, generic)| times(both / generic)),
        of("idle", &|s| hourly(s.woken, s), &count),
        peak.map_or_else(nothing, |kib| format!("{} KiB", count(kib as f64))),
        changes.to_string(),
        part(0.5),
        part(0.99),
        of("churn", &|s| s.cpu as f64, &nanos),
        of("churn", &|s| s.daemon_cpu as f64, &nanos),
    ];
    format!("| {} |", cells.join(" | "))
}

fn hourly(value: i64, of: &RealSample) -> f64 {
    value as f64 * 3600.0 / of.seconds
}

/// Returns the CPU time of subject and daemon in an idle hour.
fn idle_cpu_of_both(samples: &[&RealSample]) -> Option<f64> {
    let idle = samples.iter().filter(|s| s.phase == "idle");
    let both = idle.map(|s| hourly(s.cpu + s.daemon_cpu, s));
    median(&both.collect::<Vec<_>>())
}

fn nothing() -> String {
    "–".to_owned()
}

/// Merges the latencies of all churn phases.
fn merged(samples: &[&RealSample]) -> Histogram {
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, times) in samples
        .iter()
        .filter(|s| s.phase == "churn")
        .flat_map(|s| &s.latency)
    {
        *all.entry(*value).or_default() += times;
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(daemon: &str, subject: Kind, phase: &str) -> RealSample {
        RealSample {
            daemon: daemon.to_owned(),
            subject,
            phase: phase.to_owned(),
            pods: 80,
            seconds: 600.0,
            rep: 0,
            at: String::new(),
            load: 0.5,
            cpu: 20_000_000,
            woken: 30,
            peak_kib: 9000,
            daemon_cpu: 1_000_000_000,
            latency: Histogram::new(),
        }
    }

    #[test]
    fn no_samples_no_section() {
        assert_eq!(section(&[]), "");
    }

    #[test]
    fn idle_window_is_given_per_hour_and_churn_as_measured() {
        let idle = sample("containerd 2", Kind::Ours, "idle");
        let churn = RealSample {
            seconds: 60.0,
            cpu: 40_000_000,
            peak_kib: 9500,
            latency: vec![(1_000_000, 99), (7_000_000, 1)],
            ..sample("containerd 2", Kind::Ours, "churn")
        };
        assert_eq!(
            row(Kind::Ours, 80, &[&idle, &churn], None),
            "| pleg | 80 | 120 ms | 6 s | 6.12 s | – | 180 | 9,500 KiB | 100 | 1 ms | 1 ms | 40 ms | 1 s |"
        );
        let only_idle = row(Kind::Ours, 80, &[&idle], Some(&vec![&idle]));
        assert!(only_idle.contains("| 6.12 s | 1 × |"), "{only_idle}");
        assert!(only_idle.ends_with("| 0 | – | – | – | – |"), "{only_idle}");
    }

    #[test]
    fn repeated_figures_are_medians_and_latencies_are_merged() {
        let churn = |cpu, latency| RealSample {
            cpu,
            latency,
            ..sample("containerd 2", Kind::Hint, "churn")
        };
        let (one, other) = (
            churn(10_000_000, vec![(5, 1), (9, 1)]),
            churn(30_000_000, vec![(5, 2), (7, 1)]),
        );
        assert_eq!(merged(&[&one, &other]), [(5, 3), (7, 1), (9, 1)]);
        let row = row(Kind::Hint, 80, &[&one, &other], None);
        assert!(row.contains("| 5 | 5 ns | 9 ns | 20 ms |"), "{row}");
    }

    #[test]
    fn each_version_has_a_table_with_a_row_per_subject() {
        let all = [
            sample("containerd 2", Kind::Ours, "idle"),
            sample("containerd 1", Kind::Ours, "idle"),
            sample("containerd 1", Kind::Generic, "idle"),
            sample("containerd 1", Kind::Ours, "churn"),
        ];
        let page = section(&all);
        let lines: Vec<&str> = page
            .lines()
            .filter(|l| l.starts_with("### ") || l.starts_with("| p") || l.starts_with("| generic"))
            .map(|l| l.get(..12).unwrap_or(l))
            .collect();
        let wanted = [
            "### containerd 1",
            "| generic | ",
            "| pleg | 80 ",
            "### containerd 2",
            "| pleg | 80 ",
        ];
        let wanted: Vec<&str> = wanted.iter().map(|l| l.get(..12).unwrap_or(l)).collect();
        assert_eq!(lines, wanted);
        let columns = |l: &str| l.matches('|').count();
        assert!(
            page.lines()
                .filter(|l| l.starts_with('|'))
                .all(|l| columns(l) == COLUMNS.len() + 1)
        );
    }
}
