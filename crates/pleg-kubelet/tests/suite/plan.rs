//! Plans of one pod: attempt numbers, exits and grace periods, and a loop over `Run::next` without `PodWorkers`.

use k8s_openapi::api::core::v1::Pod;
use pleg::core::ReportedState::{Exited, Running};
use pleg::runtime::fake::{self, FakeRuntime};
use pleg::{Consumer, Pleg};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::plan::{Plan, Planner};
use pleg_kubelet::worker::Run;

use crate::{SECOND, pass, pod};

/// A pod `p` whose sandbox is ready, and a registered consumer.
async fn start(runtime: &FakeRuntime) -> (Pleg, Consumer) {
    runtime.put(fake::sandbox("p", "s", Running));
    let mut builder = Pleg::builder(runtime.clone()).clock(runtime.clock());
    let consumer = builder.register_consumer("kubelet");
    let pleg = builder.spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    (pleg, consumer)
}

fn planner() -> Planner {
    Planner::new(BackOffSettings::default()).unwrap()
}

fn run(pleg: &Pleg) -> Run<Pod> {
    Run::new(pleg, "p", pod(&["c"]))
}

async fn plan<'a>(planner: &'a Planner, run: &'a Run<Pod>) -> Plan<'a, Pod> {
    let desired = Desired::of(run, run.last_spec.as_deref());
    planner.plan(run, desired, None).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn postponed_start_uses_no_attempt_and_begun_plan_uses_one() {
    let (pleg, _consumer) = start(&FakeRuntime::new()).await;
    let (planner, run) = (planner(), run(&pleg));
    let mut postponed = plan(&planner, &run).await;
    assert_eq!(postponed.creates().collect::<Vec<_>>(), ["c"]);
    let later = run.now().after(SECOND);
    postponed.postpone("c", Some(later));
    assert_eq!(postponed.begin().await.start, []);
    assert_eq!(run.due(), Some(later));
    drop(plan(&planner, &run).await);
    for attempt in 0..2 {
        let actions = plan(&planner, &run).await.begin().await;
        assert_eq!(actions.start[0].attempt, attempt);
    }
}

#[tokio::test(start_paused = true)]
async fn exit_is_in_every_plan_until_a_plan_is_begun() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::exited("p", "c", 1));
    let (pleg, consumer) = start(&runtime).await;
    let (planner, run) = (planner().consumer(consumer), run(&pleg));
    for _ in 0..2 {
        let plan = plan(&planner, &run).await;
        assert_eq!(plan.exits()[0].id.as_str(), "p-c");
        assert!(!pleg.is_acknowledged(&"p-c".into()).await);
    }
    let _actions = plan(&planner, &run).await.begin().await;
    assert!(pleg.is_acknowledged(&"p-c".into()).await);
    assert_eq!(plan(&planner, &run).await.exits(), []);
}

#[tokio::test(start_paused = true)]
async fn run_without_specification_stops_containers_within_its_grace_period() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::container("p", "c", Running));
    let (pleg, _consumer) = start(&runtime).await;
    let (planner, mut run) = (planner(), run(&pleg));
    (run.spec, run.grace) = (None, Some(7 * SECOND));
    let actions = plan(&planner, &run).await.begin().await;
    assert_eq!(actions.stop[0].grace, 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn run_next_waits_after_failure_but_not_after_change() {
    let runtime = FakeRuntime::new();
    let (pleg, _consumer) = start(&runtime).await;
    let mut run = run(&pleg);
    let began = run.now();
    run.next(Err(())).await.unwrap();
    assert!(run.failures == 1 && run.now() >= began.after(SECOND));
    run.changed(run.now());
    let changed = run.now();
    let action = pleg_kubelet::worker::Action::await_change();
    run.next(Ok::<_, ()>(action)).await.unwrap();
    assert!(run.failures == 0 && run.view.as_of >= Some(changed));
    let at_once = changed.after(std::time::Duration::from_millis(10));
    assert!(run.now() < at_once);
    run.waker()();
    run.next(Ok::<_, ()>(action)).await.unwrap();
    run.due_by(run.now().after(5 * SECOND));
    let before = run.now();
    run.next(Ok::<_, ()>(action)).await.unwrap();
    assert!(run.now().since(before) >= 5 * SECOND && run.due().is_none());
    pleg.shutdown().await;
    assert!(run.next(Ok::<_, ()>(action)).await.is_err());
}

/// The generator stores exit records for ten minutes; they must not be reported again in this time.
#[tokio::test(start_paused = true)]
async fn exits_of_a_removed_pod_are_not_reported_again() {
    let runtime = FakeRuntime::new();
    runtime.put(fake::container("p", "c", Running));
    let (pleg, _consumer) = start(&runtime).await;
    let planner = planner();
    // The exits in the first plan of a new worker.
    let exits = async || {
        pleg.relist_now().await.unwrap();
        pass(&pleg, 5 * SECOND).await;
        let run = run(&pleg);
        let plan = plan(&planner, &run).await;
        let ids = plan.exits().iter().map(|exit| exit.id.to_string());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(exits().await, [""; 0], "the container runs");
    runtime.put(fake::exited("p", "c", 1));
    assert_eq!(exits().await, ["p-c"]);
    runtime.remove("p-c");
    runtime.remove("p-s");
    assert_eq!(exits().await, [""; 0]);
    assert_eq!(pleg.exits(&"p".into()).len(), 2);
    runtime.put(fake::sandbox("p", "s2", Running));
    assert_eq!(exits().await, [""; 0], "another pod");
    runtime.put(fake::sandbox("p", "s2", Exited));
    assert_eq!(exits().await, ["p-s2"]);
}
