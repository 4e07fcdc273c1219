//! Specifications of workers, and a driver whose subscription lags, on paused time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use futures::FutureExt as _;
use pleg::Delivery;
use pleg::runtime::clock::Clock;
use pleg::runtime::fake::FakeRuntime;

use super::*;

struct Nothing;

impl Reconcile for Nothing {
    type Spec = ();
    type Error = Infallible;

    async fn reconcile(&self, _: &Run<()>) -> Result<Action, Infallible> {
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<()>) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Keeps what a run without a specification was given.
struct Last(Arc<Mutex<Vec<Option<u32>>>>);

impl Reconcile for Last {
    type Spec = u32;
    type Error = Infallible;

    async fn reconcile(&self, run: &Run<u32>) -> Result<Action, Infallible> {
        if run.spec.is_none() {
            let last = run.last_spec.as_deref().copied();
            self.0.lock().unwrap().push(last);
        }
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<u32>) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The workers of a node with one pod, and what its runs without a specification are given.
async fn running_with_specification_1() -> (PodWorkers<u32>, Arc<Mutex<Vec<Option<u32>>>>, Clock) {
    let runtime = FakeRuntime::new();
    runtime.run_pod("p");
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let given = Arc::default();
    let last = Last(Arc::clone(&given));
    let specs = [("p".into(), Arc::new(1))];
    let workers = PodWorkers::spawn(pleg.clone(), last, WorkerSettings::default(), specs).unwrap();
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
async fn lagged_subscription_runs_every_known_pod() {
    let runtime = FakeRuntime::new();
    runtime.run_pod("exists");
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let specs = BTreeMap::from([("specified".into(), Arc::new(()))]);
    let shared = Arc::new(Shared::new(specs));
    let (_stop, stopped) = watch::channel(Stop::No);
    let settings = WorkerSettings::default();
    let mut driver = driver::Driver::new(pleg, Arc::new(Nothing), shared, settings, stopped);
    let known = Arc::new(Notify::new());
    driver.workers.insert("known".into(), known.clone());
    driver.deliver(Delivery::Synced);
    assert_eq!(driver.workers.len(), 1);
    driver.deliver(Delivery::Lagged { missed: 1 });
    let uids: Vec<_> = driver.workers.keys().map(PodUid::as_str).collect();
    assert_eq!(uids, ["exists", "known", "specified"]);
    assert!(known.notified().now_or_never().is_some());
}
