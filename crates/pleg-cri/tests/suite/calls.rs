//! The calls: lists streamed and not, statuses, deadlines, limits, reconnecting.
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Fake, Told, client, config, container, sandbox};
use pleg_cri::{ConfigError, CriRuntime, v1};
use pleg_runtime::core::{CallError, CallErrorKind, Id, Kind};
use pleg_runtime::{Row, Runtime, Scope};
use tonic::Status;

async fn sandboxes(runtime: &CriRuntime) -> Result<Vec<String>, CallError> {
    let mut ids = Vec::new();
    let mut row = |row: Row<'_>| ids.push(row.id().to_owned());
    runtime
        .list_sandboxes(&Scope::Node, &mut row)
        .await
        .map(|()| ids)
}

async fn containers(runtime: &CriRuntime) -> Result<Vec<String>, CallError> {
    let mut ids = Vec::new();
    let mut row = |row: Row<'_>| ids.push(row.id().to_owned());
    runtime
        .list_containers(&Scope::Node, &mut row)
        .await
        .map(|()| ids)
}

fn some_rows() -> Told {
    Told {
        sandboxes: ["s1", "s2", "s3"].map(sandbox).into(),
        containers: ["c1", "c2", "c3"].map(container).into(),
        ..Told::default()
    }
}

/// A restart may cost the one call that finds the old connection dead; then there is a new one.
async fn reconnected(runtime: &CriRuntime) {
    let all = async { while runtime.version().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(10), all)
        .await
        .expect("it reconnects by itself");
}

/// Whoever embeds the client may make its connections: one for all calls, one for each stream.
#[tokio::test]
async fn connections_may_be_made_by_the_embedder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("elsewhere");
    let _serving = Fake::told(some_rows()).serve(&path);
    let (made, allowed) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let connect = {
        let (made, allowed) = (made.clone(), allowed.clone());
        move || {
            let (made, allowed, path) = (made.clone(), allowed.clone(), path.clone());
            async move {
                if !allowed.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                made.fetch_add(1, Ordering::Relaxed);
                tokio::net::UnixStream::connect(path).await
            }
        }
    };
    let runtime = CriRuntime::with_connector(config(Path::new("/a/name")), connect).unwrap();
    let refused = runtime.version().await.unwrap_err();
    assert_eq!(refused.kind, CallErrorKind::PermissionDenied, "{refused}");
    assert!(runtime.subscribe().await.is_err());
    allowed.store(true, Ordering::Relaxed);
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(made.load(Ordering::Relaxed), 1);
    let _streams = (runtime.subscribe().await, runtime.subscribe().await);
    assert_eq!(made.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_runtime_says_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = Fake::default().serve(&path);
    let version = client(&path).version().await.unwrap();
    assert_eq!(
        (&*version.name, &*version.version, &*version.api),
        ("fake", "1.2.3", "v1")
    );
}

#[tokio::test]
async fn connecting_is_lazy_and_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let runtime = client(&path);
    let error = runtime.version().await.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("Version", CallErrorKind::Unavailable)
    );
    assert!(error.message.contains("No such file"), "{error}");
    for _ in 0..3 {
        let serving = Fake::default().serve(&path);
        reconnected(&runtime).await;
        drop(serving);
        let error = runtime.version().await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable, "{error:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_under_a_call_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(Told {
        status_hangs: true,
        ..Told::default()
    });
    let serving = fake.serve(&path);
    let runtime = client(&path);
    let cut = async {
        while fake.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        drop(serving);
    };
    let id = Id::from("x");
    let (answer, ()) = tokio::join!(runtime.sandbox_status(&id), cut);
    assert_eq!(answer.unwrap_err().kind, CallErrorKind::Unavailable);
}

#[tokio::test]
async fn lists_fall_back_to_unary_and_ask_again_on_the_next_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(some_rows());
    let serving = fake.serve(&path);
    let runtime = client(&path);
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(sandboxes(&runtime).await.unwrap().len(), 3);
    let calls = [
        "StreamPodSandboxes",
        "ListPodSandbox",
        "ListContainers",
        "ListPodSandbox",
    ];
    assert_eq!(fake.calls(), calls, "asked once");
    // The runtime is upgraded in place.
    drop(serving);
    fake.lock().stream = Some(vec![Ok(2), Ok(2)]);
    let _serving = fake.serve(&path);
    reconnected(&runtime).await;
    fake.calls();
    assert_eq!(sandboxes(&runtime).await.unwrap(), ["s1", "s2", "s3"]);
    assert_eq!(containers(&runtime).await.unwrap(), ["c1", "c2", "c3"]);
    assert_eq!(fake.calls(), ["StreamPodSandboxes", "StreamContainers"]);
}

#[tokio::test]
async fn an_empty_streamed_list_is_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(Told {
        stream: Some(vec![]),
        ..some_rows()
    });
    let _serving = fake.serve(&path);
    assert!(sandboxes(&client(&path)).await.unwrap().is_empty());
    assert_eq!(fake.calls(), ["StreamPodSandboxes"]);
}

