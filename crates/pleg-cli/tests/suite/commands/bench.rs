//! `pleg bench`: its measurements, and that it does not change the node.

use serde_json::Value;

use super::run::{Running, Sim, arg, run_pod};
use crate::support::TestDir;

fn number(of: &Value, field: &str) -> f64 {
    let number = of[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is a number: {of}"))
}

#[tokio::test]
async fn simulated_node_is_measured_in_each_mode() {
    let args = [
        "bench",
        "--sim=containerd-1.7",
        "--pods",
        "30",
        "--for",
        "3s",
    ];
    let mut bench = Running::start(&[&args[..], &["-o", "json"]].concat());
    let message = bench.message().await.expect("a message");
    assert!(message.contains("a simulated node"), "{message}");
    for mode in ["evented", "polling"] {
        let line = bench.line().await.expect("an object per mode");
        let cost: Value = serde_json::from_str(&line).expect("one JSON object per line");
        assert_eq!(cost["mode"], mode);
        assert!(number(&cost, "seconds") >= 3.0, "{cost}");
        assert!(
            number(&cost, "pods") >= 29.0,
            "all pods exist from the start: {cost}"
        );
        // A relist makes two list calls. In three seconds there are a few relists.
        assert!((2.0..=12.0).contains(&number(&cost, "lists")), "{cost}");
        assert!(number(&cost, "cpuMs") > 0.0, "{cost}");
        assert!(number(&cost, "wakeUps") > 0.0, "{cost}");
        assert!(number(&cost, "runtimeCpuMs") >= 0.0, "{cost}");
        let period = number(&cost, "listPeriodSeconds");
        assert_eq!(period > 1.0, mode == "evented", "{cost}");
    }
    let end = bench.end().await;
    assert_eq!((end.code(), &*end.out), (Some(0), ""), "{}", end.err);
}

#[tokio::test]
async fn bench_does_not_change_the_runtime() {
    let sim = Sim::start().await;
    let (_, id) = run_pod(&sim.kubelet, "web").await;
    let before = sim.kubelet.container_status(&id).await.expect("a status");
    let end = sim.run(&["bench", "--for", "1s"]).end().await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    let headings: Vec<&str> = end
        .out
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    assert_eq!(headings, ["1", "PODS", "EVENTED", "POLLING", "RATIO"]);
    assert!(end.out.contains("calls to the runtime"), "{}", end.out);
    assert!(!end.out.contains('\u{1b}'), "colours are for terminals");
    let after = sim.kubelet.container_status(&id).await.expect("a status");
    assert_eq!(before, after);
}

#[tokio::test]
async fn bench_without_runtime_fails() {
    let dir = TestDir::new();
    let nowhere = format!("unix://{}", arg(&dir.path("cri.sock")));
    let end = Running::start(&["bench", "-r", &nowhere]).end().await;
    assert_eq!((end.code(), &*end.out), (Some(1), ""));
    assert!(end.err.contains("there is no socket at"), "{}", end.err);
}

/// The simulated node ends, too.
#[tokio::test]
async fn bench_ends_on_sigint() {
    let mut bench = Running::start(&["bench", "--sim", "--pods", "5"]);
    assert!(bench.message().await.is_some());
    bench.signal("INT").await;
    assert_eq!(bench.end().await.code(), Some(130));
}
