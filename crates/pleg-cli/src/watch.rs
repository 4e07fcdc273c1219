//! `pleg watch`: shows lifecycle events and changes of health as they happen.

mod follow;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use pleg::core::Settings;
use pleg::{Pleg, Subscription};

use crate::Outcome;
use crate::agent_client::AgentClient;
use crate::args::{Output, WatchArgs};
use crate::connect::Target;
use crate::filter::Filters;
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::json;
use crate::log::notice;
use crate::picture::Picture;
use crate::picture::facts::Facts;
use crate::picture::generator::Generator;
use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED, Record};
use crate::table::{Cell, Table, Width, colour, dim};
use crate::text::{short, span, time_of_day};

/// The first word of every line if the pods are simulated although `--sim` was not given.
const SIMULATED: &str = "simulated";

/// The columns of the table. Their widths are fixed, because the rows are not known yet.
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

pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let output = args.output;
    if args.agent.is_some() || args.since.is_some() {
        let printer = Printer::new(output, args.filters, false)?;
        let client = AgentClient::new(args.agent.unwrap_or_default(), &args.client)?;
        return within(args.duration, follow::run(&client, args.since, printer)).await;
    }
    let (target, simulated) = Target::choose_or_simulate(&args.connection.runtime, output)?;
    notice(&format!("watching {}", target.runtime));
    let (pleg, events) = target.spawn(args.connection.events, Settings::default())?;
    target.until_listed(&pleg, args.duration).await?;
    let printer = Printer::new(output, args.filters, simulated)?;
    let elapsed = target.elapsed();
    let rest = args.duration.map(|all| all.saturating_sub(elapsed));
    let ended = within(rest, show(&pleg, events, printer)).await?;
    pleg.shutdown().await;
    target.close().await;
    Ok(ended)
}

async fn within(limit: Option<Duration>, all: impl Future<Output = anyhow::Result<()>>) -> Outcome {
    let ended = tokio::time::timeout(limit.unwrap_or(Duration::MAX), Box::pin(all)).await;
    ended.unwrap_or(Ok(())).map(|()| ExitCode::SUCCESS)
}

async fn show(pleg: &Pleg, mut events: Subscription, mut printer: Printer) -> anyhow::Result<()> {
    let (started, mut health) = (pleg.clock().wall(), pleg.health());
    let (mut changes, mut generator) = (HealthChanges::default(), Generator::default());
    let mut interval = tokio::time::interval(CHECK_PERIOD);
    loop {
        let delivery = tokio::select! {
            delivery = events.next() => Some(delivery),
            _ = interval.tick() => None,
            true = health.changed() => None,
        };
        let records = match delivery {
            Some(None) => return Ok(()),
            Some(Some(delivery)) => Vec::from_iter(Record::delivery(&delivery, pleg, started)),
            None => {
                let picture = Picture::now(pleg, Facts::default(), &mut generator);
                changes.update(&picture, pleg.clock())
            }
        };
        for record in records {
            if printer.filters.match_labels(&record, pleg) {
                printer.print(&record)?;
            }
        }
    }
}

struct Printer {
    filters: Filters,
    simulated: bool,
    /// The table; `None` if the output is JSON.
    table: Option<Table>,
}

impl Printer {
    fn new(output: Output, filters: Filters, simulated: bool) -> io::Result<Self> {
        let mark = simulated.then_some((SIMULATED, Width::new(0)));
        let columns = mark.into_iter().chain(COLUMNS).collect();
        let table = (output == Output::Table).then(|| Table::new(columns, &[]));
        table.iter().try_for_each(Table::heading)?;
        Ok(Self {
            filters,
            simulated,
            table,
        })
    }

    fn print(&self, record: &Record) -> io::Result<()> {
        if !self.filters.matches(record) {
            return Ok(());
        }
        match &self.table {
            None => json::print(record),
            Some(table) => self.row(table, record),
        }
    }

    /// Prints the record. The text of a record that is no event takes the place of the columns after the type.
    fn row(&self, table: &Table, record: &Record) -> io::Result<()> {
        let text = |text: Option<&str>| Cell::new(text.unwrap_or_default());
        let (style, dim) = (style(record), dim());
        let mark = Cell::new(SIMULATED).style(colour(AnsiColor::Yellow));
        let mark = self.simulated.then_some(mark);
        let time = match record.initial {
            // The record shows what existed when this command started. It is no change, so its line has no time.
            Some(true) => "initial".to_owned(),
            _ => time_of_day(&record.time, "%H:%M:%S%.3f"),
        };
        let mut cells = Vec::from_iter(mark);
        let kind = Cell::new(&record.r#type).style(style);
        cells.extend([Cell::new(&time).style(dim), kind]);
        if !record.is_event() {
            let style = if style == dim { dim } else { Style::new() };
            let message = Cell::new(&record.text(true)).style(style);
            return table.row(&cells, Some(&message));
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
}

fn style(record: &Record) -> Style {
    let has_failed = record.exit_code.is_some_and(|code| code != 0);
    match &*record.r#type {
        "ContainerDied" if has_failed => colour(AnsiColor::Red).bold(),
        NOT_READY | LAGGED => colour(AnsiColor::Red).bold(),
        "ContainerDied" | DEGRADED => colour(AnsiColor::Yellow),
        "ContainerStarted" | READY | RECOVERED => colour(AnsiColor::Green),
        "ContainerRemoved" => colour(AnsiColor::Blue),
        _ => dim(),
    }
}
