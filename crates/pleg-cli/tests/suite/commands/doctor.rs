//! `pleg doctor` on simulated runtimes with one planted trouble each.

use std::fs;
use std::path::Path;

use futures::StreamExt;
use pleg_tests::kubelet::Life;
use serde_json::{Value, json};

use super::memory::Unfiltered;
use super::run::{End, Running, Sim, TIMEOUT, arg, control, run_pod};
use crate::support::{TestDir, serve};

/// The report of `pleg doctor -o json`, and its exit code. Nothing of the host is visible to it, because other
/// tests change that.
async fn examine(socket: &Path, args: &[&str]) -> (Value, Option<i32>) {
    let host = TestDir::new();
    let root = ["--root", arg(host.root())];
    examine_with_host(socket, &[args, &root].concat()).await
}

/// The same with the evidence of the host.
pub(super) async fn examine_with_host(socket: &Path, args: &[&str]) -> (Value, Option<i32>) {
    let always = ["doctor", "-o", "json", "-r", arg(socket)];
    let end = run(&[&always, args].concat()).await;
    let report = serde_json::from_str(&end.out);
    let report = report.unwrap_or_else(|error| panic!("{error}: {:?}, {:?}", end.out, end.err));
    (report, end.code())
}

async fn run(args: &[&str]) -> End {
    Running::start(args).end_within(TIMEOUT * 3).await
}

/// The findings, the first cause first.
fn findings(report: &Value) -> &[Value] {
    report["findings"].as_array().expect("findings")
}

fn text<'a>(finding: &'a Value, field: &str) -> &'a str {
    finding[field].as_str().expect("a text")
}

/// The codes of all findings.
pub(super) fn codes(report: &Value) -> Vec<&str> {
    findings(report).iter().map(|f| text(f, "code")).collect()
}

/// Code and summary of the first finding, but for the load of a machine on which other tests run.
pub(super) fn first(report: &Value) -> (&str, &str) {
    let is_load = |code: &str| code.ends_with("_pressure") || code == "blocked_tasks";
    let first = findings(report).iter().find(|f| !is_load(text(f, "code")));
    first.map_or(("none", ""), |f| (text(f, "code"), text(f, "summary")))
}

pub(super) fn shown(report: &Value) -> String {
    report["findings"].to_string()
}

/// Requires this first finding and this exit code.
#[track_caller]
fn assert_found((report, exit): &(Value, Option<i32>), code: &str, expected: i32) {
    let found = (first(report).0, *exit);
    assert_eq!(found, (code, Some(expected)), "{}", shown(report));
}

/// Calls are timed from the start.
const SHORT: &[&str] = &["--for", "4s"];
/// An event is missed 10 s after a read has shown the change, and nothing is expected in the first 10 s.
const WHOLE: &[&str] = &["--for", "26s", "--events", "always"];

/// The first finding, the exit code, and the arguments of a simulated runtime with this trouble.
const PLANTED: [&str; 10] = [
    "list_slow 1 --pods 20 --chaos list_containers.latency=1200ms",
    "list_large 1 --pods 90 --chaos list.pad=85000",
    "list_large 2 --pods 90 --chaos list.pad=150000",
    "list_failed 2 --pods 5 --chaos list_pod_sandbox.fail=internal",
    "network_not_ready 2 --pods 5 --chaos network.not_ready=on",
    "stream_disabled 0 --pods 5 --mode crio-disabled",
    "runtime_silent 2 --mode silent",
    "stream_lossy 1 --chaos drop=80%",
    "stream_silent 1 --chaos drop=on",
    "stream_lossy 1 --mode containerd-1.7 --chaos second_subscriber=80%",
];

#[tokio::test]
async fn planted_trouble_is_the_first_finding() {
    // Not all at once: their load would be a finding.
    let examined = futures::stream::iter(PLANTED).map(async |planted| {
        let words: Vec<&str> = planted.split(' ').collect();
        let dir = TestDir::new();
        let socket = dir.path("cri.sock");
        let mut sim = Running::start(&[&["sim", "--socket", arg(&socket)], &words[2..]].concat());
        sim.message().await.expect("it listens");
        let (code, exit) = (words[0], words[1].parse().expect("a number"));
        let misses_events = ["stream_lossy", "stream_silent"].contains(&code);
        let args = if misses_events { WHOLE } else { SHORT };
        let examined = examine(&socket, args).await;
        assert_found(&examined, code, exit);
        let mut found = findings(&examined.0).iter();
        let has_time = |f: &Value| f["code"] != "stream_lossy" || f["seconds"].is_number();
        assert!(found.all(has_time), "{}", shown(&examined.0));
    });
    examined.buffered(5).collect::<()>().await;
}

#[tokio::test]
async fn hung_pod_is_named_while_the_stream_is_silent() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart").await;
    control(&sim.socket, &["pod.uid-cart.hang=on"]).await;
    let examined = examine(&sim.socket, SHORT).await;
    assert_found(&examined, "pods_hung", 2);
    let (_, summary) = first(&examined.0);
    assert!(summary.contains("test/cart"), "{summary}");
}

