//! `pleg config check`, and the agent's settings from a file and the environment.

use std::fs;

use crate::commands::run::Running;
use crate::support::{SECRET, TestDir, pleg};

#[test]
fn config_check_prints_ok_or_one_line_for_each_problem() {
    let dir = TestDir::new();
    let [file, token] = ["agent.toml", "token"].map(|name| dir.path(name).display().to_string());
    fs::write(&token, SECRET).expect("written");
    // The lines of the file => the exit code, and the lines that are printed.
    let with_token =
        format!("listen = '0.0.0.0:9394' | token-file = '{token}' => 0 agent.toml: ok");
    for row in [
        &*with_token,
        "listne = 'a' | | events = 'maybe' => 1 toml:1: unknown key `listne` | toml:3: invalid",
        "a = 'b => 1 agent.toml:1: ",
        "relist-period = '2m' => 1 agent.toml: relist-period-max",
        "listen = '0.0.0.0:9394' => 1 --token-file",
        "tls-cert = '/none' => 1 --tls-key",
        "token-file = '/none' => 1 cannot read /none",
    ] {
        let (text, outcome) = row.split_once(" => ").expect("a file and its outcome");
        let (code, lines) = outcome.split_once(' ').expect("a code and lines");
        fs::write(&file, text.replace(" |", "\n")).expect("written");
        let output = pleg(&["config", "check", &file]).output().expect("it runs");
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert_eq!(output.status.code(), code.parse().ok(), "{text}: {shown}");
        let lines: Vec<&str> = lines.split(" | ").collect();
        assert_eq!(shown.lines().count(), lines.len(), "{text}: {shown}");
        for (line, words) in shown.lines().zip(lines) {
            assert!(line.contains(words), "{words} is not in {line}");
        }
    }
}

/// The first line that an agent prints shows its runtime and why it was chosen, or an invalid setting with
/// its value.
#[tokio::test]
async fn flag_overrides_variable_and_variable_overrides_file() {
    let dir = TestDir::new();
    let file = dir.path("agent.toml");
    fs::write(&file, "runtime-endpoint = '/file'\nlisten = '127.0.0.1:0'").expect("written");
    // Variables and flags => the line.
    for row in "\
        => watching unix:///file (set in /
        PLEG_RUNTIME_ENDPOINT= => watching unix:///file (set in /
        CONTAINER_RUNTIME_ENDPOINT=/b => watching unix:///b (set by CONTAINER_RUNTIME_ENDPOINT
        PLEG_RUNTIME_ENDPOINT=/a CONTAINER_RUNTIME_ENDPOINT=/b => watching unix:///a (set by PLEG_RUN
        PLEG_RUNTIME_ENDPOINT=/a -r=/c => watching unix:///c (set by -r
        PLEG_SIM=crio -r=/c => watching unix:///c (set by -r
        PLEG_RUNTIME_ENDPOINT=/a --sim => (embedded, simulated)
        PLEG_SIM=crio CONTAINER_RUNTIME_ENDPOINT=/b => (embedded, simulated)
        PLEG_RELIST_PERIOD=2m => relist-period-max
        PLEG_RELIST_PERIOD=2m --relist-period=1s => watching
        PLEG_EVENTS=x => invalid value of PLEG_EVENTS: use auto, always, never
        PLEG_VERBOSE=x => invalid value of PLEG_VERBOSE:
        CONTAINER_RUNTIME_ENDPOINT=tcp://a => invalid value of CONTAINER_RUNTIME_ENDPOINT:"
        .lines()
    {
        let (words, expected) = row.split_once("=> ").expect("words and the line");
        let mut command = pleg(&["agent"]);
        command.env("PLEG_CONFIG", &file).env("PLEG_LOG", "off");
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) if !name.starts_with('-') => command.env(name, value),
                _ => command.arg(word),
            };
        }
        let line = Running::spawn(command).message().await.expect("a line");
        assert!(line.contains(expected), "{row}: {line}");
    }
}
