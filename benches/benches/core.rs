//! The machine's hot paths, on a node of 1,000 pods of one container each: one event, and one
//! full list that shows nothing new. Beside each stands its floor: the same data looked up, or
//! compared, and nothing more.
//!
//! Run with `cargo bench -p pleg-benches`.
#![allow(
    missing_docs,
    reason = "criterion's macros write undocumented functions"
)]
#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot start should stop"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pleg_core::{
    Arrival, ContainerDetails, Details, EventType, Id, Identity, Inspection, Instant, Kind,
    KnownIds, List, Output, PodUid, Reconciler, Report, ReportedState, Rows, RuntimeEvent,
    Settings, StreamChange, WallTime,
};

const PODS: u64 = 1000;

fn id(kind: &str, n: u64) -> Id {
    // As long as a runtime's ids are, and as different from each other from the start.
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Id::from(format!("{mixed:016x}{kind:0>48}"))
}

fn uid(n: u64) -> PodUid {
    PodUid::from(format!("{n:08}-0000-4000-8000-000000000000"))
}

fn report(kind: Kind, n: u64, shown: ReportedState) -> Report {
    let sandbox = id("a", n);
    let mut identity = Identity::new(kind);
    identity.pod = Some(uid(n));
    identity.namespace = Some("default".into());
    identity.pod_name = Some("app".into());
    identity.created_at = WallTime::claimed(1_700_000_000_000_000_000);
    if kind == Kind::Sandbox {
        return Report::new(sandbox, shown, identity, Details::none(kind));
    }
    identity.sandbox = Some(sandbox);
    identity.name = Some("app".into());
    let mut details = ContainerDetails::default();
    details.image = "registry.example/app:1".into();
    details.exit_code = (shown == ReportedState::Exited).then_some(1);
    Report::new(id("b", n), shown, identity, details)
}

fn rows() -> Vec<Report> {
    let of = |n| {
        [
            report(Kind::Sandbox, n, ReportedState::Running),
            report(Kind::Container, n, ReportedState::Running),
        ]
    };
    (0..PODS).flat_map(of).collect()
}

/// A machine that knows the node, and the list that it wants next: ticket, instant and known ids.
fn settled() -> (Reconciler, Instant, pleg_core::Ticket, KnownIds) {
    let mut now = Instant::from_nanos(1);
    let mut machine = Reconciler::new(Settings::default(), now).expect("the defaults are valid");
    let wall = WallTime::from_nanos(1_700_000_000_000_000_000);
    machine.handle_stream(now, StreamChange::Subscribed { at: now, wall });
    loop {
        while let Some(output) = machine.poll_output() {
            now = now.after(Duration::from_micros(10));
            match output {
                Output::List { ticket, known, .. } if machine.health(now).synced => {
                    return (machine, now, ticket, known);
                }
                Output::List { ticket, .. } => {
                    let list = List {
                        ticket,
                        began: now,
                        ended: now,
                        rows: Ok(rows().into_iter().collect()),
                    };
                    machine.handle_list(now, list);
                }
                Output::Inspect { ticket, held, .. } => {
                    let found = held
                        .iter()
                        .filter_map(|held| rows_by_id().get(&held.id).cloned());
                    let inspection = Inspection {
                        ticket,
                        began: now,
                        ended: now,
                        found: found.collect(),
                        ..Inspection::new(None)
                    };
                    machine.handle_inspection(now, inspection);
                }
                _ => {}
            }
        }
        now = machine.poll_timeout().unwrap_or(now).max(now);
        machine.handle_timeout(now);
    }
}

fn rows_by_id() -> &'static BTreeMap<Id, Report> {
    static ROWS: std::sync::OnceLock<BTreeMap<Id, Report>> = std::sync::OnceLock::new();
    ROWS.get_or_init(|| rows().into_iter().map(|r| (r.id.clone(), r)).collect())
}

fn stopped(n: u64, at: Instant) -> Arrival {
    let wall = WallTime::from_nanos(1_700_000_000_000_000_000).after(at.since(Instant::ORIGIN));
    let mut event = RuntimeEvent::new(id("b", n), EventType::Stopped);
    event.created_at = wall.as_nanos();
    event.sandbox = Some(report(Kind::Sandbox, n, ReportedState::Running));
    event.containers = vec![report(Kind::Container, n, ReportedState::Exited)];
    Arrival {
        event,
        arrived: at,
        wall,
    }
}

fn drain(machine: &mut Reconciler) {
    while let Some(output) = machine.poll_output() {
        black_box(output);
    }
}

fn one_event(c: &mut Criterion) {
    let mut group = c.benchmark_group("one event of 1000 pods");
    let (machine, now, _, _) = settled();
    let event = stopped(500, now);
    group.bench_function("lookups only", |b| {
        let records = rows_by_id();
        b.iter(|| {
            let sandbox = event
                .event
                .sandbox
                .as_ref()
                .and_then(|r| records.get(&r.id));
            (black_box(sandbox), black_box(records.get(&event.event.id)))
        });
    });
    group.bench_function("merged and announced", |b| {
        b.iter_batched_ref(
            || (machine.clone(), event.clone()),
            |(machine, event)| {
                machine.handle_event(now, event.clone());
                drain(machine);
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn unchanged_list(c: &mut Criterion) {
    let mut group = c.benchmark_group("unchanged list of 1000 pods");
    let (machine, now, ticket, known) = settled();
    let list = List {
        ticket,
        began: now,
        ended: now,
        rows: Ok(rows().into_iter().collect()),
    };
    group.bench_function("compared only", |b| {
        let (fresh, known) = (rows(), rows_by_id());
        b.iter(|| fresh.iter().filter(|r| known.get(&r.id) == Some(r)).count());
    });
    let states = List {
        rows: Ok(Rows::of(known, rows())),
        ..list
    };
    for (name, list) in [("relisted, whole rows", list), ("relisted, states", states)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || (machine.clone(), Some(list.clone())),
                |(machine, list)| {
                    if let Some(list) = list.take() {
                        machine.handle_list(now, list);
                    }
                    drain(machine);
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = one_event, unchanged_list
}
criterion_main!(benches);
