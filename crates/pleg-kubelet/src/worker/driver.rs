//! The task that wakes the workers, and starts one for each pod that has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use pleg::{Delivery, Instant, Pleg, PodUid, Subscription};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use super::pod_worker::Worker;
use super::{CONCURRENCY, Reconcile, Run, Shared, Stop};

pub(super) struct Driver<R: Reconcile> {
    pleg: Pleg,
    reconciler: Arc<R>,
    shared: Arc<Shared<R::Spec>>,
    subscription: Subscription,
    permits: Arc<Semaphore>,
    stop: watch::Receiver<Stop>,
    /// Wakes each worker.
    pub(super) workers: BTreeMap<PodUid, Arc<Notify>>,
    tasks: JoinSet<PodUid>,
}

impl<R: Reconcile> Driver<R> {
    pub(super) fn new(
        pleg: Pleg,
        reconciler: Arc<R>,
        shared: Arc<Shared<R::Spec>>,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        Self {
            subscription: pleg.subscribe(),
            pleg,
            reconciler,
            shared,
            permits: Arc::new(Semaphore::new(CONCURRENCY)),
            stop,
            workers: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Runs pods until the workers must end or the generator has ended.
    pub(super) async fn run(mut self) {
        let (mut stop, mut changes) = (self.stop.clone(), self.shared.changes.subscribe());
        tokio::select! {
            synced = self.pleg.wait_until_synced() => match synced {
                Ok(()) => self.wake_all(),
                Err(_) => return,
            },
            () = stopped(&mut stop) => return,
        }
        loop {
            for uid in self.shared.take_woken() {
                self.wake(&uid);
            }
            tokio::select! {
                delivery = self.subscription.next() => match delivery {
                    Some(delivery) => self.deliver(delivery),
                    None => break,
                },
                Some(Ok(uid)) = self.tasks.join_next() => self.worker_ended(&uid),
                Ok(()) = changes.changed() => {}
                () = stopped(&mut stop) => break,
            }
        }
        // Without a deadline, the driver does not wait for the runs: dropping it aborts them.
        let deadline = *stop.borrow();
        if let Some(deadline) = deadline {
            self.drain(deadline).await;
        }
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Event(event) => self.wake(&event.uid),
            Delivery::Synced => {}
            // Lost events may concern any pod.
            _ => self.wake_all(),
        }
    }

    /// Runs every pod that exists, or has a specification or a worker.
    fn wake_all(&mut self) {
        // The snapshot shows all that was announced until now.
        while self.subscription.try_next().is_some() {}
        let existing = self.pleg.snapshot().into_iter();
        let mut uids: Vec<_> = existing.map(|view| view.status.uid.clone()).collect();
        uids.extend(self.workers.keys().cloned());
        uids.extend(self.shared.specs().pods.keys().cloned());
        uids.iter().for_each(|uid| self.wake(uid));
    }

    fn wake(&mut self, uid: &PodUid) {
        if let Some(worker) = self.workers.get(uid) {
            return worker.notify_one();
        }
        let mut run = Run::of_worker(&self.pleg, uid.clone());
        run.shared = Some(self.shared.clone());
        self.workers.insert(uid.clone(), run.woken.clone());
        let worker = Worker {
            run,
            reconciler: self.reconciler.clone(),
            shared: self.shared.clone(),
            permits: self.permits.clone(),
            stop: self.stop.clone(),
            is_deleted: false,
            is_ours: false,
            error: String::new(),
        };
        self.tasks.spawn(worker.work());
    }

    /// Starts another worker if the pod has a specification again, or was woken since.
    fn worker_ended(&mut self, uid: &PodUid) {
        let worker = self.workers.remove(uid);
        let was_woken = worker.is_some_and(|worker| worker.notified().now_or_never().is_some());
        let has_spec = self.shared.specs().pods.contains_key(uid);
        if was_woken || has_spec {
            self.wake(uid);
        }
    }

    /// Lets the runs end until `deadline`, and aborts the others.
    async fn drain(&mut self, deadline: Instant) {
        let clock = self.pleg.clock();
        let ends = async { while self.tasks.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            () = ends => {}
            () = clock.sleep_until(deadline) => {}
        }
        self.tasks.shutdown().await;
    }
}

/// Completes when the workers must end, or their handle was dropped.
pub(super) async fn stopped(stop: &mut watch::Receiver<Stop>) {
    // An error means that the handle was dropped.
    let _ = stop.wait_for(Option::is_some).await;
}
