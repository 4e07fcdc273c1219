//! Tests the entries of the failure catalogue, `docs/failures.md`, that are about the driver, its consumers, its health
//! or its metrics: the whole generator on a fake runtime, in paused time. The comment of a test describes the failure
//! in upstream Kubernetes; the catalogue has the issues and the reasons.
mod evented;
mod generic;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Takes the gauge's value: the last write since the previous call, or zero if there was none.
fn take_gauge(snapshotter: &Snapshotter, name: &str, label: Option<&str>) -> f64 {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let mut of_name = all.filter(|(key, ..)| {
        let key = key.key();
        key.name() == name && label.is_none_or(|l| key.labels().any(|of| of.value() == l))
    });
    match of_name.next() {
        Some((.., DebugValue::Gauge(value))) => value.into_inner(),
        other => panic!("{name} was never written: {other:?}"),
    }
}

fn recorder() -> (DebuggingRecorder, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    (recorder, snapshotter)
}
