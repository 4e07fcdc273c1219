//! Notifies systemd of the agent's state: `sd_notify(3)`.
//!
//! The agent reports ready once it serves HTTP, even without a runtime. It feeds the watchdog while it is `alive`:
//! systemd restarts an agent that stalls, but not an agent whose runtime is down.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::*;
use crate::health::CHECK_PERIOD;

const MOST_STATUS: usize = 200;

#[derive(Debug)]
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    /// The time without a watchdog message after which systemd restarts this process.
    watchdog: Option<Duration>,
}

impl Manager {
    pub(super) fn from_environment() -> Self {
        let address = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        let failed = |error: &io::Error| {
            let address = address.display();
            tracing::warn!("cannot notify the service manager at {address}: {error}");
        };
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let own = u64::from(std::process::id());
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let limit = number("WATCHDOG_USEC").filter(|limit| is_meant && *limit > 0);
        let socket = (!address.is_empty()).then(|| connect(&address).inspect_err(failed));
        Self {
            socket: socket.and_then(Result::ok),
            watchdog: limit.map(Duration::from_micros),
        }
    }

    /// Sends the agent's status to systemd when it changes, and feeds systemd's watchdog.
    pub(super) async fn run(&self, observer: &Observer) -> Infallible {
        let clock = observer.pleg.clock();
        let (mut sent, mut feed_at) = (String::new(), clock.now());
        let third = self.watchdog.map(|limit| limit / 3);
        let wait = third.map_or(CHECK_PERIOD, |third| third.min(CHECK_PERIOD));
        while self.socket.is_some() {
            let now = clock.now();
            let picture = observer.picture();
            let status = status(&picture);
            if status != sent {
                self.send(&format!("STATUS={status}"));
                sent = status;
            }
            if let Some(third) = third
                && now >= feed_at
                && alive(&picture.ready).is_ok()
            {
                self.send("WATCHDOG=1");
                feed_at = now.after(third);
            }
            clock.sleep_until(now.after(wait)).await;
        }
        std::future::pending().await
    }

    /// Sends a message to systemd. Logs failures only at debug level: the agent works without a service manager.
    pub(super) fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!("cannot notify the service manager: {error}");
        }
    }
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn status(picture: &Picture) -> String {
    let mut text = match &picture.ready {
        Ok(()) => "ready".to_owned(),
        // Leaves out the time since the last list: with it, the status would change every second.
        Err(reason) => format!("not ready ({})", reason.as_str()),
    };
    let shown = picture.findings.iter();
    for finding in shown.filter(|f| f.severity > Severity::Info && !f.not_ready) {
        text.push_str(&format!("; {}: {}", finding.code, finding.summary));
    }
    clip(&safe(&text), MOST_STATUS).into_owned()
}
