//! `pleg agent`: its responses, its messages to a service manager, and its end.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_tests::usage;
use pleg_tests::wait::until;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixDatagram};

use super::run::{Running, Sim, TIMEOUT, arg, assert_has, pleg};

pub(crate) struct Agent {
    pub(super) running: Running,
    pub(super) address: String,
}

impl Agent {
    pub(super) async fn start(args: &str) -> Self {
        Self::spawn(pleg(&format!("agent --listen 127.0.0.1:0 {args}"))).await
    }

    pub(super) async fn spawn(command: std::process::Command) -> Self {
        let mut running = Running::spawn(command);
        let message = running.message_with("; http").await;
        let mut words = message.split([' ', '/']);
        let address = words.find(|word| word.starts_with("127."));
        let address = address.expect("an address").to_owned();
        assert!(!address.ends_with(":0"), "the actual port: {message}");
        Self { running, address }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.expect("connected")
    }

    pub(super) async fn get(&self, path: &str) -> (u16, String, String) {
        ask(self.connect().await, path, "Host: localhost\r\n").await
    }

    /// Waits until a page contains each of these texts, and returns it.
    pub(super) async fn until_shows(&self, path: &str, texts: &str) -> String {
        let shown = until(TIMEOUT * 3, texts, || async {
            let (_, _, page) = self.get(path).await;
            let has_all = texts.split(" | ").all(|text| page.contains(text));
            has_all.then_some(page)
        });
        shown.await.expect(path)
    }

    pub(super) async fn scrape(&self) -> BTreeMap<String, String> {
        let (code, _, page) = self.get("/metrics").await;
        assert_eq!(code, 200);
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        let series = series.map(|(name, value)| (name.to_owned(), value.to_owned()));
        series.collect()
    }

    pub(super) async fn metric(&self, name: &str) -> Option<f64> {
        self.scrape().await.get(name)?.parse().ok()
    }

    pub(super) async fn until_metric(&self, name: &str, value: f64) {
        // Longer than other waits: some tests wait here until the agent has read 1,000 new pods.
        let reached = until(TIMEOUT * 6, name, || async {
            (self.metric(name).await == Some(value)).then_some(())
        });
        if reached.await.is_err() {
            panic!("{name} is {:?}, not {value}", self.metric(name).await);
        }
    }

    pub(super) async fn until_confirmed(&self) {
        let confirmed = "pleg_stream_state{state=\"confirmed\"}";
        self.until_metric(confirmed, 1.0).await;
    }

    /// A size in `/proc/PID/status`, in KiB.
    pub(super) fn kib(&self, line: &str) -> u64 {
        usage::status(self.running.id(), line).expect("it runs")
    }

    pub(super) async fn stop(self) {
        assert_eq!(self.running.stop("TERM", 0).await.out, "");
    }
}

/// Sends a request on this connection, with the given lines in the request's header.
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
    let headers = headers.to_lowercase();
    (code.expect("a code"), headers, body.to_owned())
}

#[tokio::test]
async fn agent_is_not_ready_until_its_runtime_serves() {
    let mut sim = Sim::down();
    let agent = sim.agent("").await;
    assert_eq!(agent.get("/healthz").await.0, 200);
    let (code, _, body) = agent.get("/readyz").await;
    assert_eq!(code, 503);
    assert_has(&body, "pleg has yet to be successful");
    assert_eq!(agent.metric("pleg_ready").await, Some(0.0));

    sim.serve("--empty").await;
    sim.run_pod("a-secret-name").await;
    for (name, value) in [
        ("pleg_ready", 1.0),
        ("pleg_running_pods", 1.0),
        ("pleg_running_containers{container_state=\"running\"}", 1.0),
        ("pleg_running_containers{container_state=\"exited\"}", 0.0),
        ("pleg_notifications_received_total{type=\"started\"}", 2.0),
    ] {
        agent.until_metric(name, value).await;
    }
    let (_, head, metrics) = agent.get("/metrics").await;
    assert_has(&head, "content-type: text/plain; version=0.0.4");
    for secret in ["a-secret-name", arg(&sim.socket)] {
        assert!(!metrics.contains(secret), "{secret} is in\n{metrics}");
    }
}

/// The next message to the service manager that begins with `start` and contains `text`.
async fn notified(manager: &UnixDatagram, start: &str, text: &str) -> String {
    loop {
        let mut message = vec![0; 4096];
        let received = tokio::time::timeout(TIMEOUT, manager.recv(&mut message)).await;
        message.truncate(received.expect("in time").expect("a message"));
        let message = String::from_utf8(message).expect("UTF-8");
        if message.starts_with(start) && message.contains(text) {
            return message;
        }
    }
}

#[tokio::test]
async fn watchdog_is_fed_while_the_runtime_is_missing_or_hangs() {
    let mut sim = Sim::down();
    let socket = sim.dir.path("notify.sock");
    let manager = UnixDatagram::bind(&socket).expect("bound");
    let limit = Duration::from_millis(1500);
    let args = "agent --listen 127.0.0.1:0 --probe-period 1s -r";
    let mut command = pleg(&format!("{args} {}", arg(&sim.socket)));
    command.env("NOTIFY_SOCKET", &socket);
    command.env("WATCHDOG_USEC", limit.as_micros().to_string());
    let agent = Agent::spawn(command).await;
    assert_eq!(notified(&manager, "", "").await, "READY=1");
    notified(&manager, "STATUS=not ready (never_listed)", "").await;
    let feeds = async |n| {
        for _ in 0..n {
            notified(&manager, "WATCHDOG=1", "").await;
        }
    };
    feeds(3).await;
    sim.serve("--empty").await;
    notified(&manager, "STATUS=ready", "").await;
    let runtime = sim.running.as_ref().expect("it runs");
    runtime.signal("STOP").await;
    notified(&manager, "STATUS=ready; ", "runtime_silent: ").await;
    // Checks only the time of six watchdog messages together: this test may be late to read one of them.
    let clock = Clock::start();
    let began = clock.now();
    feeds(6).await;
    let took = clock.now().since(began);
    assert!(took < limit * 6, "{took:?}");
    let hangs = agent.metric("pleg_list_in_flight_seconds").await;
    assert!(hangs > Some(0.0), "gauges change while a call hangs");
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.stop().await;
    let last = notified(&manager, "STOPPING=1", "").await;
    assert_eq!(last, "STOPPING=1\nSTATUS=stopping");
}