#[tokio::test]
async fn unimplemented_instead_of_the_first_page_falls_back_and_after_it_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let unimplemented = || Err(Status::unimplemented("changed my mind"));
    let fake = Fake::told(Told {
        stream: Some(vec![Ok(1), unimplemented()]),
        ..some_rows()
    });
    let _serving = fake.serve(&path);
    let runtime = client(&path);
    let error = sandboxes(&runtime).await.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("ListPodSandbox", CallErrorKind::Unimplemented)
    );
    fake.lock().stream = Some(vec![unimplemented()]);
    assert_eq!(sandboxes(&runtime).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_partial_stream_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broken = vec![Ok(2), Err(Status::internal("disk on fire"))];
    let fake = Fake::told(Told {
        stream: Some(broken),
        ..some_rows()
    });
    let _serving = fake.serve(&path);
    let error = containers(&client(&path)).await.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("ListContainers", CallErrorKind::Failed)
    );
    assert_eq!(&*error.message, "disk on fire");
}

#[tokio::test]
async fn a_stream_that_is_cut_or_hangs_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(Told {
        stream: Some(vec![Ok(2)]),
        stream_hangs: true,
        ..some_rows()
    });
    let serving = fake.serve(&path);
    let config = config(&path).with_call_deadline(Duration::from_millis(300));
    let hasty = CriRuntime::new(config).unwrap();
    let error = containers(&hasty).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::DeadlineExceeded, "{error:?}");

    let runtime = client(&path);
    let (handed, mut rows) = tokio::sync::mpsc::unbounded_channel();
    let mut row = |_: Row<'_>| handed.send(()).unwrap();
    let cut = async {
        rows.recv().await;
        drop(serving);
    };
    let (answer, ()) = tokio::join!(runtime.list_containers(&Scope::Node, &mut row), cut);
    let error = answer.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("ListContainers", CallErrorKind::Unavailable)
    );
}

#[tokio::test]
async fn a_message_over_the_limit_is_too_large_and_the_connection_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut large = container("c1");
    large.annotations.insert("a".into(), "x".repeat(2 << 20));
    let fake = Fake::told(Told {
        containers: vec![large],
        ..some_rows()
    });
    let _serving = fake.serve(&path);
    let limited = CriRuntime::new(config(&path).with_message_limit(1 << 20)).unwrap();
    for stream in [None, Some(vec![Ok(1)])] {
        fake.lock().stream = stream;
        let error = containers(&limited).await.unwrap_err();
        assert_eq!(
            (error.operation, error.kind),
            ("ListContainers", CallErrorKind::TooLarge)
        );
        limited.version().await.unwrap();
    }
    assert_eq!(
        containers(&client(&path)).await.unwrap(),
        ["c1"],
        "well within the default"
    );
}

#[tokio::test]
async fn a_scope_becomes_a_filter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(some_rows());
    let _serving = fake.serve(&path);
    let runtime = client(&path);
    for scope in [Scope::Node, Scope::Pod("uid".into())] {
        runtime.list_sandboxes(&scope, &mut |_| ()).await.unwrap();
        runtime.list_containers(&scope, &mut |_| ()).await.unwrap();
    }
    let told = fake.lock();
    let selector = [("io.kubernetes.pod.uid".to_owned(), "uid".to_owned())];
    let of_pod = |labels: &std::collections::BTreeMap<_, _>| *labels == selector.clone().into();
    assert!(of_pod(
        &told
            .sandbox_filters
            .last()
            .unwrap()
            .as_ref()
            .unwrap()
            .label_selector
    ));
    assert!(of_pod(
        &told
            .container_filters
            .last()
            .unwrap()
            .as_ref()
            .unwrap()
            .label_selector
    ));
    assert_eq!(
        (&told.sandbox_filters[0], &told.container_filters[0]),
        (&None, &None)
    );
}

#[tokio::test]
async fn statuses_are_read_and_their_absence_has_a_kind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::default();
    let _serving = fake.serve(&path);
    let runtime = client(&path);
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
        assert_eq!(
            (error.operation, error.kind),
            ("ContainerStatus", kind),
            "{id}"
        );
    }
    for (id, kind) in [
        ("nil", CallErrorKind::Malformed),
        ("x", CallErrorKind::NotFound),
    ] {
        let error = runtime.sandbox_status(&id.into()).await.unwrap_err();
        assert_eq!(
            (error.operation, error.kind),
            ("PodSandboxStatus", kind),
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let fake = Fake::told(Told {
        status_hangs: true,
        ..Told::default()
    });
    let _serving = fake.serve(&path);
    let config = config(&path).with_call_deadline(Duration::from_millis(200));
    let runtime = CriRuntime::new(config).unwrap();
    let error = runtime.container_status(&"c".into()).await.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("ContainerStatus", CallErrorKind::DeadlineExceeded)
    );
    runtime.version().await.unwrap();
}

#[test]
fn outside_of_tokio_there_is_no_client_and_no_panic() {
    let error = CriRuntime::new(config("/run/x.sock".as_ref())).unwrap_err();
    assert_eq!(error, ConfigError::NoRuntime);
}
