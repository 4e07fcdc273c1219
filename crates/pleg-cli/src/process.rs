//! A process, from `/proc`.

use nix::unistd::{SysconfVar, sysconf};

/// A process, as its `stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// At most 15 characters.
    pub(crate) name: String,
    /// As in `ps`: R, S, D, T, t, Z or I.
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) threads: u64,
    /// CPU time, in clock ticks.
    ticks: u64,
    /// When it started, in clock ticks since the boot. It tells apart two processes with the same PID.
    started: u64,
    /// Its virtual memory in bytes.
    pub(crate) memory: u64,
    /// Its resident memory in pages.
    pages: u64,
}

impl Process {
    /// Parses `/proc/PID/stat`, see `proc_pid_stat(5)`.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        // The second field is the name, in parentheses. It may contain any character.
        let (head, rest) = stat.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            threads: number(17)?,
            ticks: number(11)?.checked_add(number(12)?)?,
            started: number(19)?,
            memory: number(20)?,
            pages: number(21)?,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it has ended and nobody has reaped it. A process whose first thread has ended looks the same,
    /// but has others.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == 'X' || self.state == 'Z' && self.threads <= 1
    }

    /// The same process, and not another with its PID.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    /// The CPU time that it has used since an earlier sample, in seconds.
    pub(crate) fn cpu_since(&self, before: &Self) -> f64 {
        seconds(self.ticks.saturating_sub(before.ticks))
    }

    /// How long it exists, if the system has been up for `uptime` seconds.
    pub(crate) fn age(&self, uptime: f64) -> f64 {
        (uptime - seconds(self.started)).max(0.0)
    }

    /// When it started, in seconds after the same epoch as the `boot` of the system.
    pub(crate) fn start_time(&self, boot: f64) -> f64 {
        boot + seconds(self.started)
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u64::try_from(bytes).ok());
        self.pages.saturating_mul(page.unwrap_or(4096))
    }
}

#[allow(clippy::cast_precision_loss, reason = "it is shown")]
fn seconds(ticks: u64) -> f64 {
    let second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks as f64 / second.filter(|ticks| *ticks > 0).unwrap_or(100) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_spaces_and_parentheses_is_parsed() {
        let stat = "42 (a) b (c) D 7 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 900 4096000 16 0";
        let process = Process::parse(stat).unwrap();
        assert_eq!(process.name, "a) b (c");
        assert_eq!(
            (process.pid, process.state, process.parent, process.threads),
            (42, 'D', 7, 3)
        );
        assert!((process.age(19.0) - 10.0).abs() < 1e-9, "{process:?}");
        assert!((process.start_time(1000.0) - 1009.0).abs() < 1e-9);
        assert_eq!(process.memory, 4_096_000);
        let page = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap();
        assert_eq!(i64::try_from(process.resident()), Ok(16 * page));
    }

    #[test]
    fn malformed_stat_is_no_process() {
        for stat in ["", "42", "42 (x)", "42 (x) R 1", "x (x) R 1 1", "42 x R"] {
            assert_eq!(Process::parse(stat), None, "{stat}");
        }
    }
}
