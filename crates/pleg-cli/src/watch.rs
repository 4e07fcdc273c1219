//! `pleg watch`: shows lifecycle events and changes of health as they happen.

mod follow;
mod table;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use pleg::core::Settings;
use pleg::{Pleg, Subscription};

use crate::Outcome;
use crate::agent_client::AgentClient;
use crate::args::{Output, WatchArgs};
use crate::connect::Target;
use crate::filter::{Filters, Selected};
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::json;
use crate::log::notice;
use crate::picture::Picture;
use crate::picture::facts::Facts;
use crate::picture::generator::Generator;
use crate::record::Record;
use crate::table::Table;

pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let output = args.output;
    if args.agent.is_some() || args.since.is_some() {
        let printer = Printer::new(output, args.filters, false)?;
        let client = AgentClient::new(args.agent.unwrap_or_default(), &args.client)?;
        return within(args.duration, follow::run(&client, args.since, printer)).await;
    }
    let (target, simulated) = Target::choose_or_simulate(&args.connection.runtime, output)?;
    notice(&format!("watching {}", target.runtime));
    let mut builder = target.builder(args.connection.events, Settings::default())?;
    let events = builder.subscribe();
    let pleg = builder.spawn()?;
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

async fn show(pleg: &Pleg, mut events: Subscription, printer: Printer) -> anyhow::Result<()> {
    let (clock, started) = (pleg.clock(), pleg.clock().wall());
    let mut selected = Selected {
        selector: printer.filters.pods.selector.clone(),
        ..Selected::default()
    };
    let mut health = pleg.health();
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
            Some(Some(delivery)) => {
                let pods = || pleg.snapshot().len();
                Vec::from_iter(Record::delivery(&delivery, clock, started, pods))
            }
            None => {
                let picture = Picture::now(pleg, Facts::default(), &mut generator);
                changes.update(&picture, clock)
            }
        };
        for record in records {
            if selected.matches(&record, pleg) {
                printer.print(&record)?;
            }
        }
    }
}

struct Printer {
    output: Output,
    filters: Filters,
    simulated: bool,
    table: Table,
}

impl Printer {
    fn new(output: Output, filters: Filters, simulated: bool) -> io::Result<Self> {
        let table = table::table(simulated);
        if output == Output::Table {
            table.heading()?;
        }
        Ok(Self {
            output,
            filters,
            simulated,
            table,
        })
    }

    fn print(&self, record: &Record) -> io::Result<()> {
        if !self.filters.matches(record) {
            return Ok(());
        }
        match self.output {
            Output::Json => json::print(record),
            Output::Table => table::print(&self.table, self.simulated, record),
        }
    }
}
