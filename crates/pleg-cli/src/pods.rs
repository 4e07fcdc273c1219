//! `pleg pods`: shows all sandboxes and containers.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::AnsiColor;
use pleg::core::{ContainerState, PodView, SandboxState, Settings, WallTime};
use pleg::runtime::clock::Clock;

use crate::args::{EventsPolicy, Output, PodsArgs};
use crate::connect::Target;
use crate::json::{self, PodObject};
use crate::log::notice;
use crate::table::{self, Cell, colour, dim};
use crate::text::{duration, short};

/// How long to wait for the inspections after the first list: the deadline of one inspection.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: PodsArgs) -> anyhow::Result<()> {
    let target = Target::choose(&args.runtime).await?;
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

fn show(pods: &[PodView], clock: Clock) -> io::Result<()> {
    let headings = [
        "POD", "KIND", "NAME", "STATE", "EXIT", "AGE", "TRY", "ID", "AS OF",
    ];
    let mut rows = vec![headings.map(|h| Cell::new(h).style(dim())).to_vec()];
    for view in pods {
        rows.extend(rows_of(view, clock));
    }
    let mut widths = table::widths(&rows);
    let (pod, name, age, attempt, id, as_of) = (0, 2, 5, 6, 7, 8);
    let optional = [id, attempt, age, as_of];
    table::fit(
        &mut widths,
        &[(pod, 18), (name, 12)],
        &optional,
        table::terminal_width(),
    );
    let mut out = anstream::stdout().lock();
    for cells in &rows {
        table::row(&mut out, cells, &widths)?;
    }
    if pods.is_empty() {
        notice("no pods");
    }
    out.flush()
}

fn rows_of(view: &PodView, clock: Clock) -> Vec<Vec<Cell>> {
    let status = &view.status;
    let mut pod = if status.name.is_empty() {
        status.uid.to_string()
    } else {
        format!("{}/{}", status.namespace, status.name)
    };
    let as_of = view.as_of.map_or_else(
        || "never".to_owned(),
        |at| format!("{} ago", duration(clock.now().since(at))),
    );
    let mut rows = Vec::new();
    for s in &status.sandboxes {
        let style = match s.state {
            SandboxState::Ready => colour(AnsiColor::Green),
            SandboxState::NotReady => colour(AnsiColor::Yellow),
            _ => colour(AnsiColor::Magenta),
        };
        rows.push(vec![
            Cell::new(&std::mem::take(&mut pod)),
            Cell::new("sandbox").style(dim()),
            Cell::new(""),
            Cell::new(s.state.as_str()).style(style),
            Cell::new(""),
            Cell::new(&age(s.created_at, clock)),
            Cell::new(&s.attempt.to_string()),
            Cell::new(&short(s.id.as_str())).style(dim()),
            Cell::new(&as_of).style(dim()),
        ]);
    }
    for c in &status.containers {
        let failed = c.details.exit_code.is_some_and(|code| code != 0);
        let style = match c.state {
            ContainerState::Running => colour(AnsiColor::Green),
            ContainerState::Exited if failed => colour(AnsiColor::Red),
            ContainerState::Exited | ContainerState::Created => colour(AnsiColor::Yellow),
            _ => colour(AnsiColor::Magenta),
        };
        let code = c
            .details
            .exit_code
            .map(|c| c.to_string())
            .unwrap_or_default();
        rows.push(vec![
            Cell::new(&std::mem::take(&mut pod)),
            Cell::new("container").style(dim()),
            Cell::new(&c.name),
            Cell::new(c.state.as_str()).style(style),
            Cell::new(format!("{code} {}", c.details.reason).trim()),
            Cell::new(&age(c.created_at, clock)),
            Cell::new(&c.attempt.to_string()),
            Cell::new(&short(c.id.as_str())).style(dim()),
            Cell::new(&as_of).style(dim()),
        ]);
    }
    rows
}

fn age(created: Option<WallTime>, clock: Clock) -> String {
    let nanos = created.map(|at| clock.wall().nanos_since(at));
    nanos
        .and_then(|n| u64::try_from(n).ok())
        .map_or_else(|| "?".to_owned(), |n| duration(Duration::from_nanos(n)))
}
