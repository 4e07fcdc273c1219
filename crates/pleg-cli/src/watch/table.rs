//! The table of `pleg watch`.

use anstyle::{AnsiColor, Style};

use super::*;
use crate::figures::span;
use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED};
use crate::table::{Cell, Width, colour, dim};
use crate::text::{short, time_of_day};

/// Begins every line if the pods are simulated although nobody asked for that.
const SIMULATED: &str = "simulated";

/// The widths are chosen before the rows are known.
const COLUMNS: [(&str, Width); 9] = [
    ("TIME", Width::new(12)),
    ("TYPE", Width::new(16)),
    ("POD", Width::new(40).at_least(18)),
    ("KIND", Width::new(9).omitted(4)),
    ("NAME", Width::new(16).at_least(12)),
    ("ID", Width::new(12).omitted(1)),
    ("SOURCE", Width::new(10).omitted(2)),
    ("LATENCY", Width::new(8).omitted(3)),
    ("EXIT", Width::new(24).at_least(14)),
];

pub(super) fn table(simulated: bool) -> Table {
    let mark = simulated.then_some((SIMULATED, Width::new(0)));
    Table::new(mark.into_iter().chain(COLUMNS).collect(), &[])
}

/// Prints the record. The text of one that is no event takes the place of the columns after the type.
pub(super) fn print(table: &Table, simulated: bool, record: &Record) -> io::Result<()> {
    let text = |text: Option<&str>| Cell::new(text.unwrap_or_default());
    let (style, dim) = (style(record), dim());
    let mark = simulated.then(|| Cell::new(SIMULATED).style(colour(AnsiColor::Yellow)));
    let time = match record.initial {
        // The record shows what existed at the start, so the time of its detection has no meaning.
        Some(true) => "initial".to_owned(),
        _ => time_of_day(&record.time, "%H:%M:%S%.3f"),
    };
    let mut cells = Vec::from_iter(mark);
    let kind = Cell::new(&record.r#type).style(style);
    cells.extend([Cell::new(&time).style(dim), kind]);
    if !record.is_event() {
        let style = if style == dim { dim } else { Style::new() };
        return table.row(&cells, Some(&Cell::new(&record.text(true)).style(style)));
    }
    let pod = record.pod.as_ref().map_or_else(String::new, Pod::shown);
    let id = record.id.as_deref().map(short);
    let source = match record.source.as_deref() {
        stream @ Some("stream") => text(stream),
        source => text(source).style(dim),
    };
    cells.extend([
        Cell::new(&pod),
        text(record.kind.as_deref()).style(dim),
        text(record.name.as_deref()),
        text(id.as_deref()).style(dim),
        source,
        text(record.latency_ms.map(span).as_deref()),
        Cell::new(&record.exit()).style(style),
    ]);
    table.row(&cells, None)
}

fn style(record: &Record) -> Style {
    match &*record.r#type {
        "ContainerDied" if record.exit_code.is_some_and(|code| code != 0) => {
            colour(AnsiColor::Red).bold()
        }
        NOT_READY | LAGGED => colour(AnsiColor::Red).bold(),
        "ContainerDied" | DEGRADED => colour(AnsiColor::Yellow),
        "ContainerStarted" | READY | RECOVERED => colour(AnsiColor::Green),
        "ContainerRemoved" => colour(AnsiColor::Blue),
        _ => dim(),
    }
}
