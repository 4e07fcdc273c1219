//! The node: all findings with their evidence, what was not examined, latencies, and the rate of calls.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Widget as _};

use super::header::{indented, sentence};
use super::text::{Theme, Tone, lasting, seconds, tone_of};
use crate::text::latency;
use crate::view::{CallCosts, Point, Reason, View};

/// On a screen with as many columns, the charts are side by side.
const SIDE_BY_SIDE: u16 = 120;
const CHART_HEIGHT: u16 = 10;
/// The scale is logarithmic: a list takes some milliseconds, and a hung call many seconds.
const SCALE: [f64; 2] = [-1.0, 4.0];
const LABELS: [&str; 6] = ["0.1ms", "1ms", "10ms", "100ms", "1s", "10s"];
/// A rate of a shorter time is not shown.
const RATE_AFTER: f64 = 60.0;

pub(super) fn lines(theme: Theme, view: &View, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![theme.heading("findings", width)];
    let mut add = |text: &str, tone| lines.extend(indented(theme, text, tone, width, usize::MAX));
    if view.health.reasons.is_empty() {
        add("No problem is known.", Tone::Dim);
    }
    for reason in &view.health.reasons {
        finding(reason, &mut add);
    }
    for what in &view.health.not_examined {
        add(&format!("not examined: {what}"), Tone::Dim);
    }
    add(&stream(view), Tone::Dim);
    lines.push(theme.heading(
        "latency, logarithmic: the longest of each 10 s; the line is what is slow",
        width,
    ));
    lines.extend(charts(theme, view, width));
    lines.push(theme.heading("calls to the runtime", width));
    lines.extend(cost(theme, view, width));
    lines
}

fn finding(reason: &Reason, add: &mut impl FnMut(&str, Tone)) {
    if let Some(cause) = &reason.cause {
        add(
            &format!("└ {} (because of {cause})", sentence(reason)),
            Tone::Dim,
        );
        return;
    }
    add(&format!("! {}", sentence(reason)), tone_of(reason));
    for evidence in &reason.evidence {
        add(evidence, Tone::Dim);
    }
    add(
        &format!("do: {} See {}", reason.action, reason.runbook),
        Tone::Plain,
    );
}

fn stream(view: &View) -> String {
    let stream = &view.stream;
    let reason = stream.reason.as_ref().map(|reason| format!(" ({reason})"));
    format!(
        "Event stream {}{}{}: {} of {} events lost in 10 minutes, {} since the start. Lists every {}.",
        stream.state,
        lasting(stream.seconds),
        reason.unwrap_or_default(),
        stream.recently_missed,
        stream.recently_expected,
        stream.missed,
        seconds(view.relist.period_seconds),
    )
}

/// The charts of all latencies, drawn to lines, which a page can scroll.
fn charts(theme: Theme, view: &View, width: usize) -> Vec<Line<'static>> {
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let charts = [
        (
            "lists",
            &view.latency.lists,
            Some(view.latency.lists_slow_ms),
        ),
        (
            "reads",
            &view.latency.reads,
            Some(view.latency.reads_slow_ms),
        ),
        ("events", &view.latency.events, None),
    ];
    let layout = match width {
        SIDE_BY_SIDE.. => Layout::horizontal([Constraint::Fill(1); 3]).spacing(3),
        _ => Layout::vertical([Constraint::Length(CHART_HEIGHT); 3]),
    };
    let height = if width < SIDE_BY_SIDE {
        3 * CHART_HEIGHT
    } else {
        CHART_HEIGHT
    };
    let mut buffer = Buffer::empty(Rect::new(0, 0, width.max(1), height));
    let areas: [Rect; 3] = layout.areas(buffer.area);
    for ((name, points, slow), area) in charts.into_iter().zip(areas) {
        chart(
            theme,
            (name, points, slow),
            view.latency.interval_seconds,
            area,
            &mut buffer,
        );
    }
    let rows = buffer.content.chunks(usize::from(width.max(1)));
    let span = |cell: &ratatui::buffer::Cell| Span::styled(cell.symbol().to_owned(), cell.style());
    rows.map(|row| row.iter().map(span).collect()).collect()
}

fn chart(
    theme: Theme,
    (name, points, slow): (&str, &[Point], Option<f64>),
    interval: f64,
    area: Rect,
    buffer: &mut Buffer,
) {
    let span = interval * points.len().max(6) as f64;
    let newest = points.len().saturating_sub(1) as f64;
    let level = |ms: f64| ms.log10().clamp(SCALE[0], SCALE[1]);
    let longest = points.iter().map(|point| point.longest_ms).enumerate();
    let measured: Vec<_> = longest
        .filter_map(|(n, ms)| Some(((n as f64 - newest) * interval, level(ms?))))
        .collect();
    let threshold: Vec<_> =
        slow.map_or_else(Vec::new, |ms| vec![(-span, level(ms)), (0.0, level(ms))]);
    let data = |data, tone| {
        let data = Dataset::default().data(data).style(theme.style(tone));
        data.marker(Marker::Braille)
    };
    let datasets = vec![
        data(&threshold, Tone::Bad).graph_type(GraphType::Line),
        data(&measured, Tone::Plain).graph_type(GraphType::Bar),
    ];
    let dim = theme.style(Tone::Dim);
    let ago = format!("{} ago", seconds(span));
    let x = Axis::default()
        .bounds([-span, 0.0])
        .labels([ago, "now".to_owned()]);
    let y = Axis::default().bounds(SCALE).labels(LABELS);
    let slow = slow.map(|ms| format!("; slow {}", seconds(ms / 1e3)));
    let title = format!("{name}: {}{}", summary(points), slow.unwrap_or_default());
    Chart::new(datasets)
        .block(Block::new().title(title))
        .x_axis(x.style(dim))
        .y_axis(y.style(dim))
        .legend_position(None)
        .render(area, buffer);
}

fn summary(points: &[Point]) -> String {
    let all: u64 = points.iter().map(|point| point.count).sum();
    if all == 0 {
        return "none".to_owned();
    }
    let longest = points
        .iter()
        .filter_map(|point| point.longest_ms)
        .fold(0.0, f64::max);
    let totals = points
        .iter()
        .filter_map(|p| Some(p.mean_ms? * p.count as f64));
    let mean = latency(totals.sum::<f64>() / all as f64);
    format!("mean {mean}, max {}", latency(longest))
}

fn cost(theme: Theme, view: &View, width: usize) -> Vec<Line<'static>> {
    let cost = &view.cost;
    if cost.seconds < RATE_AFTER {
        return vec![theme.line(
            "  The rate of calls is known after two minutes.",
            Tone::Dim,
            width,
        )];
    }
    let row = |name: &str, costs: &CallCosts| {
        let rate = |calls: u64| format!("{:.1}", 60.0 * calls as f64 / cost.seconds);
        let time = latency(60e3 * costs.list_seconds / cost.seconds);
        let cells = [rate(costs.lists), time, rate(costs.reads)].map(|cell| format!("{cell:>13}"));
        theme.line(
            &format!("  {name:<24}{}", cells.concat()),
            Tone::Plain,
            width,
        )
    };
    let titles = "  a minute                   list calls   their time  status calls";
    let mut lines = vec![
        theme.line(titles, Tone::Dim, width),
        row("this process", &cost.ours),
    ];
    if let Some(generic) = &cost.generic {
        lines.push(row("generic PLEG, estimated", generic));
    }
    lines.extend(indented(theme, &cost.basis, Tone::Dim, width, usize::MAX));
    lines
}
