//! Removals that have no effect, and exits of earlier pods, on paused time.

use std::sync::{Arc, Mutex};

use pleg::core::ReportedState;
use pleg::runtime::fake::{self, FakeRuntime};
use pleg::{Instant, Pleg, PodStatus, WaitError};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::gc::Removal;
use pleg_kubelet::plan::Planner;
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run, WorkerSettings};

use crate::SECOND;

/// Plans what must be removed, and does not remove it.
struct Collector {
    planner: Planner,
    planned: Arc<Mutex<Vec<Planned>>>,
}

/// A removal, and when the pod that it was planned from was inspected.
type Planned = (Removal, Option<Instant>);

impl Reconcile for Collector {
    type Spec = ();
    type Error = WaitError;

    async fn reconcile(&self, run: &Run<()>) -> Result<Action, WaitError> {
        let plan = self.planner.plan(run, Desired::of(run, None), None).await?;
        let inspected = plan.observed.view.details_as_of;
        for removal in plan.begin().await.garbage {
            run.changed(run.now());
            self.planned.lock().unwrap().push((removal, inspected));
        }
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<()>) -> Result<(), WaitError> {
        Ok(())
    }

    fn owns(&self, _: &PodStatus) -> bool {
        true
    }
}

/// Workers that plan the removal of a pod which has ended, for as long as the first part is kept.
fn collect(pleg: &Pleg) -> (impl Sized, Arc<Mutex<Vec<Planned>>>) {
    let planned = Arc::<Mutex<Vec<_>>>::default();
    let collector = Collector {
        planner: Planner::new(BackOffSettings::default()).unwrap(),
        planned: planned.clone(),
    };
    let workers =
        PodWorkers::spawn(pleg.clone(), collector, WorkerSettings::default(), []).unwrap();
    (workers, planned)
}

#[tokio::test(start_paused = true)]
async fn ineffective_removal_backs_off() {
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

/// Its start may have failed since, without an event of containerd.
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

/// Their records are kept for ten minutes.
#[tokio::test(start_paused = true)]
async fn exits_of_a_gone_pod_are_not_reported_again() {
    let runtime = FakeRuntime::new();
    runtime.run_pod("p");
    let pleg = Pleg::builder(runtime.clone()).spawn().unwrap();
    let planner = Planner::new(BackOffSettings::default()).unwrap();
    let clock = pleg.clock();
    // What the first plan of a new worker reports.
    let exits = async || {
        pleg.relist_now().await.unwrap();
        clock.sleep_until(clock.now().after(SECOND * 5)).await;
        let run = Run::new(&pleg, "p", ());
        let plan = planner.plan(&run, Desired::of(&run, None), None).await;
        let plan = plan.unwrap();
        plan.exits()
            .iter()
            .map(|exit| exit.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(exits().await, [""; 0], "it runs");
    runtime.put(fake::exited("p", "c", 1));
    assert_eq!(exits().await, ["p-c"]);
    runtime.remove("p-c");
    runtime.remove("p-s");
    assert_eq!(exits().await, [""; 0]);
    assert_eq!(pleg.exits(&"p".into()).len(), 2);
    runtime.put(fake::sandbox("p", "s2", ReportedState::Running));
    assert_eq!(exits().await, [""; 0], "another pod");
    runtime.put(fake::sandbox("p", "s2", ReportedState::Exited));
    assert_eq!(exits().await, ["p-s2"]);
}
