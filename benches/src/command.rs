//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::harness::{self, Mode};
use crate::{AllocationCounter, report, runtime, subject};

/// Benchmarks of this PLEG and of ports of upstream's PLEGs.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a small benchmark in seconds, as a smoke test for CI.
    #[command(hide = true)]
    Smoke(Measuring),
    /// Run a short benchmark within three minutes.
    Quick(Measuring),
    /// Run the benchmarks of every table of the page, within 45 minutes.
    Run(Measuring),
    /// Run the benchmarks on real containerd with real pods.
    Real {
        #[command(flatten)]
        with: harness::Real,
        /// The results file. The default is a new file named by date.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Generate docs/benchmarks.md from results files.
    Report {
        /// The results files. The default is all files in benches/results.
        results: Vec<PathBuf>,
        /// The page to write.
        #[arg(long, default_value = "docs/benchmarks.md")]
        out: PathBuf,
    },
    /// Run the simulated runtime, for the harness.
    #[command(hide = true)]
    Serve(runtime::Settings),
    /// Run one subject, for the harness.
    #[command(hide = true)]
    Subject(subject::Settings),
}

#[derive(Debug, clap::Args)]
struct Measuring {
    /// The results file. The default is a new file named by date. Points that the file
    /// already contains are not measured again.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run only points whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// The seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command. `allocated` returns the allocations, if the executable counts them.
#[must_use]
pub fn main(allocated: AllocationCounter) -> ExitCode {
    let command = Cli::parse().command;
    // Log messages for every event would cost a generator time.
    let level = match command {
        Command::Serve(_) | Command::Subject(_) => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    // RUST_LOG overrides the level.
    let filter = EnvFilter::builder().with_default_directive(level.into());
    tracing_subscriber::fmt()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .with_env_filter(filter.from_env_lossy())
        .with_target(false)
        .without_time()
        .init();
    match run(command, allocated) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, allocated: AllocationCounter) -> Result<()> {
    let measure = |mode: Mode, with: Measuring| {
        let out = results_file(with.out, mode.name());
        harness::run(mode, with.only.as_deref(), with.seed, &out)
    };
    match command {
        Command::Smoke(with) => measure(Mode::Smoke, with),
        Command::Quick(with) => measure(Mode::Quick, with),
        Command::Run(with) => measure(Mode::Run, with),
        Command::Real { with, out } => harness::real(&with, 1, &results_file(out, "real")),
        Command::Report { results, out } => report::write(&results, &out),
        Command::Serve(settings) => on_one_thread(runtime::serve(settings)),
        Command::Subject(settings) => on_one_thread(subject::run(settings, allocated)),
    }
}

/// Returns the given results file, or a new one that is named by date.
fn results_file(given: Option<PathBuf>, mode: &str) -> PathBuf {
    let file = given.unwrap_or_else(|| {
        let date = crate::results::now().replace(':', "");
        format!("benches/results/{date}-{mode}.jsonl").into()
    });
    tracing::info!("results go into {}", file.display());
    file
}

fn on_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .context("cannot start the tokio runtime")?
        .block_on(work)
}
