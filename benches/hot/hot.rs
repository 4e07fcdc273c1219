//! Counts the heap allocations of each hot path; valgrind counts the instructions of a path.
//!
//! Without arguments this prints the allocations per round of each path. `hot PATH ROUNDS` only runs one path, ROUNDS
//! times, so that `scripts/instructions.py` can count instructions. The program reads no clock and starts no thread.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

#[allow(dead_code, reason = "the benchmarks use the rest")]
mod typical;

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use pleg_core::{
    Arrival, CallError, CallErrorKind, Hint, Id, Instant, KnownIds, List, Output, PodList,
    Reconciler, Report, Rows, RuntimeEvent, Settings, Statuses, StreamChange, Ticket, WallTime,
};
use pleg_cri::{convert, rows, v1};
use pleg_runtime::Row;
use prost::Message as _;
use prost::bytes::Bytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: u64 = 250;
const WALL: i64 = typical::CREATED + 60_000_000_000;
const MS: Duration = Duration::from_millis(1);

/// Runs a hot path the given number of times. Returns the number of its heap allocations, not counting preparation.
type Path = fn(usize) -> usize;

const PATHS: [(&str, Path); 4] = [
    ("known", known),
    ("stopped", exits),
    ("list-convert", list_convert),
    ("relist", relist),
];

fn main() {
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next()) {
        (None, _) => report(),
        (Some(name), rounds) => {
            let rounds = rounds.and_then(|r| r.parse().ok()).unwrap_or(1);
            let (_, path) = PATHS
                .into_iter()
                .find(|(n, _)| *n == name)
                .expect("the name of a path");
            black_box(path(rounds));
        }
    }
}

fn report() {
    println!("allocations per round");
    for (name, path) in PATHS {
        let rounds = 100;
        let more = path(2 * rounds) - path(rounds);
        println!("  {name:<16} {:>10.2}", more as f64 / rounds as f64);
    }
}

/// Runs `work`, and returns the number of heap allocations that `work` makes.
fn counted(work: impl FnOnce()) -> usize {
    let region = Region::new(COUNTED);
    work();
    let stats = region.change();
    stats.allocations + stats.reallocations
}

/// The encoded event of a container that has started or exited.
fn encoded(n: u64, exited: bool) -> Bytes {
    let mut pod = typical::pod(n);
    let app = &mut pod.containers[0];
    let mut kind = v1::ContainerEventType::ContainerStartedEvent;
    if exited {
        kind = v1::ContainerEventType::ContainerStoppedEvent;
        app.state = v1::ContainerState::ContainerExited;
        (app.finished_at, app.exit_code) = (WALL, 1);
    }
    let app = &pod.containers[0];
    let event = v1::ContainerEventResponse {
        container_id: app.id.clone(),
        container_event_type: kind.into(),
        created_at: WALL,
        pod_sandbox_status: Some(typical::sandbox_status(&pod)),
        containers_statuses: vec![typical::container_status(&pod, app)],
    };
    event.encode_to_vec().into()
}

/// Decodes an event as `CriRuntime` does.
fn event(bytes: &Bytes) -> RuntimeEvent {
    let message = convert::EncodedEvent::decode(bytes.clone()).expect("a message");
    let event = convert::event(message, false).expect("a status");
    event.expect("it names an id")
}

/// Decodes an event that reports no change, passes it to the reconciler and takes the reconciler's outputs.
fn known(rounds: usize) -> usize {
    let mut node = settled();
    let bytes = encoded(7, false);
    node.take(&bytes);
    counted(|| {
        for _ in 0..rounds {
            node.take(&bytes);
        }
    })
}

/// Decodes the STOPPED event of another container in each round, passes it to the reconciler and takes the reconciler's
/// outputs. No earlier event was about these containers.
fn exits(rounds: usize) -> usize {
    let mut node = settled();
    let events: Vec<_> = (0..PODS).map(|n| encoded(n, true)).collect();
    counted(|| {
        for n in 0..rounds {
            node.take(&events[n % events.len()]);
        }
    })
}

/// Decodes the list rows of one pod in full.
fn list_convert(rounds: usize) -> usize {
    let pod = typical::pod(7);
    let items = vec![typical::sandbox_row(&pod)];
    let sandboxes = v1::ListPodSandboxResponse { items }.encode_to_vec();
    let containers = vec![typical::container_row(&pod, &pod.containers[0])];
    let containers = v1::ListContainersResponse { containers }.encode_to_vec();
    let mut decode = |row: Row<'_>| drop(black_box(row.report()));
    counted(|| {
        for _ in 0..rounds {
            rows::sandboxes(&sandboxes, &mut decode).expect("a message");
            rows::containers(&containers, &mut decode).expect("a message");
        }
    })
}

