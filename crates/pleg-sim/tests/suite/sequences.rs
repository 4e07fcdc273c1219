//! The events of a pod's lifecycle and their order, on containerd 2.

use crate::common::{Client, Events, sim};
use pleg_cri::v1::{ContainerFilter, ContainerState, PodSandboxFilter, PodSandboxState};

/// Go's zero time, as containerd 2 sends it.
const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

/// A pod is created, restarts a container, and is stopped and removed.
#[tokio::test]
async fn pod_with_restart_and_removal_sends_events_in_order() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;

    // A pod with two containers. The test makes the first exit.
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "app").await;
    cri.start(&a).await;
    let b = cri.create(&s, "b", 0, "app").await;
    cri.start(&b).await;
    let mut names = vec![(s.as_str(), "S"), (&a, "A"), (&b, "B")];
    assert_eq!(
        events.next_as_text(6, &names).await,
        [
            "CREATED(S) READY []",
            "STARTED(S) READY []",
            "CREATED(A) READY [A:CREATED]",
            "STARTED(A) READY [A:RUNNING]",
            "CREATED(B) READY [A:RUNNING, B:CREATED]",
            "STARTED(B) READY [A:RUNNING, B:RUNNING]",
        ]
    );

    // A exits with 1 and is restarted; later the exited container is removed.
    assert!(sim.kill_container(&a, 1));
    assert_eq!(
        events.next_as_text(1, &names).await,
        ["STOPPED(A) READY [A:EXITED=1 Error, B:RUNNING]"]
    );
    let a1 = cri.create(&s, "a", 1, "app").await;
    cri.start(&a1).await;
    cri.remove(&a).await;
    names.push((&a1, "A1"));
    assert_eq!(
        events.next_as_text(3, &names).await,
        [
            "CREATED(A1) READY [A1:CREATED, A:EXITED=1 Error, B:RUNNING]",
            "STARTED(A1) READY [A1:RUNNING, A:EXITED=1 Error, B:RUNNING]",
            "DELETED(A) READY [A1:RUNNING, B:RUNNING]",
        ]
    );

    // Stop, then remove.
    cri.stop(&a1, 10).await;
    assert_eq!(
        events.next_as_text(1, &names).await,
        ["STOPPED(A1) READY [A1:EXITED=0 Completed, B:RUNNING]"]
    );
    cri.stop(&b, 0).await;
    assert_eq!(
        events.next_as_text(1, &names).await,
        ["STOPPED(B) READY [A1:EXITED=0 Completed, B:EXITED=137 Error]"]
    );
    cri.stop_sandbox(&s).await;
    cri.stop_sandbox(&s).await; // sends no second event
    assert_eq!(
        events.next_as_text(1, &names).await,
        ["STOPPED(S) NOTREADY [A1:EXITED=0 Completed, B:EXITED=137 Error]"]
    );
    cri.remove(&a1).await;
    cri.remove(&b).await;
    cri.remove(&b).await; // no error, and no event
    cri.remove_sandbox(&s).await;
    cri.remove_sandbox(&s).await;
    assert_eq!(
        events.next_as_text(2, &names).await,
        [
            "DELETED(A1) NOTREADY [B:EXITED=137 Error]",
            "DELETED(B) NOTREADY []"
        ]
    );
    let last = events.next().await;
    assert_eq!(
        crate::common::event_text(&last, &names),
        "DELETED(S) NOTREADY []"
    );
    let status = last.pod_sandbox_status.unwrap();
    assert_eq!(status.created_at, GO_ZERO_TIME);
    assert_eq!(status.metadata.unwrap().uid, "uid-p");
    assert!(cri.sandboxes(PodSandboxFilter::default()).await.is_empty());

    // The name is free again; no event was sent in between.
    let again = cri.run("p").await;
    assert_eq!(
        events.next_as_text(1, &[(&again, "S")]).await,
        ["CREATED(S) READY []"]
    );
    sim.shutdown().await;
}

