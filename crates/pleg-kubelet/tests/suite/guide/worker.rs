use k8s_openapi::api::core::v1::Pod;
use pleg::core::ReportedState::Running;
use pleg::runtime::fake::{self, FakeRuntime};
use pleg::{Id, Pleg};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::plan::Planner;
use pleg_kubelet::worker::Run;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn crashed_container_is_started_again() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    runtime.put(fake::sandbox("pod", "s", Running));
    runtime.put(fake::exited("pod", "web", 1));
    let pleg = Pleg::builder(runtime.clone())
        .clock(runtime.clock())
        .spawn()?;
    pleg.wait_until_synced().await?;

    let planner = Planner::new(BackOffSettings::default())?;
    let pod = json!({"spec": {"containers": [{"name": "web"}]}});
    let pod: Pod = serde_json::from_value(pod)?;
    let mut run = Run::new(&pleg, "pod", ());
    let desired = Desired::of(&run, Some(&pod));
    let plan = planner.plan(&run, desired, None).await?;
    assert_eq!(plan.exits()[0].exit_code, Some(1));
    assert_eq!(plan.begin().await.start[0].attempt, 1);

    run.spec = None; // The pod is deleted.
    let desired = Desired::of(&run, Some(&pod));
    let plan = planner.plan(&run, desired, None).await?;
    assert_eq!(plan.begin().await.stop_sandboxes, [Id::from("pod-s")]);
    Ok(())
}
