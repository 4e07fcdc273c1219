//! `pleg bench`: what each mode costs on this node, and how soon it knows.
//!
//! The modes run one after the other in this process, which does nothing else. A simulated node
//! runs in a process of its own, so that what it uses is not ours.

use std::io::{self, Write};
use std::process::Stdio;
use std::time::Duration;

use anstyle::AnsiColor;
use anyhow::Context;
use metrics_exporter_prometheus::PrometheusHandle;
use pleg::core::Settings;
use pleg::{Delivery, Pleg, Subscription};
use pleg_cri::find;
use pleg_sim::Mode as Simulated;
use serde::Serialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::agent::install_metrics;
use crate::args::{BenchArgs, Mode, Output};
use crate::connect::{Otherwise, Target, say};
use crate::json::{self, Moment};
use crate::table::{self, Cell, colour, dim};
use crate::usage::{Calls, Usage, server_of};

/// How long the reads after the first list may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let metrics = install_metrics()?;
    let simulated =
        args.runtime.runtime_endpoint.is_none() && (args.runtime.sim.is_some() || find().is_none());
    let node = if simulated {
        let mode = args.runtime.sim.unwrap_or_default();
        Some(Node::start(mode, args.pods)?)
    } else {
        None
    };
    let target = match &node {
        Some(node) => Target::new(node.socket()?.parse()?, None),
        None => Target::choose(&args.runtime, Otherwise::Fail).await?,
    };
    if let Some(node) = &node {
        node.listens().await?;
    }
    target.wait_until_it_answers().await?;
    let server = server_of(&target.endpoint).await;
    say(&format!(
        "measuring {:?} in each mode on {}{}",
        args.lasting,
        if simulated { "a simulated node, " } else { "" },
        target.endpoint
    ));
    let mut costs = Vec::new();
    for mode in [Mode::Evented, Mode::Polling] {
        costs.push(measure(&target, mode, server, args.lasting, &metrics).await?);
    }
    match args.output {
        Output::Json => {
            for cost in &costs {
                json::line(&mut io::stdout(), &cost.object())?;
            }
        }
        Output::Table => show(&costs)?,
    }
    Ok(())
}

/// A simulated node in a process of its own; it ends with this.
struct Node {
    dir: TempDir,
    _child: Child,
}

impl Node {
    fn start(mode: Simulated, pods: usize) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg-bench").tempdir()?;
        let child = Command::new(std::env::current_exe()?)
            .args(["sim", "--mode", mode.name(), "--pods", &pods.to_string()])
            .arg("--socket")
            .arg(dir.path().join("cri.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the simulated node")?;
        Ok(Self { dir, _child: child })
    }

    /// It listens once its pods are there.
    async fn listens(&self) -> anyhow::Result<()> {
        let path = self.dir.path().join("cri.sock");
        let appears = async {
            let mut again = tokio::time::interval(Duration::from_millis(10));
            while !path.exists() {
                again.tick().await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, appears).await;
        outcome.context("the simulated node does not start")
    }

    fn socket(&self) -> anyhow::Result<String> {
        let path = self.dir.path().join("cri.sock");
        let path = path
            .to_str()
            .context("the temporary directory is no text")?;
        Ok(format!("unix://{path}"))
    }
}

/// What one mode cost.
struct Cost {
    mode: Mode,
    lasted: Duration,
    pods: usize,
    used: Usage,
    /// The period of the full list at the end.
    period: Duration,
    /// How long after it had happened each change was announced, in milliseconds, in order.
    known_after: Vec<f64>,
    announced: u64,
}

async fn measure(
    target: &Target,
    mode: Mode,
    server: Option<u32>,
    lasting: Duration,
    metrics: &PrometheusHandle,
) -> anyhow::Result<Cost> {
    let mut builder = target.builder(mode, Settings::default())?;
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    match tokio::time::timeout(PATIENCE, pleg.wait_until_synced()).await {
        Ok(outcome) => outcome?,
        Err(_) => say("some pods do not answer; what is measured holds reads of them"),
    }
    // What existed before is no news.
    while events.try_next().is_some() {}
    let mut known_after = Vec::new();
    let mut announced = 0;
    let (began, before) = (pleg.now(), Usage::now(server, metrics));
    let listening = listen(&pleg, &mut events, &mut known_after, &mut announced);
    // It ends only if the generator does.
    let _ = tokio::time::timeout(lasting, listening).await;
    let used = Usage::now(server, metrics).since(&before);
    known_after.sort_by(f64::total_cmp);
    let cost = Cost {
        mode,
        lasted: pleg.now().since(began),
        pods: pleg.snapshot().len(),
        used,
        period: pleg.health().current().period,
        known_after,
        announced,
    };
    pleg.shutdown().await;
    Ok(cost)
}

async fn listen(pleg: &Pleg, events: &mut Subscription, known: &mut Vec<f64>, announced: &mut u64) {
    let started = pleg.clock().wall();
    while let Some(delivery) = events.next().await {
        if let Delivery::Event(event) = delivery {
            *announced += 1;
            known.extend(Moment::of(&event, pleg.clock(), started).latency_ms);
        }
    }
}

impl Cost {
    const fn name(&self) -> &'static str {
        match self.mode {
            Mode::Evented => "evented",
            Mode::Polling => "polling",
        }
    }

