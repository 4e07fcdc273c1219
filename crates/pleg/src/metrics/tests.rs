//! Tests which values the generator writes to its metrics, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use pleg_core::{ContainerStatus, PodStatus, PodView, SandboxStatus, Settings, Unacknowledged};

use super::*;

use ContainerState::{Exited, Running};
use SandboxState::{NotReady, Ready};

const UNKNOWN: ContainerState = ContainerState::Unknown { last: None };

/// Counters that all have different values, and the expected value of each metric.
fn counters() -> (Counters, BTreeMap<&'static str, u64>) {
    let mut c = Counters::default();
    let mut expected = BTreeMap::new();
    for (n, (name, counter)) in (1..).zip([
        (EVENTS_LOST, &mut c.events_lost),
        (UNDONE, &mut c.undone),
        (STATUSES, &mut c.statuses),
        (LISTS, &mut c.lists),
        (LISTS_FAILED, &mut c.lists_failed),
        (INSPECTIONS, &mut c.pod_reads),
        (INSPECTIONS_FAILED, &mut c.pod_reads_failed),
        (PROBES, &mut c.probes),
        (STREAMS_LOST, &mut c.streams_lost),
        (STREAMS_RENEWED, &mut c.streams_renewed),
        (RECEIVED, &mut c.events.started),
        (MISSED, &mut c.missed.container_stopped),
    ]) {
        *counter = 100 + n;
        expected.insert(name, 100 + n);
    }
    (c, expected)
}

#[test]
fn each_counter_of_the_generator_is_written_to_its_metric() {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let (counters, expected) = counters();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    let gauges = pleg_evented::handover().1.gauges();
    with_local_recorder(&recorder, || {
        MetricsWriter::default().show(
            &health,
            &counters,
            &Published::default(),
            &gauges,
            Instant::ORIGIN,
        );
    });
    let mut written: BTreeMap<String, u64> = BTreeMap::new();
    for (key, _, _, value) in shown.snapshot().into_vec() {
        let value = match value {
            DebugValue::Counter(n) => n,
            DebugValue::Gauge(n) => n.into_inner() as u64,
            DebugValue::Histogram(_) => 0,
        };
        *written.entry(key.key().name().to_owned()).or_default() += value;
    }
    for (name, value) in expected {
        assert_eq!(written.get(name), Some(&value), "{name}");
    }
    for name in [BACKLOG, JOINED, STREAM_PANICS] {
        assert!(written.contains_key(name), "{name}");
    }
}

#[test]
fn unacknowledged_gauge_is_positive_until_the_consumer_has_acknowledged() {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let mut health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    let gauges = pleg_evented::handover().1.gauges();
    let mut writer = MetricsWriter::default();
    let mut show = |health: &Health, seconds| {
        let now = Instant::from_origin(Duration::from_secs(seconds));
        let counters = Counters::default();
        writer.show(health, &counters, &Published::default(), &gauges, now);
        let all = shown.snapshot().into_vec().into_iter();
        let mut owed = all.filter(|(key, ..)| key.key().name() == UNACKNOWLEDGED);
        owed.next().map(|(key, _, _, value)| {
            let label = key.key().labels().next().expect("the consumer").to_owned();
            let DebugValue::Gauge(since) = value else {
                panic!("it is a gauge");
            };
            (label.value().to_owned(), since.into_inner() > 0.0)
        })
    };
    with_local_recorder(&recorder, || {
        assert_eq!(show(&health, 0), None);
        health.unacknowledged = vec![Unacknowledged::new("kubelet", Instant::ORIGIN)];
        assert_eq!(show(&health, 60), Some(("kubelet".to_owned(), true)));
        health.unacknowledged.clear();
        assert_eq!(show(&health, 120), Some(("kubelet".to_owned(), false)));
    });
}

/// If a write of metrics did not wait for the list, the driver would wake up twice for each relist, or more often.
#[test]
fn postponed_write_of_metrics_waits_for_the_list_in_flight() {
    let gauges = pleg_evented::handover().1.gauges();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let mut health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    health.list_in_flight = None;
    let mut writer = MetricsWriter::default();
    let at = |ms: u64| Instant::ORIGIN.after(Duration::from_millis(ms));
    let mut show = |health: &Health, pod_reads: u64, now: Instant| {
        let mut counters = Counters::default();
        counters.pod_reads = pod_reads;
        writer.show(health, &counters, &Published::default(), &gauges, now);
        writer.due()
    };
    assert_eq!(show(&health, 1, at(0)), None);
    assert_eq!(show(&health, 2, at(50)), Some(at(100)));
    health.list_in_flight = Some(at(60));
    assert_eq!(show(&health, 2, at(60)), Some(at(1060)));
    assert_eq!(show(&health, 3, at(100)), Some(at(1060)));
    // The list takes long: the gauge of its duration is written every second.
    assert_eq!(show(&health, 3, at(1060)), Some(at(2060)));
    assert_eq!(show(&health, 4, at(1100)), Some(at(1160)));
    health.list_in_flight = None;
    assert_eq!(show(&health, 4, at(1200)), None);
}

/// A pod counts once, however many of its sandboxes are ready.
#[test]
fn pods_and_containers_are_counted_by_state() {
    let recorder = DebuggingRecorder::new();
    let published = Published::default();
    for (pod, containers, sandboxes) in [
        ("p", &[Running, UNKNOWN, UNKNOWN][..], &[Ready, Ready][..]),
        ("q", &[Exited], &[Ready, NotReady]),
    ] {
        let mut status = PodStatus::nothing(pod.into());
        let named = |state: &ContainerState| ContainerStatus::new("c", "c", *state);
        status.containers = containers.iter().map(named).collect();
        let sandbox = |state: &SandboxState| SandboxStatus::new("s", *state);
        status.sandboxes = sandboxes.iter().map(sandbox).collect();
        published.put(pod.into(), PodView::new(Arc::new(status), None, None));
    }
    with_local_recorder(&recorder, || show_census(&published));
    let mut counts: Vec<_> = recorder.snapshotter().snapshot().into_vec();
    counts.sort_by_key(|(key, ..)| key.key().to_string());
    let counts = counts.into_iter().map(|(_, _, _, value)| value);
    // The expected counts: created, exited, running and unknown containers, then pods.
    let expected = [0.0, 1.0, 1.0, 2.0, 2.0].map(|n| DebugValue::Gauge(n.into()));
    assert!(counts.eq(expected));
}
