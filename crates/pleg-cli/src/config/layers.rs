//! Flags override environment variables, which override the file.
//!
//! What the environment and the file set becomes the default of the flag, so that each value is parsed
//! in one place and means the same wherever it is set.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::file::{self, FileError, Problem, Setting};
use crate::args::Args;
use crate::find::ENDPOINT_VARIABLE;

/// The flag that names the file. It cannot be in the file.
const CONFIG: &str = "config";
/// The flag that is counted, not given a value.
const VERBOSE: &str = "verbose";
/// These exclude each other: one that is set overrides both of the layers below.
const ALTERNATIVES: [&str; 2] = ["runtime-endpoint", "sim"];
const AGENT: &str = "agent";

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is not valid, or help was asked for.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The file is not valid.
    #[error(transparent)]
    File(#[from] FileError),
    /// A variable is not valid.
    #[error("invalid value of {variable}: {reason}")]
    Variable {
        /// Its name.
        variable: String,
        /// Why.
        reason: String,
    },
}

/// Parses the command line. For `pleg agent`, the environment and the file add to it. Exits if help is
/// asked for, or if a flag is not valid.
pub(crate) fn parse() -> Result<Args, FileOrVariable> {
    match layered(std::env::args_os().collect(), &|name| {
        std::env::var_os(name)
    }) {
        Err(Error::CommandLine(error)) => error.exit(),
        other => other.map_err(FileOrVariable),
    }
}

/// An error that clap does not print.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct FileOrVariable(Error);

/// The value of an environment variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn layered(args: Vec<OsString>, variables: Variables<'_>) -> Result<Args, Error> {
    let matches = Args::command().try_get_matches_from(&args)?;
    let Some((AGENT, given)) = matches.subcommand() else {
        return Ok(Args::from_arg_matches(&matches)?);
    };
    let schema = Schema::new();
    let mut values = Values::default();
    if let Some(file) = config_file(given, variables) {
        values.set(schema.in_file(&file)?);
    }
    values.set(schema.in_environment(variables)?);
    let is_given = |key: &&str| given.value_source(&id(key)) == Some(ValueSource::CommandLine);
    if ALTERNATIVES.iter().any(is_given) {
        values.forget_alternatives();
    }
    let matches = values.into_command().try_get_matches_from(&args)?;
    Ok(Args::from_arg_matches(&matches)?)
}

/// The arguments of an agent that has only this file.
pub(super) fn only(file: &Path) -> Result<Args, Error> {
    let mut values = Values::default();
    values.set(Schema::new().in_file(file)?);
    let matches = values
        .into_command()
        .try_get_matches_from(["pleg", AGENT])?;
    Ok(Args::from_arg_matches(&matches)?)
}

fn config_file(given: &ArgMatches, variables: Variables<'_>) -> Option<PathBuf> {
    let flag = given.get_one::<PathBuf>(CONFIG).cloned();
    let variable = || variables(&variable(CONFIG)).filter(|file| !file.is_empty());
    flag.or_else(|| variable().map(PathBuf::from))
}

/// clap's id of a flag.
fn id(key: &str) -> String {
    key.replace('-', "_")
}

/// The variable of a flag.
fn variable(key: &str) -> String {
    format!("PLEG_{}", id(key).to_uppercase())
}

/// Values by key.
#[derive(Default)]
struct Values(BTreeMap<String, String>);

impl Values {
    /// Sets what one layer sets.
    fn set(&mut self, layer: BTreeMap<String, String>) {
        if ALTERNATIVES.iter().any(|key| layer.contains_key(*key)) {
            self.forget_alternatives();
        }
        self.0.extend(layer);
    }

    fn forget_alternatives(&mut self) {
        self.0
            .retain(|key, _| !ALTERNATIVES.contains(&key.as_str()));
    }

    /// The command line, with these values as defaults.
    fn into_command(self) -> Command {
        let mut command = Args::command();
        for (key, value) in self.0 {
            let id = id(&key);
            let is_global = command.get_arguments().any(|arg| *arg.get_id() == *id);
            command = if is_global {
                command.mut_arg(id, |arg| arg.default_value(value))
            } else {
                let set = |agent: Command| agent.mut_arg(id, |arg| arg.default_value(value));
                command.mut_subcommand(AGENT, set)
            };
        }
        command
    }
}

