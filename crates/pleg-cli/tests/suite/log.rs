//! The log: its formats, and that it is safe to print.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use pleg_tests::kubelet::Life;
use serde_json::Value;

use super::run::{Sim, assert_has, assert_time, parse, pleg};

/// The exit of a container whose name changes the direction of text, as an agent logs it.
async fn logged(format: &str) -> String {
    let sim = Sim::start().await;
    let format = format!("-v --log-format {format}");
    let mut agent = sim.confirmed_agent(&format).await;
    let (code, after_ms) = (3, 10);
    let life = Life::Exit { code, after_ms };
    sim.run_container("p\u{202e}\n", "c\u{1b}[2J", life).await;
    loop {
        let line = agent.running.message().await;
        let is_raw = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!line.contains(is_raw), "{line:?}");
        if line.contains("container died") {
            return line;
        }
    }
}

#[tokio::test]
async fn logged_text_is_escaped_and_json_fields_are_stable() {
    let line = logged("text").await;
    assert_has(
        &line,
        " INFO container died | name=p\\u{202e}\\u{a} | exit_code=3",
    );
    let line = logged("json").await;
    let mut object = parse(&line);
    assert_time(&object["time"]);
    assert!(object["source"].is_string(), "{line}");
    for (field, value) in [
        ("level", "info".into()),
        ("target", "pleg::outputs".into()),
        ("message", "container died".into()),
        ("name", "p\u{202e}\n".into()),
        ("container", "c\u{1b}[2J".into()),
        ("exit_code", Value::from(3)),
    ] {
        assert_eq!(object[field].take(), value, "{line}");
    }
}

/// The variable names the device and the inode of standard error.
#[tokio::test]
async fn lines_in_the_journal_begin_with_their_priority() {
    let lines = |stream: Option<String>| {
        let (read, write) = std::io::pipe().expect("a pipe");
        let own = format!("/proc/self/fd/{}", write.as_raw_fd());
        let own = std::fs::metadata(own).expect("its metadata");
        let stream = stream.unwrap_or_else(|| format!("{}:{}", own.dev(), own.ino()));
        let mut command = pleg("agent --listen 127.0.0.1:0 -v -r /none.sock");
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
    assert_has(&other, "Z  WARN a full list failed");
}
