//! Tests of the layers of settings, and of the example file. tests/suite/input.rs tests variables and errors.

use std::time::Duration;

use clap::builder::PossibleValue;

use super::*;
use crate::args::{AgentArgs, EventsPolicy};
use crate::log::LogFormat;
use crate::text::wrapped;

fn parsed(flags: &[&str], file: &str) -> Result<(Args, AgentArgs), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.toml");
    std::fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let args = [&["pleg", AGENT, "--config", path], flags].concat();
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let parsed = || parse(&args).map_err(|error| error.to_string().replace(path, "FILE"));
    match parsed()?.command {
        Chosen::Agent(agent) => Ok((parsed()?, agent)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flag_overrides_file_and_file_overrides_default() {
    let file = "relist-period = '4s'\nevents = 'never'\nverbose = 2\nlog-format = 'json'";
    let (args, agent) = parsed(&["--relist-period", "2s", "-v"], file).unwrap();
    assert_eq!(agent.relist_period, Duration::from_secs(2), "the flag");
    assert_eq!(args.verbose, 1, "the flag");
    assert_eq!(agent.connection.events, EventsPolicy::Never, "the file");
    assert_eq!(args.log_format, LogFormat::Json, "the file");
    assert_eq!(agent.unready_after, Duration::from_secs(180), "the default");
    assert_eq!(parsed(&[], file).unwrap().0.verbose, 2, "the file");
    let error = parsed(&[], "listen = 'x'\nevents = 'y'").unwrap_err();
    let has_both = error.starts_with("FILE:1: ") && error.contains("; FILE:2: ");
    assert!(has_both, "{error}");
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/agent.toml");

fn example() -> String {
    let mut text = String::from(
        "# The settings of `pleg agent`. The values here are the defaults; a setting that has no default is\n\
         # commented out. Each is also a flag and an environment variable: `relist-period` is\n\
         # `--relist-period` and PLEG_RELIST_PERIOD. Flags override variables, which override this file.\n\
         #\n\
         # `pleg config check FILE` checks such a file. A test generates this example (with PLEG_BLESS=1).\n",
    );
    for arg in settable(&Args::command()) {
        let key = arg.get_long().unwrap();
        let help = wrapped(&arg.get_help().unwrap().to_string(), 98);
        text += &format!("\n# {}\n", help.join("\n# "));
        let values = arg.get_possible_values();
        let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
        if !names.is_empty() {
            text += &format!("# One of {}.\n", names.join(", "));
        }
        let default = arg.get_default_values().first().and_then(|v| v.to_str());
        text += &match (key, default) {
            (VERBOSE, _) => format!("{key} = 0\n"),
            (_, Some("false")) => format!("{key} = false\n"),
            (_, Some(value)) => format!("{key} = \"{value}\"\n"),
            (_, None) => format!("# {key} = \"{}\"\n", sample(key)),
        };
    }
    text
}

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

#[test]
fn example_file_is_as_generated_and_sets_only_defaults() {
    let example = example();
    if env::var_os("PLEG_BLESS").is_some_and(|v| v != "0") {
        std::fs::write(EXAMPLE, &example).unwrap();
    }
    let committed = std::fs::read_to_string(EXAMPLE).unwrap_or_default();
    let bless = "run PLEG_BLESS=1 cargo test -p pleg-cli example_file";
    assert!(committed == example, "deploy/agent.toml is old; {bless}");
    let shown = |file: &str| {
        let (args, mut agent) = parsed(&[], file).unwrap();
        agent.config = None;
        agent.connection.runtime.origin = None;
        format!("{agent:?} {} {:?}", args.verbose, args.log_format)
    };
    assert_eq!(shown(&example), shown(""));
    // The lines that are commented out are valid too, except that the two settings for the runtime exclude each other.
    let is_setting = |(key, _): &(&str, &str)| !key.contains(' ') && *key != SIM;
    let all = example.lines().map(|line| {
        let setting = line.strip_prefix("# ").unwrap_or(line);
        let is_valid = setting.split_once(" = ").as_ref().is_some_and(is_setting);
        if is_valid { setting } else { line }
    });
    let all: Vec<&str> = all.collect();
    let agent = parsed(&[], &all.join("\n")).unwrap().1;
    assert!(agent.access.tls_client_ca.is_some());
    assert!(agent.connection.runtime.runtime_endpoint.is_some());
}
