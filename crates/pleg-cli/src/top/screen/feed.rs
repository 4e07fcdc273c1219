//! The newest events and changes of health.

use super::*;

/// On a narrower screen, times have no milliseconds, and source and latency are not shown.
const WIDE: usize = 100;

/// Shows as many of the newest records as fit, with the newest record at the bottom.
pub(super) fn lines(view: &View, area: Rect) -> Lines {
    let mut lines = Lines::new(area.width);
    lines.heading("events");
    let records = &view.feed.records;
    let fit = usize::from(area.height.saturating_sub(1));
    for record in &records[records.len().saturating_sub(fit)..] {
        let pod = record.pod.as_ref().map_or_else(String::new, Pod::shown);
        add(&mut lines, record, &pod);
    }
    if records.is_empty() {
        lines.line("  none yet", Tone::Dim);
    }
    lines
}

/// Adds a line for one record. `pod`: the pod's name, or empty in the history of a single pod.
pub(super) fn add(lines: &mut Lines, record: &Record, pod: &str) {
    let format = match lines.width {
        WIDE.. => "%H:%M:%S%.3f",
        _ => "%H:%M:%S",
    };
    let time = time_of_day(&record.time, format);
    let text = match record.is_event() {
        true => {
            let width = lines.width.saturating_sub(time.len() + 18);
            event(record, pod, width, lines.width >= WIDE)
        }
        false => record.text(!pod.is_empty()),
    };
    let tone = match &*record.r#type {
        NOT_READY | LAGGED | DEGRADED => Tone::Bad,
        READY | RECOVERED => Tone::Good,
        _ if record.is_failure() => Tone::Bad,
        _ => Tone::Dim,
    };
    let text = format!(" {} {text}", padded(&record.r#type, 16));
    lines.spans(&[(&time, Tone::Dim), (&text, tone)]);
}

fn event(record: &Record, pod: &str, width: usize, is_wide: bool) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = match record.kind.as_deref() {
        Some("sandbox") => "sandbox".to_owned(),
        _ => text(&record.name),
    };
    let (exit_width, rest) = match is_wide {
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
        padded(&record.exit(), exit_width),
    ];
    if is_wide {
        let took = record.latency_ms.map_or_else(String::new, span);
        columns.extend([padded(&text(&record.source), 10), format!("{took:>6}")]);
    }
    columns.retain(|column| !column.is_empty());
    columns.join(" ")
}
