//! The charts of the page: lines in SVG.

use std::fmt::Write as _;

use super::data::{Data, Figure, Work};
use super::format::{Unit, count, nanos};
use crate::harness::Workload;
use crate::results::PARTS;
use crate::stats::median;
use crate::subject::Kind;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = HEIGHT - 76.0;
const GREY: &str = "#444444";

/// A chart: the name of its file, its title and its SVG.
pub(super) type Chart = (&'static str, &'static str, String);

type Line = (Kind, Vec<(f64, f64)>);

/// The charts for which there are results.
pub(super) fn all(data: &Data) -> Vec<Chart> {
    let charts = [
        (
            "relist",
            "CPU of one relist of an unchanged node",
            [
                log("pods (of two containers on the largest node)", count),
                log("CPU time", nanos),
            ],
            relist(data),
        ),
        (
            "latency",
            "Change to visible in the cache, 100 events/s",
            [
                log("time after the change", nanos),
                linear("% of the changes are visible", count),
            ],
            latency(data),
        ),
    ];
    let drawn = charts.into_iter().filter_map(|(name, title, axes, lines)| {
        let lines: Vec<Line> = lines.into_iter().filter(|(_, p)| p.len() > 1).collect();
        (!lines.is_empty()).then(|| (name, title, draw(title, axes, &lines)))
    });
    drawn.collect()
}

fn relist(data: &Data) -> Vec<Line> {
    const WORK: Work = Work::new(|w| matches!(w, Workload::Relists { .. }));
    let subjects = [Kind::Decode, Kind::Generic, Kind::Ours];
    let line = |subject| {
        let sizes = [(110, 1), (500, 1), (1000, 1), (5000, 1), (10_000, 2)];
        let point = |(pods, containers)| {
            let work = WORK.pods(pods, containers);
            let cpu = data.estimate(work, subject, Figure::Value("relist_cpu"))?;
            Some((f64::from(pods), cpu.median))
        };
        (subject, sizes.into_iter().filter_map(point).collect())
    };
    subjects.into_iter().map(line).collect()
}

/// Distributions. Each point is the median of all repetitions.
fn latency(data: &Data) -> Vec<Line> {
    const WORK: Work = Work::new(|w| matches!(w, Workload::Restarts { rate: 100, .. }));
    let subjects = [
        Kind::Drain,
        Kind::Ours,
        Kind::Evented,
        Kind::Hint,
        Kind::Generic,
    ];
    let line = |subject| {
        let samples = data.of(WORK, subject);
        let curves: Vec<_> = samples
            .filter_map(|(_, s)| s.curves.get("latency"))
            .collect();
        let points = PARTS.iter().enumerate().filter_map(|(n, part)| {
            let values = curves.iter().filter_map(|curve| curve.get(n));
            let values: Vec<f64> = values.map(|nanos| *nanos as f64).collect();
            Some((median(&values)?, part * 100.0))
        });
        (subject, points.collect())
    };
    subjects.into_iter().map(line).collect()
}

struct Axis {
    title: &'static str,
    unit: Unit,
    is_log: bool,
}

const fn log(title: &'static str, unit: Unit) -> Axis {
    let is_log = true;
    Axis {
        title,
        unit,
        is_log,
    }
}

const fn linear(title: &'static str, unit: Unit) -> Axis {
    let is_log = false;
    Axis {
        title,
        unit,
        is_log,
    }
}

/// Maps the values of an axis to positions.
struct Scale {
    is_log: bool,
    values: (f64, f64),
    positions: (f64, f64),
}

impl Scale {
    /// From and to whole decades, or from zero.
    fn new(axis: &Axis, values: &[f64], positions: (f64, f64)) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        let values = if axis.is_log {
            let from = low.log10().floor();
            (from, high.log10().ceil().max(from + 1.0))
        } else {
            (0.0, high)
        };
        Self {
            is_log: axis.is_log,
            values,
            positions,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        let ((from, to), (start, end)) = (self.values, self.positions);
        start + (value - from) / (to - from) * (end - start)
    }

    fn ticks(&self) -> Vec<f64> {
        let (from, to) = self.values;
        if self.is_log {
            let decades = (to - from) as i32;
            return (0..=decades)
                .map(|n| 10_f64.powf(from + f64::from(n)))
                .collect();
        }
        (0..=4)
            .map(|n| from + (to - from) * f64::from(n) / 4.0)
            .collect()
    }
}

fn color(subject: Kind) -> &'static str {
    match subject {
        Kind::Drain => "#8c8c8c",
        Kind::Decode | Kind::Owned => "#b9a26b",
        Kind::Generic | Kind::GenericPlain => "#c0392b",
        Kind::BestGeneric => "#e08e79",
        Kind::Evented => "#8e44ad",
        Kind::Hint => "#2471a3",
        Kind::Ours => "#1e8449",
    }
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, color: &str, text: &str) {
    let _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{color}">{text}</text>"#
    );
}

fn segment(out: &mut String, (a, b): (f64, f64), (c, d): (f64, f64), color: &str) {
    let _ = writeln!(
        out,
        r#"<line x1="{a:.1}" y1="{b:.1}" x2="{c:.1}" y2="{d:.1}" stroke="{color}"/>"#
    );
}

fn draw(title: &str, [x, y]: [Axis; 2], lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let across: Vec<f64> = points().map(|(x, _)| x).collect();
    let up: Vec<f64> = points().map(|(_, y)| y).collect();
    let xs = Scale::new(&x, &across, (LEFT, RIGHT));
    let ys = Scale::new(&y, &up, (BOTTOM, TOP));
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>
"##
    );
    text(&mut out, (LEFT, 24.0), "start", "#111111", title);
    text(&mut out, (LEFT, TOP - 12.0), "start", GREY, y.title);
    let middle = f64::midpoint(LEFT, RIGHT);
    text(&mut out, (middle, BOTTOM + 38.0), "middle", GREY, x.title);
    for tick in xs.ticks() {
        let at = xs.at(tick);
        segment(&mut out, (at, TOP), (at, BOTTOM), "#e4e4e4");
        text(
            &mut out,
            (at, BOTTOM + 18.0),
            "middle",
            GREY,
            &(x.unit)(tick),
        );
    }
    for tick in ys.ticks() {
        let at = ys.at(tick);
        segment(&mut out, (LEFT, at), (RIGHT, at), "#e4e4e4");
        text(
            &mut out,
            (LEFT - 8.0, at + 4.0),
            "end",
            GREY,
            &(y.unit)(tick),
        );
    }
    let step = (RIGHT - LEFT) / lines.len() as f64;
    for (n, (subject, points)) in lines.iter().enumerate() {
        let color = color(*subject);
        let at = |(a, b): &(f64, f64)| format!("{:.1},{:.1}", xs.at(*a), ys.at(*b));
        let path: Vec<String> = points.iter().map(at).collect();
        let _ = writeln!(
            out,
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2"/>"#,
            path.join(" ")
        );
        let (left, down) = (LEFT + step * n as f64, BOTTOM + 64.0);
        segment(
            &mut out,
            (left, down - 4.0),
            (left + 18.0, down - 4.0),
            color,
        );
        text(
            &mut out,
            (left + 24.0, down),
            "start",
            color,
            subject.name(),
        );
    }
    out.push_str("</svg>\n");
    out
}
