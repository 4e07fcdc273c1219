//! The table of `pleg watch`.

use std::io;

use anstyle::{AnsiColor, Style};

use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED, Record};
use crate::table::{Cell, Column, Table, Width, colour, dim};
use crate::text::{latency, short, time_of_day};

/// Begins every line if the pods are simulated although nobody asked for that.
const SIMULATED: &str = "simulated";

/// Stands in the time column for an event that is not a change: what existed at the start. The time
/// of its detection says nothing.
const INITIAL: &str = "initial";

/// The table. The widths of its columns are chosen before the rows are known.
pub(super) fn table(simulated: bool) -> Table<Record> {
    type R = Record;
    let mark = |_: &R| Cell::new(SIMULATED).style(colour(AnsiColor::Yellow));
    let mark = simulated.then(|| Column::new(SIMULATED, Width::new(0), mark).leading());
    let pod = |r: &R| Cell::new(&r.pod.as_ref().map_or_else(String::new, Pod::shown));
    let id = |r: &R| text(r.id.as_deref().map(short)).style(dim());
    let columns = [
        Column::new("TIME", Width::new(12), time).leading(),
        Column::new("TYPE", Width::new(16), |r: &R| {
            Cell::new(&r.r#type).style(style(r))
        })
        .leading(),
        Column::new("POD", Width::new(40).at_least(18), pod),
        Column::new("KIND", Width::new(9).omitted(4), |r: &R| {
            text(r.kind.as_ref()).style(dim())
        }),
        Column::new("NAME", Width::new(16).at_least(12), |r: &R| {
            text(r.name.as_ref())
        }),
        Column::new("ID", Width::new(12).omitted(1), id),
        Column::new("SOURCE", Width::new(10).omitted(2), source),
        Column::new("LATENCY", Width::new(8).omitted(3), |r: &R| {
            text(r.latency_ms.map(latency))
        }),
        Column::new("EXIT", Width::new(24).at_least(14), exit),
    ];
    Table::new(mark.into_iter().chain(columns).collect(), &[])
}

/// Prints the record. The text of one that is no event takes the place of the columns after the type.
pub(super) fn print(table: &Table<Record>, record: &Record) -> io::Result<()> {
    if record.is_event() {
        return table.row(record);
    }
    let message = match (&record.message, record.pods) {
        (Some(message), _) => message.clone(),
        (None, Some(1)) => "1 pod".to_owned(),
        (None, Some(n)) => format!("{n} pods"),
        (None, None) => String::new(),
    };
    let pod = record.pod.as_ref().map(Pod::shown);
    let parts = [pod, record.code.clone(), Some(message)];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let is_dim = style(record) == dim();
    table.message(
        record,
        Cell::new(&text).style(if is_dim { dim() } else { Style::new() }),
    )
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

fn text(text: Option<impl AsRef<str>>) -> Cell {
    Cell::new(text.as_ref().map_or("", AsRef::as_ref))
}

fn time(record: &Record) -> Cell {
    let time = match record.initial {
        Some(true) => INITIAL.to_owned(),
        _ => time_of_day(&record.time, "%H:%M:%S%.3f"),
    };
    Cell::new(&time).style(dim())
}

fn source(record: &Record) -> Cell {
    let source = text(record.source.as_ref());
    match record.source.as_deref() {
        Some("stream") => source,
        _ => source.style(dim()),
    }
}

fn exit(record: &Record) -> Cell {
    let code = record.exit_code.map(|code| code.to_string());
    let reason = record.reason.as_deref().unwrap_or_default();
    let exit = format!("{} {reason}", code.unwrap_or_default());
    Cell::new(exit.trim()).style(style(record))
}
