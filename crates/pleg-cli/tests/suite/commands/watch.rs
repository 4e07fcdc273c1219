//! `pleg watch`: its output, its filters, and how it ends.

use std::process::Stdio;

use pleg_tests::kubelet::Life;
use serde_json::{Value, json};

use super::run::{PROMPT, Running, Sim, arg, remove_pod, run_job};
use crate::support::{TestDir, pleg};

/// Checks that an object of the output has these fields only, with values of the right kind.
#[track_caller]
fn check_fields(object: &Value) {
    let is_event = object["source"].is_string();
    let required = ["time", "type", if is_event { "pod" } else { "pods" }];
    let has = |name: &&str| object.get(name).is_some();
    assert!(required.iter().all(has), "{object}");
    let types = "PodSync ContainerStarted ContainerDied ContainerRemoved ContainerChanged";
    for (name, value) in object.as_object().expect("an object") {
        let text = value.as_str().unwrap_or_default();
        let keys = || value.as_object().expect("an object").keys();
        let valid = match &**name {
            "time" => text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
            "type" if is_event => types.split(' ').any(|known| known == text),
            "type" => text == "Synced",
            "pods" => !is_event && value.is_u64(),
            "source" => ["stream", "relist", "inspection"].contains(&text),
            "initial" => value.is_boolean(),
            "pod" => keys().eq(["name", "namespace", "uid"]),
            "id" => text.len() == 64,
            "kind" if object["name"].is_string() => text == "container",
            "kind" => text == "sandbox",
            "name" | "reason" => !text.is_empty(),
            "exitCode" => value.is_i64(),
            "latencyMs" => value.as_f64() >= Some(0.0),
            _ => false,
        };
        assert!(valid, "{name} of {object}");
    }
    let has_kind = object["kind"].is_string() || object["type"] == "PodSync";
    let has_initial = object["initial"].is_boolean();
    assert!(!is_event || has_kind && has_initial, "{object}");
}

/// The next line, which is an object with valid fields.
async fn record(watch: &mut Running) -> Value {
    let line = watch.line().await.expect("a record");
    let record = serde_json::from_str(&line).expect("one JSON object per line");
    check_fields(&record);
    record
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
        let event = record(&mut watch).await;
        assert!(event["source"] == "relist" && event["initial"] == true);
        let pod = json!({ "name": "before", "namespace": "test", "uid": "uid-before" });
        assert_eq!(event["pod"], pod);
        assert_eq!(event.get("latencyMs"), None, "it happened before the start");
        let [kind, what, code, reason] = ["kind", "type", "exitCode", "reason"].map(|k| &event[k]);
        at_start.push(format!("{kind} {what} {code} {reason}").replace('"', ""));
    }
    at_start.sort();
    let existed = [
        "container ContainerDied 3 Error",
        "sandbox ContainerStarted null null",
    ];
    assert_eq!(at_start, existed);
    assert_eq!(record(&mut watch).await["pods"], 1, "Synced");

    // Later changes.
    let pod = run_job(&sim.kubelet, "during", 5).await;
    let mut events = Vec::new();
    while !events.ends_with(&["ContainerRemoved sandbox".to_owned()]) {
        let event = record(&mut watch).await;
        let what = format!("{} {}", event["type"], event["kind"]).replace('"', "");
        if what == "ContainerDied container" {
            assert!(event["exitCode"] == 5 && event["reason"] == "Error");
            let is_timed = event["source"] != "stream" || event["latencyMs"].is_number();
            assert!(is_timed, "{event}");
            remove_pod(&sim.kubelet, &pod).await;
        }
        assert!(event["pod"]["name"] == "during" && event["initial"] == false);
        events.push(what);
    }
    for what in ["Started", "Died", "Removed"] {
        for kind in ["sandbox", "container"] {
            let once = format!("Container{what} {kind}");
            let count = events.iter().filter(|event| **event == once).count();
            assert_eq!(count, 1, "{once}: {events:?}");
        }
    }
    // There are no events, so nothing else ends the command.
    watch.signal("INT").await;
    let end = watch.end().await;
    assert_eq!((end.outcome(), &*end.out), ((Some(130), ""), ""));
    assert!(end.took < PROMPT, "{:?}", end.took);
}

