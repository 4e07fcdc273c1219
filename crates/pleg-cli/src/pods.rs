//! `pleg pods`: shows all sandboxes and containers.

use std::io;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use pleg::core::{PodView, Settings, WallTime};
use pleg::runtime::clock::Clock;

use crate::args::{EventsPolicy, Output, PodsArgs};
use crate::connect::Target;
use crate::json::{self, PodObject};
use crate::log::notice;
use crate::table::{Cell, Column, Table, Width, colour, dim};
use crate::text::{duration, short};

/// How long to wait for the inspections after the first list: the deadline of one inspection.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: PodsArgs) -> anyhow::Result<()> {
    let target = Target::choose(&args.runtime).await?;
    notice(&format!("reading {target}"));
    target.wait_until_responding().await?;
    // One list suffices.
    let builder = target.builder(EventsPolicy::Never, Settings::default())?;
    let pleg = builder.spawn()?;
    target.wait_until_listed(&pleg).await?;
    if tokio::time::timeout(SYNC_TIMEOUT, pleg.wait_until_synced())
        .await
        .is_err()
    {
        notice("some pods cannot be read; their last known state is shown");
    }
    let mut pods = pleg.snapshot();
    pods.retain(|view| args.filter.matches(&view.status));
    pods.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    match args.output {
        Output::Json => {
            for view in &pods {
                json::line(&mut io::stdout(), &PodObject::new(view, pleg.clock()))?;
            }
        }
        Output::Table => show(&pods, pleg.clock())?,
    }
    pleg.shutdown().await;
    target.close().await;
    Ok(())
}

fn sort_key(view: &PodView) -> (&str, &str, &str) {
    (
        &view.status.namespace,
        &view.status.name,
        view.status.uid.as_str(),
    )
}

/// A sandbox or a container.
struct Row<'a> {
    /// Empty in the rows that follow the first one of a pod, as is the uid.
    pod: String,
    uid: &'a str,
    kind: &'static str,
    name: &'a str,
    state: &'static str,
    code: Option<i32>,
    reason: &'a str,
    age: String,
    attempt: u32,
    id: &'a str,
    as_of: String,
}

fn show(pods: &[PodView], clock: Clock) -> io::Result<()> {
    let rows: Vec<Row<'_>> = pods.iter().flat_map(|view| rows_of(view, clock)).collect();
    let width = Width::new(0);
    let columns = vec![
        Column::new("POD", |row: &Row<'_>| Cell::new(&row.pod)).width(width.at_least(18)),
        Column::new("KIND", |row: &Row<'_>| Cell::new(row.kind).style(dim())),
        Column::new("NAME", |row: &Row<'_>| Cell::new(row.name)).width(width.at_least(12)),
        Column::new("STATE", |row: &Row<'_>| {
            Cell::new(row.state).style(style(row))
        }),
        Column::new("EXIT", |row: &Row<'_>| {
            let code = row.code.map(|code| code.to_string());
            Cell::new(format!("{} {}", code.unwrap_or_default(), row.reason).trim())
        }),
        Column::new("AGE", |row: &Row<'_>| Cell::new(&row.age)).width(width.omitted(4)),
        Column::new("TRY", |row: &Row<'_>| Cell::new(&row.attempt.to_string()))
            .width(width.omitted(3)),
        Column::new("ID", |row: &Row<'_>| Cell::new(&short(row.id)).style(dim()))
            .width(width.omitted(1)),
        Column::new("AS OF", |row: &Row<'_>| Cell::new(&row.as_of).style(dim()))
            .width(width.omitted(2)),
        Column::new("UID", |row: &Row<'_>| Cell::new(row.uid)).width(width.at_least(9)),
    ];
    let table = Table::of(&rows, columns);
    table.heading()?;
    for row in &rows {
        table.row(row)?;
    }
    if pods.is_empty() {
        notice("no pods");
    }
    Ok(())
}

fn rows_of(view: &PodView, clock: Clock) -> Vec<Row<'_>> {
    let status = &view.status;
    let as_of = view.as_of.map_or_else(
        || "never".to_owned(),
        |at| format!("{} ago", duration(clock.now().since(at))),
    );
    let sandboxes = status.sandboxes.iter().map(|sandbox| Row {
        pod: String::new(),
        uid: "",
        kind: "sandbox",
        name: "",
        state: sandbox.state.as_str(),
        code: None,
        reason: "",
        age: age(sandbox.created_at, clock),
        attempt: sandbox.attempt,
        id: sandbox.id.as_str(),
        as_of: as_of.clone(),
    });
    let containers = status.containers.iter().map(|container| Row {
        pod: String::new(),
        uid: "",
        kind: "container",
        name: &container.name,
        state: container.state.as_str(),
        code: container.details.exit_code,
        reason: &container.details.reason,
        age: age(container.created_at, clock),
        attempt: container.attempt,
        id: container.id.as_str(),
        as_of: as_of.clone(),
    });
    let mut rows: Vec<Row<'_>> = sandboxes.chain(containers).collect();
    if let Some(first) = rows.first_mut() {
        first.uid = status.uid.as_str();
        first.pod = match status.name.is_empty() {
            true => first.uid.to_owned(),
            false => format!("{}/{}", status.namespace, status.name),
        };
    }
    rows
}

fn style(row: &Row<'_>) -> Style {
    colour(match row.state {
        "Ready" | "Running" => AnsiColor::Green,
        "Exited" if row.code.is_some_and(|code| code != 0) => AnsiColor::Red,
        "Exited" | "Created" | "NotReady" => AnsiColor::Yellow,
        _ => AnsiColor::Magenta,
    })
}

fn age(created: Option<WallTime>, clock: Clock) -> String {
    let nanos = created.map(|at| clock.wall().nanos_since(at));
    nanos
        .and_then(|n| u64::try_from(n).ok())
        .map_or_else(|| "?".to_owned(), |n| duration(Duration::from_nanos(n)))
}
