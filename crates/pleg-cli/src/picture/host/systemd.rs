//! Finds out whether systemd answers on the system bus, and whether its version is so old that it will stop answering.
//!
//! systemd numbers the messages that it sends. Before version 242 the number outgrows the 32 bits that a message has
//! for it (systemd issue 11809): after 2^32 messages, some months on a busy node, systemd cannot send any more. Then no
//! unit and no pod starts until systemd is re-executed. `busctl` reads the version: root's `systemctl` uses no bus.

use super::*;

const SOCKET: &str = "/run/dbus/system_bus_socket";
const PROPERTY: &str = "get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 \
                        org.freedesktop.systemd1.Manager Version";
const DEADLINE: Duration = Duration::from_secs(5);
/// The first version with the fix. Some distributions have also put the fix into packages of earlier versions.
const FIXED: u32 = 242;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Systemd {
    pub(crate) silent: bool,
    pub(crate) version: Option<String>,
}

/// Reads the version of systemd. Returns an error if `busctl` cannot be run, or fails.
pub(super) async fn collect(target: &HostTarget) -> Result<Option<Systemd>, String> {
    let init = Proc::below(&target.root).process(1);
    if init.is_none_or(|process| process.name != "systemd") {
        return Ok(None);
    }
    let socket = on_host(&target.root, SOCKET);
    let output = command(&target.busctl)
        .arg(format!("--address=unix:path={}", socket.display()))
        .args(PROPERTY.split(' '))
        .output();
    let mut systemd = Systemd::default();
    let Ok(output) = tokio::time::timeout(DEADLINE, output).await else {
        systemd.silent = true;
        return Ok(Some(systemd));
    };
    let output = output.map_err(|error| format!("systemd: busctl: {error}"))?;
    // The output is like `s "252.39-1~deb12u1"`.
    let text = String::from_utf8_lossy(&output.stdout);
    let quoted = text.trim().strip_prefix("s \"");
    let version = quoted.and_then(|text| text.strip_suffix('"'));
    let error = String::from_utf8_lossy(&output.stderr);
    let version = version.ok_or_else(|| format!("systemd: busctl: {}", error.trim()))?;
    systemd.version = Some(version.to_owned());
    Ok(Some(systemd))
}

pub(super) fn check(systemd: &Systemd) -> Option<Finding> {
    if systemd.silent {
        let next = "Run `systemctl daemon-reexec`, or reboot. Before version 242, update systemd: its message numbers \
                    overflow after some months.";
        let summary =
            "systemd does not answer on the system bus; no unit and no pod can be started";
        let finding = Finding::new("systemd_silent", summary, next);
        return Some(finding.because("no answer within 5 s to the request for its version"));
    }
    let version = systemd.version.as_deref()?;
    let number = version.trim_start_matches('v');
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    (digits.parse::<u32>().ok()? < FIXED).then_some(())?;
    let next = "Update systemd, or run `systemctl daemon-reexec` once a month. Packages of earlier versions with the fix \
                are not affected.";
    let summary = format!("systemd {version} stops sending messages after some months");
    let why = "before version 242, the numbers of its messages outgrow 32 bits";
    Some(Finding::new("systemd_old", summary, next).because(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::tests::fake::{FakeHost, codes};

    /// Each row: a script that replaces `busctl`, and the finding.
    #[tokio::test]
    async fn old_version_is_found_and_a_silent_systemd_is_critical() {
        let old = ("systemd_old", Severity::Info);
        for (script, found) in [
            ("echo 's \"219\"'", Ok(Some(old))),
            ("echo 's \"v241-5.el8\"'", Ok(Some(old))),
            ("echo 's \"242\"'", Ok(None)),
            ("echo 's \"252.39-1~deb12u1\"'", Ok(None)),
            ("sleep 60", Ok(Some(("systemd_silent", Severity::Critical)))),
            ("echo Denied >&2; exit 1", Err("systemd: busctl: Denied")),
        ] {
            let host = FakeHost::new();
            let mut target = host.target();
            target.busctl = ["sh", "-c", script].map(Into::into).to_vec();
            assert_eq!(collect(&target).await, Ok(None), "another first process");
            host.run(1, "systemd");
            let systemd = collect(&target).await;
            let codes = systemd.map(|systemd| codes(check(&systemd.unwrap()).as_slice()));
            let expected = found.map(Vec::from_iter).map_err(str::to_owned);
            assert_eq!(codes, expected, "{script}");
        }
    }
}
