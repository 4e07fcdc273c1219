//! Results as lines of JSON: the first line describes the machine, each other line one measurement.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::harness::Point;

/// A line of a file of results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "line")]
enum Line<'a> {
    Machine(Machine),
    Sample(&'a Sample),
}

/// A measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) point: Point,
    /// The name and version of a real daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) daemon: Option<String>,
    /// The number of the repetition. In each repetition the harness measures all subjects once.
    pub(crate) rep: u32,
    /// The one-minute load average before the measurement.
    pub(crate) load: f64,
    /// The end of the measurement, as a date and time in UTC.
    pub(crate) ended: String,
    /// The measured values by name. Times are in ns.
    pub(crate) metrics: Metrics,
}

/// Metrics by name.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(crate) fn put(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Records the number of durations and their quantiles, in ns.
    pub(crate) fn quantiles(&mut self, name: &str, mut of: Vec<u64>) {
        of.sort_unstable();
        self.put(&format!("{name}_count"), of.len() as f64);
        for (suffix, part) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let at = (part * of.len() as f64).ceil() as usize;
            if let Some(value) = of.get(at.saturating_sub(1)) {
                self.put(&format!("{name}_{suffix}"), *value as f64);
            }
        }
    }
}

/// Appends to a file of results.
#[derive(Debug)]
pub(crate) struct Writer(File);

impl Writer {
    /// Creates the file. Its first line describes the machine.
    pub(crate) fn create(path: &Path, mode: &str) -> Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let mut writer = Self(file?);
        writer.line(&Line::Machine(Machine::here(mode)))?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, sample: &Sample) -> Result<()> {
        self.line(&Line::Sample(sample))
    }

    fn line(&mut self, line: &Line<'_>) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        Ok(self.0.write_all(text.as_bytes())?)
    }
}

/// The machine on which the harness made the measurements in the following lines of the file.
#[derive(Debug, Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
    /// The start time of the run.
    date: String,
    /// The measured commit, followed by "with changes" if the tree had uncommitted changes.
    commit: String,
    /// The versions of the compiler and of those libraries that all subjects use.
    versions: BTreeMap<String, String>,
    mode: String,
}

impl Machine {
    fn here(mode: &str) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: String, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.map(|line| line.trim_start_matches([':', ' ', '\t']));
            value.unwrap_or_default().to_owned()
        };
        let memory = field(read("/proc/meminfo"), "MemTotal");
        let kib = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        // Uncommitted files in benches/results and docs do not count as changes of the code: a measurement writes them.
        let code = ["--", ":!benches/results", ":!docs"];
        let changed = output(
            "git",
            &[&["status", "--porcelain", "-uno"][..], &code].concat(),
        );
        let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
        let changed = if changed.is_empty() {
            ""
        } else {
            " with changes"
        };
        Self {
            cpu: field(read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: kib.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: now(),
            commit: commit + changed,
            versions: versions(),
            mode: match cfg!(debug_assertions) {
                true => format!("{mode}, unoptimised build"),
                false => mode.to_owned(),
            },
        }
    }
}

/// The output of a program; empty if the program fails.
fn output(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().ok();
    let out = out.filter(|out| out.status.success());
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
        .unwrap_or_default()
}

fn versions() -> BTreeMap<String, String> {
    let lock = include_str!("../../Cargo.lock");
    let of = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some((name.to_owned(), rest.split('"').next()?.to_owned()))
    };
    let libraries = ["tonic", "prost", "hyper", "h2", "tokio"];
    let mut all: BTreeMap<_, _> = libraries.into_iter().filter_map(of).collect();
    let compiler = output("rustc", &["--version"]);
    all.insert("rustc".to_owned(), compiler.replace("rustc ", ""));
    all
}

/// The one-minute load average.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|n| n.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// The date and time in UTC.
pub(crate) fn now() -> String {
    let seconds = pleg_runtime::clock::wall().as_nanos() / 1_000_000_000;
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |t| t.to_string())
}
