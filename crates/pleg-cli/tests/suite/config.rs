//! `pleg config check`, and the agent's settings from a file and the environment.

use std::fs;

use crate::support::{SECRET, TestDir, pleg};

/// The exit code, standard output and standard error.
fn run(mut command: std::process::Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn valid_file_passes_the_check() {
    let dir = TestDir::new();
    let file = dir.path("agent.toml");
    let token = dir.path("token");
    fs::write(&token, SECRET).expect("written");
    let text = format!(
        "listen = '0.0.0.0:9394'\ntoken-file = '{}'\n",
        token.display()
    );
    fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let (code, out, err) = run(pleg(&["config", "check", file]));
    assert_eq!((code, out), (Some(0), format!("{file}: ok\n")), "{err}");
}

#[test]
fn invalid_file_fails_the_check_with_one_line_for_each_problem() {
    let dir = TestDir::new();
    let file = dir.path("agent.toml");
    for (text, lines) in [
        (
            "listne = 'a'\n\nevents = 'maybe'",
            &[":1: unknown key `listne`", ":3: invalid value of `events`"][..],
        ),
        ("a = 'b", &[":1: "]),
        ("relist-period = '2m'", &["relist-period-max"]),
        ("listen = '0.0.0.0:9394'", &["--token-file"]),
        ("tls-cert = '/none'", &["--tls-key"]),
        ("token-file = '/none'", &["cannot read /none"]),
    ] {
        fs::write(&file, text).expect("written");
        let check = pleg(&["config", "check", file.to_str().expect("UTF-8")]);
        let (code, out, err) = run(check);
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        assert_eq!(err.lines().count(), lines.len(), "{err}");
        for (line, words) in err.lines().zip(lines) {
            assert!(line.contains(words), "{words} is not in {line}");
            assert!(line.contains("agent.toml"), "{line}");
        }
    }
    let (code, _, err) = run(pleg(&["config", "check", "/none"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("cannot read /none: No such file"), "{err}");
}

#[test]
fn agent_uses_the_file_and_the_variables() {
    let dir = TestDir::new();
    let file = dir.path("agent.toml");
    fs::write(&file, "listen = '0.0.0.0:80'\nrelist-period = '2m'").expect("written");
    let mut command = pleg(&["agent", "--sim"]);
    command.env("PLEG_CONFIG", &file);
    let (code, _, err) = run(command);
    assert_eq!(code, Some(1));
    assert!(err.contains("0.0.0.0:80 is not a loopback"), "{err}");
    let mut command = pleg(&["agent", "--sim", "--config"]);
    command.arg(&file).env("PLEG_LISTEN", "127.0.0.1:0");
    let (code, _, err) = run(command);
    assert_eq!(code, Some(1));
    assert!(err.contains("relist-period-max"), "{err}");
    let mut command = pleg(&["agent"]);
    command.env("PLEG_EVENTS", "x");
    let (code, _, err) = run(command);
    assert_eq!(code, Some(1));
    assert!(
        err.contains("invalid value of PLEG_EVENTS: use auto"),
        "{err}"
    );
}