/// The names of pods and containers may contain escape sequences for the terminal.
#[tokio::test]
async fn control_characters_are_never_printed() {
    let sim = Sim::start().await;
    let (pod_name, name) = ("\u{1b}[31mred", "\u{9b}2J\u{202e}\u{7f}");
    let pod = sim.kubelet.run_pod(pod_name).await.expect("run");
    let started = sim.kubelet.run(&pod, name, 0, Life::UntilStopped).await;
    started.expect("started");
    let table = ["\\u{1b}[31mred", "\\u{9b}2J"];
    let json = ["\\u001b[31mred", "\\u009b2J\\u202e\\u007f"];
    for (args, parts) in [
        (&["watch", "--for", "3s"][..], table),
        (&["watch", "--for", "3s", "-o", "json"], json),
        (&["pods"], table),
        (&["pods", "-o", "json"], json),
    ] {
        let end = sim.run(args).end().await;
        assert_eq!(end.code(), Some(0), "{args:?}: {}", end.err);
        let (out, err) = (&end.out, &end.err);
        let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!out.contains(raw) && !err.contains(raw), "{args:?}: {out}");
        let has_all = parts.iter().all(|part| out.contains(part));
        assert!(has_all, "{args:?}: {out}");
        if args.contains(&"json") {
            let object = |line| serde_json::from_str::<Value>(line).expect("JSON");
            let mut names = out.lines().map(|line| object(line)["pod"]["name"].clone());
            assert!(names.any(|name| name == pod_name), "{out}");
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
        let has_time = line.starts_with(|c: char| c.is_ascii_digit());
        assert!(has_time, "{line}");
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
    let seconds = end.took.as_secs();
    assert!((3..8).contains(&seconds), "{:?}", end.took);
    let record = |line| serde_json::from_str(line).expect("JSON");
    let records: Vec<Value> = end.out.lines().map(record).collect();
    records.iter().for_each(check_fields);
    let synced = records.iter().filter(|record| record["type"] == "Synced");
    assert_eq!(synced.count(), 1, "{}", end.out);
    assert!(records.iter().any(|e| e["initial"] == false), "{}", end.out);
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

/// Nobody may take simulated pods for real ones.
#[tokio::test]
async fn missing_runtime_is_an_error_or_simulated_in_marked_lines() {
    let mut known = pleg_cri::well_known().iter().map(|known| known.path);
    if let Some(found) = known.find(|path| std::fs::exists(path).is_ok_and(|exists| exists)) {
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
        let line = format!("{} watch --for 3s{more}", env!("CARGO_BIN_EXE_pleg"));
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]);
        command.env_remove("CONTAINER_RUNTIME_ENDPOINT");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        Running::spawn(command).end().await
    };
    let end = on_terminal("").await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    let mut lines = end.out.lines();
    for words in ["showing simulated pods", "watching unix://"] {
        assert!(lines.any(|line| line.contains(words)), "{}", end.out);
    }
    let pods: Vec<&str> = lines.collect();
    assert!(pods.len() > 2, "{}", end.out);
    let marked = |line: &&str| line.contains("simulated\u{1b}[0m");
    assert!(pods.iter().all(marked), "{}", end.out);
    assert_eq!(on_terminal(" -o json").await.code(), Some(1));
}

/// The pods and types of the events up to that one.
async fn shown(watch: &mut Running, last: &str) -> Vec<String> {
    let mut shown = Vec::new();
    loop {
        let event = watch.event().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (pod, kind) = (text(&event["pod"]["name"]), text(&event["kind"]));
        let what = format!("{pod} {kind} {}", text(&event["type"]));
        if !what.ends_with("PodSync") {
            shown.push(what.clone());
        }
        if what == last {
            return shown;
        }
    }
}

/// The selector also matches the last event of a pod, which has no labels any more.
#[tokio::test]
async fn pods_are_selected_by_label_until_they_are_gone() {
    let sim = Sim::start().await;
    let labels = "io.kubernetes.pod.uid,io.kubernetes.pod.uid!=uid-one";
    let mut of_label = sim.run(&["watch", "-o", "json", "-l", labels]);
    let mut all = sim.run(&["watch", "-o", "json"]);
    for watch in [&mut of_label, &mut all] {
        let synced = watch.line().await.expect("the end of the initial events");
        assert!(synced.contains("\"Synced\""), "{synced}");
    }
    for name in ["one", "two"] {
        let pod = run_job(&sim.kubelet, name, 1).await;
        // What is removed before it was read is not announced.
        shown(&mut all, &format!("{name} container ContainerDied")).await;
        remove_pod(&sim.kubelet, &pod).await;
    }
    let mut events = shown(&mut of_label, "two sandbox ContainerRemoved").await;
    // A container that is started at once may not be seen as created.
    events.retain(|event| !event.ends_with("ContainerChanged"));
    assert!(events.iter().all(|e| e.starts_with("two ")), "{events:?}");
    assert_eq!(events.len(), 6, "{events:?}");
}
