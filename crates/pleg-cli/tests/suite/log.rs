//! The log: its formats, and that it is safe to print.

use pleg_tests::kubelet::Life;
use serde_json::Value;

use super::run::{Running, Sim, assert_has, assert_time, parse, piped, program};

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
    let fields = " INFO container died | name=p\\u{202e}\\u{a} | exit_code=3";
    assert_has(&line, fields);
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

/// systemd sets `JOURNAL_STREAM` to the device and the inode of standard error if that is the journal.
#[tokio::test]
async fn lines_in_the_journal_begin_with_their_priority() {
    let line = async |stream: &str| {
        let args = "agent --listen 127.0.0.1:0 -v -r /none.sock";
        let script = format!("JOURNAL_STREAM={stream} exec \"$0\" {args}");
        let mut command = piped("sh");
        command.args(["-c", &script]).arg(program());
        let mut agent = Running::spawn(command);
        agent.message_with("a full list failed").await
    };
    let own = line("$(stat -Lc %d:%i /proc/self/fd/2)").await;
    assert!(own.starts_with("<4> WARN a full list failed"), "{own}");
    assert_has(&line("1:2").await, "Z  WARN a full list failed");
}
