//! The task that wakes the workers, and starts one for each pod that has none.

use std::sync::Arc;

use futures::FutureExt as _;
use pleg::{Delivery, Pleg, PodUid, Subscription};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::pod_worker::Worker;
use super::{Reconcile, Run, Shared, Stop};

pub(super) struct Driver<R: Reconcile> {
    pub(super) pleg: Pleg,
    pub(super) reconciler: Arc<R>,
    pub(super) shared: Arc<Shared<R::Spec>>,
    pub(super) stop: watch::Receiver<Stop>,
}

impl<R: Reconcile> Driver<R> {
    /// Runs pods until the workers must end or the generator has ended.
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
        // Without a deadline, the driver does not wait for the runs: dropping them aborts them.
        let deadline = *stop.borrow();
        if let Some(deadline) = deadline {
            let clock = self.pleg.clock();
            let ends = async { while tasks.join_next().await.is_some() {} };
            tokio::select! {
                biased;
                () = ends => {}
                () = clock.sleep_until(deadline) => {}
            }
            tasks.shutdown().await;
        }
    }

    pub(super) fn deliver(&self, delivery: Delivery, subscription: &mut Subscription) {
        match delivery {
            Delivery::Event(event) => self.shared.update(&event.uid, |_| ()),
            Delivery::Synced => {}
            // Lost events may concern any pod.
            _ => self.wake_all(subscription),
        }
    }

    /// Runs every pod that exists, or has a specification or a worker.
    fn wake_all(&self, subscription: &mut Subscription) {
        // The snapshot shows all changes announced so far, so their announcements are dropped.
        while subscription.try_next().is_some() {}
        let mut pods = self.shared.pods();
        for view in self.pleg.snapshot() {
            pods.entry(view.status.uid.clone()).or_default();
        }
        pods.values().for_each(|pod| pod.woken.notify_one());
    }

    /// Starts a worker for each pod that was woken and has none.
    fn start_workers(self: &Arc<Self>, tasks: &mut JoinSet<PodUid>) {
        self.shared.pods().retain(|uid, pod| {
            if !pod.has_worker && pod.woken.notified().now_or_never().is_some() {
                pod.has_worker = true;
                let mut run = Run::of_worker(&self.pleg, uid.clone());
                (run.shared, run.woken) = (Some(self.shared.clone()), pod.woken.clone());
                tasks.spawn(Worker::new(run, self.clone()).work());
            }
            pod.has_worker || pod.spec.is_some()
        });
    }

    /// Another worker starts if the pod has a specification again, or was woken since.
    pub(super) fn worker_ended(&self, uid: &PodUid) {
        if let Some(pod) = self.shared.pods().get_mut(uid) {
            if pod.spec.is_some() {
                pod.woken.notify_one();
            }
            pod.deleted = pod.deleted.take().or(pod.unused.take());
            (pod.has_worker, pod.is_terminating) = (false, false);
        }
    }
}

/// Completes when the workers must end, or their handle was dropped.
pub(super) async fn stopped(stop: &mut watch::Receiver<Stop>) {
    // An error means that the handle was dropped.
    let _ = stop.wait_for(Option::is_some).await;
}
