//! The part of the page about real containerds: one table for each version of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::format::{count, nanos};
use crate::harness::RealSample;
use crate::peer::Kind;
use crate::protocol::Histogram;
use crate::stats::{median, quantile};

const ABOUT: &str = "
## On real containerd

Each peer had a containerd of its own, with real pods of its own (a sandbox and a container each), and
was idle at the same time as the others. The churn (pods of two containers come, one container ends and
is restarted, all go) was one daemon's after the other, while the others were idle with their peers. The
CPU time of a daemon is that of its own process, with what it does of its own accord: shims, runc and what
runs in the pods are not in it. What was idle for some minutes is given for an hour; what was measured
several times is the median.
Latency is from the runtime's own time of the change until the consumer sees it in the cache; a state that
no list has shown is not among the changes of a peer that polls.
";

const ORIENTATION: &str = "
For orientation, measured earlier on containerd 1.7.24 with 80 idle pods over 30 s: upstream's generic PLEG
took 0.079 CPU-s and 64 MB, its evented one 0.0024 CPU-s, with half of its announcements repeated. Those
are Go programs, and were not measured again here.
";

const COLUMNS: [&str; 11] = [
    "peer",
    "pods",
    "idle hour: CPU",
    "… of the daemon",
    "… times woken up",
    "most memory",
    "churn: changes seen",
    "… change to visible, p50",
    "… p99",
    "… CPU",
    "… of the daemon",
];

/// All of it; nothing if nothing was measured there.
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
            rows.entry((sample.pods, sample.peer))
                .or_default()
                .push(sample);
        }
        for ((pods, peer), of) in rows {
            let _ = writeln!(out, "{}", row(peer, pods, &of));
        }
    }
    let loads: Vec<f64> = samples.iter().map(|s| s.load).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    let usual = median(&loads).unwrap_or(0.0);
    let _ = write!(
        out,
        "\nLoad average of the machine before each phase: {usual:.1} (median), {most:.1} (most).\n{ORIENTATION}"
    );
    out
}

/// One peer on one version.
fn row(peer: Kind, pods: u32, samples: &[&RealSample]) -> String {
    let of = |phase: &str, figure: &dyn Fn(&RealSample) -> f64, unit: &dyn Fn(f64) -> String| {
        let values = samples.iter().filter(|s| s.phase == phase);
        let values: Vec<f64> = values.map(|s| figure(s)).collect();
        median(&values).map_or_else(nothing, unit)
    };
    let hourly = |value: i64, of: &RealSample| value as f64 * 3600.0 / of.seconds;
    let latency = merged(samples);
    let changes: u64 = latency.iter().map(|(_, n)| n).sum();
    let part = |part| quantile(&latency, part).map_or_else(nothing, |ns| nanos(ns as f64));
    let peak = samples.iter().map(|s| s.peak_kib).max();
    let cells = [
        peer.name().to_owned(),
        pods.to_string(),
        of("idle", &|s| hourly(s.cpu, s), &nanos),
        of("idle", &|s| hourly(s.daemon_cpu, s), &nanos),
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

fn nothing() -> String {
    "–".to_owned()
}

/// The latencies of all churns.
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

    fn sample(daemon: &str, peer: Kind, phase: &str) -> RealSample {
        RealSample {
            daemon: daemon.to_owned(),
            peer,
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
    fn nothing_measured_is_nothing_said() {
        assert_eq!(section(&[]), "");
    }

    #[test]
    fn an_idle_window_is_given_for_an_hour_and_a_churn_as_it_was() {
        let idle = sample("containerd 2", Kind::Ours, "idle");
        let churn = RealSample {
            seconds: 60.0,
            cpu: 40_000_000,
            peak_kib: 9500,
            latency: vec![(1_000_000, 99), (7_000_000, 1)],
            ..sample("containerd 2", Kind::Ours, "churn")
        };
        assert_eq!(
            row(Kind::Ours, 80, &[&idle, &churn]),
            "| P8 ours | 80 | 120 ms | 6 s | 180 | 9,500 KiB | 100 | 1 ms | 1 ms | 40 ms | 1 s |"
        );
        let only_idle = row(Kind::Ours, 80, &[&idle]);
        assert!(only_idle.ends_with("| 0 | – | – | – | – |"), "{only_idle}");
    }

    #[test]
    fn what_was_measured_twice_is_the_median_and_latencies_are_put_together() {
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
        let row = row(Kind::Hint, 80, &[&one, &other]);
        assert!(row.contains("| 5 | 5 ns | 9 ns | 20 ms |"), "{row}");
    }

    #[test]
    fn each_version_has_a_table_with_a_row_for_each_peer() {
        let all = [
            sample("containerd 2", Kind::Ours, "idle"),
            sample("containerd 1", Kind::Ours, "idle"),
            sample("containerd 1", Kind::Generic, "idle"),
            sample("containerd 1", Kind::Ours, "churn"),
        ];
        let page = section(&all);
        let lines: Vec<&str> = page
            .lines()
            .filter(|l| l.starts_with("### ") || l.starts_with("| P"))
            .map(|l| l.get(..12).unwrap_or(l))
            .collect();
        let wanted = [
            "### containerd 1",
            "| P2 generic",
            "| P8 ours | 80",
            "### containerd 2",
            "| P8 ours | 80",
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
