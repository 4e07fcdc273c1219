//! Results as lines of JSON: first the machine, then a line for each measurement. An interrupted run
//! continues its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::harness::{Point, RealSample};

/// A line of a file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "line")]
pub enum Line {
    /// The machine of the measurements that follow.
    Machine(Machine),
    /// A measurement.
    Sample(Sample),
    /// A measurement on a real runtime.
    Real(RealSample),
}

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the processor.
    pub cpu: String,
    /// The number of hardware threads.
    pub cores: usize,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// The kernel.
    pub kernel: String,
    /// The start time of the run.
    pub date: String,
    /// The measured commit, and whether the tree had uncommitted changes.
    pub commit: String,
    /// The versions of the compiler and of the relevant libraries.
    pub versions: BTreeMap<String, String>,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The mode, for example `quick` or `run`.
    pub mode: String,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The measured point.
    #[serde(flatten)]
    pub point: Point,
    /// The repetition. Subjects of one repetition were measured directly one after the other.
    pub rep: u32,
    /// The start time.
    pub at: String,
    /// The one-minute load average before the measurement.
    pub load: f64,
    /// Metrics by name; times in ns.
    pub metrics: BTreeMap<String, f64>,
}

impl Sample {
    /// Returns a metric.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).copied()
    }
}

/// The results of one or more files.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// One machine for each run.
    pub machines: Vec<Machine>,
    /// All measurements.
    pub samples: Vec<Sample>,
    /// All measurements on real runtimes.
    pub real: Vec<RealSample>,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line other than the last is invalid. The last line may be
    /// incomplete.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines: Vec<String> = BufReader::new(file).lines().collect::<Result<_, _>>()?;
        let mut results = Self::default();
        for (n, line) in lines.iter().enumerate() {
            match serde_json::from_str(line) {
                Ok(Line::Machine(machine)) => results.machines.push(machine),
                Ok(Line::Sample(sample)) => results.samples.push(sample),
                Ok(Line::Real(sample)) => results.real.push(sample),
                Err(_) if n + 1 == lines.len() => {}
                Err(error) => {
                    let at = format!("{}:{}", path.display(), n + 1);
                    return Err(error).context(at);
                }
            }
        }
        Ok(results)
    }

    /// Returns the points and repetitions that are already measured.
    #[must_use]
    pub fn done(&self) -> BTreeSet<(Point, u32)> {
        self.samples
            .iter()
            .map(|s| (s.point.clone(), s.rep))
            .collect()
    }
}

/// Appends to a file of results.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Opens a file to append to it.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let whole =
            std::fs::read(path).map_or(true, |bytes| bytes.last().is_none_or(|b| *b == b'\n'));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
        if !whole {
            file.write_all(b"\n")?;
        }
        Ok(Self(file))
    }

    /// Appends a line.
    ///
    /// # Errors
    /// If the line cannot be written.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        Ok(self.0.write_all(text.as_bytes())?)
    }
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here(seed: u64, mode: &str) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|l| l.split_once(':'))
                .map(|(_, v)| v.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib: u64 = memory
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let ran = |program: &str, args: &[&str]| {
            let out = Command::new(program).args(args).output().ok()?;
            let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
            out.status.success().then_some(text)
        };
        // Results and the generated pages change during a measurement.
        let but_code = ["--", ":!benches/results", ":!docs"];
        let status = ["status", "--porcelain", "--untracked-files=no"];
        let changed = ran("git", &[status, but_code].concat());
        let changed = if changed.is_none_or(|c| c.is_empty()) {
            ""
        } else {
            " with changes"
        };
        let commit = ran("git", &["rev-parse", "--short=12", "HEAD"]);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: now(),
            commit: format!(
                "{}{changed}",
                commit.unwrap_or_else(|| "unknown".to_owned())
            ),
            versions: versions(ran("rustc", &["--version"])),
            seed,
            mode: mode.to_owned(),
        }
    }
}

/// The versions of the compiler and of the libraries that all subjects share.
fn versions(compiler: Option<String>) -> BTreeMap<String, String> {
    let lock = include_str!("../../Cargo.lock");
    let of = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some((name.to_owned(), rest.split('"').next()?.to_owned()))
    };
    let libraries = ["tonic", "prost", "hyper", "h2", "tokio"]
        .into_iter()
        .filter_map(of);
    let compiler = compiler.map(|version| ("rustc".to_owned(), version));
    libraries.chain(compiler).collect()
}

/// Returns the one-minute load average.
#[must_use]
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Returns the date and time in UTC.
#[must_use]
pub fn now() -> String {
    let nanos = pleg_runtime::clock::wall().as_nanos();
    jiff::Timestamp::from_second(nanos / 1_000_000_000)
        .map_or_else(|_| String::new(), |t| t.to_string())
}
