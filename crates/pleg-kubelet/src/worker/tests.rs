//! A driver whose subscription lags, on paused time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use futures::FutureExt as _;
use pleg::Delivery;
use pleg::runtime::fake::FakeRuntime;
use tokio::sync::Notify;

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

#[tokio::test(start_paused = true)]
async fn lagged_subscription_runs_every_known_pod() {
    let runtime = FakeRuntime::new();
    runtime.run_pod("exists");
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let specs = BTreeMap::from([("specified".into(), Arc::new(()))]);
    let shared = Arc::new(Shared::new(specs));
    let (_stop, stopped) = watch::channel(None);
    let mut driver = driver::Driver::new(pleg, Arc::new(Nothing), shared, stopped);
    let known = Arc::new(Notify::new());
    driver.workers.insert("known".into(), known.clone());
    driver.deliver(Delivery::Synced);
    assert_eq!(driver.workers.len(), 1);
    driver.deliver(Delivery::Lagged { missed: 1 });
    let uids: Vec<_> = driver.workers.keys().map(PodUid::as_str).collect();
    assert_eq!(uids, ["exists", "known", "specified"]);
    assert!(known.notified().now_or_never().is_some());
}
