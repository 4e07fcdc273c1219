//! Tests of the files under `deploy/`: the programs that read them accept them, and `pleg` accepts their arguments.

mod kubernetes;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;
use serde_json::{Value, json};

use crate::args::{AgentArgs, Args, Command as Subcommand};

const UNIT: &str = "systemd/pleg-agent.service";
/// The most exposure that `systemd-analyze security` may report, in tenths.
const MOST_EXPOSURE: &str = "25";

fn path(name: &str) -> PathBuf {
    let parts = [env!("CARGO_MANIFEST_DIR"), "../../deploy", name];
    parts.iter().collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).expect(name)
}

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

#[test]
fn systemd_unit_runs_an_agent_and_is_hardened() {
    let unit = read(UNIT);
    let command = unit.lines().find_map(|l| l.strip_prefix("ExecStart="));
    let mut words = command.expect("a command").split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/pleg"));
    assert!(agent(words).config.is_some());
    if !has("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pleg-agent.service");
    let program = std::env::current_exe().unwrap();
    let unit = unit.replace("/usr/local/bin/pleg", &program.to_string_lossy());
    fs::write(&file, unit).unwrap();
    let analyze = |args: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        succeeds(command.env("SYSTEMD_PAGER", "").args(args).arg(&file))
    };
    assert_eq!(analyze(&["verify", "--man=no"]), "", "it has warnings");
    let threshold = format!("--threshold={MOST_EXPOSURE}");
    let report = analyze(&["security", "--offline=yes", "--no-pager", &threshold]);
    assert!(report.contains("Overall exposure level"), "{report}");
}

/// The alerts, without the recording rule. `tests/suite/agent_metrics.rs` evaluates them on an agent's metrics.
fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("prometheus/pleg.rules.yaml")).unwrap();
    let mut rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    rules.retain(|rule| rule.get("alert").is_some());
    rules
}

#[test]
fn alerts_have_durations_and_runbook_sections_and_inhibitions_name_alerts() {
    let alerts = alerts();
    let runbook = read("../docs/runbook.md").to_lowercase();
    for alert in &alerts {
        assert!(alert["for"].is_string(), "{alert}");
        let name = alert["alert"].as_str().unwrap().to_lowercase();
        assert!(runbook.contains(&name), "{name} is not in docs/runbook.md");
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        let (setting, anchor) = url.split_once('#').expect(url);
        assert!(setting.contains("query \"pleg:runbook\""), "{url}");
        let is_heading = |line: &str| line.trim_start_matches('#') == format!(" {anchor}");
        let exists = anchor.starts_with("{{") || runbook.lines().any(is_heading);
        assert!(exists, "{url}");
    }
    for code in pleg::core::Degraded::CODES {
        let names_it = |alert: &Value| alert["expr"].as_str().unwrap().contains(code);
        assert!(alerts.iter().any(names_it), "{code} has no alert");
    }
    let names: Vec<_> = alerts.iter().map(|alert| &alert["alert"]).collect();
    let config: Value = serde_saphyr::from_str(&read("prometheus/alertmanager.yaml")).unwrap();
    for rule in config["inhibit_rules"].as_array().unwrap() {
        assert_eq!(rule["equal"], json!(["instance"]));
        for matchers in ["source_matchers", "target_matchers"] {
            let matcher = rule[matchers][0].as_str().unwrap();
            let (_, inhibited) = matcher.trim_end_matches('"').split_once('"').unwrap();
            for name in inhibited.split('|') {
                let exists = names.iter().any(|alert| **alert == name);
                assert!(exists, "{name} in {matcher}");
            }
        }
    }
}

#[test]
fn alerts_fire_in_outages_and_not_in_maintenance() {
    if has("promtool") {
        let mut command = Command::new("promtool");
        command.args(["test", "rules"]);
        succeeds(command.arg(path("prometheus/pleg.rules.test.yaml")));
    }
}
