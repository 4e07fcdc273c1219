use std::time::Duration;

use pleg::core::ReportedState::Running;
use pleg::runtime::fake::{self, FakeRuntime, Op};
use pleg::{ContainerState, Delivery, LifecycleType, Pleg, PodUid, Source};

/// On paused time: a test of an hour takes milliseconds.
#[tokio::test(start_paused = true)]
async fn exit_without_event_is_found_by_the_next_read() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    runtime.put(fake::sandbox("pod", "s", Running));
    runtime.put(fake::container("pod", "web", Running));
    let mut builder = Pleg::builder(runtime.clone()).clock(runtime.clock());
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    while !matches!(events.next().await, Some(Delivery::Synced)) {}

    // The container exits, and the stream does not report it.
    runtime.put(fake::exited("pod", "web", 3));
    let uid = PodUid::from("pod");
    let of_sandbox = runtime.count(&Op::status("pod-s"));
    let within = Duration::from_secs(10);
    let view = pleg.newer_than(&uid, pleg.now(), within).await?;
    let web = view.status.container("web").ok_or("no container")?;
    assert_eq!(web.state, ContainerState::Exited);
    assert_eq!(web.details.exit_code, Some(3));
    // The sandbox did not change, so its status was not read.
    assert_eq!(runtime.count(&Op::status("pod-s")), of_sandbox);

    let Some(Delivery::Event(died)) = events.next().await else {
        return Err("no event".into());
    };
    assert_eq!(died.event, LifecycleType::ContainerDied);
    assert_eq!(died.source, Source::Inspection);
    assert_eq!(died.subject.and_then(|s| s.exit_code), Some(3));

    // A status that hangs withholds no state.
    runtime.hang(Op::status("pod-web"));
    runtime.put(fake::container("pod", "sidecar", Running));
    let view = pleg.newer_than(&uid, pleg.now(), within).await?;
    assert!(view.status.container("sidecar").is_some());
    pleg.shutdown().await;
    Ok(())
}
