//! `pleg sim` as a service: how it stops, and its workload.

use super::run::{PROMPT, Running, Sim, arg, serve};
use crate::support::TestDir;

/// Several times, because there was a race once.
#[tokio::test]
async fn simulated_runtime_removes_its_socket_on_exit() {
    for (signal, code) in [("TERM", 0), ("INT", 130)].repeat(4) {
        let sim = Sim::start().await;
        let socket = sim.dir().path("second.sock");
        let running = serve(&socket).await;
        running.signal(signal).await;
        let end = running.end().await;
        assert_eq!(end.code(), Some(code), "{}", end.err);
        assert!(end.took < PROMPT, "{:?}", end.took);
        assert!(!socket.exists(), "after {signal}");
        assert!(sim.socket.exists(), "another runtime's socket remains");
    }
}

#[tokio::test]
async fn simulated_workload_has_same_ids_for_same_seed() {
    let dir = TestDir::new();
    let mut first_ids = Vec::new();
    for seed in ["7", "7", "8"] {
        let socket = dir.path("cri.sock");
        let mut running = Running::start(&["sim", "--socket", arg(&socket), "--seed", seed]);
        running.message().await.expect("the socket");
        let mut watch = Running::start(&["watch", "-o", "json", "-r", arg(&socket)]);
        first_ids.push(watch.event().await["id"].to_string());
        running.signal("TERM").await;
        running.end().await;
    }
    assert_eq!(first_ids[0], first_ids[1]);
    assert_ne!(first_ids[0], first_ids[2]);
}

#[tokio::test]
async fn simulated_runtime_stops_while_calls_hang() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let hang = ["--chaos", "all.hang"];
    let args = ["sim", "--empty", "--socket", arg(&socket)];
    let mut sim = Running::start(&[&args[..], &hang].concat());
    sim.message().await.expect("the socket");
    let mut pods = Running::start(&["pods", "-r", arg(&socket)]);
    pods.message().await.expect("the runtime");
    let message = pods.message().await.expect("a notice");
    assert!(message.contains("does not respond"), "{message}");
    sim.signal("TERM").await;
    let end = sim.end().await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    assert!(end.took < PROMPT, "{:?}", end.took);
}
