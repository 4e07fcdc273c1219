//! The `pleg` command: `watch` and `pods` show the pods of a node, `agent` serves metrics and health,
//! `bench` measures both modes on this node, and `sim` runs a simulated runtime.

mod agent;
mod args;
mod bench;
mod connect;
mod json;
mod pods;
mod signals;
mod sim;
mod table;
mod text;
mod usage;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Args, Command};
use clap::Parser;
use signals::Signal;

fn main() -> ExitCode {
    let args = Args::parse();
    log_to_stderr(args.verbose);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("cannot start")),
    };
    let result = runtime.block_on(run(args.command));
    // Do not wait for a hanging call to the container runtime.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let signal = signals::first()?;
    match command {
        Command::Watch(args) => show(watch::run(args), signal).await,
        Command::Pods(args) => show(pods::run(args), signal).await,
        Command::Agent(args) => Ok(agent::run(args, signal).await?.service_exit_code()),
        Command::Bench(args) => show(bench::run(args), signal).await,
        Command::Sim(args) => sim::run(args, signal).await,
    }
}

/// Runs a command that only shows something. A signal ends it at once.
async fn show(
    command: impl Future<Output = anyhow::Result<()>>,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        result = command => result.map(|()| ExitCode::SUCCESS),
        signal = signal => Ok(signal.exit_code()),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let closed = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(closed) {
        // The reader of the output has closed it (`pleg watch | head`).
        return ExitCode::SUCCESS;
    }
    let style = anstyle::Style::new()
        .bold()
        .fg_color(Some(anstyle::AnsiColor::Red.into()));
    let message = text::safe(&format!("{error:#}")).into_owned();
    // Ignore the error if standard error is closed.
    let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {message}");
    ExitCode::FAILURE
}

fn log_to_stderr(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "info,pleg=debug,pleg_cri=debug,pleg_evented=debug,pleg_sim=debug",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("PLEG_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false)
        .init();
}
