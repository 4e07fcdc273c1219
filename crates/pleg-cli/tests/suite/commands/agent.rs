//! `pleg agent`: what it serves, and how it stops.

use std::collections::BTreeMap;

use pleg_tests::wait::until;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::run::{PROMPT, Running, TIMEOUT, arg, kubelet, run_pod, serve};
use crate::support::{TestDir, pleg};

/// A running agent and its address.
pub(super) struct Agent {
    pub(super) running: Running,
    pub(super) address: String,
}

impl Agent {
    pub(super) async fn start(args: &[&str]) -> Self {
        let agent = ["agent", "--listen", "127.0.0.1:0"];
        Self::spawn(pleg(&[&agent, args].concat())).await
    }

    /// A command that runs an agent on a TCP address.
    pub(super) async fn spawn(command: std::process::Command) -> Self {
        let mut running = Running::spawn(command);
        // There may be log messages before the address.
        let mut message = String::new();
        while !message.contains("; http") {
            message = running.message().await.expect("the address");
        }
        let mut words = message.split([' ', '/']);
        let address = words
            .find(|word| word.starts_with("127."))
            .expect("an address");
        assert!(!address.ends_with(":0"), "the actual port: {message}");
        let address = address.to_owned();
        Self { running, address }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.expect("connected")
    }

    /// The status code, the headers and the body of a response.
    pub(super) async fn get(&self, path: &str) -> (u16, String, String) {
        ask(self.connect().await, path, "Host: localhost\r\n").await
    }

    /// Waits until it is ready.
    pub(super) async fn until_ready(&self) {
        let ready = || async {
            let (code, _, body) = self.get("/readyz").await;
            (code == 200 && body.starts_with("ok")).then_some(())
        };
        until(TIMEOUT, "ready", ready).await.expect("ready");
    }

    /// Waits until a page contains this text, and returns it.
    pub(super) async fn until_shows(&self, path: &str, text: &str) -> String {
        let shown = until(TIMEOUT * 3, text, || async {
            let (_, _, page) = self.get(path).await;
            page.contains(text).then_some(page)
        });
        shown.await.expect(path)
    }

    /// The series that `/metrics` has, and their values.
    pub(super) async fn scrape(&self) -> BTreeMap<String, String> {
        let (code, _, page) = self.get("/metrics").await;
        assert_eq!(code, 200);
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        let series = series.map(|(name, value)| (name.to_owned(), value.to_owned()));
        series.collect()
    }

    /// The value of one series.
    pub(super) async fn metric(&self, name: &str) -> Option<f64> {
        self.scrape().await.get(name)?.parse().ok()
    }

    /// Waits until a metric has this value.
    pub(super) async fn until_metric(&self, name: &str, value: f64) {
        // A storm of pods may take longer than other waits.
        let reached = until(TIMEOUT * 6, name, || async {
            (self.metric(name).await == Some(value)).then_some(())
        });
        if reached.await.is_err() {
            panic!("{name} is {:?}, not {value}", self.metric(name).await);
        }
    }

    /// Waits until the event stream is confirmed.
    pub(super) async fn until_confirmed(&self) {
        let confirmed = "pleg_stream_state{state=\"confirmed\"}";
        self.until_metric(confirmed, 1.0).await;
    }

    /// Stops the agent with SIGTERM.
    pub(super) async fn stop(self) {
        self.running.signal("TERM").await;
        let end = self.running.end().await;
        assert_eq!((end.code(), &*end.out), (Some(0), ""), "{}", end.err);
        assert!(end.took < PROMPT, "{:?}", end.took);
    }
}

/// Asks on this connection, with these lines in the request's header.
pub(super) async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    header: &str,
) -> (u16, String, String) {
    let mut response = String::new();
    let call = async {
        let request = format!("GET {path} HTTP/1.1\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_string(&mut response).await
    };
    let called = tokio::time::timeout(TIMEOUT, call).await;
    called.expect("in time").expect("a response");
    let (headers, body) = response.split_once("\r\n\r\n").expect("headers and a body");
    let code = headers.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.expect("a code");
    (code, headers.to_lowercase(), body.to_owned())
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
    agent.until_ready().await;
    agent.until_metric("pleg_ready", 1.0).await;

    let kubelet = kubelet(&socket, dir.root());
    run_pod(&kubelet, "a-secret-name").await;
    for (name, value) in [
        ("pleg_running_pods", 1.0),
        ("pleg_running_containers{container_state=\"running\"}", 1.0),
        ("pleg_running_containers{container_state=\"exited\"}", 0.0),
        ("pleg_notifications_received_total{type=\"started\"}", 2.0),
    ] {
        agent.until_metric(name, value).await;
    }
    let (_, head, metrics) = agent.get("/metrics").await;
    let format = "content-type: text/plain; version=0.0.4";
    assert!(head.contains(format), "{head}");
    for secret in ["a-secret-name", arg(&socket)] {
        assert!(!metrics.contains(secret), "{secret} is in\n{metrics}");
    }
    // After the runtime stops, the agent stays alive, and stays ready for three minutes.
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    let degraded = "degraded (stream_down) for ";
    agent.until_shows("/readyz", degraded).await;
    assert_eq!(agent.get("/readyz").await.0, 200);
    agent.stop().await;
}

#[tokio::test]
async fn agent_stops_while_a_call_to_the_runtime_hangs() {
    let dir = TestDir::new();
    let socket = dir.path("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let agent = Agent::start(&["-r", arg(&socket), "--probe-period", "1s"]).await;
    let changes = until(TIMEOUT, "a hanging list", || async {
        let seconds = agent.metric("pleg_list_in_flight_seconds").await;
        (seconds > Some(0.0)).then_some(())
    });
    changes.await.expect("gauges change while a call hangs");
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.stop().await;
}
