//! Removals that have no effect, on paused time.

use std::sync::{Arc, Mutex};

use pleg::core::ReportedState;
use pleg::runtime::fake::{self, FakeRuntime};
use pleg::{Instant, Pleg, WaitError};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::decision::Decider;
use pleg_kubelet::gc::{GcPolicy, Removal};
use pleg_kubelet::worker::{Next, PodWorkers, Reconcile, Run, WorkerSettings};

use crate::support::SECOND;

/// Decides what is to be removed, and does not remove it.
struct Collector {
    decider: Decider,
    planned: Arc<Mutex<Vec<Planned>>>,
}

/// A removal, and when the pod that it was planned from was inspected.
type Planned = (Removal, Option<Instant>);

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
            let inspected = decision.view.details_as_of;
            self.planned.lock().unwrap().push((removal, inspected));
        }
        Ok(decision.actions.due.into())
    }
}

/// Workers that plan the removal of a pod which has ended, for as long as the first part is kept.
fn collect(pleg: &Pleg) -> (impl Sized, Arc<Mutex<Vec<Planned>>>) {
    let planned = Arc::<Mutex<Vec<_>>>::default();
    let collector = Collector {
        decider: Decider::new(BackOffSettings::default()).unwrap(),
        planned: planned.clone(),
    };
    let workers =
        PodWorkers::spawn(pleg.clone(), collector, WorkerSettings::default(), []).unwrap();
    (workers, planned)
}

#[tokio::test(start_paused = true)]
async fn removal_without_effect_is_repeated_ever_more_rarely() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::sandbox("pod", "s", ReportedState::Exited));
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    let (_workers, planned) = collect(&pleg);
    let (clock, began) = (pleg.clock(), pleg.now());
    let counts = async |seconds| {
        clock.sleep_until(began.after(SECOND * seconds)).await;
        let planned = planned.lock().unwrap();
        planned.iter().map(|(r, _)| r.clone()).collect::<Vec<_>>()
    };
    let sandbox = Removal::Sandbox("pod-s".into());
    assert_eq!(counts(9).await, vec![sandbox.clone()]);
    assert_eq!(counts(29).await, vec![sandbox.clone(); 2], "after 10 s");
    assert_eq!(counts(69).await, vec![sandbox; 3], "after 20 s more");
    let before = planned.lock().unwrap().len();
    let hour = u32::try_from(counts(69 + 3600).await.len() - before).unwrap();
    assert!((12..=15).contains(&hour), "every 5 min: {hour} in an hour");
}

/// Its start may have failed since, of which containerd sends no event.
#[tokio::test(start_paused = true)]
async fn container_that_was_not_started_is_read_before_its_removal_is_repeated() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::sandbox("pod", "s", ReportedState::Exited));
    runtime.put(fake::container("pod", "c", ReportedState::Created));
    let pleg = Pleg::builder(runtime).spawn().unwrap();
    let (_workers, planned) = collect(&pleg);
    let (clock, began) = (pleg.clock(), pleg.now());
    clock.sleep_until(began.after(SECOND * 29)).await;
    let planned = planned.lock().unwrap().clone();
    let container = Removal::Container("pod-c".into());
    let removals: Vec<_> = planned.iter().map(|(r, _)| r).collect();
    assert_eq!(removals, [&container; 2]);
    assert!(
        planned[1].1 >= Some(began.after(SECOND * 10)),
        "{planned:?}"
    );
}

/// Forgets the pod after each run, as if its worker had ended, and keeps which ends each run was given.
struct Forgetful {
    decider: Decider,
    ends: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Reconcile for Forgetful {
    type Spec = ();
    type Error = WaitError;

    async fn reconcile(&self, run: &Run<()>) -> Result<Next, WaitError> {
        let ends = self.decider.ends(run);
        let ids = ends.iter().map(|end| end.id.to_string()).collect();
        self.ends.lock().unwrap().push(ids);
        self.decider.forget(run);
        Ok(Next::Change)
    }

    fn ended(&self, run: &Run<()>) {
        self.decider.forget(run);
    }
}

/// Their records are kept for ten minutes.
#[tokio::test(start_paused = true)]
async fn ends_of_a_pod_that_was_gone_are_not_reported_by_a_later_one() {
    let runtime = FakeRuntime::new();
    runtime.run_pod("p");
    let pleg = Pleg::builder(runtime.clone()).spawn().unwrap();
    let ends = Arc::<Mutex<Vec<_>>>::default();
    let forgetful = Forgetful {
        decider: Decider::new(BackOffSettings::default()).unwrap(),
        ends: ends.clone(),
    };
    let _workers =
        PodWorkers::spawn(pleg.clone(), forgetful, WorkerSettings::default(), []).unwrap();
    let clock = pleg.clock();
    let next = async || {
        pleg.relist_now().await.unwrap();
        let next = clock.now().after(SECOND * 5);
        clock.sleep_until(next).await;
        ends.lock().unwrap().last().cloned().unwrap()
    };
    assert_eq!(next().await, Vec::<String>::new(), "it runs");
    runtime.put(fake::exited("p", "c", 1));
    assert_eq!(next().await, ["p-c"]);
    runtime.remove("p-c");
    runtime.remove("p-s");
    next().await;
    assert_eq!(pleg.terminal_records(&"p".into()).len(), 2);
    runtime.put(fake::sandbox("p", "s2", ReportedState::Running));
    assert_eq!(next().await, Vec::<String>::new(), "another pod");
    runtime.put(fake::sandbox("p", "s2", ReportedState::Exited));
    assert_eq!(next().await, ["p-s2"]);
}
