//! The resource usage of this process, and the CPU time of the runtime from /proc.

use std::fs;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use pleg_cri::Endpoint;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixStream;

/// The resources used since the start of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The CPU time of this process.
    pub(crate) cpu: Duration,
    /// The voluntary context switches of this process.
    pub(crate) wake_ups: u64,
    /// The CPU time of the runtime, if it is known.
    pub(crate) runtime_cpu: Option<Duration>,
    pub(crate) calls: Calls,
}

/// The numbers of calls to the runtime.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) lists: u64,
    pub(crate) statuses: u64,
    pub(crate) subscribes: u64,
}

impl Usage {
    pub(crate) fn now(runtime: Option<u32>, metrics: &PrometheusHandle) -> Self {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(
            u64::try_from(used.tv_sec).unwrap_or(0),
            u32::try_from(used.tv_nsec).unwrap_or(0),
        );
        Self {
            cpu,
            wake_ups: wake_ups(),
            runtime_cpu: runtime.and_then(cpu_of),
            calls: Calls::now(metrics),
        }
    }

    /// The difference from an earlier usage.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let (calls, old) = (self.calls, before.calls);
        let both = self.runtime_cpu.zip(before.runtime_cpu);
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            wake_ups: self.wake_ups.saturating_sub(before.wake_ups),
            runtime_cpu: both.map(|(now, before)| now.saturating_sub(before)),
            calls: Calls {
                lists: calls.lists.saturating_sub(old.lists),
                statuses: calls.statuses.saturating_sub(old.statuses),
                subscribes: calls.subscribes.saturating_sub(old.subscribes),
            },
        }
    }
}

impl Calls {
    /// Reads the counts from the kubelet's metric.
    fn now(metrics: &PrometheusHandle) -> Self {
        let text = metrics.render();
        let of = |operation: &str| -> u64 {
            let sample =
                format!("kubelet_runtime_operations_total{{operation_type=\"{operation}\"}} ");
            let number = text.lines().find_map(|line| line.strip_prefix(&sample));
            number.and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        Self {
            lists: of("list_podsandbox") + of("list_containers"),
            statuses: of("podsandbox_status") + of("container_status"),
            subscribes: of("get_container_events"),
        }
    }

    pub(crate) const fn sum(self) -> u64 {
        self.lists + self.statuses + self.subscribes
    }
}

/// The process that serves the socket, if it is known.
pub(crate) async fn server_of(endpoint: &Endpoint) -> Option<u32> {
    let stream = UnixStream::connect(endpoint.path()).await.ok()?;
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
}

fn wake_ups() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let of_task = |task: fs::DirEntry| -> Option<u64> {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find(|l| l.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    tasks.flatten().filter_map(of_task).sum()
}

/// The CPU time of another process, with the resolution of a clock tick.
fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name, in parentheses. It may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = |field: usize| rest.split_whitespace().nth(field)?.parse::<u64>().ok();
    let (user, system) = (ticks(11)?, ticks(12)?);
    let second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis((user + system) * 1000 / second))
}
