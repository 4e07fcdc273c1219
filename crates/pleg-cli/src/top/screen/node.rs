//! The node: all findings with their evidence, what was not examined, latencies, and the rate of calls.

use ratatui::buffer::{Buffer, Cell};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Widget as _};

use super::*;
use crate::view::COMPARED_AFTER;

/// On a screen with at least this many columns, the charts are side by side.
const SIDE_BY_SIDE: u16 = 120;
const CHART_HEIGHT: u16 = 10;
/// The bounds of the logarithmic scale: a list takes some milliseconds, and a hung call many seconds.
const SCALE: [f64; 2] = [-1.0, 4.0];
const LABELS: [&str; 6] = ["0.1ms", "1ms", "10ms", "100ms", "1s", "10s"];

pub(super) fn lines(view: &View, width: u16) -> Lines {
    let mut lines = Lines::new(width);
    lines.heading("findings");
    if view.health.reasons.is_empty() {
        lines.text("No problem is known.", Tone::Dim);
    }
    for reason in &view.health.reasons {
        finding(&mut lines, reason);
    }
    for what in &view.health.not_examined {
        lines.text(&format!("not examined: {what}"), Tone::Dim);
    }
    let (stream, period) = (view.stream.text(), seconds(view.relist.period_seconds));
    let (reason, missed) = (view.stream.reason.iter(), view.stream.missed);
    let reason: String = reason.map(|reason| format!(" ({reason})")).collect();
    let lost = format!("{missed} events lost since the start");
    let text = format!("{stream}{reason}; {lost}. Lists every {period}.");
    lines.text(&text, Tone::Dim);
    lines.heading("latency, logarithmic: the longest of each 10 s; above the line, calls are slow");
    charts(&mut lines, &view.latency, width.max(1));
    lines.heading("calls to the runtime");
    cost(&mut lines, view);
    lines
}

fn finding(lines: &mut Lines, reason: &Reason) {
    let sentence = sentence(reason);
    if let Some(cause) = &reason.cause {
        return lines.text(&format!("└ {sentence} (because of {cause})"), Tone::Dim);
    }
    lines.text(&format!("! {sentence}"), tone_of(reason));
    for evidence in &reason.evidence {
        lines.text(evidence, Tone::Dim);
    }
    let (action, runbook) = (&reason.action, &reason.runbook);
    lines.text(&format!("do: {action} See {runbook}"), Tone::Plain);
}

/// The charts of all latencies, drawn to lines, which a page can scroll.
fn charts(lines: &mut Lines, latency: &Latency, width: u16) {
    let charts = [
        ("lists", &latency.lists, Some(latency.lists_slow_ms)),
        ("reads", &latency.reads, Some(latency.reads_slow_ms)),
        ("events", &latency.events, None),
    ];
    let (height, layout) = match width {
        SIDE_BY_SIDE.. => {
            let columns = Layout::horizontal([Constraint::Fill(1); 3]);
            (CHART_HEIGHT, columns.spacing(3))
        }
        _ => {
            let rows = Layout::vertical([Constraint::Length(CHART_HEIGHT); 3]);
            (3 * CHART_HEIGHT, rows)
        }
    };
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let areas: [Rect; 3] = layout.areas(buffer.area);
    let (interval, level) = (latency.interval_seconds, |ms: f64| {
        ms.log10().clamp(SCALE[0], SCALE[1])
    });
    for ((name, points, slow), area) in charts.into_iter().zip(areas) {
        let length = interval * points.len().max(6) as f64;
        let newest = points.len().saturating_sub(1) as f64;
        let longest = points.iter().map(|point| point.longest_ms).enumerate();
        let point = |(n, ms): (usize, _)| Some(((n as f64 - newest) * interval, level(ms?)));
        let measured: Vec<_> = longest.filter_map(point).collect();
        let threshold = slow.map(level).into_iter();
        let threshold: Vec<_> = threshold.flat_map(|y| [(-length, y), (0.0, y)]).collect();
        let data = |data, tone: Tone| {
            let data = Dataset::default().data(data).marker(Marker::Braille);
            data.style(tone)
        };
        let ago = format!("{} ago", seconds(length));
        let x = Axis::default().bounds([-length, 0.0]);
        let y = Axis::default().bounds(SCALE).labels(LABELS);
        let slow = slow.map(|ms| format!("; slow {}", seconds(ms / 1e3)));
        let title = format!("{name}: {}{}", summary(points), slow.unwrap_or_default());
        Chart::new(vec![
            data(&threshold, Tone::Bad).graph_type(GraphType::Line),
            data(&measured, Tone::Plain).graph_type(GraphType::Bar),
        ])
        .block(Block::new().title(title))
        .x_axis(x.labels([ago, "now".to_owned()]).style(Tone::Dim))
        .y_axis(y.style(Tone::Dim))
        .legend_position(None)
        .render(area, &mut buffer);
    }
    let rows = buffer.content.chunks(usize::from(width));
    let styled = |cell: &Cell| Span::styled(cell.symbol().to_owned(), cell.style());
    let rows = rows.map(|row| row.iter().map(styled).collect());
    lines.all.extend(rows);
}

fn summary(points: &[Point]) -> String {
    let all: u64 = points.iter().map(|point| point.count).sum();
    if all == 0 {
        return "none".to_owned();
    }
    let longest = points.iter().filter_map(|point| point.longest_ms);
    let longest = span(longest.fold(0.0, f64::max));
    let total = |point: &Point| Some(point.mean_ms? * point.count as f64);
    let mean = span(points.iter().filter_map(total).sum::<f64>() / all as f64);
    format!("mean {mean}, max {longest}")
}

fn cost(lines: &mut Lines, view: &View) {
    let cost = &view.cost;
    if cost.seconds < COMPARED_AFTER.as_secs_f64() {
        return lines.line("  The rate of calls is known after two minutes.", Tone::Dim);
    }
    let titles = "  a minute                   list calls   their time  status calls";
    lines.line(titles, Tone::Dim);
    let mut row = |name: &str, costs: &CallCosts| {
        let rate = |calls: u64| format!("{:.1}", 60.0 * calls as f64 / cost.seconds);
        let time = span(60e3 * costs.list_seconds / cost.seconds);
        let (lists, reads) = (rate(costs.lists), rate(costs.reads));
        let text = format!("  {name:<24}{lists:>13}{time:>13}{reads:>13}");
        lines.line(&text, Tone::Plain);
    };
    row("this process", &cost.ours);
    if let Some(generic) = &cost.generic {
        row("generic PLEG, estimated", generic);
    }
    lines.text(&cost.basis, Tone::Dim);
}
