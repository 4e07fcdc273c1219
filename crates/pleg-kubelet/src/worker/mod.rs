//! Pod workers run a reconcile function for a pod when the generator announces something about the pod, when the pod's
//! specification is set or deleted, when [`PodWorkers::wake`] is called, after a run that changed something or failed,
//! at the instant that a run requested, and 1 to 1.5 min after the last run (the resync).
//!
//! Each pod has one run at a time. A run gets a view that is newer than the worker's own last change: if possible from
//! the cache, without a call. Foreign pods are left alone, unless [`Reconcile::owns`] claims them.

mod driver;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pleg::{Instant, Pleg, PodStatus, PodUid};
use tokio::sync::{Notify, watch};

use crate::lock;

use driver::Driver;

pub(crate) use run::{LastChange, is_live, may_run};
pub use run::{Run, RunError};

/// The functions that the workers call for each pod.
#[allow(unused_variables, reason = "the defaults ignore their arguments")]
pub trait Reconcile: Send + Sync + 'static {
    /// The specification of a pod.
    type Spec: Send + Sync + 'static;
    /// The error of a failed run.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Brings the pod closer to its specification. A run starts only after the previous run for the same pod has ended.
    ///
    /// # Cancel safety
    /// When the workers are shut down, the future is dropped if the run has not ended at the deadline.
    fn reconcile(
        &self,
        run: &Run<Self::Spec>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Cleans up after a deleted pod: removes its files, and reports the exits that were not reported yet. Called when
    /// the pod has no containers and sandboxes or, if its specification was set again, when none of them runs. Called
    /// again after an [error](Self::error_policy), and if a timed-out call creates a sandbox later, after its end.
    ///
    /// # Cancel safety
    /// As [`reconcile`](Self::reconcile).
    fn finish(&self, run: &Run<Self::Spec>)
    -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns true for a pod without a specification that must be terminated, such as one that an earlier process of
    /// this kubelet started. The default returns false, because another program may have made the pod.
    fn owns(&self, pod: &PodStatus) -> bool {
        false
    }

    /// The delay between a failed run and the next run, unless the pod changes earlier. Up to half of it is added at
    /// random. `failures` is the number of failed runs since the last successful run. By default, the delay is 1 s,
    /// doubling to 10 s. (Upstream always waits 10 s.)
    fn error_policy(&self, uid: &PodUid, error: &RunError<Self::Error>, failures: u32) -> Duration {
        default_delay(failures)
    }
}

fn default_delay(failures: u32) -> Duration {
    let doubled = 1u64 << failures.saturating_sub(1).min(4);
    Duration::from_secs(doubled.min(10))
}

/// The next step after a successful run. In any case, the worker runs again at the instant given to [`Run::due_by`].
#[must_use = "return it from the reconcile function"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(Option<Instant>);

impl Action {
    /// The worker runs again when the pod changes, or at the next resync.
    pub const fn await_change() -> Self {
        Self(None)
    }

    /// The worker runs again at the instant `at` at the latest.
    pub const fn requeue_at(at: Instant) -> Self {
        Self(Some(at))
    }
}

/// The time after which a pod's worker runs again even if nothing has changed.
const RESYNC_PERIOD: Duration = Duration::from_secs(60);
/// Up to this fraction of a resync period or retry delay is added at random.
const JITTER: f64 = 0.5;
/// The time limit for a run to get a view that is newer than the worker's last change.
const VIEW_DEADLINE: Duration = Duration::from_secs(30);

/// The workers of all pods.
#[must_use = "the workers are aborted when it is dropped"]
#[derive(Debug)]
pub struct PodWorkers<S> {
    shared: Arc<Shared<S>>,
    /// Set when the workers must end. Runs that have not ended at this instant are aborted.
    stop: watch::Sender<Option<Instant>>,
}

/// The state that [`PodWorkers`] shares with the driver and the workers.
#[derive(Debug)]
struct Shared<S> {
    pods: Mutex<BTreeMap<PodUid, Slot<S>>>,
    /// Announces changes of `pods`.
    changes: watch::Sender<()>,
}

/// A pod that has a specification or a worker. `T` is `Option<Arc<S>>`: `derive(Default)` then needs no `S: Default`.
#[derive(Debug, Default)]
struct SlotOf<T> {
    spec: T,
    /// The newest specification of a deleted pod, until the worker takes it. The worker may know only an older one.
    deleted: T,
    /// The last specification set and deleted again during the termination. The next worker terminates the pod with it.
    unused: T,
    /// The shortest grace period that was given to [`PodWorkers::delete_within`].
    grace: Option<Duration>,
    /// True once a worker has made a run without a specification. The pod must then end before it can start again.
    is_terminating: bool,
    has_worker: bool,
    /// Wakes the worker, or makes the driver start one.
    woken: Arc<Notify>,
}

