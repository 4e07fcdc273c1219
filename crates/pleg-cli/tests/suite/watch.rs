//! `pleg watch`: its output, its filters, and how it ends.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::run::{Running, Sim, TestDir, assert_has, assert_time, parse, piped, pleg, program};

/// The type, the kind and the exit of a lifecycle event, whose fields must be valid.
#[track_caller]
fn shown(event: &Value) -> String {
    let has = |field: &str| event.get(field).is_some();
    let required = "initial pod source time type".split(' ');
    let optional = "exitCode id kind latencyMs name reason".split(' ');
    assert!(required.clone().all(has), "{event}");
    let known = required.chain(optional).filter(|field| has(field)).count();
    let fields = event.as_object().expect("an object");
    assert_eq!(fields.len(), known, "{event}");
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    assert_time(&event["time"]);
    let is_known = ["stream", "relist", "inspection"].contains(&text("source"));
    assert!(is_known, "{event}");
    assert!(!has("id") || text("id").len() == 64, "{event}");
    assert_eq!(has("name"), text("kind") == "container", "{event}");
    assert_eq!(has("kind"), text("type") != "PodSync", "{event}");
    let [what, kind, reason] = ["type", "kind", "reason"].map(text);
    format!("{what} {kind} {} {reason}", event["exitCode"])
}

#[tokio::test]
async fn watch_prints_existing_pods_and_then_changes_as_json() {
    let sim = Sim::start().await;
    sim.run_job("before", 3).await;
    let mut watch = sim.run("watch -o json");

    // First come the existing pods, from the list, although the runtime replays earlier events to a new subscriber.
    let mut at_start = BTreeSet::new();
    for _ in 0..2 {
        let event = parse(&watch.line().await);
        assert!(event["source"] == "relist" && event["initial"] == true);
        let pod = r#"{"name":"before","namespace":"test","uid":"uid-before"}"#;
        assert_eq!(event["pod"].to_string(), pod);
        assert_eq!(event.get("latencyMs"), None, "it happened before the start");
        at_start.insert(shown(&event));
    }
    let existed = [
        "ContainerDied container 3 Error",
        "ContainerStarted sandbox null ",
    ];
    assert_eq!(Vec::from_iter(at_start), existed);
    let mut synced = parse(&watch.line().await);
    synced["time"].take();
    assert_eq!(synced, json!({"time": null, "type": "Synced", "pods": 1}));

    let pod = sim.run_job("during", 5).await;
    let mut events = Vec::new();
    while !events.ends_with(&["ContainerRemoved sandbox null ".to_owned()]) {
        let event = watch.event().await;
        let what = shown(&event);
        if what == "ContainerDied container 5 Error" {
            let is_timed = event["source"] != "stream" || event["latencyMs"].as_f64() >= Some(0.0);
            assert!(is_timed, "{event}");
            sim.remove_pod(&pod).await;
        }
        assert!(event["pod"]["name"] == "during" && event["initial"] == false);
        events.push(what);
    }
    for what in ["Started", "Died", "Removed"] {
        for kind in ["sandbox", "container"] {
            let once = format!("Container{what} {kind} ");
            let count = events.iter().filter(|e| e.starts_with(&once)).count();
            assert_eq!(count, 1, "{once}: {events:?}");
        }
    }
    // The pods do not change any more, so only the signal can end the command.
    assert_eq!(watch.stop("INT", 130).await.outcome(), (Some(130), ""));
}

/// The name of the pod contains escape sequences for the terminal.
#[tokio::test]
async fn table_is_aligned_and_marks_initial_events() {
    let sim = Sim::start().await;
    sim.run_job("\u{1b}[31m\u{202e}", 7).await;
    let mut watch = sim.run("watch");
    let heading = watch.line().await;
    let shows = |line: &str, cells: &str| {
        let is_raw = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!line.contains(is_raw), "no colours in a pipe: {line:?}");
        for cell in cells.split(", ") {
            let (name, value) = cell.split_once('=').expect("a column and its text");
            let column = heading.find(name).expect("a column");
            assert!(line[column..].starts_with(value), "{heading}\n{line}");
        }
    };
    let mut exits = 0;
    for _ in 0..2 {
        let line = watch.line().await;
        shows(&line, "TIME=initial , POD=test/\\u{1b}[31m\\u{202e} ");
        if line.contains(" container ") {
            exits += 1;
            shows(&line, "TYPE=ContainerDied , KIND=container , NAME=job ");
            shows(&line, "SOURCE=relist , EXIT=7 Error");
        }
    }
    assert_eq!(exits, 1, "a sandbox and a container");
    shows(&watch.line().await, "TYPE=Synced , POD=1 pod");
    sim.run_job("during", 5).await;
    loop {
        let line = watch.line().await;
        assert!(line.starts_with(|c: char| c.is_ascii_digit()), "{line}");
        if line.contains("test/during ") && line.contains("5 Error") {
            break;
        }
    }
    // Closes the output, as `head` does in `pleg watch | head`.
    let mut of_json = sim.run("watch -o json");
    while !of_json.line().await.contains("\"\\u001b[31m\\u202e\"") {}
    for (mut watch, pod) in [(watch, "after"), (of_json, "later")] {
        watch.out = None;
        sim.run_job(pod, 1).await;
        assert_eq!(watch.end().await.outcome(), (Some(0), ""));
    }
}

