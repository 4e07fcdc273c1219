//! Every counter is written, and replayed events are no latency.

use std::collections::BTreeMap;

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use pleg_core::{EventType, RuntimeEvent, Settings, Unacknowledged};

use super::*;

/// All counters, each with a value of its own.
fn counters() -> (Counters, BTreeMap<&'static str, u64>) {
    let mut c = Counters::default();
    let mut expected = BTreeMap::new();
    for (n, (name, counter)) in (1..).zip([
        (CONTRADICTIONS, &mut c.contradictions),
        (OVERRULED, &mut c.overruled),
        (LISTS, &mut c.lists),
        (LISTS_FAILED, &mut c.lists_failed),
        (INSPECTIONS, &mut c.inspections),
        (INSPECTIONS_FAILED, &mut c.inspections_failed),
        (INSPECTIONS_CANCELLED, &mut c.inspections_cancelled),
        (PROBES, &mut c.probes),
        (ORPHANS_DROPPED, &mut c.orphans_dropped),
        (EXIT_READS, &mut c.exit_reads),
        (STREAMS_LOST, &mut c.streams_lost),
        (STREAMS_RENEWED, &mut c.streams_renewed),
        (MISSED_WITHDRAWN, &mut c.missed_withdrawn),
        (DROPPED_TOMBSTONES, &mut c.tombstones_dropped),
        (TOMBSTONES, &mut c.tombstones),
        (RECEIVED, &mut c.events.started),
        (MISSED, &mut c.missed.sandbox_stopped),
        (
            INSPECTION_CAUSES,
            &mut c.inspections_by_cause[Cause::ALL[0]],
        ),
        (IRREGULAR, &mut c.events_implausible),
    ]) {
        *counter = 100 + n;
        expected.insert(name, 100 + n);
    }
    (c, expected)
}

#[test]
fn each_counter_is_written_with_its_value() {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let (counters, expected) = counters();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    let (_observe, observations) = pleg_evented::handover(1);
    let gauges = observations.gauges();
    with_local_recorder(&recorder, || {
        MetricsWriter::default().show(
            &health,
            &counters,
            StateCounts::default(),
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
fn metric_names_a_consumer_until_it_has_acknowledged() {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let mut health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    let (_observe, observations) = pleg_evented::handover(1);
    let gauges = observations.gauges();
    let mut writer = MetricsWriter::default();
    let mut show = |health: &Health, seconds| {
        let now = Instant::from_origin(Duration::from_secs(seconds));
        let counters = Counters::default();
        writer.show(health, &counters, StateCounts::default(), &gauges, now);
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

/// Otherwise the driver would wake up at once, again and again, or twice for each relist.
#[test]
fn write_that_was_postponed_waits_for_the_end_of_a_list_that_begins() {
    let (_observe, observations) = pleg_evented::handover(1);
    let gauges = observations.gauges();
    let machine = pleg_core::Reconciler::new(Settings::default(), Instant::ORIGIN);
    let mut health = machine
        .expect("the default is valid")
        .health(Instant::ORIGIN);
    health.list_in_flight = None;
    let mut writer = MetricsWriter::default();
    let at = |ms: u64| Instant::ORIGIN.after(Duration::from_millis(ms));
    let mut show = |health: &Health, inspections: u64, now: Instant| {
        let mut counters = Counters::default();
        counters.inspections = inspections;
        writer.show(health, &counters, StateCounts::default(), &gauges, now);
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

#[test]
fn latency_of_an_event_from_before_the_subscribe_is_not_recorded() {
    let recorder = DebuggingRecorder::new();
    let shown = recorder.snapshotter();
    let wall = |seconds: i64| WallTime::from_nanos((1_700_000_000 + seconds) * 1_000_000_000);
    let mut writer = MetricsWriter::default();
    writer.subscribed(wall(10));
    with_local_recorder(&recorder, || {
        // The last one has no timestamp.
        for created_at in [wall(9).as_nanos(), wall(11).as_nanos(), 0] {
            let mut event = RuntimeEvent::new("c", EventType::Started);
            event.created_at = created_at;
            writer.arrived(&Arrival {
                event,
                arrived: Instant::ORIGIN,
                wall: wall(12),
            });
        }
    });
    let all = shown.snapshot().into_vec();
    let [(key, _, _, DebugValue::Histogram(seconds))] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(key.key().name(), EVENT_LATENCY);
    assert_eq!(seconds.len(), 1);
    assert!((seconds[0].into_inner() - 1.0).abs() < 1e-9, "{seconds:?}");
}
