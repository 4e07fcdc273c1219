//! `pleg watch`: its output, and how it ends.

use std::process::Stdio;
use std::time::Duration;

use pleg_tests::kubelet::Life;
use serde_json::Value;

use super::run::{PROMPT, Running, Sim, arg, remove_pod, run_job};
use crate::support::{TestDir, pleg};

#[track_caller]
fn object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).expect("one JSON object per line");
    assert!(value.is_object(), "{line}");
    value
}

/// Checks the fields of an event and their values.
#[track_caller]
fn check_event_fields(event: &Value) {
    let object = event.as_object().expect("an object");
    for always in ["time", "type", "pod", "source", "initial"] {
        assert!(object.contains_key(always), "{event}");
    }
    for (key, value) in object {
        let text = value.as_str().unwrap_or_default();
        let valid = match &**key {
            "time" => text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
            "type" => [
                "ContainerStarted",
                "ContainerDied",
                "ContainerRemoved",
                "ContainerChanged",
                "PodSync",
            ]
            .contains(&text),
            "source" => ["stream", "relist", "inspection"].contains(&text),
            "initial" => value.is_boolean(),
            "pod" => {
                let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
                keys == ["name", "namespace", "uid"]
            }
            "id" => text.len() == 64,
            "kind" if object.contains_key("name") => text == "container",
            "kind" => text == "sandbox",
            "name" | "reason" => !text.is_empty(),
            "exitCode" => value.is_i64(),
            "latencyMs" => value.as_f64().is_some_and(|ms| ms >= 0.0),
            _ => false,
        };
        assert!(valid, "{key} of {event}");
    }
    assert!(
        event["type"] == "PodSync" || event["kind"].is_string(),
        "{event}"
    );
}

/// Checks the fields of the record that follows the initial events.
#[track_caller]
fn check_synced_fields(record: &Value) {
    let keys: Vec<&String> = record.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["pods", "time", "type"], "{record}");
    assert_eq!(record["type"], "Synced");
    let time = record["time"].as_str().expect("text");
    time.parse::<jiff::Timestamp>().expect("RFC 3339");
}

#[tokio::test]
async fn json_is_one_object_per_line() {
    let sim = Sim::start().await;
    run_job(&sim.kubelet, "before", 3).await;
    let mut watch = sim.run(&["watch", "-o", "json"]);

    // The pods that exist at the start are shown first, from the list, although the runtime replays
    // the events from before the subscribe.
    let mut at_start = Vec::new();
    for _ in 0..2 {
        let event = object(&watch.line().await.expect("an event"));
        check_event_fields(&event);
        assert_eq!(event["source"], "relist", "{event}");
        assert_eq!(event["initial"], true, "{event}");
        assert_eq!(event["pod"]["name"], "before", "{event}");
        assert_eq!(event["pod"]["namespace"], "test", "{event}");
        assert_eq!(event["pod"]["uid"], "uid-before", "{event}");
        assert!(
            event.get("latencyMs").is_none(),
            "it happened before the start"
        );
        at_start.push(event);
    }
    at_start.sort_by_key(|e| e["kind"].to_string());
    let [job, sandbox] = &at_start[..] else {
        panic!("two");
    };
    assert_eq!(sandbox["type"], "ContainerStarted");
    assert_eq!(job["type"], "ContainerDied", "it exited before: {job}");
    assert_eq!(
        (&job["exitCode"], &job["reason"]),
        (&3.into(), &"Error".into())
    );

    let synced = object(&watch.line().await.expect("the end of the initial events"));
    check_synced_fields(&synced);
    assert_eq!(synced["pods"], 1);

    // Later changes.
    let pod = run_job(&sim.kubelet, "during", 5).await;
    let mut events = Vec::new();
    while !events.ends_with(&["ContainerRemoved sandbox".to_owned()]) {
        let event = object(&watch.line().await.expect("an event"));
        check_event_fields(&event);
        let what = format!("{} {}", event["type"], event["kind"]).replace('"', "");
        if what == "ContainerDied container" {
            assert_eq!(event["exitCode"], 5, "{event}");
            assert_eq!(event["reason"], "Error", "{event}");
            remove_pod(&sim.kubelet, &pod).await;
        }
        if what == "ContainerDied container" && event["source"] == "stream" {
            assert!(event.get("latencyMs").is_some(), "{event}");
        }
        assert_eq!(event["pod"]["name"], "during", "{event}");
        assert_eq!(event["initial"], false, "{event}");
        events.push(what);
    }
    for once in [
        "ContainerStarted sandbox",
        "ContainerStarted container",
        "ContainerDied container",
        "ContainerDied sandbox",
        "ContainerRemoved container",
        "ContainerRemoved sandbox",
    ] {
        assert_eq!(
            events.iter().filter(|t| *t == once).count(),
            1,
            "{events:?}"
        );
    }
    // There are no events, so nothing else ends the command.
    watch.signal("INT").await;
    let end = watch.end().await;
    assert_eq!(end.outcome(), (Some(130), ""));
    assert_eq!(end.out, "");
    assert!(end.took < PROMPT, "{:?}", end.took);
}

