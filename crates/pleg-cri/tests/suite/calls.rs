//! Tests the read calls: streaming and unary lists, statuses, deadlines, limits, reconnects.
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Fake, FakeState, TestServer, config, container, failure, sandbox};
use pleg_cri::{CriRuntime, v1};
use pleg_runtime::core::{CallError, CallErrorKind, Id, Kind};
use pleg_runtime::{Row, Runtime, Scope};
use tonic::Status;

async fn sandboxes(runtime: &CriRuntime) -> Result<Vec<String>, CallError> {
    let mut ids = Vec::new();
    let mut row = |row: Row<'_>| ids.push(row.id().to_owned());
    let listed = runtime.list_sandboxes(&Scope::Node, &mut row).await;
    listed.map(|()| ids)
}

async fn containers(runtime: &CriRuntime) -> Result<Vec<String>, CallError> {
    let mut ids = Vec::new();
    let mut row = |row: Row<'_>| ids.push(row.id().to_owned());
    let listed = runtime.list_containers(&Scope::Node, &mut row).await;
    listed.map(|()| ids)
}

fn three_rows() -> FakeState {
    FakeState {
        sandboxes: ["s1", "s2", "s3"].map(sandbox).into(),
        containers: ["c1", "c2", "c3"].map(container).into(),
        ..FakeState::default()
    }
}

/// Waits until a call succeeds. After a restart of the runtime, one call may fail because the old
/// connection is broken.
async fn reconnected(runtime: &CriRuntime) {
    let success = async { while runtime.version().await.is_err() {} };
    let success = tokio::time::timeout(Duration::from_secs(10), success);
    success.await.expect("the client reconnects");
}

/// All calls share a connection; each stream has its own. After `connect` fails or panics, the next call runs it again.
#[tokio::test]
async fn custom_connector_makes_every_connection() {
    let server = Fake::new(three_rows()).serve();
    let connections = Arc::<AtomicU64>::default();
    let (path, counted) = (server.path(), connections.clone());
    let connect = move || {
        let (number, path) = (counted.fetch_add(1, Ordering::Relaxed), path.clone());
        async move {
            match number {
                0 => panic!("a fault of the embedder"),
                1 | 2 => Err(io::ErrorKind::PermissionDenied.into()),
                _ => tokio::net::UnixStream::connect(path).await,
            }
        }
    };
    let runtime = CriRuntime::with_connector(config(Path::new("/a/name")), connect).unwrap();
    assert!(runtime.version().await.is_err());
    let error = runtime.version().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::PermissionDenied, "{error}");
    assert!(runtime.subscribe().await.is_err());
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(connections.load(Ordering::Relaxed), 4);
    let _streams = (runtime.subscribe().await, runtime.subscribe().await);
    assert_eq!(connections.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn version_call_returns_name_and_version_of_runtime() {
    let server = Fake::default().serve();
    let version = server.client().version().await.unwrap();
    assert_eq!(
        (&*version.name, &*version.version, &*version.api),
        ("fake", "1.2.3", "v1")
    );
}

#[tokio::test]
async fn client_connects_lazily_and_reconnects() {
    let mut server = TestServer::stopped();
    let runtime = server.client();
    let error = runtime.version().await.unwrap_err();
    assert_eq!(failure(&error), ("Version", CallErrorKind::Unavailable));
    assert!(error.message.contains("No such file"), "{error}");
    for _ in 0..3 {
        Fake::default().serve_again(&mut server);
        reconnected(&runtime).await;
        server.kill();
        let error = runtime.version().await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable, "{error:?}");
    }
}

#[tokio::test]
async fn connection_lost_during_call_is_unavailable() {
    let fake = Fake::with(|s| s.status_hangs = true);
    let mut server = fake.serve();
    let runtime = server.client();
    let cut = async {
        while fake.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        server.kill();
    };
    let id = Id::from("x");
    let (answer, ()) = tokio::join!(runtime.sandbox_status(&id), cut);
    assert_eq!(answer.unwrap_err().kind, CallErrorKind::Unavailable);
}

#[tokio::test]
async fn streaming_list_falls_back_to_unary_once_per_connection() {
    let fake = Fake::new(three_rows());
    let mut server = fake.serve();
    let runtime = server.client();
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(sandboxes(&runtime).await.unwrap().len(), 3);
    let calls = [
        "StreamPodSandboxes",
        "ListPodSandbox",
        "ListContainers",
        "ListPodSandbox",
    ];
    assert_eq!(fake.calls(), calls, "streaming is tried once");
    // The runtime restarts with a version that has streaming lists.
    server.kill();
    fake.lock().stream = Some(vec![Ok(2), Ok(2)]);
    fake.serve_again(&mut server);
    reconnected(&runtime).await;
    fake.calls();
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(fake.calls(), ["StreamPodSandboxes", "StreamContainers"]);
}

#[tokio::test]
async fn streaming_list_without_pages_is_empty_list() {
    let fake = Fake::new(FakeState {
        stream: Some(vec![]),
        ..three_rows()
    });
    let server = fake.serve();
    assert!(sandboxes(&server.client()).await.unwrap().is_empty());
    assert_eq!(fake.calls(), ["StreamPodSandboxes"]);
}

#[tokio::test]
async fn streaming_list_falls_back_to_unary_only_before_first_page() {
    let unimplemented = || Err(Status::unimplemented("changed my mind"));
    let fake = Fake::new(FakeState {
        stream: Some(vec![Ok(1), unimplemented()]),
        ..three_rows()
    });
    let server = fake.serve();
    let runtime = server.client();
    let error = sandboxes(&runtime).await.unwrap_err();
    assert_eq!(
        failure(&error),
        ("ListPodSandbox", CallErrorKind::Unimplemented)
    );
    fake.lock().stream = Some(vec![unimplemented()]);
    assert_eq!(sandboxes(&runtime).await.unwrap().len(), 3);
}

