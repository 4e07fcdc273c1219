//! The CPU time of each subject by the rate of created pods, and the rate above which the generic PLEG needs
//! less.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::data::{Data, Figure, SampleFilter};
use super::format::{Unit, count, interval, nanos, times};
use crate::harness::Workload;
use crate::subject::Kind;

const SUBJECTS: [Kind; 3] = [Kind::Generic, Kind::Hint, Kind::Ours];
const CPU: Figure = Figure::PerSecond("subject_cpu");
const RUNTIME: Figure = Figure::PerSecond("runtime_cpu");
const CALLS: Figure = Figure::PerSecond("calls_unary");

/// Returns the section; empty without samples.
pub(super) fn section(data: &Data) -> String {
    let mut rates = BTreeSet::new();
    let mut sizes = BTreeSet::new();
    for (_, sample) in &data.0 {
        if let Workload::Churn {
            per_hundred_seconds,
            ..
        } = sample.point.workload
        {
            rates.insert(per_hundred_seconds);
            sizes.insert(sample.point.pods);
        }
    }
    if sizes.is_empty() {
        return String::new();
    }
    let names = SUBJECTS.map(Kind::name).join(" | ");
    let mut out = format!(
        "\n### Pods come and go: use in a second\n\n\
         | pods | pods/s | figure | {names} | pleg / generic (95 %) |\n| --- | --- | --- |{} --- |\n",
        " --- |".repeat(SUBJECTS.len())
    );
    let mut from = String::new();
    for pods in sizes {
        let mut ratios = Vec::new();
        for &rate in &rates {
            let filter = SampleFilter::new(|w| matches!(w, Workload::Churn { .. }));
            let filter = filter.pods(pods, 1).rate(rate);
            let cpu = data.ratio(filter, CPU, (Kind::Ours, Kind::Generic));
            ratios.extend(cpu.map(|ratio| (f64::from(rate) / 100.0, ratio.median)));
            for (title, figure, unit) in [
                ("CPU", CPU, nanos as Unit),
                ("CPU of the runtime", RUNTIME, nanos),
                ("calls", CALLS, count),
            ] {
                let ratio = data.ratio(filter, figure, (Kind::Ours, Kind::Generic));
                let cell = |subject| {
                    let of = data.estimate(filter, subject, figure);
                    of.map_or_else(|| "–".to_owned(), |of| unit(of.median))
                };
                let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| interval(ratio, times));
                let _ = writeln!(
                    out,
                    "| {} | {} | {title} | {} | {ratio} |",
                    count(pods.into()),
                    count(f64::from(rate) / 100.0),
                    SUBJECTS.map(cell).join(" | ")
                );
            }
        }
        let _ = writeln!(
            from,
            "* {} pods: {}.",
            count(pods.into()),
            break_even(&ratios)
        );
    }
    format!("{out}\nWhere the generic PLEG needs less CPU than this project:\n\n{from}")
}

/// Returns the rate at which the ratio reaches 1. Between two measured rates the ratio is interpolated.
fn break_even(ratios: &[(f64, f64)]) -> String {
    let Some(&(highest, _)) = ratios.last() else {
        return "not measured".to_owned();
    };
    let Some(loses) = ratios.iter().position(|(_, ratio)| *ratio >= 1.0) else {
        return format!("at no measured rate (up to {} pods/s)", count(highest));
    };
    match (
        loses.checked_sub(1).and_then(|n| ratios.get(n)),
        ratios.get(loses),
    ) {
        (Some(&(below, less)), Some(&(above, more))) => {
            let at = below + (above - below) * (1.0 - less) / (more - less);
            format!("from about {} pods/s on", count(at))
        }
        _ => "at every measured rate".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_interpolated() {
        let of = |ratios: &[(f64, f64)]| break_even(ratios);
        assert_eq!(
            of(&[(1.0, 0.5), (8.0, 0.9)]),
            "at no measured rate (up to 8 pods/s)"
        );
        assert_eq!(of(&[(1.0, 0.5), (3.0, 1.5)]), "from about 2 pods/s on");
        assert_eq!(of(&[(1.0, 1.5), (3.0, 1.7)]), "at every measured rate");
        assert_eq!(of(&[]), "not measured");
    }
}
