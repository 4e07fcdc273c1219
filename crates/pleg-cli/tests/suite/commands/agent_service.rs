//! `pleg agent` as a service of systemd: what it tells its service manager.

use std::path::Path;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use tokio::net::UnixDatagram;

use super::agent::Agent;
use super::run::{Running, TIMEOUT, arg, serve};
use crate::support::{TestDir, pleg};

/// A service manager that starts an agent.
struct Manager(UnixDatagram);

impl Manager {
    async fn start(dir: &TestDir, runtime: &Path, watchdog: Duration) -> (Self, Agent) {
        let socket = dir.path("notify.sock");
        let manager = Self(UnixDatagram::bind(&socket).expect("bound"));
        let listen = ["agent", "--listen", "127.0.0.1:0"];
        let args = ["-r", arg(runtime), "--probe-period", "1s"];
        let mut command = pleg(&[&listen[..], &args].concat());
        command
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        (manager, Agent::spawn(command).await)
    }

    async fn message(&self) -> String {
        let mut message = vec![0; 4096];
        let received = tokio::time::timeout(TIMEOUT, self.0.recv(&mut message)).await;
        message.truncate(received.expect("in time").expect("a message"));
        String::from_utf8(message).expect("UTF-8")
    }

    /// Waits for such a message.
    async fn until(&self, is_expected: impl Fn(&str) -> bool) -> String {
        loop {
            let message = self.message().await;
            if is_expected(&message) {
                return message;
            }
        }
    }
}

fn is_feed(message: &str) -> bool {
    message == "WATCHDOG=1"
}

#[tokio::test]
async fn watchdog_is_fed_while_the_runtime_is_down_silent_or_ready() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let limit = Duration::from_millis(1500);
    let (manager, agent) = Manager::start(&dir, &socket, limit).await;
    assert_eq!(manager.message().await, "READY=1");
    manager
        .until(|m| m.starts_with("STATUS=not ready (never_listed)"))
        .await;
    for _ in 0..3 {
        manager.until(is_feed).await;
    }
    let sim = serve(&socket).await;
    manager.until(|m| m == "STATUS=ready").await;
    // The runtime hangs for several periods of the watchdog.
    sim.signal("STOP").await;
    manager
        .until(|m| m.starts_with("STATUS=ready; ") && m.contains("runtime_silent: "))
        .await;
    // Not each wait: this process may be late itself.
    let clock = Clock::start();
    let began = clock.now();
    for _ in 0..6 {
        manager.until(is_feed).await;
    }
    let took = clock.now().since(began);
    assert!(took < limit * 6, "{took:?}");
    sim.signal("CONT").await;
    agent.stop().await;
    let last = manager.until(|m| m.starts_with("STOPPING=1")).await;
    assert_eq!(last, "STOPPING=1\nSTATUS=stopping");
}

#[tokio::test]
async fn stopped_agent_does_not_feed_the_watchdog() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let _sim = serve(&socket).await;
    let limit = Duration::from_secs(1);
    let (manager, agent) = Manager::start(&dir, &socket, limit).await;
    manager.until(is_feed).await;
    agent.running.signal("STOP").await;
    // What it has sent before.
    let mut message = [0; 4096];
    while manager.0.try_recv(&mut message).is_ok() {}
    let silent = tokio::time::timeout(limit * 2, manager.message()).await;
    agent.running.signal("CONT").await;
    assert!(silent.is_err(), "{silent:?}");
    manager.until(is_feed).await;
    agent.stop().await;
}

#[tokio::test]
async fn agent_runs_if_the_service_manager_cannot_be_reached() {
    let mut command = pleg(&["agent", "--sim", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", "/none/notify.sock");
    let mut running = Running::spawn(command);
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("; http")) {
        lines.push(running.message().await.expect("a line"));
    }
    let warning = running.message().await.expect("a warning");
    assert!(
        warning.contains("cannot notify the service manager at /none"),
        "{warning}"
    );
    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
}
