//! Tests of the files under `deploy/`: the programs that read these files accept them, and they fit the flags.

mod kubernetes;
mod metrics;
mod systemd;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;

use crate::args::{AgentArgs, Args, Command as Subcommand};

fn path(name: &str) -> PathBuf {
    let parts = [env!("CARGO_MANIFEST_DIR"), "../../deploy", name];
    parts.iter().collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).expect(name)
}

/// The arguments of an agent, as the command parses them.
fn agent<'a>(args: impl IntoIterator<Item = &'a str>) -> AgentArgs {
    let args = ["pleg"].into_iter().chain(args);
    match Args::try_parse_from(args).map(|args| args.command) {
        Ok(Subcommand::Agent(args)) => args,
        other => panic!("{other:?}"),
    }
}

/// Returns true if this machine has the tool. Otherwise prints that it is missing; in CI that fails the test.
fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        let in_ci = std::env::var_os("CI").as_deref() == Some(OsStr::new("true"));
        assert!(!in_ci, "in CI no test may be skipped: {tool} is missing");
        println!("skipped: {tool} is missing");
    }
    found
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}
