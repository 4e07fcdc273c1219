//! The hot paths one by one: how many allocations each makes, and, under valgrind, how many
//! instructions it executes.
//!
//! Without arguments it prints the allocations per round of each path. `hot PATH ROUNDS` only runs one
//! path that often; `scripts/instructions.py` counts its instructions. Deterministic: no clock, no
//! thread, no random numbers.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

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

const PODS: u64 = 1000;
const WALL: i64 = typical::CREATED + 60_000_000_000;
const MS: Duration = Duration::from_millis(1);

/// Runs so many rounds and returns the number of allocations, without those of the preparations.
type Path = fn(usize) -> usize;

const PATHS: [(&str, Path); 7] = [
    ("prost", prost),
    ("convert", convert),
    ("known", known),
    ("stopped", exits),
    ("list-convert", list_convert),
    ("relist", relist),
    ("relist-full", relist_in_full),
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

/// Returns the number of allocations.
fn counted(work: impl FnOnce()) -> usize {
    let region = Region::new(COUNTED);
    work();
    let stats = region.change();
    stats.allocations + stats.reallocations
}

fn stopped(n: u64) -> Bytes {
    let (what, state) = (
        v1::ContainerEventType::ContainerStoppedEvent,
        v1::ContainerState::ContainerExited,
    );
    typical::event(n, what, state, WALL).encode_to_vec().into()
}

fn started(n: u64) -> Bytes {
    let (what, state) = (
        v1::ContainerEventType::ContainerStartedEvent,
        v1::ContainerState::ContainerRunning,
    );
    typical::event(n, what, state, WALL).encode_to_vec().into()
}

/// The lower bound: prost decodes an event into its own structs.
fn prost(rounds: usize) -> usize {
    let bytes = started(7);
    counted(|| {
        for _ in 0..rounds {
            black_box(v1::ContainerEventResponse::decode(&*bytes).expect("a message"));
        }
    })
}

/// As the client decodes an event.
fn event(bytes: &Bytes) -> RuntimeEvent {
    let message = convert::EncodedEvent::decode(bytes.clone()).expect("a message");
    let event = convert::event(message, false).expect("a status");
    event.expect("it names an id")
}

/// An event is decoded with prost and then converted.
fn convert(rounds: usize) -> usize {
    let bytes = started(7);
    counted(|| {
        for _ in 0..rounds {
            black_box(event(&bytes));
        }
    })
}

/// An event without a change, from its bytes to the outputs of the reconciler.
fn known(rounds: usize) -> usize {
    let mut node = settled();
    let bytes = started(7);
    node.take(&bytes);
    counted(|| {
        for _ in 0..rounds {
            node.take(&bytes);
        }
    })
}

/// The exits of containers, one event for each, from the bytes to the outputs of the reconciler. No event
/// named these containers before.
fn exits(rounds: usize) -> usize {
    let mut node = settled();
    let events: Vec<_> = (0..PODS).map(stopped).collect();
    counted(|| {
        for n in 0..rounds {
            node.take(&events[n % events.len()]);
        }
    })
}

/// The rows of one pod are decoded with prost and then converted.
fn list_convert(rounds: usize) -> usize {
    let sandbox = typical::sandbox_row(7).encode_to_vec();
    let container = typical::container_row(7).encode_to_vec();
    counted(|| {
        for _ in 0..rounds {
            let row = v1::PodSandbox::decode(&*sandbox).expect("a message");
            black_box(convert::sandbox_row(row));
            let row = v1::Container::decode(&*container).expect("a message");
            black_box(convert::container_row(row));
        }
    })
}

/// Lists of 1,000 unchanged pods, from their bytes to the outputs of the reconciler.
fn relist(rounds: usize) -> usize {
    let mut node = settled();
    let sandboxes = v1::ListPodSandboxResponse {
        items: (0..PODS).map(typical::sandbox_row).collect(),
    };
    let sandboxes = Bytes::from(sandboxes.encode_to_vec());
    let containers = v1::ListContainersResponse {
        containers: (0..PODS).map(typical::container_row).collect(),
    };
    let containers = Bytes::from(containers.encode_to_vec());
    let mut list = || {
        let (ticket, known) = node.next_list();
        let mut listed = Rows::new(known);
        let mut add = |row: Row<'_>| pleg_generic::add(&mut listed, row);
        rows::sandboxes(sandboxes.clone(), &mut add).expect("a message");
        rows::containers(containers.clone(), &mut add).expect("a message");
        node.answer_list(ticket, listed);
    };
    // The first list: no row is known.
    list();
    counted(|| (0..rounds).for_each(|_| list()))
}

/// The same lists, with rows that are decoded in advance.
fn relist_in_full(rounds: usize) -> usize {
    let mut node = settled();
    let rows = rows();
    let lists: Vec<_> = (0..rounds).map(|_| rows.clone()).collect();
    counted(|| {
        for rows in lists {
            let (ticket, _) = node.next_list();
            node.answer_list(ticket, rows.into_iter().collect());
        }
    })
}

fn rows() -> Vec<Report> {
    let sandboxes = (0..PODS).map(typical::sandbox_row);
    let mut rows: Vec<_> = sandboxes.filter_map(convert::sandbox_row).collect();
    let containers = (0..PODS).map(typical::container_row);
    rows.extend(containers.filter_map(convert::container_row));
    rows
}

/// A reconciler, and what a driver keeps for it.
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
    let of = |n| {
        let running = v1::ContainerState::ContainerRunning;
        [
            convert::sandbox_status(typical::sandbox_status(n)),
            convert::container_status(typical::container_status(n, running)),
        ]
    };
    let all = (0..PODS).flat_map(of).flatten();
    all.map(|report| (report.id.clone(), report)).collect()
}

/// A reconciler that has listed and inspected a node of 1,000 pods, and is idle.
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
