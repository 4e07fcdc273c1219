//! Tests of the unit file.

use std::fs;
use std::process::Command;

use super::{agent, has, read, succeeds};

const UNIT: &str = "systemd/pleg-agent.service";
/// The maximum exposure that `systemd-analyze security` may report, in tenths.
const MOST_EXPOSURE: &str = "25";

#[test]
fn unit_runs_an_agent_and_systemd_finds_it_hardened() {
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
    // `systemd-analyze verify` needs a program that exists.
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
