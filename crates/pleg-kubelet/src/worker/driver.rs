//! The task that owns the queue and begins the runs.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use oorandom::Rand64;
use pleg::{Delivery, Instant, Pleg, PodUid, Subscription};
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet};

use super::queue::{Queue, jitter};
use super::run::{LastChange, Next, Run, RunError};
use super::{Reconcile, Shared, Stop, WorkerSettings, default_delay};

pub(super) struct Driver<R: Reconcile> {
    pleg: Pleg,
    reconciler: Arc<R>,
    shared: Arc<Shared<R::Spec>>,
    settings: WorkerSettings,
    subscription: Subscription,
    queue: Queue,
    workers: BTreeMap<PodUid, Worker<R::Spec>>,
    runs: JoinSet<Outcome>,
    pod_of_run: HashMap<task::Id, PodUid>,
    random: Rand64,
}

/// What is kept of a pod between its runs.
struct Worker<S> {
    last_spec: Option<Arc<S>>,
    last_change: LastChange,
    failures: u32,
    /// A run without a specification has begun. The pod ends before it begins anew.
    is_deleted: bool,
    /// The error that was logged last; empty after a run that succeeded.
    error: String,
}

/// How a run ended.
enum Outcome {
    Succeeded {
        next: Next,
        has_changed: bool,
    },
    Failed {
        retry_in: Duration,
        error: String,
    },
    /// The pod has no specification, and nothing of it exists or runs.
    Ended,
}

impl<R: Reconcile> Driver<R> {
    pub(super) fn new(
        pleg: Pleg,
        reconciler: Arc<R>,
        shared: Arc<Shared<R::Spec>>,
        settings: WorkerSettings,
    ) -> Self {
        let seed = settings.seed;
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self {
            subscription: pleg.subscribe(),
            pleg,
            reconciler,
            shared,
            queue: Queue::new(settings.concurrency),
            settings,
            workers: BTreeMap::new(),
            runs: JoinSet::new(),
            pod_of_run: HashMap::new(),
            random: Rand64::new(seed.into()),
        }
    }

    /// Runs pods until the workers are to end or the generator has ended.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<Stop>) {
        tokio::select! {
            synced = self.pleg.wait_until_synced() => match synced {
                Ok(()) => self.push_all(),
                Err(_) => return,
            },
            () = stopped(&mut stop) => return,
        }
        loop {
            self.push_woken();
            self.begin_runs();
            let due = self.queue.next_due();
            let clock = self.pleg.clock();
            let sleep = async {
                match due {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                delivery = self.subscription.next() => match delivery {
                    Some(delivery) => self.deliver(delivery),
                    None => break,
                },
                Some(ended) = self.runs.join_next_with_id() => self.end_run(ended),
                () = self.shared.wake.notified() => {}
                () = sleep => {}
                () = stopped(&mut stop) => break,
            }
        }
        // Without a deadline, nobody waits for the runs: they are aborted when this is dropped.
        let deadline = *stop.borrow();
        if let Stop::By(deadline) = deadline {
            self.drain(deadline).await;
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Event(event) => self.queue.push(&event.uid, self.pleg.now()),
            Delivery::Synced => {}
            // What was lost may concern any pod.
            _ => self.push_all(),
        }
    }

    /// Every pod that has a specification, a worker, or exists is due now.
    fn push_all(&mut self) {
        // The snapshot shows what was announced until now.
        while self.subscription.try_next().is_some() {}
        let now = self.pleg.now();
        for view in self.pleg.snapshot() {
            self.queue.push(&view.status.uid, now);
        }
        for uid in self.workers.keys().chain(self.shared.specs().pods.keys()) {
            self.queue.push(uid, now);
        }
    }

    fn push_woken(&mut self) {
        let woken = std::mem::take(&mut self.shared.specs().woken);
        let now = self.pleg.now();
        for uid in &woken {
            self.queue.push(uid, now);
        }
    }

    fn begin_runs(&mut self) {
        while let Some(uid) = self.queue.pop(self.pleg.now()) {
            let mut specs = self.shared.specs();
            let (spec, deleted) = (specs.pods.get(&uid).cloned(), specs.deleted.remove(&uid));
            drop(specs);
            let worker = self.workers.entry(uid.clone()).or_default();
            // A specification that is set while an earlier one is being terminated never runs before that has ended.
            let deleted = deleted.filter(|_| !worker.is_deleted);
            worker.is_deleted |= spec.is_none();
            let spec = spec.filter(|_| !worker.is_deleted);
            let last = spec.clone().or(deleted.filter(|_| worker.is_deleted));
            if last.is_some() {
                worker.last_spec = last;
            }
            let begun = Begun {
                uid: uid.clone(),
                spec,
                last_spec: worker.last_spec.clone(),
                last_change: worker.last_change.clone(),
                failures: worker.failures,
                pleg: self.pleg.clone(),
                view_deadline: self.settings.view_deadline,
                shared: self.shared.clone(),
            };
            let run = self.runs.spawn(begun.run(self.reconciler.clone()));
            self.pod_of_run.insert(run.id(), uid);
        }
    }

