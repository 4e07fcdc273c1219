//! Removals that have no effect, on paused time.

use std::sync::{Arc, Mutex};

use pleg::core::ReportedState;
use pleg::runtime::fake::{self, FakeRuntime};
use pleg::{Pleg, WaitError};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::decision::Decider;
use pleg_kubelet::gc::{GcPolicy, Removal};
use pleg_kubelet::worker::{Next, PodWorkers, Reconcile, Run, WorkerSettings};

use crate::support::SECOND;

/// Decides what is to be removed, and does not remove it.
struct Collector {
    decider: Decider,
    removals: Arc<Mutex<Vec<Removal>>>,
}

impl Reconcile for Collector {
    type Spec = ();
    type Error = WaitError;

    async fn reconcile(&self, run: &Run<()>) -> Result<Next, WaitError> {
        let mut decision = self
            .decider
            .decide(run, Desired::terminate(None), None)
            .await?;
        let policy = GcPolicy::default();
        for removal in self.decider.removals(run, &mut decision, policy).await {
            run.changed(run.now());
            self.removals.lock().unwrap().push(removal);
        }
        Ok(decision.actions.due.into())
    }
}

#[tokio::test(start_paused = true)]
async fn removal_without_effect_is_repeated_ever_more_rarely() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::sandbox("pod", "s", ReportedState::Exited));
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    let removals = Arc::<Mutex<Vec<_>>>::default();
    let collector = Collector {
        decider: Decider::new(BackOffSettings::default()),
        removals: removals.clone(),
    };
    let _workers = PodWorkers::spawn(pleg.clone(), collector, WorkerSettings::default(), []);
    let (clock, began) = (pleg.clock(), pleg.now());
    let counts = async |seconds| {
        clock.sleep_until(began.after(SECOND * seconds)).await;
        removals.lock().unwrap().clone()
    };
    let sandbox = Removal::Sandbox("pod-s".into());
    assert_eq!(counts(9).await, vec![sandbox.clone()]);
    assert_eq!(counts(29).await, vec![sandbox.clone(); 2], "after 10 s");
    assert_eq!(counts(69).await, vec![sandbox; 3], "after 20 s more");
    let before = removals.lock().unwrap().len();
    let hour = u32::try_from(counts(69 + 3600).await.len() - before).unwrap();
    assert!((12..=15).contains(&hour), "every 5 min: {hour} in an hour");
}
