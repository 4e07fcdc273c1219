//! `pleg watch`: shows lifecycle events and changes of health as they happen.

mod follow;
mod table;

use std::io;

use pleg::core::Settings;
use pleg::{Pleg, Subscription};

use crate::args::{Output, WatchArgs};
use crate::connect::Target;
use crate::filter::{Filters, Selected};
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::json;
use crate::log::notice;
use crate::picture::Picture;
use crate::picture::facts::Facts;
use crate::record::Record;
use crate::table::Table;

pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<()> {
    if args.agent.is_some() || args.since.is_some() {
        let mut printer = Printer::new(args.output, args.filters.clone(), false)?;
        let following = Box::pin(follow::run(&args, &mut printer));
        return match args.duration {
            None => following.await,
            Some(limit) => tokio::time::timeout(limit, following)
                .await
                .unwrap_or(Ok(())),
        };
    }
    let runtime = &args.connection.runtime;
    let (target, simulated) = Target::choose_or_demonstrate(runtime, args.output).await?;
    let target = target.within(args.duration);
    notice(&format!("watching {target}"));
    let mut builder = target.builder(args.connection.events, Settings::default())?;
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    target.wait_until_listed(&pleg).await?;
    let printer = Printer::new(args.output, args.filters, simulated)?;
    let showing = show(&pleg, &mut events, printer);
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

async fn show(pleg: &Pleg, events: &mut Subscription, mut printer: Printer) -> io::Result<()> {
    let (clock, started) = (pleg.clock(), pleg.clock().wall());
    let mut selected = Selected::new(printer.filters.selector.clone());
    let mut health = pleg.health();
    let mut changes = HealthChanges::default();
    let mut interval = tokio::time::interval(CHECK_PERIOD);
    loop {
        tokio::select! {
            delivery = events.next() => match delivery {
                None => return Ok(()),
                Some(delivery) => {
                    let pods = || pleg.snapshot().len();
                    let record = Record::delivery(&delivery, clock, started, pods);
                    if let Some(record) = record && selected.matches(&record, pleg) {
                        printer.print(&record)?;
                    }
                    continue;
                }
            },
            _ = interval.tick() => {}
            true = health.changed() => {}
        }
        let picture = Picture::now(pleg, &Facts::default());
        for record in changes.update(&picture, &health.pod_problems(), clock) {
            if selected.matches(&record, pleg) {
                printer.print(&record)?;
            }
        }
    }
}

/// Prints the records that pass the filters.
struct Printer {
    output: Output,
    filters: Filters,
    table: Table<Record>,
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
            table,
        })
    }

    fn print(&mut self, record: &Record) -> io::Result<()> {
        if !self.filters.matches(record) {
            return Ok(());
        }
        match self.output {
            Output::Json => json::line(&mut io::stdout(), record),
            Output::Table => table::print(&self.table, record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleg::Delivery;
    use pleg::runtime::clock::Clock;

    #[tokio::test]
    async fn loss_of_deliveries_is_a_record() {
        let clock = Clock::start();
        let lagged = Delivery::Lagged { missed: 3 };
        let record = Record::delivery(&lagged, clock, clock.wall(), || 0).unwrap();
        let mut out = Vec::new();
        json::line(&mut out, &record).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&object["type"], &object["missed"]),
            (&"Lagged".into(), &3.into())
        );
        let text = "the reader was too slow: 3 exits and removals are not shown";
        assert_eq!(object["message"], text);
        assert!(Filters::default().matches(&record));
    }
}
