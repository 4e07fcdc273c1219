//! The response of `/metrics`: the recorded metrics, and metrics about this process.
//!
//! The crates record some metrics under names that the kubelet uses. A sum over agents and kubelets would then
//! count each node twice, so `/metrics` shows these metrics as `pleg_*`. Histograms are shown as their sum and count,
//! because with buckets a node would have three times as many series.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use metrics::{describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nix::time::{ClockId, clock_gettime};

use crate::picture::facts;
use crate::picture::finding::contains;
use crate::proc::{Open, Proc};

/// The period of the metrics recorder's upkeep, which aggregates the histograms.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
/// Histogram buckets in seconds: Prometheus' defaults and smaller ones, as handling an event takes less than 1 ms.
const BUCKETS: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0,
];

/// Metrics with kubelet names that get no `pleg_*` name, because others show the same numbers: `pleg_stream_state`,
/// `pleg_streams_lost_total`, and the count of `pleg_runtime_operations_duration_seconds`.
const REDUNDANT: &str = "kubelet_evented_pleg_connection_error_count kubelet_evented_pleg_connection_success_count \
                         kubelet_runtime_operations_total";

/// Names of the metrics about this process: one with pleg's version, and those that all Prometheus clients use.
const BUILD: &str = "pleg_build_info";
const CPU: &str = "process_cpu_seconds_total";
const CPU_HELP: &str = "CPU time of this process, user and system.";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const OPEN_FILES: &str = "process_open_fds";
const MOST_FILES: &str = "process_max_fds";
const THREADS: &str = "process_threads";
const STARTED: &str = "process_start_time_seconds";

#[derive(Clone, Debug, derive_more::Constructor)]
pub(super) struct Metrics {
    recorded: PrometheusHandle,
    kubelet_names: bool,
}

impl Metrics {
    pub(super) fn install(kubelet_names: bool) -> anyhow::Result<Self> {
        let recorded = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
            .install_recorder()
            .context("cannot install the metrics recorder")?;
        describe();
        Ok(Self::new(recorded, kubelet_names))
    }

    pub(super) async fn run_upkeep(&self) -> Infallible {
        let mut interval = tokio::time::interval(UPKEEP_PERIOD);
        loop {
            interval.tick().await;
            self.recorded.run_upkeep();
        }
    }

    pub(super) fn render(&self) -> String {
        show_process();
        let recorded = self.recorded.render() + &cpu();
        if self.kubelet_names {
            // Show all metrics as recorded, with histogram buckets, and repeat those with kubelet names as `pleg_*`.
            let renamed = own_names(&recorded, KUBELET);
            recorded + &renamed
        } else {
            own_names(&recorded, "")
        }
    }
}

pub(super) fn describe() {
    pleg::describe_metrics();
    pleg_cri::describe_metrics();
    facts::describe_metrics();
    describe_gauge!(BUILD, "1 for the `version` of pleg.");
    describe_counter!(CPU, CPU_HELP);
    describe_gauge!(RESIDENT, "Memory of this process that is in RAM.");
    describe_gauge!(VIRTUAL, "Virtual memory of this process.");
    describe_gauge!(OPEN_FILES, "Open file descriptors.");
    describe_gauge!(MOST_FILES, "The maximum number of open file descriptors.");
    describe_gauge!(THREADS, "Threads of this process.");
    describe_gauge!(STARTED, "Unix time of the start of this process.");
}

const KUBELET: &str = "kubelet_";

/// A metric's name with `pleg_` for `kubelet_`. `None` if `/metrics` shows the metric only with `--kubelet-names`.
pub(super) fn own_name(name: &str) -> Option<String> {
    if contains(REDUNDANT, name) {
        return None;
    }
    let short = name.strip_prefix(KUBELET);
    let short = short.map(|short| short.strip_prefix("pleg_").unwrap_or(short));
    Some(short.map_or_else(|| name.to_owned(), |short| format!("pleg_{short}")))
}

/// The recorded metrics whose names begin with `prefix`, with `kubelet_*` as `pleg_*`. A histogram becomes a summary
/// without quantiles. Leaves out gauges of findings that no longer exist: the metrics recorder cannot remove a gauge.
fn own_names(recorded: &str, prefix: &str) -> String {
    let mut page = String::with_capacity(recorded.len());
    for line in recorded.lines() {
        let comments = ["# HELP ", "# TYPE "];
        let comment = comments.iter().find(|comment| line.starts_with(**comment));
        let comment = comment.copied().unwrap_or_default();
        let series = &line[comment.len()..];
        let (name, rest) = series.split_at(series.find([' ', '{']).unwrap_or(series.len()));
        let is_over = name == facts::FINDING && rest.ends_with("} 0");
        if name.is_empty() || !name.starts_with(prefix) || name.ends_with("_bucket") || is_over {
            continue;
        }
        let Some(name) = own_name(name) else { continue };
        let rest = match (comment, rest) {
            ("# TYPE ", " histogram") => " summary",
            _ => rest,
        };
        page.extend([comment, &name, rest, "\n"]);
    }
    page
}

/// Sets the gauges about this process. Leaves out values that cannot be read.
fn show_process() {
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let proc = Proc::below(Path::new("/"));
    if let Some(Open { open, limit }) = proc.descriptors(std::process::id()) {
        // Does not count the descriptor through which this code lists the open descriptors.
        gauge!(OPEN_FILES).set(open.saturating_sub(1) as f64);
        gauge!(MOST_FILES).set(limit as f64);
    }
    if let Some(own) = proc.process("self") {
        gauge!(RESIDENT).set(own.resident() as f64);
        gauge!(VIRTUAL).set(own.memory as f64);
        gauge!(THREADS).set(own.threads as f64);
        if let Some(boot) = proc.boot() {
            gauge!(STARTED).set(own.started_at(boot));
        }
    }
}

/// This process's CPU time in Prometheus' text format. A counter of the metrics recorder could only be an integer.
fn cpu() -> String {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
    let shown = used.map(|used| {
        let seconds = used.as_secs_f64();
        format!("# HELP {CPU} {CPU_HELP}\n# TYPE {CPU} counter\n{CPU} {seconds}\n\n")
    });
    shown.unwrap_or_default()
}

#[cfg(test)]
mod tests;
