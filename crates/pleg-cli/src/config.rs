//! The settings of `pleg agent`. Flags override environment variables, and these override the configuration file.
//!
//! Each flag, such as `--relist-period`, is also the variable `PLEG_RELIST_PERIOD` and the key `relist-period` in the
//! file. The settings of the variables and of the file become the defaults of the flags.

use std::collections::BTreeMap;
use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};
use toml::de::{DeTable, DeValue};

use crate::args::{Args, Command as Chosen};
use crate::find::ENDPOINT_VARIABLES;
use crate::http::Access;
use crate::text::{safe, safe_lines};
use crate::{agent, bounded};

const CONFIG: &str = "config";
/// The flag that a user may repeat, as in `-vv`. Its setting is the number of repetitions.
const VERBOSE: &str = "verbose";
/// The flags that select a real or a simulated runtime. They exclude each other.
pub(crate) const ENDPOINT: &str = "runtime-endpoint";
const SIM: &str = "sim";
const AGENT: &str = "agent";

type Settings = BTreeMap<String, String>;

pub(crate) fn check_file(file: &Path) -> anyhow::Result<ExitCode> {
    let settings = match read(file) {
        Ok(settings) => settings,
        Err(problems) => {
            write!(anstream::stderr(), "{}", safe_lines(&problems))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let matches = with_defaults(&settings).try_get_matches_from(["pleg", AGENT])?;
    if let Chosen::Agent(args) = Args::from_arg_matches(&matches)?.command {
        let what = || file.display().to_string();
        agent::settings(&args).with_context(what)?;
        Access::load(&args.access, &args.listen).with_context(what)?;
    }
    writeln!(anstream::stdout(), "{}: ok", safe(&file.to_string_lossy()))?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the command line; for `pleg agent`, also environment and file. Ends the process on --help or an invalid flag.
pub(crate) fn parse(args: &[OsString]) -> anyhow::Result<Args> {
    let matches = Args::command().get_matches_from(args);
    let Some((AGENT, flags)) = matches.subcommand() else {
        return Ok(Args::from_arg_matches(&matches)?);
    };
    let file = flags.get_one::<PathBuf>(CONFIG).cloned();
    let file = file.or_else(|| Some(variable(CONFIG)?.1.into()));
    let (mut settings, mut origin) = (Settings::new(), None);
    if let Some(file) = file {
        settings = read(&file).map_err(|problems| anyhow!(problems.join("; ")))?;
        origin = Some(format!("set in {}", file.display()));
    }
    for key in settable(&Args::command()).filter_map(Arg::get_long) {
        let Some((name, value)) = variable(key) else {
            continue;
        };
        check(key, &value).map_err(|why| anyhow!("invalid value of {name}: {why}"))?;
        // If a variable selects a runtime, removes the file's selection: the two flags exclude each other.
        match key {
            ENDPOINT => {
                settings.remove(SIM);
                origin = Some(format!("set by {name}"));
            }
            SIM => drop(settings.remove(ENDPOINT)),
            _ => {}
        }
        settings.insert(key.to_owned(), value);
    }
    let mut args = Args::from_arg_matches(&with_defaults(&settings).try_get_matches_from(args)?)?;
    if let Chosen::Agent(args) = &mut args.command {
        let runtime = &mut args.connection.runtime;
        match flags.contains_id("runtime_endpoint") {
            true => runtime.sim = None,
            false => runtime.origin = origin,
        }
    }
    Ok(args)
}

/// The environment variable that sets a flag, and its value. An empty value counts as unset.
pub(crate) fn variable(key: &str) -> Option<(String, String)> {
    let names = match key {
        ENDPOINT => ENDPOINT_VARIABLES.map(str::to_owned).to_vec(),
        _ => vec![format!("PLEG_{}", key.replace('-', "_").to_uppercase())],
    };
    let set = |name: String| {
        let value = env::var_os(&name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some((name, value))
    };
    names.into_iter().find_map(set)
}

/// The parser of the command line, with these settings as the defaults of its flags.
fn with_defaults(settings: &Settings) -> Command {
    let set = |arg: Arg| match arg.get_long().and_then(|key| settings.get(key)) {
        Some(value) => arg.default_value(value.clone()),
        None => arg,
    };
    let command = Args::command().mut_args(set);
    command.mut_subcommand(AGENT, |agent| agent.mut_args(set))
}

fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    let agent = command.find_subcommand(AGENT).into_iter();
    let args = agent.flat_map(Command::get_arguments);
    let args = args.chain(command.get_arguments());
    args.filter(|arg| arg.get_long().is_some_and(|name| name != CONFIG))
}

/// Reads the settings from a TOML file without tables. Errors: all invalid settings, or one problem of the whole file.
fn read(file: &Path) -> Result<Settings, Vec<String>> {
    let shown = file.display();
    let unread = |error| vec![format!("cannot read {shown}: {error}")];
    let text = bounded::read(file).map_err(unread)?;
    let newlines = |before: usize| text.bytes().take(before).filter(|b| *b == b'\n').count();
    let line = |span: Range<usize>| 1 + newlines(span.start);
    let table = DeTable::parse(&text).map_err(|error| {
        let line = error.span().map_or(1, line);
        vec![format!("{shown}:{line}: {}", error.message())]
    })?;
    let (mut settings, mut problems) = (Settings::new(), Vec::new());
    for (key, value) in table.into_inner() {
        match setting(key.get_ref(), value.get_ref()) {
            Ok(value) => drop(settings.insert(key.into_inner().into_owned(), value)),
            Err(why) => problems.push((line(key.span()), why)),
        }
    }
    if settings.contains_key(ENDPOINT) && settings.contains_key(SIM) {
        let why = format!("{shown}: `{ENDPOINT}` and `{SIM}` exclude each other");
        return Err(vec![why]);
    }
    problems.sort();
    let shown = |(line, why)| format!("{shown}:{line}: {why}");
    match problems.is_empty() {
        true => Ok(settings),
        false => Err(problems.into_iter().map(shown).collect()),
    }
}

/// Converts a TOML value to the text of a flag's value. Returns an error if the key or the value is not valid.
fn setting(key: &str, value: &DeValue<'_>) -> Result<String, String> {
    let types = "a string, a number or a boolean; there are no tables";
    let value = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        _ => return Err(format!("`{key}` must be {types}")),
    };
    let command = Args::command();
    let keys: Vec<&str> = settable(&command).filter_map(Arg::get_long).collect();
    if !keys.contains(&key) {
        return Err(format!("unknown key `{key}`; allowed: {}", keys.join(", ")));
    }
    check(key, &value).map_err(|why| format!("invalid value of `{key}`: {why}"))?;
    Ok(value)
}

/// Parses a value as the flag would. The error says why the value is invalid, or which values are allowed.
fn check(key: &str, value: &str) -> Result<(), String> {
    if key == VERBOSE {
        let parsed = value.parse::<u8>().map(drop);
        return parsed.map_err(|_| "use a number from 0 to 3".to_owned());
    }
    let flag = format!("--{key}={value}");
    let Err(error) = Args::command().try_get_matches_from(["pleg", AGENT, &flag]) else {
        return Ok(());
    };
    Err(match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) => format!("use {}", valid.join(", ")),
        _ => "not valid".to_owned(),
    })
}

#[cfg(test)]
mod tests;
