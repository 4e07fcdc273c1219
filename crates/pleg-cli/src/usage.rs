//! The resource usage of this process, and the CPU time of the runtime from /proc.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use pleg_cri::Endpoint;
use tokio::net::UnixStream;

use crate::proc::Proc;

/// The resources used since the start of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The CPU time of this process.
    pub(crate) cpu: Duration,
    /// The voluntary context switches of all threads of this process, including threads that have
    /// ended.
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
        let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        Self {
            cpu: cpu.map_or(Duration::ZERO, Duration::from),
            wake_ups: wake_ups(),
            runtime_cpu: runtime.and_then(|pid| Some(Proc::of_this_host().process(pid)?.cpu())),
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

/// `/proc/self/task` would not show the threads that have ended; tokio ends idle blocking threads.
fn wake_ups() -> u64 {
    let switches = getrusage(UsageWho::RUSAGE_SELF).map(|u| u.voluntary_context_switches());
    switches.map_or(0, |n| u64::try_from(n).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The voluntary context switches of the calling thread.
    fn own_wake_ups() -> u64 {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("it has no invalid argument");
        u64::try_from(usage.voluntary_context_switches()).expect("not negative")
    }

    #[test]
    fn wake_ups_of_ended_thread_are_counted() {
        let before = wake_ups();
        let blocking = thread::spawn(|| {
            for _ in 0..50 {
                thread::park_timeout(Duration::from_millis(1));
            }
            own_wake_ups()
        });
        let of_thread = blocking.join().expect("it does not panic");
        assert!(of_thread >= 40, "{of_thread}");
        let counted = wake_ups() - before;
        assert!(counted >= of_thread, "{counted} of {of_thread}");
    }

    #[test]
    fn cpu_time_of_own_process_is_read_from_proc() {
        let own = Proc::of_this_host()
            .own()
            .expect("its own stat is readable");
        let clock = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a valid clock");
        let most = Duration::from(clock) + Duration::from_millis(20);
        assert!(own.cpu() <= most, "{own:?}");
    }
}
