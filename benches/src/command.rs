//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::harness::{self, Mode};
use crate::{Allocated, report, runtime, subject};

/// Benchmarks of the pod lifecycle event generator beside its rivals.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures a small node within seconds: whether it works (for CI).
    #[command(hide = true)]
    Smoke(Measuring),
    /// Measures within three minutes.
    Quick(Measuring),
    /// Measures every table of the page, within three quarters of an hour.
    Run(Measuring),
    /// Measures everything, for hours. Goes on where its file of results ends.
    Full(Measuring),
    /// Measures subjects on real containerds, with real pods.
    Real {
        #[command(flatten)]
        with: harness::Real,
        /// Where the results go. By default a file of its own, named by the date.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Writes docs/benchmarks.md and its pictures from files of results.
    Report {
        /// The files. The ones in benches/results if none is named.
        results: Vec<PathBuf>,
        /// Where the page goes; the pictures go into the directory of its name beside it.
        #[arg(long, default_value = "docs/benchmarks.md")]
        out: PathBuf,
    },
    /// The runtime, in a process of its own (for the harness).
    #[command(hide = true)]
    Serve(runtime::Settings),
    /// One subject, in a process of its own (for the harness).
    #[command(hide = true)]
    Subject(subject::Settings),
}

#[derive(Debug, clap::Args)]
struct Measuring {
    /// Where the results go. By default a file of its own for each run, named by the date; for
    /// `full` always the same one.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only points whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// What everything that looks random comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command; `allocated` counts allocations, in the executable that does.
#[must_use]
pub fn main(allocated: Allocated) -> ExitCode {
    let command = Cli::parse().command;
    // What a generator says of every event while it is measured would cost it time.
    let level = match command {
        Command::Serve(_) | Command::Subject(_) => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    // RUST_LOG says otherwise.
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

fn run(command: Command, allocated: Allocated) -> Result<()> {
    let measure = |mode, name: &str, with: Measuring| {
        let day = crate::results::now().replace(':', "");
        let file = if mode == Mode::Full {
            name.to_owned()
        } else {
            format!("{day}-{name}")
        };
        let out = with
            .out
            .unwrap_or_else(|| format!("benches/results/{file}.jsonl").into());
        tracing::info!("results go into {}", out.display());
        harness::run(mode, with.only.as_deref(), with.seed, &out)
    };
    match command {
        Command::Smoke(with) => measure(Mode::Smoke, "smoke", with),
        Command::Quick(with) => measure(Mode::Quick, "quick", with),
        Command::Run(with) => measure(Mode::Run, "run", with),
        Command::Full(with) => measure(Mode::Full, "full", with),
        Command::Real { with, out } => {
            let day = crate::results::now().replace(':', "");
            let out = out.unwrap_or_else(|| format!("benches/results/{day}-real.jsonl").into());
            tracing::info!("results go into {}", out.display());
            harness::real(&with, 1, &out)
        }
        Command::Report { results, out } => report::write(&results, &out),
        Command::Serve(settings) => on_one_thread(runtime::serve(settings)),
        Command::Subject(settings) => on_one_thread(subject::run(settings, allocated)),
    }
}

fn on_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("no tokio runtime")?.block_on(work)
}
