//! `pleg bench`: what it measures, and that it changes nothing.

use pleg_tests::kubelet::Life;
use serde_json::Value;

use super::run::{Running, Sim, word};
use crate::support::Place;

fn number(of: &Value, field: &str) -> f64 {
    let number = of[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is a number: {of}"))
}

#[tokio::test]
async fn a_simulated_node_is_measured_in_each_mode() {
    let args = [
        "bench",
        "--sim=containerd-1.7",
        "--pods",
        "30",
        "--for",
        "3s",
    ];
    let mut bench = Running::start(&[&args[..], &["-o", "json"]].concat());
    let said = bench.said().await.expect("it says what it does");
    assert!(said.contains("a simulated node"), "{said}");
    for mode in ["evented", "polling"] {
        let line = bench.line().await.expect("an object a mode");
        let cost: Value = serde_json::from_str(&line).expect("one JSON object a line");
        assert_eq!(cost["mode"], mode);
        assert!(number(&cost, "seconds") >= 3.0, "{cost}");
        assert!(
            number(&cost, "pods") >= 29.0,
            "they are there from the start: {cost}"
        );
        // Each list is two calls; at this period there are few, and not none.
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

/// Of a runtime of somebody else's it only reads.
#[tokio::test]
async fn a_runtime_stays_as_it_is() {
    let sim = Sim::up().await;
    let pod = sim.kubelet.run_pod("web").await.expect("it runs");
    let life = Life::UntilStopped;
    let id = sim
        .kubelet
        .create(&pod, "app", 0, life)
        .await
        .expect("made");
    sim.kubelet.start(&id).await.expect("started");
    let before = sim.kubelet.container_status(&id).await.expect("asked");
    let end = sim.ask(&["bench", "--for", "1s"]).end().await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    let headings: Vec<&str> = end
        .out
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    assert_eq!(headings, ["1", "PODS", "EVENTED", "POLLING", "TIMES"]);
    assert!(end.out.contains("calls to the runtime"), "{}", end.out);
    assert!(!end.out.contains('\u{1b}'), "colours are for terminals");
    let after = sim.kubelet.container_status(&id).await.expect("asked");
    assert_eq!(before, after);
}

#[tokio::test]
async fn what_cannot_be_measured_is_told() {
    let place = Place::new();
    let nowhere = format!("unix://{}", word(&place.path("cri.sock")));
    let end = Running::start(&["bench", "-r", &nowhere]).end().await;
    assert_eq!((end.code(), &*end.out), (Some(1), ""));
    assert!(end.err.contains("there is no socket at"), "{}", end.err);
}

/// Ctrl-C ends it at once, and the simulated node with it.
#[tokio::test]
async fn it_ends_with_a_signal() {
    let mut bench = Running::start(&["bench", "--sim", "--pods", "5"]);
    assert!(bench.said().await.is_some());
    bench.signal("INT").await;
    assert_eq!(bench.end().await.code(), Some(130));
}
