//! `pleg config check`, and the agent's settings from a file and the environment.

use std::fs;

use crate::commands::run::Running;
use crate::support::{TestDir, pleg};

#[test]
fn config_check_prints_ok_or_one_line_for_each_problem() {
    let dir = TestDir::new();
    let [file, token] = ["agent.toml", "token"].map(|name| dir.path(name).display().to_string());
    fs::write(&token, "secret").expect("written");
    let with_token = format!("listen = '0.0.0.0:9394'\ntoken-file = '{token}'");
    for (text, code, lines) in [
        (&*with_token, 0, &["agent.toml: ok"][..]),
        (
            "listne = 'a'\n\nevents = 'maybe'",
            1,
            &[
                "agent.toml:1: unknown key `listne`",
                "agent.toml:3: invalid value of `events`",
            ],
        ),
        ("a = 'b", 1, &["agent.toml:1: "]),
        (
            "relist-period = '2m'",
            1,
            &["agent.toml: relist-period-max"],
        ),
        ("listen = '0.0.0.0:9394'", 1, &["--token-file"]),
        ("tls-cert = '/none'", 1, &["--tls-key"]),
        ("token-file = '/none'", 1, &["cannot read /none"]),
    ] {
        fs::write(&file, text).expect("written");
        let output = pleg(&["config", "check", &file]).output().expect("it runs");
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{text}: {shown}");
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
    let file = file.to_str().expect("UTF-8");
    let own = ("PLEG_RUNTIME_ENDPOINT", "/own");
    let of_crictl = ("CONTAINER_RUNTIME_ENDPOINT", "/crictl");
    for (flags, variables, words) in [
        ("", &[][..], "watching unix:///file (set in /"),
        (
            "",
            &[("PLEG_RUNTIME_ENDPOINT", "")],
            "watching unix:///file (set in /",
        ),
        (
            "",
            &[of_crictl],
            "watching unix:///crictl (set by CONTAINER_RUNTIME_ENDPOINT",
        ),
        (
            "",
            &[of_crictl, own],
            "watching unix:///own (set by PLEG_RUNTIME_ENDPOINT",
        ),
        (
            "-r=/flag",
            &[own],
            "watching unix:///flag (set by --runtime-endpoint",
        ),
        (
            "-r=/flag",
            &[("PLEG_SIM", "crio")],
            "watching unix:///flag (set by --runtime-endpoint",
        ),
        ("--sim", &[own], "(embedded, simulated)"),
        (
            "",
            &[("PLEG_SIM", "crio"), of_crictl],
            "(embedded, simulated)",
        ),
        ("", &[("PLEG_RELIST_PERIOD", "2m")], "relist-period-max"),
        (
            "",
            &[("PLEG_EVENTS", "x")],
            "invalid value of PLEG_EVENTS: use auto, always, never",
        ),
        (
            "",
            &[("PLEG_VERBOSE", "x")],
            "invalid value of PLEG_VERBOSE: ",
        ),
        (
            "",
            &[("CONTAINER_RUNTIME_ENDPOINT", "tcp://a:1")],
            "invalid value of CONTAINER_RUNTIME_ENDPOINT: ",
        ),
        ("--config=/none", &[own], "cannot read /none: No such file"),
    ] {
        let mut command = pleg(&["agent"]);
        command
            .args(flags.split_whitespace())
            .env("PLEG_CONFIG", file);
        command.envs(variables.iter().copied());
        let line = Running::spawn(command).message().await.expect("a line");
        assert!(line.contains(words), "{flags} {variables:?}: {line}");
    }
}
