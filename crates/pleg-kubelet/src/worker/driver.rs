//! The tasks of the pod workers.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use pleg::{Delivery, Instant, Pleg, PodUid, Subscription};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::{JITTER, RESYNC_PERIOD, Reconcile, Run, RunError, Shared, default_delay, may_run};
use crate::{lock, message_of};

/// The task that wakes the pod workers, and starts a worker for each pod that has none.
pub(super) struct Driver<R: Reconcile> {
    pub(super) pleg: Pleg,
    pub(super) reconciler: Arc<R>,
    pub(super) shared: Arc<Shared<R::Spec>>,
    /// When pods were cleaned up. If a timed-out call creates a sandbox of one within ten minutes, it is terminated.
    pub(super) ended: Mutex<BTreeMap<PodUid, Instant>>,
    pub(super) stop: watch::Receiver<Option<Instant>>,
}

impl<R: Reconcile> Driver<R> {
    /// Starts and wakes pod workers until they must end or the generator has ended.
    pub(super) async fn run(self: Arc<Self>, mut subscription: Subscription) {
        let (mut stop, mut changes) = (self.stop.clone(), self.shared.changes.subscribe());
        tokio::select! {
            synced = self.pleg.wait_until_synced() => match synced {
                Ok(()) => self.wake_all(&mut subscription),
                Err(_) => return,
            },
            () = stopped(&mut stop) => return,
        }
        let mut tasks = JoinSet::new();
        loop {
            self.start_workers(&mut tasks);
            tokio::select! {
                delivery = subscription.next() => match delivery {
                    Some(delivery) => self.deliver(delivery, &mut subscription),
                    None => break,
                },
                Some(Ok(uid)) = tasks.join_next() => self.worker_ended(&uid),
                Ok(()) = changes.changed() => {}
                () = stopped(&mut stop) => break,
            }
        }
        // Without `shutdown` (`PodWorkers` dropped, generator ended), the drop of `tasks` aborts the runs in progress.
        let deadline = *stop.borrow();
        if let Some(deadline) = deadline {
            let ends = async { while tasks.join_next().await.is_some() {} };
            let _ = timeout_at(self.pleg.clock().tokio(deadline), ends).await;
            tasks.shutdown().await;
        }
    }

    pub(super) fn deliver(&self, delivery: Delivery, subscription: &mut Subscription) {
        match delivery {
            Delivery::Event(event) => self.shared.update(&event.uid, |_| ()),
            Delivery::Synced => {}
            // The subscription lagged, so the generator dropped events, which may have been about any pod.
            _ => self.wake_all(subscription),
        }
    }

    /// Wakes every pod that exists, or has a specification or a worker.
    fn wake_all(&self, subscription: &mut Subscription) {
        // The snapshot below has all changes that the generator has announced, so the loop drops these announcements.
        while subscription.try_next().is_some() {}
        let mut pods = lock(&self.shared.pods);
        for view in self.pleg.snapshot() {
            pods.entry(view.status.uid.clone()).or_default();
        }
        pods.values().for_each(|pod| pod.woken.notify_one());
    }

    /// Starts a worker for each pod that was woken and has no worker.
    fn start_workers(self: &Arc<Self>, tasks: &mut JoinSet<PodUid>) {
        lock(&self.shared.pods).retain(|uid, pod| {
            if !pod.has_worker && pod.woken.notified().now_or_never().is_some() {
                pod.has_worker = true;
                let mut run = Run::of_worker(&self.pleg, uid.clone());
                (run.shared, run.woken) = (Some(self.shared.clone()), pod.woken.clone());
                let worker = Worker {
                    run,
                    driver: self.clone(),
                    is_ours: false,
                    error: String::new(),
                };
                tasks.spawn(worker.work());
            }
            pod.has_worker || pod.spec.is_some()
        });
    }

    /// Records that a worker has ended. Starts another if the pod has a specification or was woken during the last run.
    pub(super) fn worker_ended(&self, uid: &PodUid) {
        if let Some(pod) = lock(&self.shared.pods).get_mut(uid) {
            if pod.spec.is_some() {
                pod.woken.notify_one();
            }
            pod.deleted = pod.deleted.take().or(pod.unused.take());
            (pod.has_worker, pod.is_terminating) = (false, false);
        }
    }
}

/// Completes after a call of `PodWorkers::shutdown`, or the drop of the `PodWorkers`.
async fn stopped(stop: &mut watch::Receiver<Option<Instant>>) {
    // `wait_for` fails if the `PodWorkers`, which owns the sender, was dropped.
    let _ = stop.wait_for(Option::is_some).await;
}

/// The worker of one pod. It starts a run whenever it is woken or a run is due.
struct Worker<R: Reconcile> {
    run: Run<R::Spec>,
    driver: Arc<Driver<R>>,
    /// True if this worker has had a specification of the pod, or if the reconciler claimed the pod (`owns`).
    is_ours: bool,
    /// The error that was logged last; empty after a run that succeeded.
    error: String,
}

