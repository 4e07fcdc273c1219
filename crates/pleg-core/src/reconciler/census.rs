//! How much exists, counted along with what is published: nobody walks a node to count it.

use crate::status::{ContainerState, PodStatus, SandboxState};

/// How many pods, sandboxes and containers exist, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Census {
    /// Pods with a ready sandbox.
    pub running_pods: u64,
    /// Containers that were created and not started.
    pub created: u64,
    /// Containers that run.
    pub running: u64,
    /// Containers that have ended.
    pub exited: u64,
    /// Containers whose state is not known.
    pub unknown: u64,
}

impl Census {
    /// The cache holds `now` of a pod of which it held `before`.
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
        let mut census = Self::default();
        let Some(status) = status else { return census };
        let ready = SandboxState::Unknown {
            last_ready: Some(true),
        };
        let runs = |s: SandboxState| s == SandboxState::Ready || s == ready;
        census.running_pods = u64::from(status.sandboxes.iter().any(|s| runs(s.state)));
        for container in &status.containers {
            *match container.state {
                ContainerState::Created => &mut census.created,
                ContainerState::Running => &mut census.running,
                ContainerState::Exited => &mut census.exited,
                ContainerState::Unknown { .. } => &mut census.unknown,
            } += 1;
        }
        census
    }
}
