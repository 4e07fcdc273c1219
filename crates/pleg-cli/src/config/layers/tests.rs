//! Tests of the layers, and of the example file.

use std::collections::HashMap;
use std::time::Duration;

use clap::builder::PossibleValue;

use super::*;
use crate::args::{AgentArgs, Command as Subcommand, EventsPolicy};
use crate::log::LogFormat;

/// The arguments with these flags, variables and file.
fn parsed(flags: &[&str], variables: &[(&str, &str)], file: &str) -> Result<Args, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.toml");
    std::fs::write(&path, file).unwrap();
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    let mut args: Vec<OsString> = vec!["pleg".into(), AGENT.into()];
    args.extend(flags.iter().map(OsString::from));
    args.extend(["--config".into(), path.clone().into()]);
    let get = |name: &str| variables.get(name).map(OsString::from);
    let shown = path.display().to_string();
    layered(args, &get).map_err(|error| error.to_string().replace(&shown, "FILE"))
}

fn agent(flags: &[&str], variables: &[(&str, &str)], file: &str) -> AgentArgs {
    agent_of(parsed(flags, variables, file).unwrap())
}

fn agent_of(args: Args) -> AgentArgs {
    match args.command {
        Subcommand::Agent(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn flag_overrides_variable_and_variable_overrides_file() {
    let file = "relist-period = '4s'\nprobe-period = '5s'\nevents = 'never'\nlisten = '/run/a'";
    let variables = [
        ("PLEG_RELIST_PERIOD", "3s"),
        ("PLEG_PROBE_PERIOD", "6s"),
        ("PLEG_LISTEN", ""),
    ];
    let args = agent(&["--relist-period", "2s"], &variables, file);
    assert_eq!(args.relist_period, Duration::from_secs(2), "the flag");
    assert_eq!(args.probe_period, Duration::from_secs(6), "the variable");
    assert_eq!(args.connection.events, EventsPolicy::Never, "the file");
    assert_eq!(
        args.listen.to_string(),
        "unix:///run/a",
        "an empty variable"
    );
    assert_eq!(args.unready_after, Duration::from_secs(180), "the default");
}

#[test]
fn settings_of_the_log_have_layers_too() {
    let file = "verbose = 2\nlog-format = 'json'";
    let args = parsed(&[], &[], file).unwrap();
    assert_eq!((args.verbose, args.log_format), (2, LogFormat::Json));
    let args = parsed(&["-v"], &[("PLEG_LOG_FORMAT", "text")], file).unwrap();
    assert_eq!((args.verbose, args.log_format), (1, LogFormat::Text));
}

#[test]
fn runtime_of_an_upper_layer_replaces_both_alternatives() {
    let endpoint = |args: &AgentArgs| {
        let runtime = &args.connection.runtime;
        let endpoint = runtime.runtime_endpoint.as_ref().map(ToString::to_string);
        (endpoint, runtime.sim.map(pleg_sim::Mode::name))
    };
    let simulated = "sim = 'crio'";
    let real = "runtime-endpoint = '/run/a.sock'";
    let a = Some("unix:///run/a.sock".to_owned());
    let b = Some("unix:///run/b.sock".to_owned());
    assert_eq!(endpoint(&agent(&[], &[], simulated)), (None, Some("crio")));
    assert_eq!(endpoint(&agent(&[], &[], real)), (a, None));
    let args = agent(&["-r", "/run/b.sock"], &[], simulated);
    assert_eq!(endpoint(&args), (b.clone(), None));
    let args = agent(&["--sim=crio"], &[(ENDPOINT_VARIABLE, "/run/b.sock")], real);
    assert_eq!(endpoint(&args), (None, Some("crio")));
    for name in [ENDPOINT_VARIABLE, "PLEG_RUNTIME_ENDPOINT"] {
        let args = agent(&[], &[(name, "/run/b.sock")], simulated);
        assert_eq!(endpoint(&args), (b.clone(), None), "{name}");
    }
    let both = parsed(&[], &[], "sim = 'crio'\nruntime-endpoint = '/a'").unwrap_err();
    assert!(both.starts_with("FILE:2: "), "{both}");
}

#[test]
fn error_names_key_line_and_what_is_allowed() {
    for (file, words) in [
        (
            "\nlistne = '/a'",
            &["FILE:2: unknown key `listne`", "; allowed: ", " listen, "][..],
        ),
        ("config = '/a'", &["FILE:1: unknown key `config`"]),
        (
            "events = 'maybe'",
            &["FILE:1: ", "`events`: use auto, always, never"],
        ),
        (
            "relist-period = 5",
            &["`relist-period`: ", "use for example 500ms"],
        ),
        ("verbose = true", &["`verbose`: use a number"]),
        ("kubelet-names = 1", &["`kubelet-names`: use true, false"]),
        ("verbose = 'a'", &["`verbose`: use a number"]),
        ("sim = 'x'", &["`sim`: use ", "containerd-2"]),
        ("listen = 'x'\nevents = 'y'", &["FILE:1: ", "; FILE:2: "]),
    ] {
        let error = parsed(&[], &[], file).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{word} is not in {error}");
        }
    }
    let error = parsed(&[], &[("PLEG_EVENTS", "x")], "").unwrap_err();
    assert_eq!(
        error,
        "invalid value of PLEG_EVENTS: use auto, always, never"
    );
}

#[test]
fn variable_names_the_file() {
    let variables = |name: &str| (name == "PLEG_CONFIG").then(|| OsString::from("/none"));
    let args = vec!["pleg".into(), AGENT.into()];
    let error = layered(args, &variables).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /none");
}

#[test]
fn other_commands_have_no_layers() {
    let variables = |_: &str| Some(OsString::from("not valid"));
    assert!(layered(vec!["pleg".into(), "pods".into()], &variables).is_ok());
}

/// Where the example is.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/agent.toml");

/// The example file: all settings with their defaults.
fn example() -> String {
    let mut text = String::from(
        "# The settings of `pleg agent`. What is set here is the default; a setting without one is\n\
         # commented out. Each is also a flag and an environment variable: `relist-period` is\n\
         # `--relist-period` and PLEG_RELIST_PERIOD. Flags override variables, which override this file.\n\
         #\n\
         # `pleg config check FILE` checks a file. Tests write this one (PLEG_BLESS=1).\n",
    );
    let command = Args::command();
    for arg in settable(&command) {
        let key = arg.get_long().unwrap();
        text.push('\n');
        for line in wrapped(&arg.get_help().unwrap().to_string()) {
            text.push_str(&format!("# {line}\n"));
        }
        let values = arg.get_possible_values();
        if !values.is_empty() {
            let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
            text.push_str(&format!("# One of {}.\n", names.join(", ")));
        }
        let default = arg.get_default_values().first().and_then(|v| v.to_str());
        let line = match (key, default) {
            (VERBOSE, _) => format!("{key} = 0\n"),
            (_, Some("false")) => format!("{key} = false\n"),
            (_, Some(value)) => format!("{key} = \"{value}\"\n"),
            (_, None) => format!("# {key} = \"{}\"\n", sample(key)),
        };
        text.push_str(&line);
    }
    text
}

/// A value of a setting without a default.
fn sample(key: &str) -> &'static str {
    match key {
        "runtime-endpoint" => "unix:///run/containerd/containerd.sock",
        "sim" => "containerd-2",
        "health-listen" => "127.0.0.1:9395",
        "token-file" => "/etc/pleg/tokens",
        "tls-cert" => "/etc/pleg/tls.crt",
        "tls-key" => "/etc/pleg/tls.key",
        "tls-client-ca" => "/etc/pleg/client-ca.crt",
        other => panic!("add a sample of {other}"),
    }
}

/// Splits text into lines of at most 98 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].len() + word.len() > 97 {
            lines.push(word.to_owned());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            lines[last].push_str(&format!("{space}{word}"));
        }
    }
    lines
}

