//! `pleg agent` as a service of systemd: what it sends to its service manager.

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
        let args = ["agent", "--listen", "127.0.0.1:0", "--probe-period", "1s"];
        let mut command = pleg(&[&args[..], &["-r", arg(runtime)]].concat());
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

    /// Waits for a message with this start and this text.
    async fn until(&self, start: &str, text: &str) -> String {
        loop {
            let message = self.message().await;
            if message.starts_with(start) && message.contains(text) {
                return message;
            }
        }
    }
}

const FEED: &str = "WATCHDOG=1";

#[tokio::test]
async fn watchdog_is_fed_whatever_the_state_of_the_runtime() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let limit = Duration::from_millis(1500);
    let (manager, agent) = Manager::start(&dir, &socket, limit).await;
    assert_eq!(manager.message().await, "READY=1");
    manager.until("STATUS=not ready (never_listed)", "").await;
    for _ in 0..3 {
        manager.until(FEED, "").await;
    }
    let sim = serve(&socket).await;
    manager.until("STATUS=ready", "").await;
    // The runtime hangs for several periods of the watchdog.
    sim.signal("STOP").await;
    manager.until("STATUS=ready; ", "runtime_silent: ").await;
    // Not each wait: this process may be late itself.
    let clock = Clock::start();
    let began = clock.now();
    for _ in 0..6 {
        manager.until(FEED, "").await;
    }
    let took = clock.now().since(began);
    assert!(took < limit * 6, "{took:?}");
    sim.signal("CONT").await;
    agent.stop().await;
    let last = manager.until("STOPPING=1", "").await;
    assert_eq!(last, "STOPPING=1\nSTATUS=stopping");
}

#[tokio::test]
async fn agent_runs_if_the_service_manager_cannot_be_reached() {
    let mut command = pleg(&["agent", "--sim", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", "/none/notify.sock");
    let mut running = Running::spawn(command);
    let mut line = String::new();
    while !line.contains("cannot notify the service manager at /none") {
        line = running.message().await.expect("a warning");
    }
    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
}
