//! Counts of pods and containers by state, updated with every publication, so that no walk is
//! needed.

use crate::types::status::{ContainerState, PodStatus, SandboxState};

/// The number of pods and containers, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StateCounts {
    /// Pods with a ready sandbox.
    pub running_pods: u64,
    /// Containers that were created and not started.
    pub created: u64,
    /// Containers that are running.
    pub running: u64,
    /// Containers that have exited.
    pub exited: u64,
    /// Containers whose state is not known.
    pub unknown: u64,
}

impl StateCounts {
    /// The cached status of a pod changes from `before` to `now`.
    pub(super) fn recount(&mut self, before: Option<&PodStatus>, now: Option<&PodStatus>) {
        let (before, now) = (Self::of(before), Self::of(now));
        for (count, before, now) in [
            (
                &mut self.running_pods,
                before.running_pods,
                now.running_pods,
            ),
            (&mut self.created, before.created, now.created),
            (&mut self.running, before.running, now.running),
            (&mut self.exited, before.exited, now.exited),
            (&mut self.unknown, before.unknown, now.unknown),
        ] {
            *count = (*count + now).saturating_sub(before);
        }
    }

    fn of(status: Option<&PodStatus>) -> Self {
        let mut state_counts = Self::default();
        let Some(status) = status else {
            return state_counts;
        };
        let ready = SandboxState::Unknown {
            last_ready: Some(true),
        };
        let runs = |s: SandboxState| s == SandboxState::Ready || s == ready;
        state_counts.running_pods = u64::from(status.sandboxes.iter().any(|s| runs(s.state)));
        for container in &status.containers {
            *match container.state {
                ContainerState::Created => &mut state_counts.created,
                ContainerState::Running => &mut state_counts.running,
                ContainerState::Exited => &mut state_counts.exited,
                ContainerState::Unknown { .. } => &mut state_counts.unknown,
            } += 1;
        }
        state_counts
    }
}
