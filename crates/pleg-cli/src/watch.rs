//! `pleg watch`: shows lifecycle events as they are announced.

use std::io::{self, Write};

use anstyle::AnsiColor;
use pleg::core::{LifecycleType, PodLifecycleEvent, Settings, Source, WallTime};
use pleg::{Delivery, Pleg, Subscription};

use crate::args::{Output, WatchArgs};
use crate::connect::{Target, notice};
use crate::json::{self, Detection};
use crate::table::{self, Cell, colour, dim};

pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<()> {
    let runtime = &args.connection.runtime;
    let (target, simulated) = Target::choose_or_demonstrate(runtime, args.output).await?;
    let target = target.within(args.duration);
    target.wait_until_responding().await?;
    let (mut builder, _) = target.builder(args.connection.events, Settings::default())?;
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    target.wait_until_listed(&pleg).await?;
    let showing = show(&pleg, &mut events, args.output, simulated);
    match args.duration {
        None => showing.await?,
        Some(duration) => {
            let rest = duration.saturating_sub(target.elapsed());
            match tokio::time::timeout(rest, showing).await {
                Ok(result) => result?,
                Err(_) => tracing::debug!("the configured time has elapsed"),
            }
        }
    }
    pleg.shutdown().await;
    target.close().await;
    Ok(())
}

async fn show(
    pleg: &Pleg,
    events: &mut Subscription,
    output: Output,
    simulated: bool,
) -> anyhow::Result<()> {
    let started = pleg.clock().wall();
    let columns = Columns::for_terminal(simulated);
    if output == Output::Table {
        columns.heading()?;
    }
    while let Some(delivery) = events.next().await {
        match delivery {
            Delivery::Event(event) => {
                let at = Detection::new(&event, pleg.clock(), started);
                match output {
                    Output::Json => json::line(&mut io::stdout(), &json::Event::new(&event, &at))?,
                    Output::Table => columns.event(&event, &at)?,
                }
            }
            Delivery::Synced => {
                let (at, pods) = (pleg.clock().wall(), pleg.snapshot().len());
                match output {
                    Output::Json => json::line(&mut io::stdout(), &json::Synced::new(at, pods))?,
                    Output::Table => columns.synced(at, pods)?,
                }
            }
            Delivery::Lagged { missed } => {
                notice(&format!(
                    "the output was too slow: {missed} exits and removals are not shown"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Begins every line if the pods are simulated although nobody asked for that.
const SIMULATED: &str = "simulated  ";

/// Stands in the time column for an event that is not a change: what existed at the start. The time
/// of its detection says nothing.
const INITIAL: &str = "initial";

const HEADINGS: [&str; 9] = [
    "TIME", "TYPE", "POD", "KIND", "NAME", "ID", "SOURCE", "LATENCY", "EXIT",
];

/// The columns of the table. Their widths are chosen before the rows are known.
struct Columns {
    widths: [usize; 9],
    simulated: bool,
}

impl Columns {
    fn for_terminal(simulated: bool) -> Self {
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

    fn heading(&self) -> io::Result<()> {
        let cells = HEADINGS.map(|h| Cell::new(h).style(dim()));
        self.row(&cells)
    }

    fn event(&self, event: &PodLifecycleEvent, at: &Detection) -> io::Result<()> {
        let subject = event.subject.as_ref();
        let style = match event.event {
            LifecycleType::ContainerStarted => colour(AnsiColor::Green),
            LifecycleType::ContainerDied
                if subject.is_some_and(|s| s.exit_code.is_some_and(|c| c != 0)) =>
            {
                colour(AnsiColor::Red).bold()
            }
            LifecycleType::ContainerDied => colour(AnsiColor::Yellow),
            LifecycleType::ContainerRemoved => colour(AnsiColor::Blue),
            _ => dim(),
        };
        let pod = if event.pod_name.is_empty() {
            event.uid.to_string()
        } else {
            format!("{}/{}", event.namespace, event.pod_name)
        };
        let exit = subject.map_or_else(String::new, |s| {
            let code = s.exit_code.map(|c| c.to_string()).unwrap_or_default();
            format!("{code} {}", s.reason).trim().to_owned()
        });
        let source = match event.source {
            Source::Stream => Cell::new(event.source.as_str()),
            _ => Cell::new(event.source.as_str()).style(dim()),
        };
        let time = if event.initial {
            INITIAL.to_owned()
        } else {
            time_of_day(at.utc)
        };
        self.row(&[
            Cell::new(&time).style(dim()),
            Cell::new(event.event.as_str()).style(style),
            Cell::new(&pod),
            Cell::new(subject.map_or("", |s| s.kind.as_str())).style(dim()),
            Cell::new(subject.map_or("", |s| &s.name)),
            Cell::new(&subject.map_or_else(String::new, |s| short(s.id.as_str()))).style(dim()),
            source,
            Cell::new(&at.latency_ms.map_or_else(String::new, latency)),
            Cell::new(&exit).style(style),
        ])
    }

    /// The end of the initial events.
    fn synced(&self, at: WallTime, pods: usize) -> io::Result<()> {
        let pods = match pods {
            1 => "1 pod".to_owned(),
            n => format!("{n} pods"),
        };
        let cells = [&time_of_day(json::utc(at)), json::SYNCED, &pods];
        self.row(&cells.map(|text| Cell::new(text).style(dim())))
    }

    fn row(&self, cells: &[Cell]) -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        if self.simulated {
            let style = colour(AnsiColor::Yellow);
            write!(out, "{style}{SIMULATED}{style:#}")?;
        }
        table::row(&mut out, cells, &self.widths)?;
        out.flush()
    }
}

fn time_of_day(time: jiff::Timestamp) -> String {
    time.strftime("%H:%M:%S%.3f").to_string()
}

/// The first 12 characters of an id, as in crictl.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

fn latency(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0}µs", ms * 1000.0),
        ms if ms < 10.0 => format!("{ms:.1}ms"),
        ms if ms < 10_000.0 => format!("{ms:.0}ms"),
        ms => format!("{:.0}s", ms / 1000.0),
    }
}
