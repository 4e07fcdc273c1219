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
use crate::table::{Cell, Table, Width, colour, dim};
use crate::text::{duration, exit, seconds, short};
use crate::view::ago;

/// The time for all status calls after the first list: as long as a generator waits for the calls of one pod.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: PodsArgs) -> anyhow::Result<ExitCode> {
    let target = Target::choose(&args.runtime)?;
    notice(&format!("reading {}", target.runtime));
    // One list suffices, so there is no event stream.
    let (pleg, _) = target.spawn(EventsPolicy::Never, Settings::default())?;
    target.until_listed(&pleg, None).await?;
    let synced = tokio::time::timeout(SYNC_TIMEOUT, pleg.wait_until_synced());
    if synced.await.is_err() {
        notice("some pods cannot be read; their last known state is shown");
    }
    let mut pods = pleg.snapshot();
    pods.retain(|view| args.filter.matches(&view.status));
    pods.sort_by_cached_key(|view| Pod::from(&*view.status));
    match args.output {
        Output::Json => {
            for view in &pods {
                json::print(&json::pod(view, pleg.clock()))?;
            }
        }
        Output::Table => show(&pods, pleg.clock())?,
    }
    pleg.shutdown().await;
    target.close().await;
    Ok(ExitCode::SUCCESS)
}

fn show(pods: &[PodView], clock: Clock) -> io::Result<()> {
    let rows: Vec<_> = pods.iter().flat_map(|view| rows_of(view, clock)).collect();
    let auto = Width::new(0);
    let columns = vec![
        ("POD", auto.at_least(18)),
        ("KIND", auto),
        ("NAME", auto.at_least(12)),
        ("STATE", auto),
        ("EXIT", auto),
        ("AGE", auto.omitted(4)),
        ("TRY", auto.omitted(3)),
        ("ID", auto.omitted(1)),
        ("AS OF", auto.omitted(2)),
        ("UID", auto.at_least(9)),
    ];
    let table = Table::new(columns, &rows);
    table.heading()?;
    for row in &rows {
        table.row(row, None)?;
    }
    if pods.is_empty() {
        notice("no pods");
    }
    Ok(())
}

/// One row for each sandbox and container of a pod. Only the first row has the name and the uid of the pod.
fn rows_of(view: &PodView, clock: Clock) -> Vec<Vec<Cell>> {
    let status = &*view.status;
    let read = |at| format!("{} ago", duration(clock.now().since(at)));
    let as_of = view.as_of.map_or_else(|| "never".to_owned(), read);
    let row = |kind, name, state, exit: &str, created: Option<WallTime>, attempt: u32, id| {
        let age = created.map(|at| seconds(ago(clock.wall(), at)));
        let created = Cell::new(&age.unwrap_or_else(|| "?".to_owned()));
        let attempt = Cell::new(&attempt.to_string());
        let (pod, kind) = (Cell::new(""), Cell::new(kind).style(dim()));
        let (id, as_of) = (Cell::new(&short(id)), Cell::new(&as_of));
        let (id, as_of, uid) = (id.style(dim()), as_of.style(dim()), pod.clone());
        let (name, exit) = (Cell::new(name), Cell::new(exit));
        vec![
            pod, kind, name, state, exit, created, attempt, id, as_of, uid,
        ]
    };
    let sandboxes = status.sandboxes.iter().map(|s| {
        let (state, id) = (state(s.state.as_str(), false), s.id.as_str());
        row("sandbox", "", state, "", s.created_at, s.attempt, id)
    });
    let containers = status.containers.iter().map(|c| {
        let code = c.details.exit_code;
        let exit = exit(code, "", &c.details.reason);
        let state = state(c.state.as_str(), code.is_some_and(|code| code != 0));
        let (name, id) = (&*c.name, c.id.as_str());
        row("container", name, state, &exit, c.created_at, c.attempt, id)
    });
    let mut rows: Vec<_> = sandboxes.chain(containers).collect();
    if let Some([name, .., uid]) = rows.first_mut().map(Vec::as_mut_slice) {
        let pod = Pod::from(status);
        (*name, *uid) = (Cell::new(&pod.shown()), Cell::new(&pod.uid));
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