/// `Continue`: the worker runs again at this instant or, if `None`, at the next resync. `Break`: the worker ends,
/// because the pod was cleaned up or belongs to another program.
type Outcome = ControlFlow<(), Option<Instant>>;

impl<R: Reconcile> Worker<R> {
    /// Makes runs until the worker must end. Returns the uid of the pod.
    async fn work(mut self) -> PodUid {
        let mut stop = self.driver.stop.clone();
        while stop.borrow().is_none() {
            self.update();
            let Continue(due) = self.run_once().await else {
                break;
            };
            tokio::select! {
                // The end of the generator needs no branch: then the driver ends as well, and aborts this task.
                _ = self.run.wait(due) => {}
                () = stopped(&mut stop) => break,
            }
        }
        self.run.uid
    }

    /// Takes the specifications that were set and deleted since the last run. A specification that is set while the
    /// pod is being terminated waits until the termination has ended.
    fn update(&mut self) {
        let run = &mut self.run;
        let mut pods = lock(&self.driver.shared.pods);
        let pod = pods.entry(run.uid.clone()).or_default();
        if pod.spec.is_none() && !pod.is_terminating && run.failures > 0 {
            run.changed(run.now()); // Failed calls may have taken effect: get a newer view.
        }
        pod.is_terminating |= pod.spec.is_none();
        run.spec = pod.spec.clone().filter(|_| !pod.is_terminating);
        let deleted = pod.deleted.take();
        run.last_spec = run.spec.clone().or(deleted).or(run.last_spec.take());
        self.is_ours |= run.last_spec.is_some();
        pod.grace = pod.grace.filter(|_| pod.is_terminating);
        run.grace = pod.grace;
    }

    async fn run_once(&mut self) -> Outcome {
        let result = AssertUnwindSafe(self.reconcile()).catch_unwind().await;
        let error = match result {
            Ok(Ok(Break(()))) => return Break(()),
            Ok(Ok(Continue(due))) => {
                self.log(String::new());
                self.run.failures = 0;
                let resync = self.jittered(RESYNC_PERIOD);
                return Continue(due.into_iter().chain([resync]).min());
            }
            Ok(Err(error)) => error,
            Err(panic) => RunError::Panicked(message_of(&*panic)),
        };
        if !matches!(error, RunError::View(_)) {
            // The run may have changed something in the runtime and failed before it called `changed`.
            self.run.changed(self.run.now());
        }
        self.run.failures = self.run.failures.saturating_add(1);
        let (uid, failures) = (&self.run.uid, self.run.failures);
        let policy = || self.driver.reconciler.error_policy(uid, &error, failures);
        let retry_in = panic::catch_unwind(AssertUnwindSafe(policy));
        self.log(error.to_string());
        let retry_in = retry_in.unwrap_or(default_delay(failures));
        Continue(Some(self.jittered(retry_in)))
    }

    async fn reconcile(&mut self) -> Result<Outcome, RunError<R::Error>> {
        self.run.refresh().await.map_err(RunError::View)?;
        let run = &self.run;
        let status = &run.view.status;
        let (reconciler, shared) = (&self.driver.reconciler, &self.driver.shared);
        let is_late = |at: &Instant| run.now().since(*at) < Duration::from_secs(600);
        let was_ours = || lock(&self.driver.ended).get(&run.uid).is_some_and(is_late);
        let is_claimed = || status.exists() && (was_ours() || reconciler.owns(status));
        self.is_ours = self.is_ours || is_claimed();
        if !self.is_ours {
            return Ok(Break(()));
        }
        // A pod with a new specification does not wait for the removal of ended containers, which may never succeed.
        let has_ended = !status.exists() || !may_run(status) && shared.has_spec(&run.uid);
        if run.spec.is_none() && has_ended {
            reconciler.finish(run).await.map_err(RunError::Reconcile)?;
            let mut ended = lock(&self.driver.ended);
            ended.retain(|_, at| is_late(at));
            ended.insert(run.uid.clone(), run.now());
            return Ok(Break(()));
        }
        let action = reconciler.reconcile(run).await;
        let due = run.follows(action.map_err(RunError::Reconcile)?);
        Ok(Continue(due))
    }

    fn jittered(&self, pause: Duration) -> Instant {
        let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
        let longer = pause.saturating_add(pause.mul_f64(JITTER * random));
        self.run.now().after(longer)
    }

    /// Logs an error when it first occurs, and logs when runs succeed again.
    fn log(&mut self, error: String) {
        let (uid, failures) = (&self.run.uid, self.run.failures);
        match &*error {
            _ if !is_logged(&self.error, &error, failures) => return,
            "" => tracing::info!(pod = %uid, failures, "the pod is synced again"),
            _ => tracing::warn!(pod = %uid, error, failures, "the pod could not be synced"),
        }
        self.error = error;
    }
}

/// Returns true if `error` (empty: a success) must be logged now. While runs keep failing, an error is logged again if
/// its text has changed, but less and less often: the text may contain an attempt number that changes each time.
pub(super) fn is_logged(last: &str, error: &str, failures: u32) -> bool {
    error != last && (error.is_empty() || failures.is_power_of_two())
}
