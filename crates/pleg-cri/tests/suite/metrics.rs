//! Tests that calls are recorded in metrics with the kubelet's names.
use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Fake, event};
use futures::{FutureExt, StreamExt};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use pleg_cri::CriRuntime;
use pleg_runtime::{Runtime, Scope};

const TOTAL: &str = "kubelet_runtime_operations_total";
const ERRORS: &str = "kubelet_runtime_operations_errors_total";
const DURATION: &str = "kubelet_runtime_operations_duration_seconds";

/// The counts since the last snapshot, by metric and operation: a counter's value, or a histogram's number of samples.
fn counts(snapshotter: &Snapshotter) -> BTreeMap<(String, String), u64> {
    let count = |value: DebugValue| match value {
        DebugValue::Counter(count) => count,
        DebugValue::Histogram(samples) => u64::try_from(samples.len()).unwrap(),
        DebugValue::Gauge(_) => 0,
    };
    let all = snapshotter.snapshot().into_vec().into_iter();
    let operations = all.filter(|(key, ..)| key.key().name().starts_with("kubelet_"));
    let counts = operations.map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().collect();
        let [label] = labels[..] else {
            panic!("one label")
        };
        assert_eq!(label.key(), "operation_type");
        (
            (key.key().name().to_owned(), label.value().to_owned()),
            count(value),
        )
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

fn expected(counts: &[(&str, &str, u64)]) -> BTreeMap<(String, String), u64> {
    let owned = |(name, label, n): &(&str, &str, u64)| (((*name).into(), (*label).into()), *n);
    counts.iter().map(owned).collect()
}

#[tokio::test]
async fn cri_calls_have_the_kubelets_metrics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let server = Fake::default().serve();
    let runtime = server.client();

    runtime.version().await.unwrap();
    runtime
        .list_sandboxes(&Scope::Node, &mut |_| ())
        .await
        .unwrap();
    runtime
        .list_containers(&Scope::Node, &mut |_| ())
        .await
        .unwrap();
    runtime.sandbox_status(&"x".into()).await.unwrap_err();
    runtime.container_status(&"x".into()).await.unwrap_err();
    runtime
        .subscribe()
        .await
        .unwrap()
        .next()
        .await
        .unwrap()
        .unwrap_err();
    let mut all = vec![];
    for label in [
        "version",
        "list_podsandbox",
        "list_containers",
        "podsandbox_status",
        "container_status",
        "get_container_events",
    ] {
        all.extend([(TOTAL, label, 1), (DURATION, label, 1)]);
    }
    for label in [
        "podsandbox_status",
        "container_status",
        "get_container_events",
    ] {
        all.push((ERRORS, label, 1));
    }
    assert_eq!(counts(&snapshotter), expected(&all));
}

#[tokio::test]
async fn hanging_call_counts_at_once_and_as_failed_when_cancelled() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let fake = Fake::with(|s| s.status_hangs = true);
    let server = fake.serve();
    let runtime = server.client();
    let id = "x".into();
    let mut call = Box::pin(runtime.container_status(&id));
    assert!((&mut call).now_or_never().is_none());
    assert_eq!(
        counts(&snapshotter),
        expected(&[(TOTAL, "container_status", 1)])
    );
    drop(call);
    let cancelled = expected(&[
        (DURATION, "container_status", 1),
        (ERRORS, "container_status", 1),
    ]);
    let seen = counts(&snapshotter);
    assert!(
        cancelled.iter().all(|(key, n)| seen.get(key) == Some(n)),
        "{seen:?}"
    );

    let config = server
        .config()
        .with_call_deadline(Duration::from_millis(50));
    CriRuntime::new(config)
        .unwrap()
        .container_status(&id)
        .await
        .unwrap_err();
    let seen = counts(&snapshotter);
    assert_eq!(
        seen.get(&(ERRORS.into(), "container_status".into())),
        Some(&1),
        "{seen:?}"
    );
}

#[tokio::test]
async fn dropped_event_stream_is_not_counted_as_failed() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let fake = Fake::with(|s| s.events = Some(receiver));
    let server = fake.serve();
    let mut events = server.client().subscribe().await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    events.next().await.unwrap().unwrap();
    drop(events);
    let label = "get_container_events";
    assert_eq!(
        counts(&snapshotter),
        expected(&[(TOTAL, label, 1), (DURATION, label, 1)])
    );
}
