//! The memory and the CPU time of a process.

use std::time::Duration;

use anyhow::Context as _;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

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

/// The CPU time of all its threads, also those that have ended.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    // 0 would be the calling process.
    anyhow::ensure!(pid > 0, "the process has no id");
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into()?));
    let time = clock.and_then(clock_gettime);
    Ok(time
        .with_context(|| format!("cannot read the CPU time of process {pid}"))?
        .into())
}
