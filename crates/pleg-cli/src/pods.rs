//! `pleg pods`: shows all sandboxes and containers.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::AnsiColor;
use pleg::core::{PodView, Settings, WallTime};
use pleg::runtime::clock::Clock;

use crate::args::{EventsPolicy, Output, PodsArgs};
use crate::connect::Target;
use crate::json;
use crate::log::notice;
use crate::record::Pod;
use crate::table::{Cell, Column, Table, Width, colour, dim};
use crate::text::{duration, short};

/// Time for the status calls after the first list: the deadline of the calls of one pod.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: PodsArgs) -> anyhow::Result<ExitCode> {
    let target = Target::choose(&args.runtime)?;
    notice(&format!("reading {target}"));
    // One list suffices.
    let builder = target.builder(EventsPolicy::Never, Settings::default())?;
    let pleg = builder.spawn()?;
    target.wait_until_listed(&pleg, None).await?;
    let synced = tokio::time::timeout(SYNC_TIMEOUT, pleg.wait_until_synced());
    if synced.await.is_err() {
        notice("some pods cannot be read; their last known state is shown");
    }
    let mut pods = pleg.snapshot();
    pods.retain(|view| args.filter.matches(&view.status));
    pods.sort_by_cached_key(|view| {
        let Pod {
            uid,
            namespace,
            name,
        } = Pod::from(&*view.status);
        (namespace, name, uid)
    });
    match args.output {
        Output::Json => {
            for view in &pods {
                json::line(&mut io::stdout(), &json::pod(view, pleg.clock()))?;
            }
        }
        Output::Table => show(&pods, pleg.clock())?,
    }
    pleg.shutdown().await;
    target.close().await;
    Ok(ExitCode::SUCCESS)
}

/// A sandbox or a container.
struct Row {
    /// Empty in the rows that follow the first one of a pod, as is the uid.
    pod: Cell,
    kind: Cell,
    name: Cell,
    state: Cell,
    exit: Cell,
    age: Cell,
    attempt: Cell,
    id: Cell,
    as_of: Cell,
    uid: Cell,
}

fn show(pods: &[PodView], clock: Clock) -> io::Result<()> {
    let rows: Vec<Row> = pods.iter().flat_map(|view| rows_of(view, clock)).collect();
    let auto = Width::new(0);
    let columns = vec![
        Column::new("POD", auto.at_least(18), |row: &Row| row.pod.clone()),
        Column::new("KIND", auto, |row: &Row| row.kind.clone()),
        Column::new("NAME", auto.at_least(12), |row: &Row| row.name.clone()),
        Column::new("STATE", auto, |row: &Row| row.state.clone()),
        Column::new("EXIT", auto, |row: &Row| row.exit.clone()),
        Column::new("AGE", auto.omitted(4), |row: &Row| row.age.clone()),
        Column::new("TRY", auto.omitted(3), |row: &Row| row.attempt.clone()),
        Column::new("ID", auto.omitted(1), |row: &Row| row.id.clone()),
        Column::new("AS OF", auto.omitted(2), |row: &Row| row.as_of.clone()),
        Column::new("UID", auto.at_least(9), |row: &Row| row.uid.clone()),
    ];
    let table = Table::new(columns, &rows);
    table.heading()?;
    for row in &rows {
        table.row(row)?;
    }
    if pods.is_empty() {
        notice("no pods");
    }
    Ok(())
}

fn rows_of(view: &PodView, clock: Clock) -> Vec<Row> {
    let status = &*view.status;
    let ago = |at| format!("{} ago", duration(clock.now().since(at)));
    let as_of = view.as_of.map_or_else(|| "never".to_owned(), ago);
    let row = |kind, name, state, exit: &str, created, attempt: u32, id| Row {
        pod: Cell::new(""),
        kind: Cell::new(kind).style(dim()),
        name: Cell::new(name),
        state,
        exit: Cell::new(exit),
        age: Cell::new(&age(created, clock)),
        attempt: Cell::new(&attempt.to_string()),
        id: Cell::new(&short(id)).style(dim()),
        as_of: Cell::new(&as_of).style(dim()),
        uid: Cell::new(""),
    };
    let sandboxes = status.sandboxes.iter().map(|s| {
        let (state, id) = (state(s.state.as_str(), false), s.id.as_str());
        row("sandbox", "", state, "", s.created_at, s.attempt, id)
    });
    let containers = status.containers.iter().map(|c| {
        let code = c.details.exit_code;
        let exit = code.map(|code| code.to_string()).unwrap_or_default();
        let exit = format!("{exit} {}", c.details.reason);
        let state = state(c.state.as_str(), code.is_some_and(|code| code != 0));
        let (name, exit, id) = (&*c.name, exit.trim(), c.id.as_str());
        row("container", name, state, exit, c.created_at, c.attempt, id)
    });
    let mut rows: Vec<Row> = sandboxes.chain(containers).collect();
    if let Some(first) = rows.first_mut() {
        let pod = Pod::from(status);
        first.pod = Cell::new(&pod.shown());
        first.uid = Cell::new(&pod.uid);
    }
    rows
}

fn state(state: &str, failed: bool) -> Cell {
    Cell::new(state).style(colour(match state {
        "Ready" | "Running" => AnsiColor::Green,
        "Exited" if failed => AnsiColor::Red,
        "Exited" | "Created" | "NotReady" => AnsiColor::Yellow,
        _ => AnsiColor::Magenta,
    }))
}

fn age(created: Option<WallTime>, clock: Clock) -> String {
    let nanos = created.and_then(|at| u64::try_from(clock.wall().nanos_since(at)).ok());
    let age = nanos.map(Duration::from_nanos);
    age.map_or_else(|| "?".to_owned(), duration)
}
