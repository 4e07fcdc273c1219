//! `pleg bench`: measures the cost and the latency of each mode on this node.
//!
//! The modes run one after the other in this process, which does nothing else. A simulated node
//! runs in a separate process, so that its resource usage is not counted.

use std::io::{self, Write};
use std::process::Stdio;
use std::time::Duration;

use anstyle::AnsiColor;
use anyhow::Context;
use metrics_exporter_prometheus::PrometheusHandle;
use pleg::core::{Mode, Settings};
use pleg::{Delivery, Pleg, Subscription};
use pleg_sim::Mode as Simulated;
use serde::Serialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::agent::install_metrics;
use crate::args::{BenchArgs, EventsPolicy, Output};
use crate::connect::Target;
use crate::figures::{millis, quantile};
use crate::json;
use crate::log::notice;
use crate::record::Record;
use crate::table::{self, Cell, colour, dim};
use crate::text::latency;
use crate::usage::{Calls, Usage, server_of};

/// How long to wait for the start of the simulated node, and for the inspections after the first
/// list.
const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let metrics = install_metrics()?;
    let node = match args.runtime.sim {
        Some(mode) => Some(Node::start(mode, args.pods)?),
        None => None,
    };
    let target = match &node {
        Some(node) => Target::at(node.socket()?.parse()?),
        None => Target::choose(&args.runtime).await?,
    };
    if let Some(node) = &node {
        node.wait_until_listening().await?;
    }
    target.wait_until_responding().await?;
    let server = server_of(target.endpoint()?).await;
    notice(&format!(
        "measuring {:?} in each mode on {}{target}",
        args.duration,
        if node.is_some() {
            "a simulated node, "
        } else {
            ""
        },
    ));
    let mut modes = vec![Mode::Evented, Mode::Polling];
    if node.is_none()
        && let Some(why) = target.stream_hazard().await?
    {
        notice(&format!("measuring only polling: {why}"));
        modes.remove(0);
    }
    let mut costs = Vec::new();
    for mode in modes {
        costs.push(measure(&target, mode, server, args.duration, &metrics).await?);
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

/// A simulated node in a separate process, which is killed when this is dropped.
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

    /// The node listens as soon as its pods exist.
    async fn wait_until_listening(&self) -> anyhow::Result<()> {
        let path = self.dir.path().join("cri.sock");
        let listening = async {
            let mut interval = tokio::time::interval(Duration::from_millis(10));
            while !path.exists() {
                interval.tick().await;
            }
        };
        let result = tokio::time::timeout(START_TIMEOUT, listening).await;
        result.context("the simulated node does not start")
    }

    fn socket(&self) -> anyhow::Result<String> {
        let path = self.dir.path().join("cri.sock");
        let path = path
            .to_str()
            .context("the path of the temporary directory is not UTF-8")?;
        Ok(format!("unix://{path}"))
    }
}

/// The measured cost of a mode.
struct Cost {
    mode: Mode,
    duration: Duration,
    pods: usize,
    usage: Usage,
    /// The relist period at the end.
    period: Duration,
    /// The time between each change and its announcement, in milliseconds, sorted.
    latencies: Vec<f64>,
    announced: u64,
}

async fn measure(
    target: &Target,
    mode: Mode,
    server: Option<u32>,
    duration: Duration,
    metrics: &PrometheusHandle,
) -> anyhow::Result<Cost> {
    let events = match mode {
        Mode::Evented => EventsPolicy::Always,
        _ => EventsPolicy::Never,
    };
    let mut builder = target.builder(events, Settings::default())?;
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    match tokio::time::timeout(START_TIMEOUT, pleg.wait_until_synced()).await {
        Ok(result) => result?,
        Err(_) => notice("some pods cannot be read; the results include reads of them"),
    }
    // Skip the events for what existed at the start.
    while events.try_next().is_some() {}
    let mut latencies = Vec::new();
    let mut announced = 0;
    let (began, before) = (pleg.now(), Usage::now(server, metrics));
    let receiving = receive(&pleg, &mut events, &mut latencies, &mut announced);
    // This ends early only if the generator ends.
    let _ = tokio::time::timeout(duration, receiving).await;
    let usage = Usage::now(server, metrics).since(&before);
    let cost = Cost {
        mode,
        duration: pleg.now().since(began),
        pods: pleg.snapshot().len(),
        usage,
        period: pleg.health().current().period,
        latencies,
        announced,
    };
    pleg.shutdown().await;
    Ok(cost)
}

