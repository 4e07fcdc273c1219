//! The table of `pleg watch`.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED, Record};
use crate::table::{self, Cell, colour, dim};
use crate::text::{latency, short, time_of_day};

/// Begins every line if the pods are simulated although nobody asked for that.
const SIMULATED: &str = "simulated  ";

/// Stands in the time column for an event that is not a change: what existed at the start. The time
/// of its detection says nothing.
const INITIAL: &str = "initial";

const TIME: &str = "%H:%M:%S%.3f";

const HEADINGS: [&str; 9] = [
    "TIME", "TYPE", "POD", "KIND", "NAME", "ID", "SOURCE", "LATENCY", "EXIT",
];

/// The columns of the table. Their widths are chosen before the rows are known.
pub(super) struct Columns {
    widths: [usize; 9],
    simulated: bool,
}

impl Columns {
    pub(super) fn for_terminal(simulated: bool) -> Self {
        let mut widths = [12, 16, 40, 9, 16, 12, 10, 8, 24];
        let [pod, kind, name, id, source, latency, exit] = [2, 3, 4, 5, 6, 7, 8];
        let names = [(exit, 14), (name, 12), (pod, 18)];
        let optional = [id, source, latency, kind];
        let mut width = table::terminal_width();
        if simulated {
            width = width.saturating_sub(SIMULATED.len());
        }
        table::fit(&mut widths, &names, &optional, width);
        Self { widths, simulated }
    }

    pub(super) fn heading(&self) -> io::Result<()> {
        let cells = HEADINGS.map(|h| Cell::new(h).style(dim()));
        self.row(&cells)
    }

    pub(super) fn record(&self, record: &Record) -> io::Result<()> {
        match record.is_event() {
            true => self.event(record),
            false => self.message(record),
        }
    }

    fn event(&self, event: &Record) -> io::Result<()> {
        let style = match &*event.r#type {
            "ContainerStarted" => colour(AnsiColor::Green),
            "ContainerDied" if event.exit_code.is_some_and(|code| code != 0) => {
                colour(AnsiColor::Red).bold()
            }
            "ContainerDied" => colour(AnsiColor::Yellow),
            "ContainerRemoved" => colour(AnsiColor::Blue),
            _ => dim(),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let pod = event.pod.as_ref().map_or_else(String::new, Pod::shown);
        let code = event.exit_code.map(|code| code.to_string());
        let exit = format!("{} {}", text(&code), text(&event.reason));
        let source = match event.source.as_deref() {
            Some("stream") => Cell::new("stream"),
            _ => Cell::new(&text(&event.source)).style(dim()),
        };
        let time = match event.initial {
            Some(true) => INITIAL.to_owned(),
            _ => time_of_day(&event.time, TIME),
        };
        self.row(&[
            Cell::new(&time).style(dim()),
            Cell::new(&event.r#type).style(style),
            Cell::new(&pod),
            Cell::new(&text(&event.kind)).style(dim()),
            Cell::new(&text(&event.name)),
            Cell::new(short(&text(&event.id)).as_str()).style(dim()),
            source,
            Cell::new(&event.latency_ms.map_or_else(String::new, latency)),
            Cell::new(exit.trim()).style(style),
        ])
    }

    /// A record that is no event: its text takes the place of the columns after the type.
    fn message(&self, record: &Record) -> io::Result<()> {
        let style = match &*record.r#type {
            NOT_READY | LAGGED => colour(AnsiColor::Red).bold(),
            DEGRADED => colour(AnsiColor::Yellow),
            READY | RECOVERED => colour(AnsiColor::Green),
            _ => dim(),
        };
        let message = match (&record.message, record.pods) {
            (Some(message), _) => message.clone(),
            (None, Some(1)) => "1 pod".to_owned(),
            (None, Some(n)) => format!("{n} pods"),
            (None, None) => String::new(),
        };
        let pod = record.pod.as_ref().map(Pod::shown);
        let parts = [pod, record.code.clone(), Some(message)];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
        let cells = [
            Cell::new(&time_of_day(&record.time, TIME)).style(dim()),
            Cell::new(&record.r#type).style(style),
            Cell::new(&text).style(if style == dim() { dim() } else { Style::new() }),
        ];
        let [time, kind, ..] = self.widths;
        self.write(&cells, &[time, kind, usize::MAX])
    }

    fn row(&self, cells: &[Cell]) -> io::Result<()> {
        self.write(cells, &self.widths)
    }

    fn write(&self, cells: &[Cell], widths: &[usize]) -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        if self.simulated {
            let style = colour(AnsiColor::Yellow);
            write!(out, "{style}{SIMULATED}{style:#}")?;
        }
        table::row(&mut out, cells, widths)?;
        out.flush()
    }
}
