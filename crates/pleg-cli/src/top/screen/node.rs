//! The node: health and what to do, the sources, latencies, and the cost of the calls.

use ratatui::text::Line;

use super::text::{Theme, Tone, padded, padded_left, seconds, wrapped};
use crate::text::latency;
use crate::view::{CallCosts, Point, View};

/// The width of the names of series.
const NAMES: usize = 8;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn lines(theme: Theme, view: &View, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut add = |text: &str, tone| {
        let texts = wrapped(text, width.saturating_sub(2));
        lines.extend(
            texts
                .iter()
                .map(|t| theme.line(&format!("  {t}"), tone, width)),
        );
    };
    if view.health.reasons.is_empty() {
        add("No problem is known.", Tone::Good);
    }
    for reason in &view.health.reasons {
        let lasts = reason
            .seconds
            .map(|lasts| format!(" for {}", seconds(lasts)));
        let kind = if reason.not_ready {
            "not ready"
        } else {
            "degraded"
        };
        let lasts = lasts.unwrap_or_default();
        add(
            &format!("! {kind} ({}){lasts}: {}", reason.code, reason.message),
            Tone::Bad,
        );
        add(&format!("do: {}", reason.action), Tone::Plain);
        add(&format!("see {}", reason.runbook), Tone::Dim);
    }
    add(&stream(view), Tone::Plain);
    let mut page = vec![heading(theme, "health", width)];
    page.extend(lines);
    page.push(heading(theme, &latency_heading(view), width));
    for (name, points) in [
        ("lists", &view.latency.lists),
        ("reads", &view.latency.reads),
        ("events", &view.latency.events),
    ] {
        page.push(series(theme, name, points, width));
    }
    page.push(heading(theme, "calls to the runtime", width));
    page.extend(cost(theme, view, width));
    page
}

fn heading(theme: Theme, text: &str, width: usize) -> Line<'static> {
    let text = format!("── {text} ");
    let rest = width.saturating_sub(crate::text::width(&text));
    theme.line(&(text + &"─".repeat(rest)), Tone::Dim, width)
}

fn stream(view: &View) -> String {
    let stream = &view.stream;
    let lasts = stream
        .seconds
        .map(|lasts| format!(" for {}", seconds(lasts)));
    let reason = stream.reason.as_ref().map(|reason| format!(" ({reason})"));
    format!(
        "Event stream {}{}{}: {} missed since the start; in the last 10 minutes {} of {}. Lists every {}.",
        stream.state,
        lasts.unwrap_or_default(),
        reason.unwrap_or_default(),
        stream.missed,
        stream.recently_missed,
        stream.recently_expected,
        seconds(view.relist.period_seconds),
    )
}

fn latency_heading(view: &View) -> String {
    let interval = view.latency.interval_seconds;
    format!("latency: the longest of each {interval:.0} s, on a scale from 0.1 ms to 10 s")
}

/// A line of bars, on a logarithmic scale from 0.1 ms to 10 s.
fn series(theme: Theme, name: &str, points: &[Point], width: usize) -> Line<'static> {
    let all: u64 = points.iter().map(|point| point.count).sum();
    let longest = points
        .iter()
        .filter_map(|point| point.longest_ms)
        .fold(0.0, f64::max);
    let totals = points
        .iter()
        .filter_map(|p| Some(p.mean_ms? * p.count as f64));
    let text = match all {
        0 => " none".to_owned(),
        _ => format!(
            " mean {}, longest {}, {all}",
            latency(totals.sum::<f64>() / all as f64),
            latency(longest)
        ),
    };
    let most = width.saturating_sub(2 + NAMES + crate::text::width(&text));
    let shown = &points[points.len().saturating_sub(most)..];
    let bars: String = shown.iter().map(bar).collect();
    let name = padded(name, NAMES);
    let bars = padded_left(&bars, most.min(90));
    let texts = [
        (&*format!("  {name}"), Tone::Plain),
        (&*bars, Tone::Good),
        (&*text, Tone::Plain),
    ];
    theme.texts(&texts, width)
}

fn bar(point: &Point) -> char {
    let Some(ms) = point.longest_ms else {
        return ' ';
    };
    let decades = ms.max(0.1).log10() + 1.0;
    let step = (decades * BARS.len() as f64 / 5.0) as usize;
    BARS[step.min(BARS.len() - 1)]
}

fn cost(theme: Theme, view: &View, width: usize) -> Vec<Line<'static>> {
    let cost = &view.cost;
    let row = |name: &str, cells: [String; 3]| {
        let cells = cells.map(|cell| padded_left(&cell, 14));
        theme.line(
            &format!("  {}{}", padded(name, 25), cells.concat()),
            Tone::Plain,
            width,
        )
    };
    let titles = ["list calls", "their time", "status calls"].map(str::to_owned);
    let cells = |costs: &CallCosts| {
        let time = latency(costs.list_seconds * 1e3);
        [costs.lists.to_string(), time, costs.reads.to_string()]
    };
    let over = format!("in the last {}", seconds(cost.seconds));
    let mut lines = vec![row(&over, titles), row("this process", cells(&cost.ours))];
    if let Some(generic) = &cost.generic {
        lines.push(row("generic PLEG, estimated", cells(generic)));
    }
    let basis = wrapped(&cost.basis, width.saturating_sub(2));
    lines.extend(
        basis
            .iter()
            .map(|t| theme.line(&format!("  {t}"), Tone::Dim, width)),
    );
    lines
}
