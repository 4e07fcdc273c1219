//! The `pleg` command: `watch`, `top` and `pods` show the pods of a node, `agent` serves metrics and health, `check`
//! asks the agent for problems, `doctor` looks for their causes, `sim` runs a simulated runtime, and `config` checks
//! the agent's configuration file. `completions` and `man` write files for packages.

mod agent;
mod agent_client;
mod args;
mod bounded;
mod check;
mod config;
mod connect;
mod doctor;
mod filter;
mod find;
mod health;
mod http;
mod json;
mod kubelet;
mod log;
mod meter;
mod observer;
mod page;
mod picture;
mod pods;
mod proc;
mod record;
mod sim;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod top;
mod view;
mod watch;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::Context as _;
use clap::CommandFactory as _;
use tokio::signal::unix::{SignalKind, signal};

use args::{Args, Command, SimCommand};
use text::safe;

/// The exit codes of a service after SIGINT and SIGTERM. A stop by a service manager is a success.
const STOP: [u8; 2] = [130, 0];

pub(crate) type Outcome = anyhow::Result<ExitCode>;

fn main() -> ExitCode {
    let args = config::parse(&Vec::from_iter(env::args_os()));
    args.and_then(run).unwrap_or_else(|error| fail(&error))
}

fn run(args: Args) -> Outcome {
    use Command as C;
    let quiet = matches!(args.command, C::Watch(_) | C::Pods(_) | C::Doctor(_));
    // Log lines would garble the screen of `pleg top`.
    if !matches!(args.command, C::Top(_)) || !io::stderr().is_terminal() {
        log::to_stderr(args.verbose, args.log_format, quiet)?;
    }
    match args.command {
        C::Watch(args) => until_signal(watch::run(args)),
        C::Top(args) => until_signal(top::run(args)),
        C::Pods(args) => until_signal(pods::run(args)),
        C::Check(args) => until_signal(check::run(args)),
        C::Doctor(args) => until_signal(async { Ok(doctor::run(args).await) }),
        C::Agent(args) => {
            agent::return_freed_memory();
            block_on(async { agent::run(args, first_signal(STOP)?).await })
        }
        C::Sim(args) => match args.command {
            Some(SimCommand::Ctl { socket, command }) => {
                until_signal(sim::control(&socket, &command))
            }
            None => block_on(async { sim::run(args, first_signal(STOP)?).await }),
        },
        // `pleg doctor` starts this command for each mount: a read that never returns hangs only this process.
        C::AskMount { path } => {
            picture::host::ask_mount(&path);
            Ok(ExitCode::SUCCESS)
        }
        C::Config(args::ConfigCommand::Check { file }) => config::check_file(&file),
        C::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "pleg", &mut script);
            io::stdout().write_all(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        C::Man { dir } => {
            let written = fs::create_dir_all(&dir);
            let written = written.and_then(|()| clap_mangen::generate_to(Args::command(), &dir));
            written.with_context(|| format!("cannot write to {}", safe(&dir.to_string_lossy())))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a command until it or a signal ends it. After a signal, returns the exit code that shells expect.
fn until_signal(command: impl Future<Output = Outcome>) -> Outcome {
    block_on(async {
        let signal = first_signal([130, 143])?;
        tokio::select! {
            result = Box::pin(command) => result,
            code = signal => Ok(code),
        }
    })
}

/// Waits for the first signal, and returns its exit code: `codes[0]` for SIGINT (Ctrl-C), `codes[1]` for SIGTERM.
/// Signals before the first poll are not lost. SIGHUP is handled only by the agent, so that `nohup` works.
fn first_signal(codes: [u8; 2]) -> io::Result<impl Future<Output = ExitCode>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => codes[0].into(),
            _ = terminate.recv() => codes[1].into(),
        }
    })
}

fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start")?;
    let result = runtime.block_on(command);
    // Ends without waiting for blocking threads: one may hang in a read of /proc or of a disk.
    runtime.shutdown_background();
    result
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