async fn receive(
    pleg: &Pleg,
    events: &mut Subscription,
    latencies: &mut Vec<f64>,
    announced: &mut u64,
) {
    let started = pleg.clock().wall();
    while let Some(delivery) = events.next().await {
        if let Delivery::Event(event) = delivery
            && !event.initial
        {
            *announced += 1;
            latencies.extend(Record::event(&event, pleg.clock(), started).latency_ms);
        }
    }
}

impl Cost {
    const fn name(&self) -> &'static str {
        match self.mode {
            Mode::Evented => "evented",
            _ => "polling",
        }
    }

    /// The latency below which this share of the others is.
    fn latency(&self, share: f64) -> Option<f64> {
        quantile(self.latencies.iter().copied(), share)
    }

    fn object(&self) -> Object {
        let Calls {
            lists,
            statuses,
            subscribes,
        } = self.usage.calls;
        Object {
            mode: self.name(),
            seconds: self.duration.as_secs_f64(),
            pods: self.pods,
            lists,
            statuses,
            subscribes,
            cpu_ms: millis(self.usage.cpu),
            wake_ups: self.usage.wake_ups,
            runtime_cpu_ms: self.usage.runtime_cpu.map(millis),
            list_period_seconds: self.period.as_secs_f64(),
            announced: self.announced,
            known_after_ms_median: self.latency(0.5),
            known_after_ms_p99: self.latency(0.99),
        }
    }
}

/// The JSON object of a mode.
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

/// A row of the table: its name, its value in a mode, and the format of the value.
type Row = (&'static str, fn(&Cost) -> Option<f64>, fn(f64) -> String);

const ROWS: [Row; 10] = [
    (
        "calls to the runtime",
        |c| Some(c.usage.calls.sum() as f64),
        count,
    ),
    ("  lists", |c| Some(c.usage.calls.lists as f64), count),
    ("  statuses", |c| Some(c.usage.calls.statuses as f64), count),
    ("CPU time of pleg", |c| Some(millis(c.usage.cpu)), latency),
    ("wake-ups of pleg", |c| Some(c.usage.wake_ups as f64), count),
    (
        "CPU time of the runtime",
        |c| c.usage.runtime_cpu.map(millis),
        latency,
    ),
    ("events announced", |c| Some(c.announced as f64), count),
    ("latency, median", |c| c.latency(0.5), latency),
    ("latency, 99th percentile", |c| c.latency(0.99), latency),
    (
        "list calls per hour at the last period",
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
    heading.push(Cell::new("RATIO").style(dim()));
    rows.push(heading);
    for (name, of, shown) in ROWS {
        let values: Vec<Option<f64>> = costs.iter().map(of).collect();
        let mut row = vec![Cell::new(name)];
        let text = |v: &Option<f64>| v.map_or_else(|| "–".to_owned(), shown);
        row.extend(values.iter().map(|v| Cell::new(&text(v))));
        if let [Some(evented), Some(polling)] = values[..]
            && evented > 0.0
            && name != "events announced"
        {
            let ratio = polling / evented;
            let style = if ratio >= 1.0 {
                AnsiColor::Green
            } else {
                AnsiColor::Yellow
            };
            row.push(Cell::new(&format!("{ratio:.1}×")).style(colour(style)));
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
