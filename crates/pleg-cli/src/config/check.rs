//! `pleg config check`: checks a configuration file without starting an agent.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

use super::layers::{self, Error};
use crate::agent;
use crate::args::Command;
use crate::http::Access;
use crate::text::safe;

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a configuration file of pleg agent, and the token and certificates that it names
    ///
    /// Flags and environment variables of the agent are not considered.
    Check {
        /// The configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn run(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Check { file } = args.command;
    let checked = match layers::only(&file) {
        Err(Error::File(error)) => {
            for line in error.lines() {
                writeln!(anstream::stderr(), "{}", safe(&line))?;
            }
            return Ok(ExitCode::FAILURE);
        }
        checked => checked?,
    };
    if let Command::Agent(args) = checked.command {
        let what = || file.display().to_string();
        agent::settings(&args).with_context(what)?;
        Access::load(&args.access, &args.listen).with_context(what)?;
    }
    writeln!(anstream::stdout(), "{}: ok", safe(&file.to_string_lossy()))?;
    Ok(ExitCode::SUCCESS)
}