    /// Decides when the pod is run again.
    fn end_run(&mut self, ended: Result<(task::Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Some(outcome)),
            // The error policy or the end hook panicked.
            Err(error) => (error.id(), None),
        };
        let Some(uid) = self.pod_of_run.remove(&id) else {
            return;
        };
        self.queue.done(&uid);
        let now = self.pleg.now();
        let random = self.random.rand_float();
        let Some(worker) = self.workers.get_mut(&uid) else {
            return;
        };
        let WorkerSettings {
            resync_period,
            jitter: factor,
            ..
        } = self.settings;
        let due = match outcome {
            Some(Outcome::Ended) => {
                self.workers.remove(&uid);
                if self.shared.specs().pods.contains_key(&uid) {
                    self.queue.push(&uid, now);
                }
                return;
            }
            Some(Outcome::Succeeded { next, has_changed }) => {
                worker.log(&uid, String::new());
                worker.failures = 0;
                let resync = now.after(jitter(resync_period, factor, random));
                match next {
                    _ if has_changed => now,
                    Next::At(at) => at.min(resync),
                    Next::Change => resync,
                }
            }
            failed => {
                worker.failures = worker.failures.saturating_add(1);
                let (retry_in, error) = match failed {
                    Some(Outcome::Failed { retry_in, error }) => (retry_in, error),
                    _ => (
                        default_delay(worker.failures),
                        "the error policy panicked".to_owned(),
                    ),
                };
                worker.log(&uid, error);
                now.after(jitter(retry_in, factor, random))
            }
        };
        self.queue.push(&uid, due);
    }

    /// Lets the runs end until `deadline`, and aborts the others.
    async fn drain(&mut self, deadline: Instant) {
        let clock = self.pleg.clock();
        let ends = async { while self.runs.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            () = ends => {}
            () = clock.sleep_until(deadline) => {}
        }
        self.shared
            .aborted
            .store(self.runs.len(), Ordering::Release);
        self.runs.shutdown().await;
    }
}

impl<S> Worker<S> {
    /// Logs an error when it comes, and when it is over. While it lasts, it is logged again if its text
    /// has changed, ever more rarely: the text may name an attempt.
    fn log(&mut self, uid: &PodUid, error: String) {
        let failures = self.failures;
        match (self.error.is_empty(), error.is_empty()) {
            (false, true) => tracing::info!(pod = %uid, failures, "the pod is synced again"),
            (_, false) if failures.is_power_of_two() && error != self.error => {
                tracing::warn!(pod = %uid, error, failures, "the pod could not be synced");
            }
            _ => return,
        }
        self.error = error;
    }
}

impl<S> Default for Worker<S> {
    fn default() -> Self {
        Self {
            last_spec: None,
            last_change: LastChange::default(),
            failures: 0,
            is_deleted: false,
            error: String::new(),
        }
    }
}

/// Completes when the workers are to end, or every handle was dropped.
async fn stopped(stop: &mut watch::Receiver<Stop>) {
    // An error says that every handle was dropped.
    let _ = stop.wait_for(|stop| *stop != Stop::No).await;
}

/// A run that begins.
struct Begun<S> {
    uid: PodUid,
    spec: Option<Arc<S>>,
    last_spec: Option<Arc<S>>,
    last_change: LastChange,
    failures: u32,
    pleg: Pleg,
    view_deadline: Duration,
    shared: Arc<Shared<S>>,
}

/// What a run came to.
enum Reconciled<S> {
    Next(Next),
    /// The worker ends: there is nothing to reconcile.
    Ended(Run<S>),
}

