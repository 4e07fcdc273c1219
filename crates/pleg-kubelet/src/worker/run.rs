//! One run of a pod worker.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::OptionFuture;
use pleg::core::{CallError, SandboxState};
use pleg::{
    ContainerState, ContainerStatus, Instant, Pleg, PodHandle, PodStatus, PodUid, PodView,
    WaitError,
};
use pleg_cri::Written;
use tokio::sync::Notify;

use super::{Action, Shared, VIEW_DEADLINE, default_delay};
use crate::lock;

/// The input of a reconcile function, and a record of what the function changed. [`PodWorkers`](super::PodWorkers)
/// makes the runs. In a unit test or a loop of your own, call [`Run::new`] instead.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run<S> {
    /// The pod.
    pub uid: PodUid,
    /// The specification of the pod. `None`: the pod must be terminated.
    pub spec: Option<Arc<S>>,
    /// The most recent specification, kept during termination. `None` if this worker never had one.
    pub last_spec: Option<Arc<S>>,
    /// The grace period given with the deletion, which replaces the pod's own.
    pub grace: Option<Duration>,
    /// The number of failed runs since the last successful run.
    pub failures: u32,
    /// The status of the pod, newer than the worker's own last change.
    pub view: PodView,
    pub(crate) pleg: Pleg,
    pub(crate) last_change: Arc<LastChange>,
    pub(super) woken: Arc<Notify>,
    /// The earliest instant that was given to [`due_by`](Self::due_by).
    due: Mutex<Option<Instant>>,
    /// Announces changes of the pod, for [`Run::next`].
    changes: Option<PodHandle>,
    /// The specifications of all pods. `None` unless [`PodWorkers`](super::PodWorkers) created this run.
    pub(super) shared: Option<Arc<Shared<S>>>,
}

impl<S> Run<S> {
    /// The first run of a worker for this pod, with the cached view. The planner forgets a pod when its run is dropped:
    /// keep the run, and call [`next`](Self::next) before each further use. To terminate the pod, set `spec` to `None`.
    #[must_use]
    pub fn new(pleg: &Pleg, uid: impl Into<PodUid>, spec: impl Into<Arc<S>>) -> Self {
        let (uid, spec) = (uid.into(), spec.into());
        Self {
            spec: Some(spec.clone()),
            last_spec: Some(spec),
            changes: Some(pleg.pod(&uid)),
            ..Self::of_worker(pleg, uid)
        }
    }

    pub(super) fn of_worker(pleg: &Pleg, uid: PodUid) -> Self {
        Self {
            view: pleg.get(&uid),
            uid,
            spec: None,
            last_spec: None,
            grace: None,
            failures: 0,
            pleg: pleg.clone(),
            last_change: Arc::default(),
            woken: Arc::default(),
            due: Mutex::default(),
            changes: None,
            shared: None,
        }
    }

    /// Waits until the worker must run again, and takes a newer view. The wait ends at once if the run changed
    /// something. Otherwise it ends when the pod changes, a [`waker`](Self::waker) is called, or the action of `result`
    /// or [`due`](Self::due) is due. After an error, the wait is at most 1 s, doubling to 10 s. `next` makes no resync.
    ///
    /// # Errors
    /// [`WaitError::Closed`] if the generator has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the run keeps its old view: call `next` again before the next run.
    pub async fn next<E>(&mut self, result: Result<Action, E>) -> Result<(), WaitError> {
        let mut due = match result {
            Ok(action) => {
                self.failures = 0;
                self.follows(action)
            }
            Err(_) => {
                // The run may have changed something before it failed.
                self.changed(self.now());
                Some(self.failed())
            }
        };
        loop {
            self.wait(due).await?;
            match self.refresh().await {
                Err(error) if error != WaitError::Closed => due = Some(self.failed()),
                result => return result,
            }
        }
    }

    /// Counts a failed run. Returns the instant of the next run.
    fn failed(&mut self) -> Instant {
        self.failures = self.failures.saturating_add(1);
        self.now().after(default_delay(self.failures))
    }