#[tokio::test]
async fn simulated_runtime_of_watch_has_workload_and_removes_its_socket() {
    let dir = TestDir::new();
    let watch = |args: &str| {
        let mut command = pleg(&format!("watch --sim={args}"));
        command.env("TMPDIR", dir.root());
        Running::spawn(command)
    };
    let left = || std::fs::read_dir(dir.root()).expect("listed").count();
    let modes = "containerd-1.7 containerd-2 crio crio-disabled unimplemented";
    let ended = modes.split(' ').map(async |mode| {
        let end = watch(&format!("{mode} -o json --for 3s")).end().await;
        assert_eq!(end.outcome(), (Some(0), ""), "{mode}");
        let seconds = end.took.as_secs_f64();
        assert!((2.9..8.0).contains(&seconds), "{mode}: {seconds}");
        let records: Vec<Value> = end.out.lines().map(parse).collect();
        let count = |key: &str, value: Value| records.iter().filter(|r| r[key] == value).count();
        assert_eq!(count("type", "Synced".into()), 1, "{mode}: {}", end.out);
        assert!(count("initial", false.into()) > 0, "{mode}: {}", end.out);
        let is_streamed = count("source", "stream".into()) > 0;
        let has_no_stream = ["crio-disabled", "unimplemented"].contains(&mode);
        assert!(!(has_no_stream && is_streamed), "{mode}: {}", end.out);
    });
    futures::future::join_all(ended).await;
    assert_eq!(left(), 0);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut running = watch("crio");
        running.line().await;
        assert_eq!(left(), 1, "its socket's directory");
        running.stop(signal, code).await;
        assert_eq!(left(), 0, "after {signal}");
    }
}

/// Without a runtime, only a table on a terminal shows simulated pods. It marks each: nobody may take them for real.
#[tokio::test]
async fn missing_runtime_is_simulated_on_a_terminal_else_an_error() {
    let mut known = pleg_cri::well_known().iter().map(|known| known.path);
    if let Some(found) = known.find(|path| std::fs::exists(path).is_ok_and(|exists| exists)) {
        println!("skipped: this machine has {found}");
        return;
    }
    for args in ["watch", "watch -o json", "pods"] {
        let end = Running::start(args).end().await;
        assert_eq!((end.code, &*end.out), (Some(1), ""), "{args:?}");
        assert_eq!(end.err.lines().count(), 1, "{}", end.err);
        let words = "--sim | /run/crio/crio.sock | /etc/crictl.yaml";
        assert_has(&end.err, words);
    }
    let on_terminal = async |more: &str| {
        let line = format!("{} watch --for 3s{more}", program().display());
        let mut command = piped("script");
        command.args(["-qec", &line, "/dev/null"]);
        Running::spawn(command).end().await
    };
    let end = on_terminal("").await;
    assert_eq!(end.code, Some(0), "{}", end.err);
    let mut lines = end.out.lines();
    for words in ["showing simulated pods", "watching unix://"] {
        assert!(lines.any(|line| line.contains(words)), "{}", end.out);
    }
    let pods: Vec<&str> = lines.collect();
    assert!(pods.len() > 2, "{}", end.out);
    let marked = |line: &&str| line.contains("simulated\u{1b}[0m");
    assert!(pods.iter().all(marked), "{}", end.out);
    assert_eq!(on_terminal(" -o json").await.code, Some(1));
}

/// The selector also matches the last event of a pod, which has no labels any more.
#[tokio::test]
async fn pods_are_selected_by_label_until_they_are_gone() {
    let sim = Sim::start().await;
    let labels = "io.kubernetes.pod.uid,io.kubernetes.pod.uid!=uid-one";
    let mut of_label = sim.run(&format!("watch -o json -l {labels}"));
    let mut all = sim.run("watch -o json");
    for watch in [&mut of_label, &mut all] {
        watch.record(|record| record["type"] == "Synced").await;
    }
    for name in ["one", "two"] {
        let pod = sim.run_job(name, 1).await;
        // A pod that is removed before it was read would not be announced.
        let died = |e: &Value| e["pod"]["name"] == name && e["exitCode"] == 1;
        all.record(died).await;
        sim.remove_pod(&pod).await;
    }
    let mut events = BTreeSet::new();
    while !events.contains("ContainerRemoved sandbox null ") {
        let event = of_label.event().await;
        assert_eq!(event["pod"]["name"], "two");
        events.insert(shown(&event));
    }
    // Optional: ContainerChanged (no read may see the container before its start), PodSync (changes of no other type).
    events.retain(|event| !event.starts_with("ContainerChanged") && !event.starts_with("PodSync"));
    assert_eq!(events.len(), 6, "{events:?}");
}
