//! systemd on the system bus: whether it answers, and whether it is so old that it stops to.
//!
//! systemd numbers the messages that it sends. Before version 242 the number outgrows the 32 bits that a message has
//! for it (systemd issue 11809): after 2^32 messages, some months on a busy node, systemd cannot send any more. Then no
//! unit can be started, and no pod either, until it is executed again. It is asked by `busctl`, because
//! `systemctl` of root does not use the bus.

use std::process::Output;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kinds::{SYSTEMD_OLD, SYSTEMD_SILENT};
use super::{HostTarget, command, on_host};
use crate::picture::finding::Finding;
use crate::proc::Proc;

const SOCKET: &str = "/run/dbus/system_bus_socket";
/// How long systemd may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The first version with the fix. Distributions have it in some packages of earlier versions.
const FIXED: u32 = 242;

/// systemd on the system bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Systemd {
    /// It does not answer.
    pub(crate) silent: bool,
    pub(crate) version: Option<String>,
}

impl Systemd {
    /// The number at the start of the version.
    fn major(&self) -> Option<u32> {
        let version = self.version.as_deref()?.trim_start_matches('v');
        let digits = version.find(|c: char| !c.is_ascii_digit());
        version[..digits.unwrap_or(version.len())].parse().ok()
    }
}

/// Asks systemd. The error says why it could not be asked.
pub(super) async fn collect(target: &HostTarget) -> (Option<Systemd>, Option<String>) {
    let init = Proc::below(&target.root).process(1);
    if init.is_none_or(|process| process.name != "systemd") {
        return (None, None);
    }
    let socket = on_host(&target.root, SOCKET);
    let output = command(&target.busctl)
        .arg(format!("--address=unix:path={}", socket.display()))
        .args(["get-property", "org.freedesktop.systemd1"])
        .args([
            "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager",
        ])
        .arg("Version")
        .output();
    let asked = match tokio::time::timeout(DEADLINE, output).await {
        Ok(Ok(output)) => answer(&output),
        Ok(Err(error)) => Err(format!("busctl: {error}")),
        Err(_elapsed) => Ok(Systemd {
            silent: true,
            version: None,
        }),
    };
    match asked {
        Ok(systemd) => (Some(systemd), None),
        Err(error) => (None, Some(format!("systemd: {error}"))),
    }
}

/// `s "252.39-1~deb12u1"`.
fn answer(output: &Output) -> Result<Systemd, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("s \"");
    match version.and_then(|version| version.strip_suffix('"')) {
        Some(version) => Ok(Systemd {
            silent: false,
            version: Some(version.to_owned()),
        }),
        None => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("busctl: {}", error.trim()))
        }
    }
}

pub(super) fn check(systemd: Option<&Systemd>) -> Option<Finding> {
    let systemd = systemd?;
    if systemd.silent {
        let next = "Run `systemctl daemon-reexec`, or reboot. Before version 242, update systemd: its messages overflow \
                    after some months.";
        let summary =
            "systemd does not answer on the system bus; no unit and no pod can be started";
        let finding = SYSTEMD_SILENT.found(summary, next);
        return Some(finding.because("no answer within 5 s to the request for its version"));
    }
    let version = systemd.version.as_deref()?;
    let next = "Update systemd, or run `systemctl daemon-reexec` once a month. Packages of earlier versions with the fix \
                are not affected.";
    let summary = format!("systemd {version} stops to send messages after some months");
    (systemd.major()? < FIXED).then(|| {
        let finding = SYSTEMD_OLD.found(summary, next);
        finding.because("the numbers of its messages outgrow 32 bits before version 242")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::finding::Severity;
    use crate::picture::host::fake::{FakeHost, codes};

    /// What is found on a host with systemd, where `busctl` is this script.
    async fn examine(script: &str) -> (Option<Systemd>, Option<String>) {
        let host = FakeHost::new();
        host.process(1, "systemd", 'S', 0);
        let target = HostTarget {
            root: host.root().to_owned(),
            busctl: ["sh", "-c", script].map(Into::into).to_vec(),
            ..HostTarget::new(None)
        };
        collect(&target).await
    }

    #[tokio::test]
    async fn old_version_is_found_and_a_silent_systemd_is_critical() {
        for (script, found) in [
            ("echo 's \"219\"'", vec![("systemd_old", Severity::Info)]),
            (
                "echo 's \"v241-5.el8\"'",
                vec![("systemd_old", Severity::Info)],
            ),
            ("echo 's \"242\"'", vec![]),
            ("echo 's \"252.39-1~deb12u1\"'", vec![]),
            ("sleep 60", vec![("systemd_silent", Severity::Critical)]),
        ] {
            let (systemd, why) = examine(script).await;
            assert_eq!(codes(check(systemd.as_ref()).as_slice()), found, "{script}");
            assert_eq!(why, None, "{script}");
        }
    }

    #[tokio::test]
    async fn bus_that_refuses_is_named_as_unreadable() {
        let (systemd, why) = examine("echo 'Access denied' >&2; exit 1").await;
        assert_eq!(systemd, None);
        assert_eq!(why.as_deref(), Some("systemd: busctl: Access denied"));
        assert_eq!(
            collect(&HostTarget {
                root: FakeHost::new().root().to_owned(),
                ..HostTarget::new(None)
            })
            .await,
            (None, None),
            "another first process"
        );
    }
}
