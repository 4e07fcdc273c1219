//! Tests that the metrics of several generators in one process are separate.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use pleg::core::{EventType, ReportedState};
use pleg::{Builder, Mode, Pleg};

use crate::support::{FakeRuntime, SECOND, next, pass, sandbox, soon};

/// A builder of a generator whose metrics go to this recorder.
fn builder(node: &FakeRuntime, recorder: &Arc<DebuggingRecorder>) -> Builder<FakeRuntime> {
    let recorder = recorder.clone();
    Pleg::builder(node.clone()).metrics(move |work| with_local_recorder(&*recorder, work))
}

/// A generator with a recorder of its own.
fn generator(node: &FakeRuntime, mode: Mode) -> (Pleg, Snapshotter) {
    let recorder = Arc::new(DebuggingRecorder::new());
    let pleg = builder(node, &recorder).mode(mode).spawn().unwrap();
    (pleg, recorder.snapshotter())
}

/// The counters, the gauges and the lengths of the histograms, each summed over its labels.
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

/// One generator has two pods and an event stream, the other has one pod and only polls.
#[tokio::test(start_paused = true)]
async fn each_generator_writes_metrics_to_its_own_recorder() {
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

#[tokio::test(start_paused = true)]
async fn name_of_a_generator_is_a_label_of_its_metrics() {
    let (node, recorder) = (FakeRuntime::new(), Arc::new(DebuggingRecorder::new()));
    let named = |name| builder(&node, &recorder).name(name).spawn().unwrap();
    let [a, b] = ["a", "b"].map(named);
    for pleg in [&a, &b] {
        soon(pleg.wait_until_synced()).await.unwrap();
        pleg.health().show_metrics();
    }
    // Simulates a call that another client of the runtime makes.
    let call = async {
        pass(&a, SECOND).await;
        metrics::counter!("calls").increment(1);
    };
    soon(a.record(call)).await;
    let names = |metric: &str| {
        let all = recorder.snapshotter().snapshot().into_vec().into_iter();
        let of_metric = all.filter(|(key, ..)| key.key().name() == metric);
        let name = |key: &metrics::Key| key.labels().map(|l| l.value().to_owned()).collect();
        let mut names: Vec<String> = of_metric.map(|(key, ..)| name(key.key())).collect();
        names.sort();
        names
    };
    assert_eq!(names("calls"), ["a"]);
    assert_eq!(names("pleg_ready"), ["a", "b"]);
    assert_eq!(names("pleg_lists_total"), ["a", "b"]);
}
