//! Pod workers: run a reconcile function for each pod whenever something changed, one run at a time
//! per pod.
//!
//! A pod is run when
//!
//! * the generator announces something about it,
//! * its specification is set or deleted, or [`PodWorkers::wake`] is called,
//! * an instant comes that its last run named, its last run failed (see
//!   [`Reconcile::error_policy`]) or changed something, or 1 to 1.5 min have passed (the resync).
//!
//! Each run is given a view that is newer than the worker's own last change. If the cache has one,
//! that takes no call.

mod driver;
pub mod queue;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::{Instant, InvalidSetting, Pleg, PodUid};
use tokio::sync::{Notify, watch};

pub(crate) use run::may_run;
pub use run::{Next, Run, RunError};

/// What the workers run.
pub trait Reconcile: Send + Sync + 'static {
    /// The specification of a pod.
    type Spec: Send + Sync + 'static;
    /// Why a run fails.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Brings the pod closer to its specification. A run begins only after the previous one of its
    /// pod has ended.
    ///
    /// # Cancel safety
    /// The future is dropped when the workers are shut down and do not end in time.
    fn reconcile(
        &self,
        run: &Run<Self::Spec>,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// How long after a failed run the pod is run again, if nothing changes before. `failures` is
    /// the number of failed runs since the last one that succeeded. Up to half is added at random.
    ///
    /// By default 1 s, doubling to 10 s. (The kubelet waits 10 s.)
    fn error_policy(&self, uid: &PodUid, error: &RunError<Self::Error>, failures: u32) -> Duration {
        let _ = (uid, error);
        default_delay(failures)
    }

    /// The worker of the pod has ended: the pod has no specification, and nothing of it exists; or it has one again,
    /// and nothing of the earlier pod runs. What is left of that is in the view of the run, and is handled by the next
    /// worker of the pod.
    /// Drop what is kept of the pod here, for example with
    /// [`Decider::forget`](crate::decision::Decider::forget). May be called more than once.
    fn ended(&self, run: &Run<Self::Spec>) {
        let _ = run;
    }
}

impl<R: Reconcile> Reconcile for Arc<R> {
    type Spec = R::Spec;
    type Error = R::Error;

    fn reconcile(
        &self,
        run: &Run<Self::Spec>,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send {
        (**self).reconcile(run)
    }

    fn error_policy(&self, uid: &PodUid, error: &RunError<Self::Error>, failures: u32) -> Duration {
        (**self).error_policy(uid, error, failures)
    }

    fn ended(&self, run: &Run<Self::Spec>) {
        (**self).ended(run);
    }
}

fn default_delay(failures: u32) -> Duration {
    let doubled = 1u64 << failures.saturating_sub(1).min(4);
    Duration::from_secs(doubled.min(10))
}

/// Settings of the workers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// How many pods are run at once: 512, and at least 1. A run that waits for a container to stop takes its whole
    /// grace period, so this should exceed the number of pods of the node.
    pub concurrency: usize,
    /// How long after a run the pod is run again even if nothing changed: 1 min, and at least 10 ms.
    pub resync_period: Duration,
    /// The greatest part of a period or delay that is added at random: 0.5, and at most 1.
    pub jitter: f64,
    /// How long a run waits for its view: 30 s, and at least 10 ms.
    pub view_deadline: Duration,
    /// The seed of the jitter; by default a random one.
    pub seed: Option<u64>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            concurrency: 512,
            resync_period: Duration::from_secs(60),
            jitter: 0.5,
            view_deadline: Duration::from_secs(30),
            seed: None,
        }
    }
}

impl WorkerSettings {
    /// Checks the settings. [`PodWorkers::spawn`] does it, too.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::unless(
            self.concurrency > 0,
            "concurrency",
            self.concurrency,
            "it must be at least 1",
        )?;
        InvalidSetting::unless(
            (0.0..=1.0).contains(&self.jitter),
            "jitter",
            self.jitter,
            "it must be between 0 and 1",
        )?;
        let between = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
        for (setting, given) in [
            ("resync_period", self.resync_period),
            ("view_deadline", self.view_deadline),
        ] {
            let rule = "it must be between 10ms and one day";
            InvalidSetting::unless(between.contains(&given), setting, given, rule)?;
        }
        Ok(())
    }
}

