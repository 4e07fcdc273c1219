//! The task that wakes the workers, and starts one for each pod that has none.

use std::sync::Arc;

use futures::FutureExt as _;
use pleg::{Delivery, Instant, Pleg, PodUid, Subscription};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use super::pod_worker::Worker;
use super::{CONCURRENCY, Reconcile, Run, Shared, Slot, Stop};

pub(super) struct Driver<R: Reconcile> {
    pleg: Pleg,
    reconciler: Arc<R>,
    shared: Arc<Shared<R::Spec>>,
    subscription: Subscription,
    permits: Arc<Semaphore>,
    stop: watch::Receiver<Stop>,
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
            self.start_workers();
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
            Delivery::Event(event) => self.shared.update(&event.uid, |_| ()),
            Delivery::Synced => {}
            // Lost events may concern any pod.
            _ => self.wake_all(),
        }
    }

    /// Runs every pod that exists, or has a specification or a worker.
    fn wake_all(&mut self) {
        // The snapshot shows all that was announced until now.
        while self.subscription.try_next().is_some() {}
        let mut pods = self.shared.pods();
        for view in self.pleg.snapshot() {
            pods.entry(view.status.uid.clone()).or_default();
        }
        pods.values().for_each(|pod| pod.woken.notify_one());
    }

    /// Starts a worker for each pod that was woken and has none.
    pub(super) fn start_workers(&mut self) {
        let shared = self.shared.clone();
        shared.pods().retain(|uid, pod| {
            if !pod.has_worker && pod.woken.notified().now_or_never().is_some() {
                pod.has_worker = true;
                let worker = self.worker(uid.clone(), pod.woken.clone());
                self.tasks.spawn(worker.work());
            }
            pod.has_worker || pod.spec.is_some()
        });
    }

    fn worker(&self, uid: PodUid, woken: Arc<Notify>) -> Worker<R> {
        let mut run = Run::of_worker(&self.pleg, uid);
        (run.shared, run.woken) = (Some(self.shared.clone()), woken);
        Worker {
            run,
            reconciler: self.reconciler.clone(),
            shared: self.shared.clone(),
            permits: self.permits.clone(),
            stop: self.stop.clone(),
            is_ours: false,
            error: String::new(),
        }
    }

    /// Another worker starts if the pod has a specification again, or was woken since.
    fn worker_ended(&self, uid: &PodUid) {
        if let Some(pod) = self.shared.pods().get_mut(uid) {
            let (spec, woken) = (pod.spec.take(), pod.woken.clone());
            if spec.is_some() {
                woken.notify_one();
            }
            *pod = Slot {
                spec,
                woken,
                ..Slot::default()
            };
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