#[tokio::test]
async fn streaming_list_that_breaks_fails_as_a_whole() {
    let broken = vec![Ok(2), Err(Status::internal("disk failure"))];
    let fake = Fake::new(FakeState {
        stream: Some(broken),
        ..three_rows()
    });
    let server = fake.serve();
    let error = containers(&server.client()).await.unwrap_err();
    assert_eq!(failure(&error), ("ListContainers", CallErrorKind::Failed));
    assert_eq!(&*error.message, "disk failure");
}

#[tokio::test]
async fn streaming_list_that_hangs_or_loses_its_connection_fails() {
    let fake = Fake::new(FakeState {
        stream: Some(vec![Ok(2)]),
        stream_hangs: true,
        ..three_rows()
    });
    let mut server = fake.serve();
    let config = server
        .config()
        .with_call_deadline(Duration::from_millis(300));
    let impatient = CriRuntime::new(config).unwrap();
    let error = containers(&impatient).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::DeadlineExceeded, "{error:?}");

    let runtime = server.client();
    let (row_received, mut rows) = tokio::sync::mpsc::unbounded_channel();
    let mut row = |_: Row<'_>| row_received.send(()).unwrap();
    let cut = async {
        rows.recv().await;
        server.kill();
    };
    let (answer, ()) = tokio::join!(runtime.list_containers(&Scope::Node, &mut row), cut);
    let error = answer.unwrap_err();
    assert_eq!(
        failure(&error),
        ("ListContainers", CallErrorKind::Unavailable)
    );
}

#[tokio::test]
async fn response_above_message_limit_fails_but_connection_stays_open() {
    let mut large = container("c1");
    large.annotations.insert("a".into(), "x".repeat(2 << 20));
    let fake = Fake::new(FakeState {
        containers: vec![large],
        ..three_rows()
    });
    let server = fake.serve();
    let limited = CriRuntime::new(server.config().with_message_limit(1 << 20)).unwrap();
    for stream in [None, Some(vec![Ok(1)])] {
        fake.lock().stream = stream;
        let error = containers(&limited).await.unwrap_err();
        assert_eq!(failure(&error), ("ListContainers", CallErrorKind::TooLarge));
        assert!(error.to_string().contains("1048576"), "no limit: {error}");
        limited.version().await.unwrap();
    }
    assert_eq!(
        containers(&server.client()).await.unwrap(),
        ["c1"],
        "well within the default"
    );
}

#[tokio::test]
async fn list_of_one_pod_sends_its_uid_as_filter() {
    let fake = Fake::new(three_rows());
    let server = fake.serve();
    let runtime = server.client();
    for scope in [Scope::Node, Scope::Pod("uid".into())] {
        runtime.list_sandboxes(&scope, &mut |_| ()).await.unwrap();
        runtime.list_containers(&scope, &mut |_| ()).await.unwrap();
    }
    let state = fake.lock();
    let selector = [("io.kubernetes.pod.uid".to_owned(), "uid".to_owned())];
    let selector: std::collections::BTreeMap<_, _> = selector.into();
    let sandboxes = state.sandbox_filters.last().unwrap().as_ref().unwrap();
    let containers = state.container_filters.last().unwrap().as_ref().unwrap();
    assert_eq!(sandboxes.label_selector, selector);
    assert_eq!(containers.label_selector, selector);
    assert_eq!(
        (&state.sandbox_filters[0], &state.container_filters[0]),
        (&None, &None)
    );
}

#[tokio::test]
async fn empty_status_is_malformed_and_unknown_id_is_not_found() {
    let fake = Fake::default();
    let server = fake.serve();
    let runtime = server.client();
    let status = v1::ContainerStatus {
        id: "c".into(),
        ..Default::default()
    };
    fake.lock().container_statuses = [
        ("c".into(), Some(status)),
        ("nil".into(), None),
        ("empty".into(), Some(Default::default())),
    ]
    .into();
    fake.lock().sandbox_statuses = [("nil".into(), None)].into();

    let report = runtime.container_status(&"c".into()).await.unwrap();
    assert_eq!(
        (report.id.as_str(), report.identity.kind),
        ("c", Kind::Container)
    );
    for (id, kind) in [
        ("nil", CallErrorKind::Malformed),
        ("empty", CallErrorKind::Malformed),
        ("other", CallErrorKind::NotFound),
    ] {
        let error = runtime.container_status(&id.into()).await.unwrap_err();
        assert_eq!(failure(&error), ("ContainerStatus", kind), "{id}");
    }
    for (id, kind) in [
        ("nil", CallErrorKind::Malformed),
        ("x", CallErrorKind::NotFound),
    ] {
        let error = runtime.sandbox_status(&id.into()).await.unwrap_err();
        assert_eq!(failure(&error), ("PodSandboxStatus", kind), "{id}");
    }
}

#[tokio::test]
async fn hanging_call_ends_at_deadline() {
    let fake = Fake::with(|s| s.status_hangs = true);
    let server = fake.serve();
    let config = server.config().with_call_deadline(Duration::from_secs(1));
    let runtime = CriRuntime::new(config).unwrap();
    let error = runtime.container_status(&"c".into()).await.unwrap_err();
    assert_eq!(
        failure(&error),
        ("ContainerStatus", CallErrorKind::DeadlineExceeded)
    );
    runtime.version().await.unwrap();
}
