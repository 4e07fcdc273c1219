//! The log: its formats, and that it is safe to print.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use pleg_tests::kubelet::Life;
use serde_json::Value;

use super::run::{Sim, arg};
use crate::support::{TestDir, pleg};

const AGENT: [&str; 3] = ["agent", "--listen", "127.0.0.1:0"];

/// The exit of a container whose name changes the direction of text, as an agent logs it.
async fn logged(format: &str) -> String {
    let sim = Sim::start().await;
    let mut agent = sim.run(&[&AGENT[..], &["-v", "--log-format", format]].concat());
    let subscribed = "subscribed to the event stream";
    while !agent.message().await.expect("a line").contains(subscribed) {}
    let pod = sim.kubelet.run_pod("p\u{202e}\n").await.expect("run");
    let (code, after_ms) = (3, 10);
    let life = Life::Exit { code, after_ms };
    let started = sim.kubelet.run(&pod, "c\u{1b}[2J", 0, life).await;
    started.expect("started");
    loop {
        let line = agent.message().await.expect("a line");
        let is_raw = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!line.contains(is_raw), "{line:?}");
        if line.contains("container died") {
            return line;
        }
    }
}

#[tokio::test]
async fn text_of_a_runtime_is_escaped_and_named() {
    let line = logged("text").await;
    let parts = [
        " INFO container died ",
        " name=p\\u{202e}\\u{a} ",
        " exit_code=3 ",
    ];
    for part in parts {
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test]
async fn json_has_stable_fields_and_the_text_of_a_runtime() {
    let line = logged("json").await;
    let object: Value = serde_json::from_str(&line).expect("JSON");
    for (field, value) in [
        ("level", "info".into()),
        ("target", "pleg::outputs".into()),
        ("message", "container died".into()),
        ("name", "p\u{202e}\n".into()),
        ("container", "c\u{1b}[2J".into()),
        ("exit_code", Value::from(3)),
    ] {
        assert_eq!(object[field], value, "{line}");
    }
    assert!(object["source"].is_string(), "{line}");
    let time = object["time"].as_str().expect("a time");
    time.parse::<jiff::Timestamp>().expect("RFC 3339");
}

#[tokio::test]
async fn notices_and_the_error_at_the_end_are_json_too() {
    let sim = Sim::start().await;
    let args = [&AGENT[..], &["--log-format", "json"]].concat();
    let notice = sim.run(&args).message().await.expect("a line");
    let notice: Value = serde_json::from_str(&notice).expect("JSON");
    assert_eq!(notice["level"], "info", "{notice}");
    let message = notice["message"].as_str().expect("a message");
    assert!(message.starts_with("watching unix://"), "{message}");
    // That needs a token.
    let args = ["agent", "--log-format", "json", "--listen", "0.0.0.0:0"];
    let output = pleg(&args).output().expect("the command starts");
    let error: Value = serde_json::from_slice(&output.stderr).expect("one JSON object");
    assert_eq!(error["level"], "error", "{error}");
}

/// The variable names the device and the inode of standard error.
#[tokio::test]
async fn lines_in_the_journal_begin_with_their_priority() {
    let dir = TestDir::new();
    let endpoint = dir.path("none.sock");
    let lines = |stream: Option<String>| {
        let (read, write) = std::io::pipe().expect("a pipe");
        let own = format!("/proc/self/fd/{}", write.as_raw_fd());
        let own = std::fs::metadata(own).expect("its metadata");
        let stream = stream.unwrap_or_else(|| format!("{}:{}", own.dev(), own.ino()));
        let mut command = pleg(&[&AGENT[..], &["-v", "-r", arg(&endpoint)]].concat());
        command.env("JOURNAL_STREAM", stream).stderr(write);
        let mut child = command.spawn().expect("the command starts");
        drop(command);
        let mut lines = BufReader::new(read).lines().map(|line| line.expect("text"));
        let line = lines.find(|line| line.contains("a full list failed"));
        child.kill().expect("killed");
        child.wait().expect("ended");
        line.expect("logged")
    };
    let line = lines(None);
    assert!(line.starts_with("<4> WARN a full list failed"), "{line}");
    let other = lines(Some("1:2".to_owned()));
    assert!(other.contains("Z  WARN a full list failed"), "{other}");
}