#[test]
fn example_file_is_current_and_equals_the_defaults() {
    let example = example();
    if std::env::var_os("PLEG_BLESS").is_some_and(|v| v != "0") {
        std::fs::write(EXAMPLE, &example).unwrap();
    }
    let committed = std::fs::read_to_string(EXAMPLE).unwrap_or_default();
    let bless = "run PLEG_BLESS=1 cargo test -p pleg-cli example_file";
    assert!(
        committed == example,
        "deploy/agent.toml is not current; {bless}"
    );
    let shown = |file: &str| {
        let mut args = parsed(&[], &[], file).unwrap();
        if let Subcommand::Agent(agent) = &mut args.command {
            agent.config = None;
        }
        format!("{args:?}")
    };
    assert_eq!(shown(&example), shown(""));
    // What is commented out is valid, too. The two runtimes exclude each other.
    let all = example.replace("\n# sim =", "\n## sim =");
    let is_setting = |line: &str| {
        line.split_once(" = ")
            .is_some_and(|(key, _)| !key.contains(' '))
    };
    let all: Vec<&str> = all
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if is_setting(rest) => rest,
            _ => line,
        })
        .collect();
    let args = agent(&[], &[], &all.join("\n"));
    assert!(
        args.access.tls_client_ca.is_some() && args.connection.runtime.runtime_endpoint.is_some()
    );
}
