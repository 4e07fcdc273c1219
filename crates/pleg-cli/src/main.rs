//! The `pleg` command: `watch`, `top` and `pods` show the pods of a node, `agent` serves metrics and health,
//! `check` asks the agent, `doctor` finds out what is wrong, `sim` runs a simulated runtime, and `config` checks the agent's
//! configuration file. `completions` and `man` are for packages.

mod agent;
mod agent_client;
mod args;
mod bounded;
mod check;
mod config;
mod connect;
#[cfg(test)]
mod deploy;
mod doctor;
mod figures;
mod filter;
mod find;
mod generate;
mod health;
mod http;
mod json;
mod kubelet;
mod limits;
mod log;
mod meter;
mod observer;
mod page;
mod picture;
mod pods;
mod proc;
mod record;
mod signals;
mod sim;
mod table;
mod text;
mod top;
mod view;
mod watch;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use args::Command;
use signals::Signal;

fn main() -> ExitCode {
    let args = match config::parse() {
        Ok(args) => args,
        Err(error) => return fail(&error),
    };
    if let Command::AskMount { path } = &args.command {
        // It may never return, so it needs no runtime that would wait for it.
        return doctor::ask_mount(path);
    }
    let quiet = matches!(
        args.command,
        Command::Watch(_) | Command::Pods(_) | Command::Doctor(_)
    );
    // Lines of the log would disturb what is on the terminal.
    let on_terminal = matches!(args.command, Command::Top(_)) && io::stderr().is_terminal();
    if !on_terminal && let Err(error) = log::to_stderr(args.verbose, args.log_format, quiet) {
        return fail(&error);
    }
    if matches!(args.command, Command::Agent(_)) {
        limits::return_freed_memory();
    }
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
        Command::Watch(args) => show(Box::pin(watch::run(args)), signal).await,
        Command::Top(args) => tokio::select! {
            result = Box::pin(top::run(args)) => result,
            signal = signal => Ok(signal.exit_code()),
        },
        Command::Pods(args) => show(pods::run(args), signal).await,
        Command::Agent(args) => Ok(agent::run(args, signal).await?.service_exit_code()),
        Command::Check(args) => tokio::select! {
            result = check::run(args) => result,
            signal = signal => Ok(signal.exit_code()),
        },
        Command::Sim(args) => sim::run(args, signal).await,
        Command::Doctor(args) => tokio::select! {
            code = doctor::run(args) => Ok(code),
            signal = signal => Ok(signal.exit_code()),
        },
        // It is done in main.
        Command::AskMount { path } => Ok(doctor::ask_mount(&path)),
        Command::Config(args) => config::run(args),
        Command::Completions(args) => generate::completions(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => generate::man(&args).map(|()| ExitCode::SUCCESS),
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
    log::show_error(error);
    ExitCode::FAILURE
}
