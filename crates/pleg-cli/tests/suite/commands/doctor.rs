//! `pleg doctor` on simulated runtimes with one planted trouble each.

use std::fs;
use std::path::Path;

use futures::StreamExt;
use futures::future::join_all;
use pleg_tests::kubelet::Life;
use serde_json::{Value, json};

use super::memory::Unfiltered;
use super::run::{End, Running, Sim, TIMEOUT, arg, control, run_pod};
use crate::support::{TestDir, serve};

/// What `pleg doctor -o json` reports, and its exit code. Nothing of the host is visible to it, because other
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
pub(super) fn findings(report: &Value) -> &[Value] {
    report["findings"].as_array().expect("findings")
}

fn code(finding: &Value) -> &str {
    finding["code"].as_str().expect("a code")
}

/// The codes of all findings.
pub(super) fn codes(report: &Value) -> Vec<&str> {
    findings(report).iter().map(code).collect()
}

/// The first finding, but for the load of a machine on which other tests run.
pub(super) fn first(report: &Value) -> (&str, &str) {
    let is_load = |code: &str| code.ends_with("_pressure") || code == "blocked_tasks";
    let first = findings(report).iter().find(|f| !is_load(code(f)));
    let Some(first) = first else {
        return ("none", "");
    };
    (code(first), first["summary"].as_str().expect("a text"))
}

/// The findings, a line each.
pub(super) fn shown(report: &Value) -> String {
    let lines = findings(report).iter().map(|f| {
        format!(
            "{} {}: {} {}\n",
            f["severity"], f["code"], f["summary"], f["evidence"]
        )
    });
    lines.collect()
}

/// A simulated runtime with a trouble.
struct Planted {
    /// The code of the finding that must be the first.
    code: &'static str,
    /// The exit code.
    exit: i32,
    sim: &'static [&'static str],
    doctor: &'static [&'static str],
}

const fn planted(
    code: &'static str,
    exit: i32,
    sim: &'static [&'static str],
    doctor: &'static [&'static str],
) -> Planted {
    Planted {
        code,
        exit,
        sim,
        doctor,
    }
}

/// Calls are timed from the begin.
const SHORT: &[&str] = &["--for", "4s"];
/// An event is missed 10 s after a read has shown the change, and nothing is expected in the first 10 s.
const WHOLE: &[&str] = &["--for", "26s", "--events", "always"];

const PLANTED: [Planted; 10] = [
    planted(
        "list_slow",
        1,
        &["--pods", "20", "--chaos", "list_containers.latency=1200ms"],
        SHORT,
    ),
    planted(
        "list_large",
        1,
        &["--pods", "90", "--chaos", "list.pad=85000"],
        SHORT,
    ),
    planted(
        "list_large",
        2,
        &["--pods", "90", "--chaos", "list.pad=150000"],
        SHORT,
    ),
    planted(
        "list_failed",
        2,
        &["--pods", "5", "--chaos", "list_pod_sandbox.fail=internal"],
        SHORT,
    ),
    planted(
        "network_not_ready",
        2,
        &["--pods", "5", "--chaos", "network.not_ready=on"],
        SHORT,
    ),
    planted(
        "stream_disabled",
        0,
        &["--pods", "5", "--mode", "crio-disabled"],
        SHORT,
    ),
    planted("runtime_silent", 2, &["--mode", "silent"], SHORT),
    planted("stream_lossy", 1, &["--chaos", "drop=80%"], WHOLE),
    planted("stream_silent", 1, &["--chaos", "drop=on"], WHOLE),
    planted(
        "stream_lossy",
        1,
        &[
            "--mode",
            "containerd-1.7",
            "--chaos",
            "second_subscriber=80%",
        ],
        WHOLE,
    ),
];

#[tokio::test]
async fn planted_trouble_is_the_first_finding() {
    // Not all at once: their load would be a finding.
    let examined = futures::stream::iter(&PLANTED).map(async |planted| {
        let dir = TestDir::new();
        let socket = dir.path("cri.sock");
        let mut sim = Running::start(&[&["sim", "--socket", arg(&socket)], planted.sim].concat());
        sim.message().await.expect("it listens");
        let (report, exit) = examine(&socket, planted.doctor).await;
        (planted, report, exit)
    });
    let mut examined = examined.buffered(5);
    while let Some((planted, report, exit)) = examined.next().await {
        assert_eq!(
            first(&report).0,
            planted.code,
            "{:?}: {}",
            planted.sim,
            shown(&report)
        );
        assert_eq!(exit, Some(planted.exit), "{:?}", planted.sim);
    }
}

#[tokio::test]
async fn hung_pod_is_named_while_the_stream_is_silent() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart").await;
    control(&sim.socket, &["pod.uid-cart.hang=on"]).await;
    let (report, exit) = examine(&sim.socket, SHORT).await;
    assert_eq!(first(&report).0, "pods_hung", "{}", shown(&report));
    let (_, summary) = first(&report);
    assert!(summary.contains("test/cart"), "{summary}");
    assert_eq!(exit, Some(2));
}