type Slot<S> = SlotOf<Option<Arc<S>>>;

impl<S> Slot<S> {
    fn delete(&mut self) {
        let deleted = match self.is_terminating {
            true => &mut self.unused,
            false => &mut self.deleted,
        };
        *deleted = self.spec.take().or(deleted.take());
    }
}

impl<S> Shared<S> {
    fn has_spec(&self, uid: &PodUid) -> bool {
        let pods = lock(&self.pods);
        pods.get(uid).is_some_and(|pod| pod.spec.is_some())
    }

    /// Changes the slot of a pod, and wakes the pod's worker or the driver.
    fn update(&self, uid: &PodUid, change: impl FnOnce(&mut Slot<S>)) {
        let mut pods = lock(&self.pods);
        let pod = pods.entry(uid.clone()).or_default();
        change(pod);
        pod.woken.notify_one();
        drop(pods);
        self.changes.send_replace(());
    }
}

impl<S: Send + Sync + 'static> PodWorkers<S> {
    /// Starts the workers on the tokio runtime of the generator. They wait until the generator is synced. Then each
    /// pod that exists or has a specification gets a run, so running pods are adopted. Pass all specifications: an
    /// existing pod that is not in `specs` is terminated if [`Reconcile::owns`] claims it, and is left alone otherwise.
    pub fn spawn<R: Reconcile<Spec = S>>(
        pleg: Pleg,
        reconciler: Arc<R>,
        specs: impl IntoIterator<Item = (PodUid, Arc<S>)>,
    ) -> Self {
        let (subscription, of) = (pleg.subscribe(), pleg.clone());
        let (driver, workers) = Self::parts(pleg, reconciler);
        for (uid, spec) in specs {
            workers.set(&uid, spec);
        }
        of.in_tokio(|| drop(tokio::spawn(driver.run(subscription))));
        workers
    }

    fn parts<R: Reconcile<Spec = S>>(pleg: Pleg, reconciler: Arc<R>) -> (Arc<Driver<R>>, Self) {
        let (stop, stopped) = watch::channel(None);
        let (pods, changes) = (Mutex::default(), watch::Sender::new(()));
        let shared = Arc::new(Shared { pods, changes });
        let driver = Driver {
            pleg,
            reconciler,
            shared: shared.clone(),
            ended: Mutex::default(),
            stop: stopped,
        };
        (Arc::new(driver), Self { shared, stop })
    }

    /// Sets the specification of a pod, and runs the pod's worker.
    pub fn set(&self, uid: &PodUid, spec: impl Into<Arc<S>>) {
        let spec = spec.into();
        self.shared.update(uid, |pod| pod.spec = Some(spec));
    }

    /// Deletes the specification of a pod. Its worker terminates the pod, and ends when [`Reconcile::finish`] succeeds.
    pub fn delete(&self, uid: &PodUid) {
        self.shared.update(uid, Slot::delete);
    }

    /// Deletes a pod, as [`delete`](Self::delete), with a grace period instead of the pod's own ([`Run::grace`]). A
    /// further call may shorten the grace period, but not the grace period of a stop that is in progress.
    pub fn delete_within(&self, uid: &PodUid, grace: Duration) {
        self.shared.update(uid, |pod| {
            pod.delete();
            pod.grace = pod.grace.into_iter().chain([grace]).min();
        });
    }

    /// Deletes a pod, as [`delete`](Self::delete), and sets a newer specification for [`Run::last_spec`], in one step.
    /// Call this again when the API object of the pod changes while the pod is being terminated.
    pub fn delete_with(&self, uid: &PodUid, spec: impl Into<Arc<S>>) {
        let spec = spec.into();
        self.shared.update(uid, |pod| {
            (pod.spec, pod.deleted) = (None, Some(spec));
        });
    }

    /// Runs a pod's worker, for changes that neither the generator nor a specification shows, such as a probe's result.
    pub fn wake(&self, uid: &PodUid) {
        self.shared.update(uid, |_| ());
    }

    /// The pods that have a specification.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<PodUid, Arc<S>> {
        let pods = lock(&self.shared.pods);
        let specs = pods.iter().map(|(uid, p)| (uid.clone(), p.spec.clone()));
        specs.filter_map(|(uid, spec)| Some((uid, spec?))).collect()
    }

    /// Starts no further run, waits until `deadline` for runs in progress, and then aborts these runs.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the shutdown: the workers still end at the deadline.
    pub async fn shutdown(&self, deadline: Instant) {
        self.stop.send_replace(Some(deadline));
        self.ended().await;
    }

    /// Completes when the workers have ended: after [`shutdown`](Self::shutdown), or because the generator has ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) {
        self.stop.closed().await;
    }
}
