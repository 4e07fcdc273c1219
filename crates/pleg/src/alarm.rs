//! Wakes the writer at an instant, and the process once for it.
//!
//! Tokio's timers are kept in a wheel of wheels: one that is seconds away moves inwards as it comes
//! nearer, and each move wakes the process, two or three times for a beat. On a node where nothing
//! happens those wake-ups are most of what there is to pay. So where the kernel has timers that can
//! be waited for like a socket (Linux), the writer waits for one of those.

use pleg_core::Instant;
use pleg_runtime::clock::Clock;

#[cfg(target_os = "linux")]
use exact::Rang;

/// The writer's one timer.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    #[cfg(target_os = "linux")]
    exact: Option<exact::Timer>,
}

impl Alarm {
    pub(crate) async fn new(clock: Clock) -> Self {
        Self {
            clock,
            #[cfg(target_os = "linux")]
            exact: exact::Timer::new().await,
        }
    }

    /// Completes at that instant, or before: whoever waits looks at the clock. Cancel safe.
    pub(crate) async fn at(&mut self, at: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &mut self.exact {
            match timer.at(at, self.clock).await {
                Ok(Rang::Yes) => return,
                Ok(Rang::NotOurTime) => {}
                Err(error) => {
                    tracing::warn!(%error, "no timer of the kernel's: tokio's own take its place");
                    self.exact = None;
                }
            }
        }
        self.clock.sleep_until(at).await;
    }
}

#[cfg(target_os = "linux")]
mod exact {
    use std::io;
    use std::time::Duration;

    use pleg_core::Instant;
    use pleg_runtime::clock::Clock;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe;

    /// A timer of the kernel's.
    #[derive(Debug)]
    pub(super) struct Timer {
        /// Not a pipe, but waited for and read like one.
        fd: pipe::Receiver,
        /// When it will ring.
        set: Option<Instant>,
    }

    /// Whether it has rung.
    pub(super) enum Rang {
        Yes,
        /// The clock stands still: the kernel's time is not its own.
        NotOurTime,
    }

    impl Timer {
        /// None where the kernel or tokio has none to give.
        pub(super) async fn new() -> Option<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
            // Tokio panics where its runtime was built without I/O, and offers no way to ask.
            let watching = tokio::spawn(async { pipe::Receiver::from_owned_fd_unchecked(fd) });
            let fd = watching.await.ok()?.ok()?;
            Some(Self { fd, set: None })
        }

        /// One that is set already to ring before that is left alone: most instants are put off.
        pub(super) async fn at(&mut self, at: Instant, clock: Clock) -> io::Result<Rang> {
            if self.set.is_none_or(|set| at < set) {
                if clock.stands_still() {
                    return Ok(Rang::NotOurTime);
                }
                self.ring_in(at.since(clock.now()))?;
                self.set = Some(at);
            }
            self.fd.readable().await?;
            // It is set anew before it rings again, which takes back what was not read. Only tokio
            // has to be told that there is nothing any more.
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.fd.try_io(nothing);
            self.set = None;
            Ok(Rang::Yes)
        }

        fn ring_in(&self, after: Duration) -> io::Result<()> {
            // None at all would be never.
            let after = after.max(Duration::from_nanos(1));
            let never_again = Timespec::default();
            let spec = Itimerspec {
                it_interval: never_again,
                it_value: Timespec::try_from(after).map_err(io::Error::other)?,
            };
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
            Ok(())
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Never late for what it was asked last, whatever it was set to before.
    async fn rings(alarm: &mut Alarm) {
        let clock = alarm.clock;
        for (first, then) in [(5, 20), (20, 5), (0, 1)] {
            let begun = clock.now();
            let soon = |ms: u32| begun.after(ms * MS);
            tokio::select! {
                biased;
                () = alarm.at(soon(first)) => {}
                () = std::future::ready(()) => {}
            }
            while clock.now() < soon(then) {
                alarm.at(soon(then)).await;
            }
        }
    }

    #[tokio::test]
    async fn it_rings() {
        rings(&mut Alarm::new(Clock::start()).await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_on_paused_time() {
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock).await;
        rings(&mut alarm).await;
        let begun = clock.now();
        let hour = begun.after(Duration::from_secs(3600));
        alarm.at(hour).await;
        assert!(clock.now() >= hour);
    }

    #[test]
    fn it_rings_where_tokio_watches_no_descriptors() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new(Clock::start()).await;
            #[cfg(target_os = "linux")]
            assert!(alarm.exact.is_none());
            rings(&mut alarm).await;
        });
    }

    /// What it is there for: tokio's own timers would wake the thread twice and more.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn it_wakes_the_thread_once() {
        let slept = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = |line: &str| {
                line.strip_prefix("voluntary_ctxt_switches:")?
                    .trim()
                    .parse()
                    .ok()
            };
            let slept: u64 = status.lines().find_map(line).unwrap();
            slept
        };
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock).await;
        let before = slept();
        alarm.at(clock.now().after(300 * MS)).await;
        assert_eq!(slept() - before, 1);
    }
}
