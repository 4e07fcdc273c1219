//! The metrics of several generators in one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use pleg::core::{EventType, ReportedState};
use pleg::{Mode, Pleg};

use crate::support::{FakeRuntime, SECOND, next, pass, sandbox, soon};

/// A generator with a recorder of its own.
fn generator(node: &FakeRuntime, mode: Mode) -> (Pleg, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let builder = Pleg::builder(node.clone()).mode(mode);
    let pleg = builder.metrics(Arc::new(recorder)).spawn().unwrap();
    (pleg, shown)
}

/// The counters, summed over labels, and the gauges.
fn values(shown: &Snapshotter) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    for (key, _, _, value) in shown.snapshot().into_vec() {
        let value = match value {
            DebugValue::Counter(n) => n,
            DebugValue::Gauge(n) => n.into_inner() as u64,
            DebugValue::Histogram(all) => all.len() as u64,
        };
        let name = key.key().name().to_owned();
        *values.entry(name).or_default() += value;
    }
    values
}

/// One generator has two pods and a stream, the other has one pod and polls.
#[tokio::test(start_paused = true)]
async fn two_generators_with_two_recorders_record_apart() {
    let (one, other) = (FakeRuntime::new(), FakeRuntime::new());
    for uid in ["p", "q"] {
        one.run_pod(uid);
    }
    other.run_pod("r");
    let (evented, of_evented) = generator(&one, Mode::Evented);
    let (polling, of_polling) = generator(&other, Mode::Polling);
    let mut changes = evented.subscribe();
    for pleg in [&evented, &polling] {
        soon(pleg.wait_until_synced()).await.unwrap();
    }
    one.put_and_emit(sandbox("p", "s", ReportedState::Exited), EventType::Stopped);
    while next(&mut changes).await.initial {}
    // Metrics are written ten times a second at most.
    pass(&evented, SECOND).await;
    let (of_evented, of_polling) = (values(&of_evented), values(&of_polling));
    for (name, of_one, of_other) in [
        ("pleg_notifications_received_total", 1, 0),
        ("kubelet_evented_pleg_connection_success_count", 1, 0),
        ("pleg_event_latency_seconds", 1, 0),
        ("kubelet_running_pods", 1, 1),
        ("kubelet_running_containers", 2, 1),
    ] {
        assert_eq!(of_evented.get(name).copied().unwrap_or(0), of_one, "{name}");
        assert_eq!(
            of_polling.get(name).copied().unwrap_or(0),
            of_other,
            "{name}"
        );
    }
    let (counted, counters) = (of_polling["pleg_lists_total"], polling.counters().lists);
    assert!(
        counted > 0 && counted <= counters,
        "{counted} of {counters}"
    );
    assert_eq!(of_evented["pleg_lists_total"], evented.counters().lists);
}
