//! Tests the entries of the failure catalogue about the CRI client: responses of a runtime that a client must not
//! misread. `docs/failures.md` has the complete table, with the issues and the reasons.

use std::time::Duration;

use crate::common::{Fake, FakeState, container, event, failure, sandbox};
use futures::StreamExt;
use pleg_cri::{CriRuntime, v1};
use pleg_runtime::core::{CallError, CallErrorKind, EventType, Report, ReportedState, WallTime};
use pleg_runtime::{Row, Runtime, Scope};
use tonic::Status;

const NOW: i64 = 1_700_000_000_000_000_000;
/// Go's zero time, as containerd ≥ 2 sends it.
const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

async fn containers(runtime: &CriRuntime, scope: &Scope) -> Result<Vec<Report>, CallError> {
    let mut rows = Vec::new();
    let mut take = |row: Row<'_>| rows.extend(row.report());
    let listed = runtime.list_containers(scope, &mut take).await;
    listed.map(|()| rows)
}

/// Upstream: the kubelet read nanoseconds as seconds, which gave times in the far future (k#124297). Here: the client
/// ignores a time that is not plausible in nanoseconds, and does not guess its unit.
#[tokio::test]
async fn timestamp_in_a_unit_other_than_nanoseconds_is_ignored() {
    let stamps = [
        (0, None),
        (GO_ZERO_TIME, None),
        (NOW / 1_000_000_000, None),
        (NOW / 1_000_000, None),
        (NOW / 1_000, None),
        (NOW, Some(WallTime::from_nanos(NOW))),
        (i64::MAX, None),
    ];
    let row = |stamp| v1::Container {
        created_at: stamp,
        ..container("c")
    };
    let fake = Fake::default();
    let server = fake.serve();
    let runtime = server.client();
    for (stamp, read) in stamps {
        fake.lock().containers = vec![row(stamp)];
        let rows = containers(&runtime, &Scope::Node).await.unwrap();
        assert_eq!(rows[0].identity.created_at, read, "{stamp}");
    }
}

/// The client limits the number of rows, because storing a tiny row takes more than a hundred times its encoded size.
#[tokio::test]
async fn list_with_too_many_rows_fails() {
    let fake = Fake::default();
    fake.lock().containers = vec![v1::Container::default(); 1_500_000];
    let server = fake.serve();
    // The fake runtime encodes these rows in this process without optimisation, so the call needs a long deadline.
    let config = server.config().with_call_deadline(Duration::from_secs(120));
    let runtime = CriRuntime::new(config.with_unary_lists()).unwrap();
    let mut read = 0;
    let mut row = |_: Row<'_>| read += 1;
    let listed = runtime.list_containers(&Scope::Node, &mut row).await;
    let error = listed.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TooLarge);
    let problem = "the list has more than 100000 rows";
    assert_eq!((&*error.message, read), (problem, 0));

    let row = |n| container(&format!("c{n}"));
    fake.lock().containers = (0..2500).map(row).collect();
    let rows = containers(&runtime, &Scope::Node).await.unwrap();
    let ids: std::collections::BTreeSet<_> = rows.into_iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), 2500);
}

/// Upstream: PodSandboxStatus.timestamp, in any unit or zero, decided which status is newer (k#126414, k#127195,
/// k#127814). Here: the client ignores this timestamp. The local clock decides which status is newer.
#[tokio::test]
async fn timestamp_of_sandbox_status_is_ignored() {
    let status = v1::PodSandboxStatus {
        id: "s".into(),
        created_at: NOW,
        ..Default::default()
    };
    let fake = Fake::default();
    fake.lock().sandbox_statuses = [("s".into(), Some(status))].into();
    let server = fake.serve();
    let runtime = server.client();
    let plain = runtime.sandbox_status(&"s".into()).await.unwrap();
    for timestamp in [GO_ZERO_TIME, NOW / 1_000_000_000, NOW, i64::MAX] {
        fake.lock().timestamp_and_containers = (timestamp, Vec::new());
        let report = runtime.sandbox_status(&"s".into()).await.unwrap();
        assert_eq!(report, plain, "{timestamp}");
    }
}

