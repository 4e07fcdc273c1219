//! A driver whose subscription lags, on paused time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use futures::FutureExt as _;
use pleg::Delivery;
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

#[tokio::test(start_paused = true)]
async fn driver_runs_every_known_pod_after_missed_events() {
    let runtime = FakeRuntime::new();
    runtime.run_pod("exists");
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let shared = Arc::new(Shared {
        pods: Mutex::default(),
        changes: watch::Sender::new(()),
    });
    shared.update(&"specified".into(), |pod| pod.spec = Some(Arc::new(())));
    let (_stop, stopped) = watch::channel(None);
    let driver = Arc::new(driver::Driver {
        stop: stopped,
        reconciler: Arc::new(Nothing),
        shared: shared.clone(),
        pleg,
    });
    let mut subscription = driver.pleg.subscribe();
    driver.deliver(Delivery::Lagged { missed: 1 }, &mut subscription);
    let woken = |uid: &str| {
        let woken = shared.pods()[&PodUid::from(uid)].woken.clone();
        woken.notified().now_or_never().is_some()
    };
    assert!(woken("exists") && woken("specified"));
}