/// The names of pods and containers may contain escape sequences for the terminal.
#[tokio::test]
async fn control_characters_are_never_printed() {
    let sim = Sim::start().await;
    let (pod_name, name) = ("\u{1b}[31mred", "\u{9b}2J\u{202e}\u{7f}");
    let pod = sim.kubelet.run_pod(pod_name).await.expect("run");
    sim.kubelet
        .run(&pod, name, 0, Life::UntilStopped)
        .await
        .expect("started");
    for command in ["watch", "pods"] {
        for output in ["json", "table"] {
            let mut args = vec![command, "-o", output];
            if command == "watch" {
                args.extend(["--for", "3s"]);
            }
            let end = sim.run(&args).end().await;
            let (code, out) = (end.code(), end.out);
            assert_eq!(code, Some(0), "{command} {output}: {}", end.err);
            let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!out.contains(raw), "{command} {output}: {out:?}");
            assert!(!end.err.contains(raw), "{:?}", end.err);
            match output {
                "json" => {
                    let objects: Vec<Value> = out.lines().map(object).collect();
                    let means = objects.iter().any(|o| o["pod"]["name"] == pod_name);
                    assert!(means, "{out}");
                    assert!(out.contains("\\u009b2J\\u202e\\u007f"), "{out}");
                }
                _ => {
                    assert!(out.contains("\\u{1b}[31mred"), "{out}");
                    assert!(out.contains("\\u{9b}2J"), "{out}");
                }
            }
        }
    }
}

#[tokio::test]
async fn table_is_aligned_and_marks_initial_events() {
    let sim = Sim::start().await;
    run_job(&sim.kubelet, "one", 7).await;
    let mut watch = sim.run(&["watch"]);
    let heading = watch.line().await.expect("a heading");
    let column = |name: &str| heading.find(name).expect("a column");
    let shows = |line: &str, name: &str, value: &str| {
        assert!(!line.contains('\u{1b}'), "no colours in a pipe: {line:?}");
        assert!(line[column(name)..].starts_with(value), "{heading}\n{line}");
    };
    let mut exits = 0;
    for _ in 0..2 {
        let line = watch.line().await.expect("an initial event");
        shows(&line, "TIME", "initial ");
        shows(&line, "POD", "test/one ");
        if line[column("KIND")..].starts_with("container ") {
            exits += 1;
            shows(&line, "TYPE", "ContainerDied ");
            shows(&line, "NAME", "job ");
            shows(&line, "SOURCE", "relist ");
            shows(&line, "EXIT", "7 Error");
        }
    }
    assert_eq!(exits, 1, "a sandbox and a container");
    let synced = watch.line().await.expect("the end of the initial events");
    shows(&synced, "TYPE", "Synced ");
    assert_eq!(&synced[column("POD")..], "1 pod");
    run_job(&sim.kubelet, "during", 5).await;
    loop {
        let line = watch.line().await.expect("a line");
        assert!(
            line.starts_with(|c: char| c.is_ascii_digit()),
            "a time: {line}"
        );
        if line.contains("test/during ") && line.contains("5 Error") {
            break;
        }
    }
}

