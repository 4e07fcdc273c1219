//! The settings of `pleg agent`: flags, then environment variables, then a file.
//!
//! There is one schema, the flags. clap reads the variables, and the values in the file become the
//! defaults of the flags: `--relist-period` is `PLEG_RELIST_PERIOD` and `relist-period`.

mod file;

use std::collections::BTreeMap;
use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Subcommand};

use crate::agent;
use crate::args::{Args, Command as Chosen, RuntimeArgs};
use crate::find::ENDPOINT_VARIABLES;
use crate::http::Access;
use crate::text::safe;

/// The flag that names the file. It cannot be in the file.
const CONFIG: &str = "config";
/// The flag that is counted, not given a value.
const VERBOSE: &str = "verbose";
/// These exclude each other.
const ENDPOINT: &str = "runtime-endpoint";
const SIM: &str = "sim";
const AGENT: &str = "agent";

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

/// Checks a configuration file without starting an agent.
pub(crate) fn run(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Check { file } = args.command;
    let settings = match read(&file) {
        Ok(settings) => settings,
        Err(error) => match error.downcast_ref::<file::Invalid>() {
            None => return Err(error),
            Some(file::Invalid(problems)) => {
                for line in problems {
                    writeln!(anstream::stderr(), "{}", safe(line))?;
                }
                return Ok(ExitCode::FAILURE);
            }
        },
    };
    let matches = with_defaults(settings).try_get_matches_from(["pleg", AGENT])?;
    if let Chosen::Agent(args) = Args::from_arg_matches(&matches)?.command {
        let what = || file.display().to_string();
        agent::settings(&args).with_context(what)?;
        Access::load(&args.access, &args.listen).with_context(what)?;
    }
    writeln!(anstream::stdout(), "{}: ok", safe(&file.to_string_lossy()))?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the command line. For `pleg agent`, the environment and the file add to it. Exits if help is
/// asked for, or if a flag is not valid.
pub(crate) fn parse() -> anyhow::Result<Args> {
    layered(&env::args_os().collect::<Vec<_>>())
}

fn layered(args: &[OsString]) -> anyhow::Result<Args> {
    let matches = Args::command().get_matches_from(args);
    let Some((AGENT, flags)) = matches.subcommand() else {
        return Ok(Args::from_arg_matches(&matches)?);
    };
    let file = flags.get_one::<PathBuf>(CONFIG).cloned();
    let file = file.or_else(|| env::var_os(variable(CONFIG)?).map(PathBuf::from));
    let settings = file.as_deref().map(read).transpose()?.unwrap_or_default();
    let command = with_environment(with_defaults(settings));
    let matches = command
        .try_get_matches_from(args)
        .map_err(|error| invalid_variable(&error))?;
    let mut args = Args::from_arg_matches(&matches)?;
    if let (Chosen::Agent(args), Some((_, agent))) = (&mut args.command, matches.subcommand()) {
        choose_runtime(&mut args.connection.runtime, agent, file);
    }
    Ok(args)
}

/// The endpoint or the simulated runtime, whichever was set by the upper layer.
fn choose_runtime(runtime: &mut RuntimeArgs, agent: &ArgMatches, file: Option<PathBuf>) {
    let [endpoint, sim] = [ENDPOINT, SIM].map(|key| agent.value_source(&id(key)));
    if endpoint > sim {
        runtime.sim = None;
    }
    runtime.origin = match endpoint {
        Some(ValueSource::EnvVariable) => variable(ENDPOINT).map(|name| format!("set by {name}")),
        Some(ValueSource::DefaultValue) => file.map(|file| format!("set in {}", file.display())),
        _ => None,
    };
}

/// clap's id of a flag.
fn id(key: &str) -> String {
    key.replace('-', "_")
}

/// The environment variable that sets a flag. An empty value counts as unset.
fn variable(key: &str) -> Option<String> {
    let names = match key {
        ENDPOINT => ENDPOINT_VARIABLES.map(str::to_owned).to_vec(),
        _ => vec![format!("PLEG_{}", id(key).to_uppercase())],
    };
    let is_set = |name: &String| env::var_os(name).is_some_and(|value| !value.is_empty());
    names.into_iter().find(is_set)
}

/// The command line of an agent whose flags have a value if their variable is set.
fn with_environment(command: Command) -> Command {
    let set = |arg: Arg| match arg.get_long().and_then(variable) {
        Some(name) => arg.env(name),
        None => arg,
    };
    // The upper layer counts, not both.
    let both = |agent: Command| agent.mut_arg(SIM, |arg| arg.conflicts_with(Resettable::Reset));
    command
        .mut_args(set)
        .mut_subcommand(AGENT, |agent| both(agent).mut_args(set))
}

/// The command line of an agent whose flags have these defaults.
fn with_defaults(settings: BTreeMap<String, String>) -> Command {
    let set = |command: Command| {
        command.mut_args(
            |arg| match arg.get_long().and_then(|key| settings.get(key)) {
                Some(value) => arg.default_value(value.clone()),
                None => arg,
            },
        )
    };
    set(Args::command()).mut_subcommand(AGENT, set)
}

/// The flags that the file can set.
fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    let agent = command.find_subcommand(AGENT).into_iter();
    let own = agent.flat_map(Command::get_arguments);
    own.chain(command.get_arguments())
        .filter(|arg| arg.get_long().is_some_and(|long| long != CONFIG))
}

/// The settings in a file, by key. All values are valid.
fn read(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let command = Args::command();
    let keys: Vec<&str> = settable(&command).filter_map(Arg::get_long).collect();
    let settings = file::read(file, |key, value| match keys.contains(&key) {
        false => Err(format!("unknown key `{key}`; allowed: {}", keys.join(", "))),
        true => check(key, value).map_err(|why| format!("invalid value of `{key}`: {why}")),
    })?;
    if [ENDPOINT, SIM]
        .iter()
        .all(|key| settings.contains_key(*key))
    {
        bail!(
            "{}: `{ENDPOINT}` and `{SIM}` exclude each other",
            file.display()
        );
    }
    Ok(settings)
}

/// Parses a value as the flag's.
fn check(key: &str, value: &str) -> Result<(), String> {
    if key == VERBOSE {
        let parsed = value.parse::<u8>().map(drop);
        return parsed.map_err(|_| "use a number from 0 to 3".to_owned());
    }
    let flag = format!("--{key}={value}");
    let parsed = Args::command().try_get_matches_from(["pleg", AGENT, &flag]);
    parsed.map(drop).map_err(|error| reason(&error))
}

/// The allowed values, or the reason why a value is not valid.
fn reason(error: &clap::Error) -> String {
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) => format!("use {}", valid.join(", ")),
        _ => "not valid".to_owned(),
    }
}

/// The flags and the file are valid: a variable is not. clap names only its flag, such as `--events <WHEN>`.
fn invalid_variable(error: &clap::Error) -> anyhow::Error {
    let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let key = flag.unwrap_or_default();
    let key = key
        .trim_start_matches('-')
        .split([' ', '=', '[', '.'])
        .next();
    match key.and_then(variable) {
        Some(name) => anyhow!("invalid value of {name}: {}", reason(error)),
        None => anyhow!("{error}"),
    }
}

#[cfg(test)]
mod tests;