/// The workers of all pods.
///
/// Cheap to clone. They are aborted when the last handle is dropped.
#[derive(Debug)]
pub struct PodWorkers<S> {
    shared: Arc<Shared<S>>,
    stop: Arc<watch::Sender<Stop>>,
}

impl<S> Clone for PodWorkers<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            stop: self.stop.clone(),
        }
    }
}

/// Whether the workers are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// Runs that have not ended at that instant are aborted.
    By(Instant),
}

/// What the handles tell the driver.
#[derive(Debug)]
struct Shared<S> {
    specs: Mutex<Specs<S>>,
    /// Notifies the driver of woken pods.
    wake: Notify,
    aborted: AtomicUsize,
}

#[derive(Debug)]
struct Specs<S> {
    pods: BTreeMap<PodUid, Arc<S>>,
    woken: BTreeSet<PodUid>,
    /// What was deleted, until the driver takes it: it may be newer than what the last run had.
    deleted: BTreeMap<PodUid, Arc<S>>,
}

impl<S> Default for Specs<S> {
    fn default() -> Self {
        Self {
            pods: BTreeMap::new(),
            woken: BTreeSet::new(),
            deleted: BTreeMap::new(),
        }
    }
}

impl<S> Shared<S> {
    /// Held for a few operations on maps only.
    fn specs(&self) -> MutexGuard<'_, Specs<S>> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, uid: &PodUid) {
        self.specs().woken.insert(uid.clone());
        self.wake.notify_one();
    }
}

impl<S: Send + Sync + 'static> PodWorkers<S> {
    /// Starts the workers on the current tokio runtime.
    ///
    /// They wait until the generator is synced, and then run each pod that exists or has a
    /// specification: so they adopt what runs. A pod that exists and is not among `specs` is
    /// terminated, so all specifications must be known before.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn spawn<R>(
        pleg: Pleg,
        reconciler: R,
        settings: WorkerSettings,
        specs: impl IntoIterator<Item = (PodUid, Arc<S>)>,
    ) -> Result<Self, InvalidSetting>
    where
        R: Reconcile<Spec = S>,
    {
        settings.validate()?;
        let shared = Arc::new(Shared {
            specs: Mutex::new(Specs {
                pods: specs.into_iter().collect(),
                ..Specs::default()
            }),
            wake: Notify::new(),
            aborted: AtomicUsize::new(0),
        });
        let (stop, stopped) = watch::channel(Stop::No);
        let driver = driver::Driver::new(pleg, Arc::new(reconciler), shared.clone(), settings);
        drop(tokio::spawn(driver.run(stopped)));
        Ok(Self {
            shared,
            stop: Arc::new(stop),
        })
    }

    /// Sets the specification of a pod and runs it.
    pub fn set(&self, uid: &PodUid, spec: impl Into<Arc<S>>) {
        let mut specs = self.shared.specs();
        specs.pods.insert(uid.clone(), spec.into());
        specs.woken.insert(uid.clone());
        drop(specs);
        self.shared.wake.notify_one();
    }

    /// Deletes the specification of a pod and runs it, after the run in progress: it is to be terminated. Its worker
    /// ends when nothing of the pod exists, or, if the specification is set again, when nothing of it runs.
    pub fn delete(&self, uid: &PodUid) {
        let mut specs = self.shared.specs();
        if let Some(spec) = specs.pods.remove(uid) {
            specs.deleted.insert(uid.clone(), spec);
        }
        specs.woken.insert(uid.clone());
        drop(specs);
        self.shared.wake.notify_one();
    }

    /// Runs the pod: something changed that neither the generator nor a specification shows, such
    /// as the result of a probe.
    pub fn wake(&self, uid: &PodUid) {
        self.shared.wake(uid);
    }

    /// The pods that have a specification.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<PodUid, Arc<S>> {
        self.shared.specs().pods.clone()
    }

    /// Begins no further run, waits until `deadline` for those in progress, and then aborts them.
    /// Returns the number of aborted runs.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the shutdown; it goes on until the deadline.
    pub async fn shutdown(&self, deadline: Instant) -> usize {
        self.stop.send_replace(Stop::By(deadline));
        self.ended().await;
        self.shared.aborted.load(Ordering::Acquire)
    }

    /// Completes when the workers have ended: after [`shutdown`](Self::shutdown), or because the
    /// generator has ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) {
        self.stop.closed().await;
    }
}
