//! What a process uses, from /proc.

use std::time::Duration;

use anyhow::Context as _;

/// A line of `/proc/PID/status` such as `VmRSS:` or `VmHWM:`, in KiB.
///
/// # Errors
/// If there is no such process or line.
pub fn memory(pid: u32, line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|l| l.strip_prefix(line));
    let number = value.and_then(|v| v.split_whitespace().next());
    Ok(number.with_context(|| format!("no {line}"))?.parse()?)
}

/// The CPU time of all its threads, also those that have ended. The resolution is a clock tick, 10 ms.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name, in parentheses. It may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks = |n: usize| -> anyhow::Result<u64> {
        let field = fields.split_whitespace().nth(n);
        Ok(field.context("too few fields")?.parse()?)
    };
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?;
    let second = u64::try_from(second.context("no clock tick")?)?;
    Ok(Duration::from_millis(
        (ticks(11)? + ticks(12)?) * 1000 / second,
    ))
}