#[tokio::test]
async fn embedded_runtime_has_workload_and_removes_its_socket() {
    let dir = TestDir::new();
    let watch = |args: &[&str]| {
        let mut command = pleg(&[&["watch", "--sim"], args].concat());
        command.env("TMPDIR", dir.root());
        Running::spawn(command)
    };
    let left = || std::fs::read_dir(dir.root()).expect("listed").count();
    let end = watch(&["-o", "json", "--for", "3s"]).end().await;
    assert_eq!(end.outcome(), (Some(0), ""));
    assert!(end.took >= Duration::from_secs(3), "{:?}", end.took);
    assert!(end.took < Duration::from_secs(8), "{:?}", end.took);
    let events: Vec<Value> = end.out.lines().map(object).collect();
    let (synced, events): (Vec<Value>, Vec<Value>) =
        events.into_iter().partition(|e| e["type"] == "Synced");
    assert_eq!(synced.len(), 1, "{}", end.out);
    synced.iter().for_each(check_synced_fields);
    events.iter().for_each(check_event_fields);
    assert!(events.iter().any(|e| e["initial"] == false), "{}", end.out);
    assert_eq!(left(), 0);

    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut running = watch(&[]);
        running.line().await.expect("a heading");
        assert_eq!(left(), 1, "its socket's directory");
        running.signal(signal).await;
        let end = running.end().await;
        assert_eq!(end.code(), Some(code), "{}", end.err);
        assert_eq!(left(), 0, "after {signal}");
    }
}

#[tokio::test]
async fn commands_end_on_sigint_while_waiting_for_runtime() {
    let dir = TestDir::new();
    let socket = dir.path("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let interrupted = async |command| {
        let mut running = Running::start(&[command, "-r", arg(&socket)]);
        let runtime = running.message().await.expect("the runtime");
        assert!(runtime.contains("silent.sock"), "{runtime}");
        let message = running.message().await.expect("a notice");
        assert!(message.contains("does not respond"), "{message}");
        running.signal("INT").await;
        let end = running.end().await;
        assert_eq!(end.code(), Some(130), "{}", end.err);
        assert!(end.took < PROMPT, "{:?}", end.took);
    };
    tokio::join!(interrupted("watch"), interrupted("pods"));
}

/// As in `pleg watch | head -1`.
#[tokio::test]
async fn watch_ends_without_error_when_output_is_closed() {
    let sim = Sim::start().await;
    run_job(&sim.kubelet, "one", 1).await;
    for output in ["json", "table"] {
        let mut watch = sim.run(&["watch", "-o", output]);
        watch.line().await.expect("a line");
        watch.close_output();
        run_job(&sim.kubelet, output, 1).await;
        let end = watch.end().await;
        assert_eq!(end.outcome(), (Some(0), ""), "{output}");
    }
}

/// A runtime of this machine, which the command finds.
fn runtime_of_machine() -> Option<&'static str> {
    let mut known = pleg_cri::well_known().iter().map(|w| w.path);
    known.find(|path| std::fs::exists(path).is_ok_and(|e| e))
}

/// Nobody may take simulated pods for real ones.
#[tokio::test]
async fn missing_runtime_is_an_error_or_simulated_in_marked_lines() {
    if let Some(found) = runtime_of_machine() {
        println!("skipped: this machine has {found}");
        return;
    }
    for args in [&["watch"][..], &["watch", "-o", "json"], &["pods"]] {
        let end = Running::start(args).end().await;
        assert_eq!((end.code(), &*end.out), (Some(1), ""), "{args:?}");
        assert_eq!(end.err.lines().count(), 1, "{}", end.err);
        for word in ["--sim", "/run/crio/crio.sock", "/etc/crictl.yaml"] {
            assert!(end.err.contains(word), "{}", end.err);
        }
    }
    // `script` runs the command on a terminal.
    let on_terminal = async |more: &str| {
        let mut command = std::process::Command::new("script");
        let line = format!("{} watch --for 3s{more}", env!("CARGO_BIN_EXE_pleg"));
        command.args(["-qec", &line, "/dev/null"]);
        command.env_remove("CONTAINER_RUNTIME_ENDPOINT");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running::spawn(command).end().await
    };
    let end = on_terminal("").await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    let mut lines = end.out.lines();
    assert!(
        lines.any(|l| l.contains("showing simulated pods")),
        "{}",
        end.out
    );
    assert!(lines.any(|l| l.contains("watching unix://")), "{}", end.out);
    let pods: Vec<&str> = lines.collect();
    assert!(pods.len() > 2, "{}", end.out);
    let marked = |line: &&str| line.contains("simulated\u{1b}[0m");
    assert!(pods.iter().all(marked), "{}", end.out);
    let end = on_terminal(" -o json").await;
    assert_eq!(end.code(), Some(1), "{}", end.out);
}