#[tokio::test]
async fn ignored_filters_are_found() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    serve(Unfiltered::padded(50, 0), &socket);
    assert_found(&examine(&socket, SHORT).await, "filters_ignored", 1);
}

#[tokio::test]
async fn redacted_recording_gives_the_same_findings_and_names_nothing() {
    let sim = Sim::start().await;
    let pod = sim.kubelet.run_pod("secret-pod").await.expect("run");
    let app = sim.kubelet.run(&pod, "secret-app", 0, Life::UntilStopped);
    app.await.expect("started");
    let trouble = ["pod.uid-secret-pod.fail=internal", "network.not_ready=on"];
    control(&sim.socket, &trouble).await;
    let file = sim.dir().path("node.json");
    // Events with statuses would make it needless to read these.
    let record = ["--for", "3s", "--events", "never", "--record", arg(&file)];
    let (report, exit) = examine(&sim.socket, &record).await;
    let codes = codes(&report);
    assert!(codes.contains(&"pods_failing"), "{}", shown(&report));
    let recording = fs::read_to_string(&file).expect("a recording");
    for name in [
        "secret-app",
        "test/secret-pod",
        "annotation",
        "label",
        "environ",
    ] {
        assert!(!recording.contains(name), "{name} is in {recording}");
    }
    let end = run(&["doctor", "-o", "json", "--replay", arg(&file)]).await;
    let replayed: Value = serde_json::from_str(&end.out).expect("JSON");
    let severities = |report: &Value| -> Vec<(Value, Value)> {
        let severity = |f: &Value| (f["code"].clone(), f["severity"].clone());
        findings(report).iter().map(severity).collect()
    };
    assert_eq!(severities(&replayed), severities(&report));
    assert_eq!(end.code(), exit);
    let named = ["--for", "3s", "--names", "--record", arg(&file)];
    examine(&sim.socket, &named).await;
    let recording = fs::read_to_string(&file).unwrap();
    assert!(recording.contains("test/secret-pod"));
}

/// The end of `pleg doctor --replay` of a file with this text.
async fn replay(text: &str) -> End {
    let dir = TestDir::new();
    let file = dir.path("node.json");
    fs::write(&file, text).unwrap();
    run(&["doctor", "--replay", arg(&file)]).await
}

#[tokio::test]
async fn unusable_input_is_one_clear_line_and_exit_code_3() {
    let missing = run(&["doctor", "--replay", "/node.json"]).await;
    let newer = r#"{"format":9,"version":"7.0.0","redacted":true,"examination":{}}"#;
    let reads = "has format 9, and this version reads 1: use pleg 7.0.0";
    for (end, why) in [
        (missing, "node.json: No such file"),
        (replay("{").await, "it is not a recording of pleg doctor"),
        (replay(newer).await, reads),
    ] {
        let lines = end.err.lines().count();
        assert_eq!((end.code(), lines), (Some(3), 1), "{}", end.err);
        assert!(end.err.contains(why), "{}", end.err);
    }
}

#[tokio::test]
async fn verdict_and_exit_code_follow_from_the_recording() {
    let denied = json!({"unusable": {"denied": true, "why": "permission denied"}});
    let no_network = json!({"conditions": [{"name": "NetworkReady", "status": false}]});
    let no_network = json!({"conditions": no_network});
    for (runtime, verdict, code) in [
        (denied, "the runtime was not examined: this user", 3),
        (no_network, "PLEG is healthy, but: the runtime's network", 2),
    ] {
        let recording = json!({
            "format": 1, "version": "0", "redacted": true, "examination": {"runtime": runtime},
        });
        let end = replay(&recording.to_string()).await;
        assert!(end.out.starts_with(verdict), "{}", end.out);
        assert_eq!(end.code(), Some(code), "{}", end.out);
    }
}

#[tokio::test]
async fn missing_runtime_is_unreachable() {
    let dir = TestDir::new();
    let socket = dir.path("nothing.sock");
    let examined = examine(&socket, &["--for", "1s"]).await;
    assert_found(&examined, "runtime_unreachable", 2);
}

#[tokio::test]
async fn healthy_node_has_no_finding_above_information() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let mut sim = Running::start(&["sim", "--socket", arg(&socket), "--pods", "80"]);
    sim.message().await.expect("it listens");
    let root = TestDir::new();
    let place = ["--root", arg(root.root()), "-r", arg(&socket)];
    let end = run(&[&["doctor", "--for", "8s"], &place[..]].concat()).await;
    assert_eq!(end.code(), Some(0), "{}", end.out);
    let begin = "PLEG is healthy; nothing was found";
    assert!(end.out.starts_with(begin), "{}", end.out);
    for figure in ["relist", "lists", "statuses", "events", "conditions"] {
        let figure = format!("\n{figure} ");
        assert!(end.out.contains(&figure), "{figure} is not in {}", end.out);
    }
}