/// The flags of `pleg agent`.
struct Schema {
    keys: Vec<String>,
}

impl Schema {
    fn new() -> Self {
        let command = Args::command();
        let keys = settable(&command).filter_map(|arg| arg.get_long());
        Self {
            keys: keys.map(str::to_owned).collect(),
        }
    }

    /// What the file sets.
    fn in_file(&self, file: &Path) -> Result<BTreeMap<String, String>, FileError> {
        let settings = file::read(file)?;
        let mut problems: Vec<Problem> = settings.iter().filter_map(|s| self.problem(s)).collect();
        let both = |key| settings.iter().find(|setting| setting.key == key);
        if let [Some(one), Some(other)] = ALTERNATIVES.map(both) {
            problems.push(Problem {
                line: one.line.max(other.line),
                text: format!("`{}` and `{}` exclude each other", one.key, other.key),
            });
        }
        if !problems.is_empty() {
            let file = file.to_owned();
            return Err(FileError::Invalid { file, problems });
        }
        Ok(settings.into_iter().map(|s| (s.key, s.value)).collect())
    }

    fn problem(&self, setting: &Setting) -> Option<Problem> {
        let Setting { key, value, line } = setting;
        let text = if !self.keys.contains(key) {
            format!("unknown key `{key}`; allowed: {}", self.keys.join(", "))
        } else if let Err(reason) = check(key, value) {
            format!("invalid value of `{key}`: {reason}")
        } else {
            return None;
        };
        Some(Problem { line: *line, text })
    }

    /// What the environment sets. An empty value counts as unset.
    fn in_environment(&self, variables: Variables<'_>) -> Result<BTreeMap<String, String>, Error> {
        let mut layer = BTreeMap::new();
        for key in &self.keys {
            let names = [Some(variable(key)), foreign(key)];
            let set = |name: String| {
                let value = variables(&name).filter(|value| !value.is_empty())?;
                Some((name, value))
            };
            let Some((name, value)) = names.into_iter().flatten().find_map(set) else {
                continue;
            };
            let invalid = |reason: &dyn fmt::Display| Error::Variable {
                variable: name.clone(),
                reason: reason.to_string(),
            };
            let value = value.into_string().map_err(|_| invalid(&"not UTF-8"))?;
            check(key, &value).map_err(|reason| invalid(&reason))?;
            layer.insert(key.clone(), value);
        }
        if ALTERNATIVES.iter().all(|key| layer.contains_key(*key)) {
            // crictl's variable may be set for all programs of the node.
            layer.remove(ALTERNATIVES[0]);
        }
        Ok(layer)
    }
}

/// Another program's variable for the same setting.
fn foreign(key: &str) -> Option<String> {
    (key == ALTERNATIVES[0]).then(|| ENDPOINT_VARIABLE.to_owned())
}

/// The flags that the environment and the file can set.
pub(super) fn settable(command: &Command) -> impl Iterator<Item = &clap::Arg> {
    let agent = command.find_subcommand(AGENT).into_iter();
    let own = agent.flat_map(Command::get_arguments);
    let global = command.get_arguments().filter(|arg| arg.is_global_set());
    own.chain(global)
        .filter(|arg| arg.get_long().is_some_and(|long| long != CONFIG))
}

/// Checks a value by parsing it as that of the flag.
fn check(key: &str, value: &str) -> Result<(), String> {
    if key == VERBOSE {
        let parsed = value.parse::<u8>().map(drop);
        return parsed.map_err(|_| "use a number from 0 to 3".to_owned());
    }
    let flag = format!("--{key}={value}");
    let parsed = Args::command().try_get_matches_from(["pleg", AGENT, &flag]);
    parsed.map(drop).map_err(|error| reason(&error))
}

fn reason(error: &clap::Error) -> String {
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) => format!("use {}", valid.join(", ")),
        _ => "not valid".to_owned(),
    }
}

#[cfg(test)]
mod tests;
