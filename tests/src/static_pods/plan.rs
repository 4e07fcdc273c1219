//! What happens while containers crash.

use crate::environment::number;
use crate::stream_proxy::Stream;

/// What happens to the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    Evented,
    /// Another client subscribes, too: on containerd 1.7 it takes a part of the events.
    SecondSubscriber,
    /// It is not used.
    Polling,
    /// The runtime has none.
    NeverOffered,
    /// It ends when a third of the restarts is done, and is back after two thirds.
    StopsAndReturns,
}

/// How much happens.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many pods there are.
    pub pods: u32,
    /// How many restarts there are at least.
    pub restarts: u32,
    /// How often the daemon is killed.
    pub daemon_kills: u32,
    /// How often the mini-kubelet is killed.
    pub own_kills: u32,
}

impl Plan {
    /// A short plan, or the plan that the environment defines.
    ///
    /// # Errors
    /// If that is no number.
    pub fn from_env() -> anyhow::Result<Self> {
        Ok(Self {
            pods: number("PLEG_KUBELET_PODS", 10)?,
            restarts: number("PLEG_KUBELET_RESTARTS", 60)?,
            daemon_kills: number("PLEG_KUBELET_DAEMON_KILLS", 1)?,
            own_kills: number("PLEG_KUBELET_OWN_KILLS", 1)?,
        })
    }

    /// What is done after which number of restarts.
    pub(super) fn steps(self, variant: Variant) -> Vec<(u32, Step)> {
        let spread =
            |step, count| (1..=count).map(move |n| (self.restarts * n / (count + 1), step));
        let mut steps: Vec<_> = spread(Step::KillDaemon, self.daemon_kills)
            .chain(spread(Step::KillKubelet, self.own_kills))
            .collect();
        if variant == Variant::StopsAndReturns {
            steps.push((self.restarts / 3, Step::Stream(Stream::Away)));
            steps.push((self.restarts * 2 / 3, Step::Stream(Stream::Forwarded)));
        }
        steps.push((self.restarts, Step::Nothing));
        // The sort is stable: what happens at the same number happens in that order.
        steps.sort_by_key(|(at, _)| *at);
        steps
    }
}

/// What is done between restarts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    KillDaemon,
    KillKubelet,
    Stream(Stream),
    Nothing,
}