impl<S: Send + Sync + 'static> Begun<S> {
    async fn run<R: Reconcile<Spec = S>>(self, reconciler: Arc<R>) -> Outcome {
        let (uid, last_change) = (self.uid.clone(), self.last_change.clone());
        let (pleg, failures) = (self.pleg.clone(), self.failures.saturating_add(1));
        let before = last_change.get();
        let result = AssertUnwindSafe(self.reconcile(&*reconciler)).catch_unwind();
        let error = match result.await {
            Ok(Ok(Reconciled::Next(next))) => {
                let has_changed = last_change.get() != before;
                return Outcome::Succeeded { next, has_changed };
            }
            Ok(Ok(Reconciled::Ended(run))) => {
                // It may remove files.
                let ended = task::spawn_blocking(move || reconciler.ended(&run));
                if let Err(panic) = ended.await {
                    tracing::error!(%panic, "the end of a pod was not handled");
                }
                return Outcome::Ended;
            }
            Ok(Err(error)) => error,
            Err(panic) => RunError::Panicked(message_of(&*panic)),
        };
        if !matches!(error, RunError::View(_)) {
            // It may have changed something and failed before it said so.
            last_change.set(pleg.now());
        }
        let retry_in = reconciler.error_policy(&uid, &error, failures);
        let error = error.to_string();
        Outcome::Failed { retry_in, error }
    }

    async fn reconcile<R: Reconcile<Spec = S>>(
        self,
        reconciler: &R,
    ) -> Result<Reconciled<S>, RunError<R::Error>> {
        let cached = self.pleg.get(&self.uid);
        let view = match self.last_change.get() {
            // This worker has changed nothing, and nobody else creates pods: any read will do.
            None if cached.as_of.is_some() => cached,
            after => {
                let after = after.unwrap_or(Instant::ORIGIN);
                let view = self.pleg.newer_than(&self.uid, after, self.view_deadline);
                view.await.map_err(RunError::View)?
            }
        };
        let run = Run {
            uid: self.uid,
            spec: self.spec,
            last_spec: self.last_spec,
            failures: self.failures,
            view,
            pleg: self.pleg,
            last_change: self.last_change,
            shared: self.shared,
        };
        // A pod that comes back does not wait for the removal of what has ended: that may never succeed.
        let comes_back = || run.shared.specs().pods.contains_key(&run.uid);
        let has_ended = !run.view.status.exists() || !run.may_run() && comes_back();
        if run.spec.is_none() && has_ended {
            return Ok(Reconciled::Ended(run));
        }
        let next = reconciler.reconcile(&run).await;
        next.map(Reconciled::Next).map_err(RunError::Reconcile)
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use pleg::runtime::clock::Clock;
    use pleg::runtime::fake::FakeRuntime;
    use tokio::sync::Notify;

    use super::super::{PodWorkers, Specs};
    use super::*;

    struct Nothing;

    impl Reconcile for Nothing {
        type Spec = ();
        type Error = Infallible;

        async fn reconcile(&self, _: &Run<()>) -> Result<Next, Infallible> {
            Ok(Next::Change)
        }
    }

    #[test]
    fn changing_error_is_logged_ever_more_rarely() {
        let (mut worker, uid) = (Worker::<()>::default(), "p".into());
        let logged = (1..=20).filter(|failures| {
            worker.failures = *failures;
            let error = format!("attempt {failures}");
            worker.log(&uid, error.clone());
            worker.error == error
        });
        assert_eq!(logged.collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        worker.log(&uid, String::new());
        assert_eq!(worker.error, "");
    }

    /// Keeps what a run without a specification was given.
    struct Last(Arc<Mutex<Vec<Option<u32>>>>);

    impl Reconcile for Last {
        type Spec = u32;
        type Error = Infallible;

        async fn reconcile(&self, run: &Run<u32>) -> Result<Next, Infallible> {
            if run.spec.is_none() {
                let last = run.last_spec.as_deref().copied();
                self.0.lock().unwrap().push(last);
            }
            Ok(Next::Change)
        }
    }

    /// The workers of a node with one pod, and what its runs without a specification are given.
    async fn running_with_specification_1() -> (PodWorkers<u32>, Arc<Mutex<Vec<Option<u32>>>>, Clock)
    {
        let runtime = FakeRuntime::new();
        runtime.run_pod("p");
        let pleg = Pleg::builder(runtime).spawn().unwrap();
        pleg.wait_until_synced().await.unwrap();
        let given = Arc::default();
        let last = Last(Arc::clone(&given));
        let specs = [("p".into(), Arc::new(1))];
        let workers =
            PodWorkers::spawn(pleg.clone(), last, WorkerSettings::default(), specs).unwrap();
        (workers, given, pleg.clock())
    }

    #[tokio::test(start_paused = true)]
    async fn specification_that_is_deleted_at_once_is_the_last_one() {
        let (workers, given, clock) = running_with_specification_1().await;
        let pass = || clock.sleep_until(clock.now().after(Duration::from_secs(1)));
        pass().await;
        workers.set(&"p".into(), 2);
        workers.delete(&"p".into());
        pass().await;
        assert_eq!(given.lock().unwrap().first(), Some(&Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn specification_that_never_ran_is_not_the_last_one() {
        let (workers, given, clock) = running_with_specification_1().await;
        let pass = || clock.sleep_until(clock.now().after(Duration::from_secs(1)));
        pass().await;
        workers.delete(&"p".into());
        pass().await;
        workers.set(&"p".into(), 2);
        workers.delete(&"p".into());
        pass().await;
        let given = given.lock().unwrap();
        assert!(given.len() > 1 && given.iter().all(|last| *last == Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn lagged_subscription_queues_every_known_pod() {
        let runtime = FakeRuntime::new();
        runtime.run_pod("exists");
        let pleg = Pleg::builder(runtime).spawn().unwrap();
        pleg.wait_until_synced().await.unwrap();
        let shared = Arc::new(Shared {
            specs: Mutex::new(Specs {
                pods: BTreeMap::from([("specified".into(), Arc::new(()))]),
                ..Specs::default()
            }),
            wake: Notify::new(),
            aborted: Default::default(),
        });
        let mut driver = Driver::new(pleg, Arc::new(Nothing), shared, WorkerSettings::default());
        driver.workers.entry("known".into()).or_default();
        driver.deliver(Delivery::Synced);
        assert_eq!(driver.queue.next_due(), None);
        driver.deliver(Delivery::Lagged { missed: 1 });
        let now = driver.pleg.now();
        let queued: Vec<_> = std::iter::from_fn(|| driver.queue.pop(now)).collect();
        assert_eq!(queued, ["exists", "known", "specified"].map(PodUid::from));
    }
}
