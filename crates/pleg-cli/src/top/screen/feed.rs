//! The newest events and changes of health.

use ratatui::layout::Rect;
use ratatui::text::Line;

use super::text::{Theme, Tone, padded};
use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED, Record};
use crate::text::{latency, time_of_day};
use crate::view::View;

/// The newest ones that fit, the newest at the bottom.
pub(super) fn lines(theme: Theme, view: &View, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let mut lines = vec![theme.heading("events", width)];
    let records = &view.feed.records;
    let first = records
        .len()
        .saturating_sub(usize::from(area.height.saturating_sub(1)));
    let shown = records[first..].iter();
    lines.extend(shown.map(|shown| record(theme, shown, width, true)));
    if records.is_empty() {
        lines.push(theme.line("  none yet", Tone::Dim, width));
    }
    lines
}

/// On a narrower screen, times have no milliseconds, and source and latency are not shown.
const WIDE: usize = 100;

/// One record; in the history of a pod without the pod.
pub(super) fn record(theme: Theme, record: &Record, width: usize, pod: bool) -> Line<'static> {
    let format = match width {
        WIDE.. => "%H:%M:%S%.3f",
        _ => "%H:%M:%S",
    };
    let time = time_of_day(&record.time, format);
    let kind = padded(&record.r#type, 16);
    let tone = tone(record);
    let name = match pod {
        true => record.pod.as_ref().map_or_else(String::new, Pod::shown),
        false => String::new(),
    };
    let left = width.saturating_sub(time.len() + 18);
    let text = match record.is_event() {
        true => event(record, &name, left, width >= WIDE),
        false => message(record, &name),
    };
    let texts = [
        (&*time, Tone::Dim),
        (" ", Tone::Plain),
        (&*kind, tone),
        (" ", Tone::Plain),
        (&*text, tone),
    ];
    theme.texts(&texts, width)
}

fn event(record: &Record, pod: &str, width: usize, wide: bool) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = match record.kind.as_deref() {
        Some("sandbox") => "sandbox".to_owned(),
        _ => text(&record.name),
    };
    let code = record.exit_code.map(|code| code.to_string());
    let exit = format!("{} {}", text(&code), text(&record.reason));
    let took = record.latency_ms.map_or_else(String::new, latency);
    let (exit_width, rest) = match wide {
        true => (14, width.saturating_sub(14 + 10 + 6 + 4)),
        false => (13, width.saturating_sub(13 + 2)),
    };
    let (pod_width, name_width) = match pod.is_empty() {
        true => (0, rest.clamp(7, 40)),
        false => ((2 * rest / 3).clamp(10, 48), (rest / 3).clamp(7, 32)),
    };
    let mut columns = vec![
        padded(pod, pod_width),
        padded(&name, name_width),
        padded(exit.trim(), exit_width),
    ];
    if wide {
        columns.push(padded(&text(&record.source), 10));
        columns.push(format!("{took:>6}"));
    }
    let shown = columns.into_iter().filter(|column| !column.is_empty());
    shown.collect::<Vec<_>>().join(" ")
}

fn message(record: &Record, pod: &str) -> String {
    let pods = record.pods.map(|n| match n {
        1 => "1 pod".to_owned(),
        n => format!("{n} pods"),
    });
    let pod = (!pod.is_empty()).then(|| pod.to_owned());
    let parts = [pod, record.code.clone(), record.message.clone(), pods];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

fn tone(record: &Record) -> Tone {
    match &*record.r#type {
        NOT_READY | LAGGED | DEGRADED => Tone::Bad,
        READY | RECOVERED => Tone::Good,
        "ContainerDied" if record.is_failure() => Tone::Bad,
        _ => Tone::Dim,
    }
}