/// Upstream: the kubelet took a PodSandboxStatus with a timestamp but without container statuses for a pod without
/// containers (k#129818, containerd#10728). Here: the client reads containers only from ListContainers and
/// ContainerStatus.
#[tokio::test]
async fn containers_never_come_from_pod_sandbox_status() {
    let fake = Fake::default();
    fake.lock().sandbox_statuses = [(
        "s".into(),
        Some(v1::PodSandboxStatus {
            id: "s".into(),
            ..Default::default()
        }),
    )]
    .into();
    fake.lock().containers = ["c1", "c2"].map(container).into();
    let server = fake.serve();
    let runtime = server.client();
    let third = v1::ContainerStatus {
        id: "c3".into(),
        ..Default::default()
    };
    for container_statuses in [Vec::new(), vec![third]] {
        fake.lock().timestamp_and_containers = (NOW, container_statuses);
        let report = runtime.sandbox_status(&"s".into()).await.unwrap();
        assert_eq!(report.id.as_str(), "s", "the report is that of the sandbox");
        let rows = containers(&runtime, &Scope::Pod("p".into())).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["c1", "c2"]);
    }
}

/// Upstream: a list above 16 MiB, about 11,000 containers, fails every relist until the node is
/// NotReady (k#63858, k#90340; KEP-5825). Here: the client uses streaming lists if the runtime has
/// them, the limit is configurable, a larger message has its own error kind, and a list that breaks
/// is not a complete list.
#[tokio::test]
async fn list_above_message_limit_is_too_large_unless_streamed() {
    // The whole list has 1.5 MiB, and the message limit is 1 MiB.
    let large = |n| {
        let mut row = container(&format!("c{n}"));
        row.annotations.insert("a".into(), "x".repeat(256 << 10));
        row
    };
    let fake = Fake::new(FakeState {
        containers: (0..6).map(large).collect(),
        sandboxes: vec![sandbox("s")],
        ..FakeState::default()
    });
    let mut server = fake.serve();
    let limited = CriRuntime::new(server.config().with_message_limit(1 << 20)).unwrap();
    let error = containers(&limited, &Scope::Node).await.unwrap_err();
    assert_eq!(failure(&error), ("ListContainers", CallErrorKind::TooLarge));
    let larger = CriRuntime::new(server.config().with_message_limit(2 << 20)).unwrap();
    assert_eq!(containers(&larger, &Scope::Node).await.unwrap().len(), 6);

    // The runtime restarts with support for streaming lists, which the client then uses.
    server.kill();
    fake.lock().stream = Some(vec![Ok(3), Ok(3)]);
    fake.serve_again(&mut server);
    while limited.version().await.is_err() {}
    assert_eq!(containers(&limited, &Scope::Node).await.unwrap().len(), 6);
    fake.lock().stream = Some(vec![Ok(3), Err(Status::internal("broken"))]);
    let error = containers(&limited, &Scope::Node).await.unwrap_err();
    assert_eq!(
        (error.kind, &*error.message),
        (CallErrorKind::Failed, "broken")
    );
}

/// Upstream: the conversion of an unknown state panics, and the kubelet exits. Here: an unknown state is UNKNOWN, an
/// event of unknown type only causes a pod read, and the client uses all other rows and events.
#[tokio::test]
async fn unknown_enum_value_becomes_unknown_state_or_other_event_type() {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let unknown = v1::Container {
        state: 42,
        ..container("c1")
    };
    let known = v1::Container {
        state: v1::ContainerState::ContainerExited.into(),
        ..container("c2")
    };
    let status = |state| v1::ContainerStatus {
        id: "c1".into(),
        state,
        ..Default::default()
    };
    let fake = Fake::new(FakeState {
        containers: vec![unknown, known],
        events: Some(receiver),
        ..FakeState::default()
    });
    let server = fake.serve();
    let runtime = server.client();
    let rows = containers(&runtime, &Scope::Node).await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| row.shown).collect();
    assert_eq!(shown, [ReportedState::Unknown, ReportedState::Exited]);

    let mut events = runtime.subscribe().await.unwrap();
    let unknown = v1::ContainerEventResponse {
        container_event_type: 42,
        containers_statuses: vec![status(42)],
        ..event("c1")
    };
    sender.send(Ok(unknown)).await.unwrap();
    let received = events.next().await.unwrap().unwrap();
    assert_eq!(received.event, EventType::Other(42));
    assert_eq!(received.containers[0].shown, ReportedState::Unknown);
}