    /// The instant of the next run after a successful run. `None`: the next run waits for a change of the pod.
    pub(super) fn follows(&self, Action(at): Action) -> Option<Instant> {
        let changed = *lock(&self.last_change);
        match self.view.as_of < changed {
            true => Some(self.now()),
            false => at.into_iter().chain(self.due()).min(),
        }
    }

    /// Waits until the worker was woken, the pod has changed, or the instant `due` has come.
    pub(super) async fn wait(&mut self, due: Option<Instant>) -> Result<(), WaitError> {
        let clock = self.pleg.clock();
        let sleep = OptionFuture::from(due.map(|at| clock.sleep_until(at)));
        let changed = OptionFuture::from(self.changes.as_mut().map(PodHandle::changed));
        tokio::select! {
            Some(()) = sleep => Ok(()),
            () = self.woken.notified() => Ok(()),
            Some(has_changed) = changed => has_changed.then_some(()).ok_or(WaitError::Closed),
        }
    }

    /// Starts a run: takes a view that is newer than the worker's own last change.
    pub(super) async fn refresh(&mut self) -> Result<(), WaitError> {
        *lock(&self.due) = None;
        let (cached, changed) = (self.pleg.get(&self.uid), *lock(&self.last_change));
        self.view = match changed {
            // Every cached view is new enough: this worker has changed nothing, and no other program creates its pod.
            None if cached.as_of.is_some() => cached,
            after => {
                let after = after.unwrap_or(Instant::ORIGIN);
                let newer = self.pleg.newer_than(&self.uid, after, VIEW_DEADLINE);
                newer.await?
            }
        };
        Ok(())
    }

    /// Records that the run has changed something in the runtime, or tried to: the call ended at `at`, whether it
    /// succeeded or not. The next run starts at once, with a view that is newer than `at`.
    pub fn changed(&self, at: Instant) {
        let mut last = lock(&self.last_change);
        *last = last.max(Some(at));
    }

    /// Records the end of a call that changes the runtime, as [`changed`](Self::changed), and returns its result.
    ///
    /// # Errors
    /// The error of the call.
    pub fn written<T>(&self, written: Written<T>) -> Result<T, CallError> {
        self.changed(written.ended);
        written.into_result()
    }

    /// Completes when the pod is deleted after the start of the run. Never completes without `PodWorkers`.
    pub(crate) async fn deleted(&self) {
        let Some(shared) = self.shared.as_ref().filter(|_| self.spec.is_some()) else {
            return std::future::pending().await;
        };
        let is_deleted = |(): &()| !shared.has_spec(&self.uid);
        // Cannot fail: the sender lives in `shared`.
        let _ = shared.changes.subscribe().wait_for(is_deleted).await;
    }

    /// Makes the worker run again at the instant `at` at the latest. The planner calls `due_by` if a plan needs that.
    pub fn due_by(&self, at: Instant) {
        let mut due = lock(&self.due);
        *due = due.into_iter().chain([at]).min();
    }

    /// The instant of the next run, unless a change of the pod causes an earlier run.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        *lock(&self.due)
    }

    /// Returns a function that makes the worker run again, for tasks that outlive the run.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let woken = self.woken.clone();
        move || woken.notify_one()
    }

    /// Now, on the generator's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.pleg.now()
    }
}

/// The instant at which the worker of a pod last changed something. The address of this value identifies the worker.
pub(crate) type LastChange = Mutex<Option<Instant>>;

/// Returns true if a container or sandbox may be running. A created container cannot start after its sandbox has ended.
pub(crate) fn may_run(status: &PodStatus) -> bool {
    let mut sandboxes = status.sandboxes.iter();
    sandboxes.any(|s| s.state != SandboxState::NotReady) || status.containers.iter().any(is_live)
}

/// Returns true if the container is running or may be running.
pub(crate) fn is_live(container: &ContainerStatus) -> bool {
    use ContainerState::{Created, Exited};
    !matches!(container.state, Created | Exited)
}

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The reconcile function or the finish function returned an error.
    #[error("{0}")]
    Reconcile(#[source] E),
    /// The generator provided no view that is newer than the worker's last change.
    #[error("no status of the pod: {0}")]
    View(#[source] WaitError),
    /// The reconcile function panicked.
    #[error("the reconcile function panicked: {0}")]
    Panicked(String),
}
