//! Tests of the driver on paused time (lagged subscription, ended workers), and of `is_logged` and `may_run`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use futures::FutureExt as _;
use pleg::Delivery;
use pleg::runtime::fake::FakeRuntime;

use super::driver::is_logged;
use super::run::may_run;
use super::*;
use crate::notation::pod;

#[derive(Default)]
struct Recorder {
    terminated: Notify,
    finished: Notify,
}

impl Reconcile for Recorder {
    type Spec = ();
    type Error = Infallible;

    async fn reconcile(&self, run: &Run<()>) -> Result<Action, Infallible> {
        if run.spec.is_none() {
            self.terminated.notify_one();
        }
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<()>) -> Result<(), Infallible> {
        self.finished.notify_one();
        Ok(())
    }
}

/// A driver that is not started. Its node has one pod, with the uid `exists`.
async fn driver() -> (Arc<Driver<Recorder>>, PodWorkers<()>) {
    let runtime = FakeRuntime::new();
    runtime.run_pod("exists");
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    PodWorkers::parts(pleg, Arc::default())
}

#[tokio::test(start_paused = true)]
async fn sandbox_that_appears_after_the_pods_cleanup_is_terminated() {
    let runtime = FakeRuntime::new();
    let pleg = Pleg::builder(runtime.clone()).spawn().unwrap();
    let (reconciler, uid) = (Arc::new(Recorder::default()), PodUid::from("late"));
    // The thread that starts the workers need not run tokio.
    let start = || PodWorkers::spawn(pleg, reconciler.clone(), [(uid.clone(), Arc::new(()))]);
    let workers = std::thread::scope(|scope| scope.spawn(start).join()).unwrap();
    workers.delete(&uid);
    reconciler.finished.notified().await;
    runtime.run_pod("late");
    let terminated = reconciler.terminated.notified();
    let terminated = tokio::time::timeout(Duration::from_secs(9), terminated);
    terminated.await.unwrap();
}

fn slot(spec: Option<Arc<()>>, has_worker: bool) -> Slot<()> {
    let mut slot = Slot::default();
    (slot.spec, slot.has_worker) = (spec, has_worker);
    slot
}

#[tokio::test(start_paused = true)]
async fn lagged_subscription_wakes_existing_or_specified_pods_and_all_workers() {
    let (driver, workers) = driver().await;
    let specified = slot(Some(Arc::default()), false);
    let pods = [("specified", specified), ("known", slot(None, true))];
    let pods = pods.map(|(uid, slot)| (PodUid::from(uid), slot));
    lock(&workers.shared.pods).extend(pods);
    let woken = |uid: &str| {
        let woken = lock(&workers.shared.pods)[&PodUid::from(uid)].woken.clone();
        woken.notified().now_or_never().is_some()
    };
    let mut subscription = driver.pleg.subscribe();
    driver.deliver(Delivery::Synced, &mut subscription);
    assert!(!woken("specified") && !woken("known"));
    driver.deliver(Delivery::Lagged { missed: 1 }, &mut subscription);
    assert!(["exists", "known", "specified"].into_iter().all(woken));
}

#[tokio::test(start_paused = true)]
async fn next_worker_gets_shortest_grace_period_of_deletions_during_termination() {
    let ((driver, workers), uid) = (driver().await, PodUid::from("p"));
    let mut terminating = slot(Some(Arc::default()), true);
    terminating.is_terminating = true;
    lock(&workers.shared.pods).insert(uid.clone(), terminating);
    for seconds in [60, 10, 30] {
        workers.delete_within(&uid, Duration::from_secs(seconds));
    }
    driver.worker_ended(&uid);
    let pod = &lock(&workers.shared.pods)[&uid];
    assert_eq!(pod.grace, Some(Duration::from_secs(10)));
    assert!(pod.deleted.is_some() && !pod.has_worker && !pod.is_terminating);
}

#[test]
fn changing_error_is_logged_less_and_less_often() {
    let logged = (1..=20).filter(|n| is_logged("attempt 0", &format!("attempt {n}"), *n));
    assert_eq!(logged.collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
    assert!(is_logged("attempt 1", "", 3) && !is_logged("", "", 0));
}

#[test]
fn created_container_cannot_run_after_its_sandbox_has_ended() {
    for (words, runs) in [
        ("sandbox-0 ready, a exited", true),
        ("sandbox-0 unknown, a exited", true),
        ("sandbox-0 ended, a running", true),
        ("sandbox-0 ended, a created", false),
        ("sandbox-0 ended, a exited", false),
    ] {
        assert_eq!(may_run(&pod("p", words)), runs, "{words}");
    }
}