    /// Within which so many of a thousand changes were announced.
    fn within(&self, of_a_thousand: usize) -> Option<f64> {
        let last = self.known_after.len().checked_sub(1)?;
        self.known_after.get(last * of_a_thousand / 1000).copied()
    }

    fn object(&self) -> Object {
        let Calls {
            lists,
            statuses,
            subscribes,
        } = self.used.calls;
        Object {
            mode: self.name(),
            seconds: self.lasted.as_secs_f64(),
            pods: self.pods,
            lists,
            statuses,
            subscribes,
            cpu_ms: ms(self.used.cpu),
            wake_ups: self.used.wake_ups,
            runtime_cpu_ms: self.used.runtime_cpu.map(ms),
            list_period_seconds: self.period.as_secs_f64(),
            announced: self.announced,
            known_after_ms_median: self.within(500),
            known_after_ms_p99: self.within(990),
        }
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A mode, as one JSON object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    mode: &'static str,
    seconds: f64,
    pods: usize,
    lists: u64,
    statuses: u64,
    subscribes: u64,
    cpu_ms: f64,
    wake_ups: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_cpu_ms: Option<f64>,
    list_period_seconds: f64,
    announced: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    known_after_ms_median: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known_after_ms_p99: Option<f64>,
}

/// What a row shows of each mode, and by how much the modes differ.
type Row = (&'static str, fn(&Cost) -> Option<f64>, fn(f64) -> String);

const ROWS: [Row; 10] = [
    (
        "calls to the runtime",
        |c| Some(c.used.calls.sum() as f64),
        count,
    ),
    ("  lists", |c| Some(c.used.calls.lists as f64), count),
    ("  statuses", |c| Some(c.used.calls.statuses as f64), count),
    ("our CPU time", |c| Some(ms(c.used.cpu)), millis),
    ("our wake-ups", |c| Some(c.used.wake_ups as f64), count),
    (
        "the runtime's CPU time",
        |c| c.used.runtime_cpu.map(ms),
        millis,
    ),
    ("announced", |c| Some(c.announced as f64), count),
    ("known after, median", |c| c.within(500), millis),
    ("known after, 99 of 100", |c| c.within(990), millis),
    (
        "calls an hour, at the period reached",
        |c| Some(2.0 * 3600.0 / c.period.as_secs_f64()),
        count,
    ),
];

fn show(costs: &[Cost]) -> io::Result<()> {
    let mut rows = Vec::new();
    let pods = costs.iter().map(|c| c.pods).max().unwrap_or(0);
    let mut heading = vec![Cell::new(&format!("{pods} PODS")).style(dim())];
    heading.extend(
        costs
            .iter()
            .map(|c| Cell::new(&c.name().to_uppercase()).style(dim())),
    );
    heading.push(Cell::new("TIMES").style(dim()));
    rows.push(heading);
    for (name, of, shown) in ROWS {
        let values: Vec<Option<f64>> = costs.iter().map(of).collect();
        let mut row = vec![Cell::new(name)];
        let text = |v: &Option<f64>| v.map_or_else(|| "–".to_owned(), shown);
        row.extend(values.iter().map(|v| Cell::new(&text(v))));
        if let [Some(evented), Some(polling)] = values[..]
            && evented > 0.0
            && name != "announced"
        {
            let times = polling / evented;
            let style = if times >= 1.0 {
                AnsiColor::Green
            } else {
                AnsiColor::Yellow
            };
            row.push(Cell::new(&format!("{times:.1}×")).style(colour(style)));
        }
        rows.push(row);
    }
    let widths = table::widths(&rows);
    let mut out = anstream::stdout().lock();
    for row in &rows {
        table::row(&mut out, row, &widths)?;
    }
    out.flush()
}

fn count(n: f64) -> String {
    format!("{n:.0}")
}

fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1000.0),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}