/// The removal of a running pod first stops and removes everything in it.
#[tokio::test]
async fn removal_of_running_pod_stops_everything_first() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "ignore-term").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    events.next_as_text(4, &names).await;
    cri.remove_sandbox(&s).await;
    assert_eq!(
        events.next_as_text(4, &names).await,
        [
            "STOPPED(A) READY [A:EXITED=137 Error]",
            "STOPPED(S) NOTREADY [A:EXITED=137 Error]",
            "DELETED(A) NOTREADY []",
            "DELETED(S) NOTREADY []",
        ]
    );
    sim.shutdown().await;
}

/// The pause process is killed, and the containers keep running.
#[tokio::test]
async fn killed_sandbox_leaves_containers_running() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    events.next_as_text(4, &names).await;
    sim.kill_sandbox(&s);
    sim.kill_sandbox(&s);
    let event = events.next().await;
    assert_eq!(
        crate::common::event_text(&event, &names),
        "STOPPED(S) NOTREADY [A:RUNNING]"
    );
    assert!(
        !event
            .pod_sandbox_status
            .unwrap()
            .network
            .unwrap()
            .ip
            .is_empty(),
        "the ip is still set"
    );
    let rows = cri.sandboxes(PodSandboxFilter::default()).await;
    assert_eq!(rows[0].state(), PodSandboxState::SandboxNotready);
    cri.stop(&a, 10).await;
    assert_eq!(
        events.next_as_text(1, &names).await,
        ["STOPPED(A) NOTREADY [A:EXITED=0 Completed]"]
    );
    sim.shutdown().await;
}

/// Every timestamp is later than what the statuses show, and the times of a container are in order.
#[tokio::test]
async fn events_are_stamped_after_their_statuses() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    cri.create_and_start(&s, "a", "exit 3").await;
    let mut last = 0;
    for _ in 0..5 {
        let event = events.next().await;
        let sandbox = event.pod_sandbox_status.unwrap();
        assert!(event.created_at > sandbox.created_at);
        assert!(event.created_at > last);
        last = event.created_at;
        for c in event.containers_statuses {
            assert!(event.created_at > c.created_at.max(c.started_at).max(c.finished_at));
            if c.state() == ContainerState::ContainerExited {
                assert!(c.created_at < c.started_at && c.started_at < c.finished_at);
                assert_eq!((c.exit_code, c.reason.as_str()), (3, "Error"));
            }
        }
    }
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn containers_exit_as_their_commands_say() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let zero = cri.create_and_start(&s, "zero", "app exit 0 50").await;
    let late = cri
        .create_and_start(&s, "late", "sh -c exit 42 15000")
        .await;
    let hard = cri.create_and_start(&s, "hard", "app ignore-term").await;
    let stopped = cri
        .create_and_start(&s, "stopped", "app exit 1 3600000")
        .await;
    cri.stop(&hard, 10).await; // it ignores SIGTERM
    cri.stop(&stopped, 10).await;
    let mut stopped_ids = Vec::new();
    while stopped_ids.len() < 4 {
        let event = events.next().await;
        if event.container_event_type() == pleg_cri::v1::ContainerEventType::ContainerStoppedEvent {
            stopped_ids.push(event.container_id);
        }
    }
    assert_eq!(
        stopped_ids,
        [zero.clone(), hard.clone(), stopped.clone(), late.clone()]
    );
    for (id, code, reason) in [
        (zero, 0, "Completed"),
        (late, 42, "Error"),
        (hard, 137, "Error"),
        (stopped, 143, "Error"),
    ] {
        let status = cri.status(&id).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason));
    }
    sim.shutdown().await;
}

/// A failed start sends no event: only reads show it.
#[tokio::test]
async fn failed_start_sends_no_event() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "fail-start").await;
    let request = pleg_cri::v1::StartContainerRequest {
        container_id: a.clone(),
    };
    assert_eq!(
        cri.0.start_container(request).await.unwrap_err().code(),
        tonic::Code::Unknown
    );
    let status = cri.status(&a).await.unwrap();
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (128, "StartError")
    );
    assert_eq!(
        cri.containers(ContainerFilter::default()).await[0].state(),
        ContainerState::ContainerExited
    );
    cri.remove(&a).await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    assert_eq!(
        events.next_as_text(4, &names).await,
        [
            "CREATED(S) READY []",
            "STARTED(S) READY []",
            "CREATED(A) READY [A:CREATED]",
            "DELETED(A) READY []",
        ]
    );
    sim.shutdown().await;
}
