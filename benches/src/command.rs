//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::harness::{self, Mode};
use crate::{LiveBytes, subject};

/// Benchmarks of this PLEG and of ports of upstream's PLEGs.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer each question from one second of measurements, to test the benchmarks themselves.
    #[command(hide = true)]
    Smoke(Measuring),
    /// Answer each question roughly, within four minutes.
    Quick(Measuring),
    /// Answer each question, within 25 minutes.
    Run(Measuring),
    /// Measure on real containerd with real pods.
    Real {
        #[command(flatten)]
        with: harness::Real,
        #[command(flatten)]
        measuring: Measuring,
    },
    /// Run one subject, for the harness.
    #[command(hide = true)]
    Subject(subject::Settings),
}

#[derive(Debug, clap::Args)]
struct Measuring {
    /// The results file. The default is a new file named by date.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run only the measurements whose name contains this text.
    #[arg(long)]
    only: Option<String>,
}

/// Runs the command of the command line. `live_bytes` returns the number of allocated bytes, if `bench` counts them.
#[must_use]
pub fn main(live_bytes: LiveBytes) -> ExitCode {
    let command = Cli::parse().command;
    // Log messages for every event would slow a PLEG down. RUST_LOG overrides the level.
    let level = match command {
        Command::Subject(_) => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into());
    tracing_subscriber::fmt()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .with_env_filter(filter.from_env_lossy())
        .with_target(false)
        .without_time()
        .init();
    match run(command, live_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, live_bytes: LiveBytes) -> Result<()> {
    // Each subject must run on one thread. One thread is also enough for the harness, which mostly waits for subjects.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the tokio runtime")?;
    let simulated = |mode: Mode, with: &Measuring| {
        runtime.block_on(harness::run(
            mode,
            with.only.as_deref(),
            &results_file(with, mode.name()),
        ))
    };
    match command {
        Command::Smoke(with) => simulated(Mode::Smoke, &with),
        Command::Quick(with) => simulated(Mode::Quick, &with),
        Command::Run(with) => simulated(Mode::Run, &with),
        Command::Real { with, measuring } => {
            runtime.block_on(harness::real(&with, &results_file(&measuring, "real")))
        }
        Command::Subject(settings) => runtime.block_on(subject::run(&settings, live_bytes)),
    }
}

/// Returns the results file of the command line, or else the path of a new file that is named by date.
fn results_file(with: &Measuring, mode: &str) -> PathBuf {
    let file = with.out.clone().unwrap_or_else(|| {
        let date = crate::results::now().replace(':', "");
        format!("benches/results/{date}-{mode}.jsonl").into()
    });
    tracing::info!("results go into {}", file.display());
    file
}
