//! What a process uses, from /proc.

use std::time::Duration;

use anyhow::Context as _;

/// The number in a line of `/proc/PID/status` such as `VmRSS:` or `VmHWM:`, in KiB, or `Threads:`.
///
/// # Errors
/// If there is no such process or line.
pub fn status(pid: u32, line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|l| l.strip_prefix(line));
    let number = value.and_then(|v| v.split_whitespace().next());
    Ok(number.with_context(|| format!("no {line}"))?.parse()?)
}

/// The fields of `/proc/PID/stat` after the name: the first is the state.
fn stat(pid: u32) -> anyhow::Result<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name, in parentheses. It may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

/// Its state, as in `ps`: R, S, D, T, Z or X. `None` if there is no such process.
pub fn state(pid: u32) -> Option<char> {
    stat(pid).ok()?.first()?.chars().next()
}

/// The CPU time of all its threads, also those that have ended. The resolution is a clock tick, 10 ms.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let fields = stat(pid)?;
    let ticks =
        |n: usize| -> anyhow::Result<u64> { Ok(fields.get(n).context("too few fields")?.parse()?) };
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?;
    let second = u64::try_from(second.context("no clock tick")?)?;
    Ok(Duration::from_millis(
        (ticks(11)? + ticks(12)?) * 1000 / second,
    ))
}