/// Decodes lists of unchanged pods, passes them to the reconciler and takes the reconciler's outputs.
fn relist(rounds: usize) -> usize {
    let mut node = settled();
    let pods = (0..PODS).map(typical::pod);
    let sandboxes = v1::ListPodSandboxResponse {
        items: pods.clone().map(|pod| typical::sandbox_row(&pod)).collect(),
    };
    let sandboxes = sandboxes.encode_to_vec();
    let rows = pods.map(|pod| typical::container_row(&pod, &pod.containers[0]));
    let containers = v1::ListContainersResponse {
        containers: rows.collect(),
    };
    let containers = containers.encode_to_vec();
    let mut list = || {
        let (ticket, known) = node.next_list();
        let mut listed = Rows::new(known);
        let mut add = |row: Row<'_>| pleg_generic::add(&mut listed, row);
        rows::sandboxes(&sandboxes, &mut add).expect("a message");
        rows::containers(&containers, &mut add).expect("a message");
        node.answer_list(ticket, listed);
    };
    // The first list is part of the preparation: its allocations do not count.
    list();
    counted(|| (0..rounds).for_each(|_| list()))
}

fn rows() -> Vec<Report> {
    let of = |pod: typical::Pod| {
        let container = typical::container_row(&pod, &pod.containers[0]);
        [
            convert::sandbox_row(typical::sandbox_row(&pod)),
            convert::container_row(container),
        ]
    };
    let all = (0..PODS).map(typical::pod).flat_map(of);
    all.flatten().collect()
}

/// A reconciler, and the state that the code which drives the reconciler needs.
struct Node {
    reconciler: Reconciler,
    now: Instant,
    list: Option<(Ticket, KnownIds)>,
    statuses: BTreeMap<Id, Report>,
}

impl Node {
    fn arrive(&mut self, event: RuntimeEvent) {
        self.now = self.now.after(Duration::from_nanos(100));
        let arrival = Arrival {
            event,
            arrived: self.now,
            wall: WallTime::from_nanos(WALL),
        };
        self.reconciler
            .handle_hints(self.now, BTreeMap::from([Hint::new(arrival, None)]), 0);
        while let Some(output) = self.reconciler.poll_output() {
            black_box(output);
        }
    }

    fn take(&mut self, bytes: &Bytes) {
        self.arrive(event(bytes));
    }

    fn next_list(&mut self) -> (Ticket, KnownIds) {
        loop {
            self.perform();
            if let Some(list) = self.list.take() {
                return list;
            }
            let due = self.reconciler.poll_timeout().unwrap_or(self.now);
            self.now = due.max(self.now).after(MS);
            self.reconciler.handle_timeout(self.now);
        }
    }

    fn answer_list(&mut self, ticket: Ticket, rows: Rows) {
        let began = self.now;
        self.now = self.now.after(MS);
        let ended = self.now;
        let list = List {
            ticket,
            began,
            ended,
            rows: Ok(rows),
        };
        self.reconciler.handle_list(self.now, list);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(output) = self.reconciler.poll_output() {
            match output {
                Output::List { ticket, known, .. } => self.list = Some((ticket, known)),
                Output::ListPod { ticket, uid, .. } => {
                    let of_pod = |row: &&Report| row.identity.pod.as_ref() == Some(&uid);
                    let list = PodList {
                        ticket,
                        began: self.now,
                        rows: Ok(self.statuses.values().filter(of_pod).cloned().collect()),
                    };
                    self.now = self.now.after(Duration::from_micros(10));
                    self.reconciler.handle_pod_list(self.now, list);
                }
                Output::ReadStatuses { ticket, ids, .. } => {
                    let answers = ids.into_iter().map(|(id, _)| {
                        let status = self.statuses.get(&id).cloned();
                        let error = || CallError::new("status", CallErrorKind::NotFound, "gone");
                        (id, status.ok_or_else(error))
                    });
                    let statuses = Statuses {
                        ticket,
                        began: self.now,
                        answers: answers.collect(),
                    };
                    self.now = self.now.after(Duration::from_micros(10));
                    self.reconciler.handle_statuses(self.now, statuses);
                }
                _ => {}
            }
        }
    }
}

/// The statuses that status calls return.
fn statuses() -> BTreeMap<Id, Report> {
    let of = |pod: typical::Pod| {
        let container = typical::container_status(&pod, &pod.containers[0]);
        [
            convert::sandbox_status(typical::sandbox_status(&pod)),
            convert::container_status(container),
        ]
    };
    let all = (0..PODS).map(typical::pod).flat_map(of).flatten();
    all.map(|report| (report.id.clone(), report)).collect()
}

/// A reconciler that has received the lists and statuses of all pods, and has nothing more to do.
fn settled() -> Node {
    let now = Instant::from_nanos(1_000_000);
    let reconciler = Reconciler::new(Settings::default(), now).expect("the defaults are valid");
    let mut node = Node {
        reconciler,
        now,
        list: None,
        statuses: statuses(),
    };
    let wall = WallTime::from_nanos(WALL);
    node.reconciler
        .handle_stream(now, StreamChange::Subscribed { at: now, wall });
    while !(node.reconciler.health(node.now).synced && node.reconciler.is_idle()) {
        let ticket = node.next_list();
        node.answer_list(ticket.0, rows().into_iter().collect());
    }
    node
}