#[tokio::test]
async fn dead_containers_are_counted() {
    let sim = Sim::start().await;
    // Statuses of more are slow in an unoptimised build on a busy machine.
    let dead = (0..20).map(async |n| {
        let pod = sim.kubelet.run_pod(&format!("pod-{n}")).await;
        let pod = pod.expect("run");
        for attempt in 0..20 {
            let id = sim
                .kubelet
                .run(&pod, "app", attempt, Life::UntilStopped)
                .await
                .expect("started");
            sim.kubelet.stop(&id).await.expect("stopped");
        }
    });
    join_all(dead).await;
    let (report, exit) = examine(&sim.socket, SHORT).await;
    assert_eq!(first(&report).0, "containers_restart", "{}", shown(&report));
    let dead = report["findings"].as_array().expect("findings");
    let dead = dead.iter().find(|found| found["code"] == "dead_containers");
    let dead = dead.expect("it is found");
    let summary = dead["summary"].as_str().expect("a sentence");
    assert!(summary.starts_with("400 dead containers"), "{summary}");
    assert_eq!(dead["cause"], "containers_restart");
    assert_eq!(exit, Some(1));
}

#[tokio::test]
async fn ignored_filters_are_found() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    serve(Unfiltered::new(50), &socket);
    let (report, exit) = examine(&socket, SHORT).await;
    assert_eq!(first(&report).0, "filters_ignored", "{}", shown(&report));
    assert_eq!(exit, Some(1));
}

#[tokio::test]
async fn redacted_recording_gives_the_same_findings_and_names_nothing() {
    let sim = Sim::start().await;
    let pod = sim.kubelet.run_pod("secret-pod").await.expect("run");
    sim.kubelet
        .run(&pod, "secret-app", 0, Life::UntilStopped)
        .await
        .expect("started");
    control(
        &sim.socket,
        &["pod.uid-secret-pod.fail=internal", "network.not_ready=on"],
    )
    .await;
    let file = sim.dir().path("node.json");
    // Events with statuses would make it needless to read these.
    let record = ["--for", "3s", "--events", "never", "--record", arg(&file)];
    let (report, exit) = examine(&sim.socket, &record).await;
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
    let severities = |report: &Value| -> Vec<String> {
        findings(report)
            .iter()
            .map(|f| format!("{} {}", f["code"], f["severity"]))
            .collect()
    };
    assert!(
        codes(&report).contains(&"pods_failing"),
        "{}",
        shown(&report)
    );
    assert_eq!(severities(&replayed), severities(&report));
    assert_eq!(end.code(), exit);
    let named = ["--for", "3s", "--names", "--record", arg(&file)];
    examine(&sim.socket, &named).await;
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains("test/secret-pod")
    );
}

#[tokio::test]
async fn unusable_input_is_one_clear_line_and_exit_code_3() {
    let dir = TestDir::new();
    let file = dir.path("node.json");
    let replay = ["doctor", "--replay", arg(&file)];
    let missing = run(&replay).await;
    assert_eq!(missing.code(), Some(3));
    assert!(
        missing.err.contains("node.json: No such file"),
        "{}",
        missing.err
    );
    for (text, why) in [
        ("{", "it is not a recording of pleg doctor"),
        (
            r#"{"format":9,"version":"7.0.0","redacted":true,"examination":{}}"#,
            "has format 9, and this version reads 1: use pleg 7.0.0",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let end = run(&replay).await;
        assert_eq!(
            (end.code(), end.err.lines().count()),
            (Some(3), 1),
            "{}",
            end.err
        );
        assert!(end.err.contains(why), "{}", end.err);
    }
}

#[tokio::test]
async fn verdict_and_exit_code_follow_from_the_recording() {
    let dir = TestDir::new();
    let file = dir.path("node.json");
    let no_network = json!({"conditions": [{"name": "NetworkReady", "status": false}]});
    for (runtime, verdict, code) in [
        (
            json!({"unusable": {"denied": true, "why": "permission denied"}}),
            "the runtime was not examined: this user may not ask it",
            3,
        ),
        (
            json!({"conditions": no_network}),
            "PLEG is healthy, but: the runtime's network is not ready",
            2,
        ),
    ] {
        let recording = json!({
            "format": 1, "version": "0", "redacted": true, "examination": {"runtime": runtime},
        });
        fs::write(&file, recording.to_string()).unwrap();
        let end = run(&["doctor", "--replay", arg(&file)]).await;
        assert!(end.out.starts_with(verdict), "{}", end.out);
        assert_eq!(end.code(), Some(code), "{}", end.out);
    }
}

#[tokio::test]
async fn missing_runtime_is_unreachable() {
    let dir = TestDir::new();
    let socket = dir.path("nothing.sock");
    let (report, exit) = examine(&socket, &["--for", "1s"]).await;
    assert_eq!(
        first(&report).0,
        "runtime_unreachable",
        "{}",
        shown(&report)
    );
    assert_eq!(exit, Some(2));
}

#[tokio::test]
async fn healthy_node_has_no_finding_above_information() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let mut sim = Running::start(&["sim", "--socket", arg(&socket), "--pods", "80"]);
    sim.message().await.expect("it listens");
    let root = TestDir::new();
    let host = ["--root", arg(root.root())];
    let end = run(&[&["doctor", "-r", arg(&socket), "--for", "8s"], &host[..]].concat()).await;
    assert_eq!(end.code(), Some(0), "{}", end.out);
    assert!(
        end.out.starts_with("PLEG is healthy; nothing was found"),
        "{}",
        end.out
    );
    for figure in [
        "\nrelist ",
        "\nlists ",
        "\nstatuses ",
        "\nevents ",
        "\nconditions ",
    ] {
        assert!(end.out.contains(figure), "{figure} is not in {}", end.out);
    }
}
