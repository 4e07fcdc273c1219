//! One run of a pod worker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleg::core::{CallError, SandboxState};
use pleg::runtime::clock::Clock;
use pleg::{ContainerState, Instant, Pleg, PodStatus, PodUid, PodView, TerminalRecord, WaitError};
use pleg_cri::Written;

use super::Shared;

/// What a run is given.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run<S> {
    /// The pod.
    pub uid: PodUid,
    /// Its specification. `None`: the pod is to be terminated.
    pub spec: Option<Arc<S>>,
    /// The last specification, also if the pod is to be terminated. `None` if it was never known.
    pub last_spec: Option<Arc<S>>,
    /// How many runs of the pod have failed since the last one that succeeded.
    pub failures: u32,
    /// The status of the pod, newer than the worker's own last change.
    pub view: PodView,
    pub(super) pleg: Pleg,
    pub(super) last_change: LastChange,
    pub(super) shared: Arc<Shared<S>>,
}

impl<S> Run<S> {
    /// The run has changed something in the runtime, or tried to: a call that changes something
    /// ended at `at`, whether it succeeded or not. The next run gets a view that is newer, and
    /// begins at once.
    pub fn changed(&self, at: Instant) {
        self.last_change.set(at);
    }

    /// The result of a write, whose end is recorded as [`changed`](Self::changed) does.
    ///
    /// # Errors
    /// The error of the call.
    pub fn written<T>(&self, written: Written<T>) -> Result<T, CallError> {
        self.changed(written.ended);
        written.into_result()
    }

    /// Whether anything of the pod runs or may start. A container that was created cannot start when its sandbox has
    /// ended.
    #[must_use]
    pub fn may_run(&self) -> bool {
        may_run(&self.view.status)
    }

    /// How the containers of the pod ended, also removed ones.
    #[must_use]
    pub fn terminal_records(&self) -> Arc<[TerminalRecord]> {
        self.pleg.terminal_records(&self.uid)
    }

    /// A view whose details, exit codes among them, were read after `after`.
    ///
    /// # Errors
    /// Those of [`Pleg::details_newer_than`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the read that it caused goes on.
    pub async fn details_newer_than(
        &self,
        after: Instant,
        within: Duration,
    ) -> Result<PodView, WaitError> {
        let after = self.last_change.get().map_or(after, |own| own.max(after));
        self.pleg.details_newer_than(&self.uid, after, within).await
    }

    /// Now, on the generator's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.pleg.now()
    }

    /// The generator.
    pub const fn pleg(&self) -> &Pleg {
        &self.pleg
    }

    /// The generator's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.pleg.clock()
    }
}

impl<S: Send + Sync + 'static> Run<S> {
    /// A function that runs the pod again: for tasks that outlive the run and whose results neither
    /// the generator nor a specification shows. It may be called at any time.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let (shared, uid) = (self.shared.clone(), self.uid.clone());
        move || shared.wake(&uid)
    }
}

/// See [`Run::may_run`].
pub(crate) fn may_run(status: &PodStatus) -> bool {
    let mut sandboxes = status.sandboxes.iter();
    let mut containers = status.containers.iter();
    sandboxes.any(|s| s.state != SandboxState::NotReady)
        || containers.any(|c| !matches!(c.state, ContainerState::Created | ContainerState::Exited))
}

/// When the worker of a pod last changed something. It outlives a run that fails or panics.
#[derive(Clone, Debug, Default)]
pub(super) struct LastChange(Arc<AtomicU64>);

impl LastChange {
    pub(super) fn set(&self, at: Instant) {
        // Zero is never.
        self.0.fetch_max(at.as_nanos().max(1), Ordering::AcqRel);
    }

    pub(super) fn get(&self) -> Option<Instant> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }
}

/// When the pod is run next, if nothing changes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// When something changes, or at the next resync.
    #[default]
    Change,
    /// At this instant at the latest.
    At(Instant),
}

impl From<Option<Instant>> for Next {
    fn from(due: Option<Instant>) -> Self {
        due.map_or(Self::Change, Self::At)
    }
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The reconcile function returned an error.
    Reconcile(E),
    /// There was no view newer than the worker's last change.
    View(WaitError),
    /// The reconcile function panicked.
    Panicked(String),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconcile(error) => error.fmt(f),
            Self::View(error) => write!(f, "no status of the pod: {error}"),
            Self::Panicked(message) => write!(f, "the reconcile function panicked: {message}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Reconcile(error) => Some(error),
            Self::View(error) => Some(error),
            Self::Panicked(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleg::ContainerStatus;
    use pleg::core::SandboxStatus;

    #[test]
    fn created_container_may_run_only_while_its_sandbox_may() {
        let pod = |sandbox, container| {
            let mut pod = PodStatus::nothing("p".into());
            pod.sandboxes = vec![SandboxStatus::new("s", sandbox)].into();
            pod.containers = vec![ContainerStatus::new("c", "c", container)].into();
            pod
        };
        let unknown = SandboxState::Unknown { last_ready: None };
        for (sandbox, container, runs) in [
            (SandboxState::Ready, ContainerState::Exited, true),
            (unknown, ContainerState::Exited, true),
            (SandboxState::NotReady, ContainerState::Running, true),
            (SandboxState::NotReady, ContainerState::Created, false),
            (SandboxState::NotReady, ContainerState::Exited, false),
        ] {
            let pod = pod(sandbox, container);
            assert_eq!(may_run(&pod), runs, "{pod:?}");
        }
    }
}
