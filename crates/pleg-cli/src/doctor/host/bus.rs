//! The serial numbers of systemd's messages on the system bus.
//!
//! systemd counts the messages that it sends. Before version 242 the counter is not limited to the 32 bits
//! that a message has for it (systemd issue 11809): after 2^32 messages, some months on a busy node, systemd
//! cannot send any more. Then no unit can be started, and no pod either, until it is executed again.

mod wire;

use std::time::Duration;

use pleg::core::Instant;
use pleg::runtime::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::{HostTarget, on_host, rounded, share};
use crate::doctor::finding::{Finding, Layer, Severity};
use crate::proc::Proc;

const SOCKET: &str = "/run/dbus/system_bus_socket";
/// How long systemd may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The first version with the fix. Distributions have it in some packages of earlier versions.
const FIXED: u32 = 242;
/// One more does not fit into a message.
const LAST: u64 = u32::MAX as u64;
/// How many days in advance to warn.
const DAYS: f64 = 30.0;

/// systemd on the system bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Bus {
    /// systemd did not answer although the bus did.
    pub(crate) silent: bool,
    pub(crate) version: Option<String>,
    /// Of its last message.
    pub(crate) serial: Option<u32>,
    /// How many messages it sends.
    pub(crate) per_second: Option<f64>,
}

impl Bus {
    /// The major version, the number at the begin.
    fn major(&self) -> Option<u32> {
        let version = self.version.as_deref()?.trim_start_matches('v');
        let digits = version.find(|c: char| !c.is_ascii_digit());
        version[..digits.unwrap_or(version.len())].parse().ok()
    }

    /// The days left until the counter is at its end.
    fn days(&self) -> Option<f64> {
        let rate = self.per_second.filter(|rate| *rate > 0.0)?;
        let left = LAST.saturating_sub(u64::from(self.serial?));
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        Some(f64::from(left) / rate / 86_400.0)
    }
}

/// Asks systemd now, and again at the end. The error says what could not be read.
pub(super) async fn collect(
    target: &HostTarget,
    clock: Clock,
    until: Instant,
) -> (Option<Bus>, Option<String>) {
    let init = Proc::below(&target.root).process(1);
    if init.is_none_or(|process| process.name != "systemd") {
        return (None, None);
    }
    let socket = on_host(&target.root, SOCKET);
    let ask = async || {
        let asked = async { wire::version(UnixStream::connect(&socket).await?).await };
        match tokio::time::timeout(DEADLINE, asked).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    };
    let first = (ask().await, clock.now());
    if let (Err(error), _) = first {
        return (None, Some(format!("systemd's bus: {error}")));
    }
    clock.sleep_until(until).await;
    let last = (ask().await, clock.now());
    let answer = |answer: &std::io::Result<Option<wire::Answer>>| {
        answer.as_ref().ok().and_then(Clone::clone)
    };
    let (before, after) = (answer(&first.0), answer(&last.0));
    let seconds = last.1.since(first.1).as_secs_f64();
    // The last answer is one of the messages, but was sent only because we asked.
    let sent = before.as_ref().zip(after.as_ref());
    let sent = sent.map(|(b, a)| a.serial.saturating_sub(b.serial).saturating_sub(1));
    let newest = after.or(before);
    let bus = Bus {
        silent: newest.is_none() && last.0.is_ok(),
        per_second: sent.map(|sent| rounded(f64::from(sent) / seconds.max(0.001))),
        serial: newest.as_ref().map(|answer| answer.serial),
        version: newest.map(|answer| answer.version),
    };
    (Some(bus), None)
}

pub(super) fn check(bus: Option<&Bus>) -> Vec<Finding> {
    bus.and_then(|bus| silent(bus).or_else(|| overflow(bus)))
        .into_iter()
        .collect()
}

fn silent(bus: &Bus) -> Option<Finding> {
    bus.silent.then(|| {
        let next = "Run systemctl daemon-reexec, or reboot. Before version 242, update systemd: its messages \
                    overflow after some months.";
        let summary = "systemd does not answer on the system bus; no unit and no pod can be started";
        Finding::new("systemd_silent", Layer::Host, Severity::Critical, summary, next)
            .because("the bus accepted two requests for its version; no answer within 5 s")
            .explains(&["pods_hung", "pods_failing", "runtime_silent"])
    })
}

fn overflow(bus: &Bus) -> Option<Finding> {
    let affected = bus.major().is_some_and(|version| version < FIXED);
    let serial = bus.serial.filter(|_| affected)?;
    let used = share(u64::from(serial), LAST);
    // At the begin, a moment with many messages is no trend.
    let days = bus.days().filter(|days| *days < DAYS && used >= 0.1);
    let severity = match used {
        _ if used >= 0.99 => Severity::Critical,
        _ if used >= 0.9 || days.is_some() => Severity::Warning,
        _ => return None,
    };
    let version = bus.version.as_deref().unwrap_or_default();
    let next = "Update systemd and run systemctl daemon-reexec; this also starts the counter again. Packages of \
                earlier versions with the fix are not affected.";
    let summary = format!(
        "systemd {version} has used {:.0} % of the serial numbers of its messages",
        used * 100.0
    );
    let finding = Finding::new("systemd_serial", Layer::Host, severity, summary, next).because(
        format!("serial {serial} of {LAST}; after that it cannot send"),
    );
    Some(match (bus.per_second, bus.days()) {
        (Some(rate), Some(days)) => {
            finding.because(format!("{rate:.1} messages/s: {days:.1} days left"))
        }
        _ => finding,
    })
}

#[cfg(test)]
mod tests;
