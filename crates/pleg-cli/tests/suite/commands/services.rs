//! `pleg agent` and `pleg sim`: their endpoints, and how they stop.

use std::time::Duration;

use pleg_tests::kubelet::Life;
use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::run::{Running, Sim, TIMEOUT, arg, kubelet, serve};
use crate::support::TestDir;

/// A running agent and its address.
struct Agent {
    running: Running,
    address: String,
}

impl Agent {
    async fn start(args: &[&str]) -> Self {
        let args = [&["agent", "--listen", "127.0.0.1:0"], args].concat();
        let mut running = Running::start(&args);
        // There may be log messages before the address.
        let message = loop {
            let message = running.message().await.expect("the address");
            if message.contains("http://") {
                break message;
            }
        };
        let (_, rest) = message.split_once("http://").expect("an address");
        let (address, _) = rest.split_once(' ').expect("more text");
        let address = address.to_owned();
        assert!(!address.ends_with(":0"), "the actual port: {message}");
        Self { running, address }
    }

    /// The status code, the headers and the body of a response.
    async fn get(&self, path: &str) -> (u16, String, String) {
        let call = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut response = String::new();
            stream.read_to_string(&mut response).await?;
            std::io::Result::Ok(response)
        };
        let response = tokio::time::timeout(TIMEOUT, call).await;
        let response = response.expect("in time").expect("a response");
        let (headers, body) = response.split_once("\r\n\r\n").expect("headers and a body");
        let code = headers.split(' ').nth(1).and_then(|c| c.parse().ok());
        (
            code.expect("a code"),
            headers.to_lowercase(),
            body.to_owned(),
        )
    }

    /// The value of one metric.
    async fn metric(&self, name: &str) -> Option<f64> {
        let (code, _, body) = self.get("/metrics").await;
        assert_eq!(code, 200);
        let mut lines = body.lines();
        lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Stops the agent with SIGTERM.
    async fn stop(self) {
        self.running.signal("TERM").await;
        let end = self.running.end().await;
        assert_eq!((end.code(), &*end.out), (Some(0), ""), "{}", end.err);
        assert!(end.took < Duration::from_secs(2), "{:?}", end.took);
    }
}

/// It waits without a timeout and reports not ready.
#[tokio::test]
async fn agent_waits_for_its_runtime() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    let (code, _, body) = agent.get("/healthz").await;
    assert_eq!((code, &*body), (200, "ok\n"));
    let (code, _, body) = agent.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("pleg has yet to be successful"), "{body}");
    assert_eq!(agent.get("/nothing").await.0, 404);
    assert_eq!(agent.metric("pleg_ready").await, Some(0.0));

    let sim = serve(&socket).await;
    until(TIMEOUT, "ready", || async {
        let (code, _, body) = agent.get("/readyz").await;
        (code == 200 && body.starts_with("ok\n")).then_some(())
    })
    .await
    .expect("ready");
    until(TIMEOUT, "the metric", || async {
        (agent.metric("pleg_ready").await == Some(1.0)).then_some(())
    })
    .await
    .expect("shown");

    let kubelet = kubelet(&socket, dir.root());
    let pod = kubelet.run_pod("a-secret-name").await.expect("run");
    let id = kubelet.create(&pod, "app", 0, Life::UntilStopped).await;
    kubelet.start(&id.expect("created")).await.expect("started");
    let running = "kubelet_running_containers{container_state=\"running\"}";
    for (name, expected) in [
        (running, 1.0),
        ("kubelet_pleg_relist_interval_seconds_count", 1.0),
    ] {
        until(TIMEOUT, name, || async {
            let value = agent.metric(name).await;
            (value >= Some(expected)).then_some(())
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
    for secret in ["a-secret-name", arg(&socket)] {
        assert!(!metrics.contains(secret), "{secret} is in\n{metrics}");
    }
    // After the runtime stops, the agent stays alive, and stays ready for three minutes.
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    until(TIMEOUT, "a degraded reason", || async {
        let (code, _, body) = agent.get("/readyz").await;
        assert_eq!(code, 200, "{body}");
        body.contains("degraded: no event stream").then_some(())
    })
    .await
    .expect("degraded");
    agent.stop().await;
}

#[tokio::test]
async fn agent_stops_while_a_call_to_the_runtime_hangs() {
    let dir = TestDir::new();
    let socket = dir.path("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let agent = Agent::start(&["-r", arg(&socket), "--probe-period", "1s"]).await;
    until(TIMEOUT, "a hanging list", || async {
        let seconds = agent.metric("pleg_list_in_flight_seconds").await;
        (seconds > Some(0.0)).then_some(())
    })
    .await
    .expect("gauges change while a call hangs");
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.stop().await;
}

#[tokio::test]
async fn agent_supports_the_embedded_runtime() {
    let agent = Agent::start(&["--sim", "--mode", "polling"]).await;
    until(TIMEOUT, "ready", || async {
        let (code, _, body) = agent.get("/readyz").await;
        ((code, &*body) == (200, "ok\n")).then_some(())
    })
    .await
    .expect("ready");
    agent.stop().await;
}

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
        assert!(end.took < Duration::from_secs(2), "{:?}", end.took);
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
