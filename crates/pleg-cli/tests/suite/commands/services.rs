//! `pleg agent` and `pleg sim`: what they serve, and how they are stopped.

use std::time::Duration;

use pleg_tests::kubelet::Life;
use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::run::{Running, SOON, Sim, kubelet, serve, word};
use crate::support::Place;

/// An agent, and where it serves.
struct Agent {
    running: Running,
    address: String,
}

impl Agent {
    async fn start(args: &[&str]) -> Self {
        let args = [&["agent", "--listen", "127.0.0.1:0"], args].concat();
        let mut running = Running::start(&args);
        // It may have logged something before.
        let said = loop {
            let said = running.said().await.expect("it says where it serves");
            if said.contains("http://") {
                break said;
            }
        };
        let (_, rest) = said.split_once("http://").expect("an address");
        let (address, _) = rest.split_once(' ').expect("and more");
        let address = address.to_owned();
        assert!(!address.ends_with(":0"), "the port that it got: {said}");
        Self { running, address }
    }

    /// The code, the head and the body of an answer.
    async fn get(&self, path: &str) -> (u16, String, String) {
        let asking = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(ask.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(SOON, asking).await;
        let answer = answer.expect("in time").expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let code = head.split(' ').nth(1).and_then(|c| c.parse().ok());
        (code.expect("a code"), head.to_lowercase(), body.to_owned())
    }

    /// The value of one metric.
    async fn metric(&self, name: &str) -> Option<f64> {
        let (code, _, body) = self.get("/metrics").await;
        assert_eq!(code, 200);
        let mut lines = body.lines();
        lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// A service manager stops it.
    async fn stop(self) {
        self.running.signal("TERM").await;
        let end = self.running.end().await;
        assert_eq!((end.code(), &*end.out), (Some(0), ""), "{}", end.err);
        assert!(end.took < Duration::from_secs(2), "{:?}", end.took);
    }
}

/// It waits for its runtime for ever, and says not ready meanwhile.
#[tokio::test]
async fn the_agent_waits_for_its_runtime() {
    let place = Place::new();
    let socket = place.path("cri.sock");
    let agent = Agent::start(&["-r", word(&socket)]).await;
    let (code, _, body) = agent.get("/healthz").await;
    assert_eq!((code, &*body), (200, "ok\n"));
    let (code, _, body) = agent.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("pleg has yet to be successful"), "{body}");
    assert_eq!(agent.get("/nothing").await.0, 404);
    assert_eq!(agent.metric("pleg_ready").await, Some(0.0));

    let sim = serve(&socket).await;
    until(SOON, "it is ready", || async {
        let (code, _, body) = agent.get("/readyz").await;
        (code == 200 && body.starts_with("ok\n")).then_some(())
    })
    .await
    .expect("ready");
    until(SOON, "the metric says so, too", || async {
        (agent.metric("pleg_ready").await == Some(1.0)).then_some(())
    })
    .await
    .expect("shown");

    let kubelet = kubelet(&socket, place.dir());
    let pod = kubelet.run_pod("a-secret-name").await.expect("it runs");
    let id = kubelet.create(&pod, "app", 0, Life::UntilStopped).await;
    kubelet.start(&id.expect("made")).await.expect("started");
    let running = "kubelet_running_containers{container_state=\"running\"}";
    for (name, due) in [
        (running, 1.0),
        ("kubelet_pleg_relist_interval_seconds_count", 1.0),
    ] {
        until(SOON, name, || async {
            let value = agent.metric(name).await;
            (value >= Some(due)).then_some(())
        })
        .await
        .expect("counted");
    }
    let (_, head, metrics) = agent.get("/metrics").await;
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    for name in [
        "# TYPE kubelet_pleg_relist_duration_seconds histogram",
        "kubelet_pleg_relist_duration_seconds_bucket{le=\"0.005\"}",
        "kubelet_pleg_relist_duration_seconds_count",
        "kubelet_pleg_last_seen_seconds",
        "kubelet_running_pods 1",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "kubelet_running_containers{container_state=\"exited\"} 0",
        "kubelet_evented_pleg_connection_success_count 1",
        "# HELP kubelet_runtime_operations_total ",
        "kubelet_runtime_operations_total{operation_type=\"list_podsandbox\"}",
        "# TYPE pleg_missed_events_total counter",
        "pleg_notifications_received_total{type=\"started\"} 2",
        "pleg_stream_state{state=\"confirmed\"}",
        "pleg_relist_period_seconds",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    for secret in ["a-secret-name", word(&socket)] {
        assert!(!metrics.contains(secret), "{secret} is in\n{metrics}");
    }
    // A runtime that goes away makes it neither dead nor, for three minutes, unready.
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    until(SOON, "the loss is told of", || async {
        let (code, _, body) = agent.get("/readyz").await;
        assert_eq!(code, 200, "{body}");
        body.contains("degraded: no event stream").then_some(())
    })
    .await
    .expect("degraded");
    agent.stop().await;
}

/// A call to the runtime that hangs does not hold up its end.
#[tokio::test]
async fn the_agent_stops_while_its_runtime_hangs() {
    let place = Place::new();
    let socket = place.path("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let agent = Agent::start(&["-r", word(&socket), "--probe-period", "1s"]).await;
    until(SOON, "a list hangs", || async {
        let for_long = agent.metric("pleg_list_in_flight_seconds").await;
        (for_long > Some(0.0)).then_some(())
    })
    .await
    .expect("gauges move while a call hangs");
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.stop().await;
}

#[tokio::test]
async fn the_agent_watches_the_embedded_runtime_too() {
    let agent = Agent::start(&["--sim", "--mode", "polling"]).await;
    until(SOON, "it is ready", || async {
        let (code, _, body) = agent.get("/readyz").await;
        ((code, &*body) == (200, "ok\n")).then_some(())
    })
    .await
    .expect("ready");
    agent.stop().await;
}

/// Several times: it was a matter of luck once.
#[tokio::test]
async fn the_simulated_runtime_takes_its_socket_with_it() {
    for (signal, code) in [("TERM", 0), ("INT", 130)].repeat(4) {
        let sim = Sim::up().await;
        let socket = sim.place().path("second.sock");
        let running = serve(&socket).await;
        running.signal(signal).await;
        let end = running.end().await;
        assert_eq!(end.code(), Some(code), "{}", end.err);
        assert!(end.took < Duration::from_secs(2), "{:?}", end.took);
        assert!(!socket.exists(), "after {signal}");
        assert!(sim.socket.exists(), "the other one is left alone");
    }
}

/// Without `--empty` pods come by themselves, the same ones of one seed.
#[tokio::test]
async fn the_simulated_runtime_lives() {
    let place = Place::new();
    let mut first_ids = Vec::new();
    for seed in ["7", "7", "8"] {
        let socket = place.path("cri.sock");
        let mut running = Running::start(&["sim", "--socket", word(&socket), "--seed", seed]);
        running.said().await.expect("it says where it listens");
        let mut watch = Running::start(&["watch", "-o", "json", "-r", word(&socket)]);
        let event: serde_json::Value =
            serde_json::from_str(&watch.line().await.expect("an event")).expect("JSON");
        first_ids.push(event["id"].to_string());
        running.signal("TERM").await;
        running.end().await;
    }
    assert_eq!(first_ids[0], first_ids[1]);
    assert_ne!(first_ids[0], first_ids[2]);
}
