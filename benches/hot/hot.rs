//! The hot paths one by one: how many allocations each takes, and, under valgrind, how many
//! instructions.
//!
//! Without arguments it prints allocations per round of each path and the bytes that 1,000 pods
//! keep. `hot PATH ROUNDS` only walks one path that often; `scripts/instructions.py` counts it.
//! Deterministic: no clock, no thread, no random numbers.
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
    Arrival, Id, Inspection, Instant, KnownIds, List, Output, Reconciler, Report, Rows,
    RuntimeEvent, Settings, StreamChange, Ticket, WallTime,
};
use pleg_cri::convert::{self, Interner};
use pleg_cri::{EventDecoder, rows, v1};
use pleg_runtime::Row;
use prost::Message as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: u64 = 1000;
const WALL: i64 = typical::CREATED + 60_000_000_000;
const MS: Duration = Duration::from_millis(1);

type Walk = fn(usize) -> Walked;

/// What a path took, from after its preparations.
struct Walked {
    allocations: usize,
}

const PATHS: [(&str, Walk); 8] = [
    ("prost", prost),
    ("convert", convert),
    ("decode", decode),
    ("known", known),
    ("stopped", stopped_one_by_one),
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
            let (_, walk) = PATHS
                .into_iter()
                .find(|(n, _)| *n == name)
                .expect("the name of a path");
            black_box(walk(rounds).allocations);
        }
    }
}

fn report() {
    println!("allocations per round");
    for (name, walk) in PATHS {
        let rounds = 100;
        let more = walk(2 * rounds).allocations - walk(rounds).allocations;
        println!("  {name:<16} {:>10.2}", more as f64 / rounds as f64);
    }
    println!("bytes kept per pod");
    println!(
        "  as messages      {:>10.0}",
        kept(|| {
            (0..PODS)
                .map(|n| {
                    (
                        decoded(&typical::sandbox_row(n)),
                        decoded(&typical::container_row(n)),
                        decoded(&typical::sandbox_status(n)),
                        decoded(&typical::container_status(
                            n,
                            v1::ContainerState::ContainerRunning,
                        )),
                    )
                })
                .collect::<Vec<_>>()
        })
    );
    println!(
        "  statuses alone   {:>10.0}",
        kept(|| {
            (0..PODS)
                .map(|n| {
                    (
                        decoded(&typical::sandbox_status(n)),
                        decoded(&typical::container_status(
                            n,
                            v1::ContainerState::ContainerRunning,
                        )),
                    )
                })
                .collect::<Vec<_>>()
        })
    );
    println!(
        "  in the machine   {:>10.0}",
        kept(|| {
            let node = settled();
            (node.machine, node.decoder)
        })
    );
    let sizes = [
        ("PodSandbox", typical::sandbox_row(1).encoded_len()),
        ("Container", typical::container_row(1).encoded_len()),
        ("PodSandboxStatus", typical::sandbox_status(1).encoded_len()),
        (
            "ContainerStatus",
            typical::container_status(1, v1::ContainerState::ContainerRunning).encoded_len(),
        ),
        ("event", stopped(1).len()),
    ];
    println!("bytes on the wire: {sizes:?}");
}

/// What a client of prost keeps: what it has decoded, not what somebody else has built.
fn decoded<M: prost::Message + Default>(message: &M) -> M {
    M::decode(&*message.encode_to_vec()).expect("what was encoded")
}

fn kept<T>(make: impl FnOnce() -> T) -> f64 {
    let region = Region::new(COUNTED);
    let kept = make();
    let stats = region.change();
    drop(kept);
    (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / PODS as f64
}

fn counted(walk: impl FnOnce()) -> Walked {
    let region = Region::new(COUNTED);
    walk();
    let stats = region.change();
    Walked {
        allocations: stats.allocations + stats.reallocations,
    }
}

fn stopped(n: u64) -> Vec<u8> {
    let (what, state) = (
        v1::ContainerEventType::ContainerStoppedEvent,
        v1::ContainerState::ContainerExited,
    );
    typical::event(n, what, state, WALL).encode_to_vec()
}

fn started(n: u64) -> Vec<u8> {
    let (what, state) = (
        v1::ContainerEventType::ContainerStartedEvent,
        v1::ContainerState::ContainerRunning,
    );
    typical::event(n, what, state, WALL).encode_to_vec()
}

/// The floor: only prost's own structs.
fn prost(rounds: usize) -> Walked {
    let bytes = started(7);
    counted(|| {
        for _ in 0..rounds {
            black_box(v1::ContainerEventResponse::decode(&*bytes).expect("a message"));
        }
    })
}

/// The plain way from the wire to the domain.
fn convert(rounds: usize) -> Walked {
    let bytes = started(7);
    counted(|| {
        for _ in 0..rounds {
            let message = v1::ContainerEventResponse::decode(&*bytes).expect("a message");
            black_box(convert::event(message));
        }
    })
}

/// The fast one, of an event that tells nothing new.
fn decode(rounds: usize) -> Walked {
    let mut decoder = EventDecoder::new();
    let bytes = started(7);
    black_box(decoder.read(&bytes).expect("a message"));
    counted(|| {
        for _ in 0..rounds {
            black_box(decoder.read(&bytes).expect("a message"));
        }
    })
}

/// An event that tells nothing new, from the wire to what the machine wants done.
fn known(rounds: usize) -> Walked {
    let mut node = settled();
    let bytes = started(7);
    node.take(&bytes);
    counted(|| {
        for _ in 0..rounds {
            node.take(&bytes);
        }
    })
}

/// The end of one container after the other, from the wire to what the machine wants done. Nothing
/// was told of them before.
fn stopped_one_by_one(rounds: usize) -> Walked {
    let mut node = settled();
    let events: Vec<_> = (0..PODS).map(stopped).collect();
    counted(|| {
        for n in 0..rounds {
            node.take(&events[n % events.len()]);
        }
    })
}

/// The rows of one pod, from the wire to the domain.
fn list_convert(rounds: usize) -> Walked {
    let sandbox = typical::sandbox_row(7).encode_to_vec();
    let container = typical::container_row(7).encode_to_vec();
    let interner = &mut Interner::default();
    counted(|| {
        for _ in 0..rounds {
            let row = v1::PodSandbox::decode(&*sandbox).expect("a message");
            black_box(convert::sandbox_row_with(row, interner));
            let row = v1::Container::decode(&*container).expect("a message");
            black_box(convert::container_row_with(row, interner));
        }
    })
}

/// Lists of 1,000 pods that show nothing new, from the wire to the verdict.
fn relist(rounds: usize) -> Walked {
    let mut node = settled();
    let sandboxes = v1::ListPodSandboxResponse {
        items: (0..PODS).map(typical::sandbox_row).collect(),
    }
    .encode_to_vec();
    let containers = v1::ListContainersResponse {
        containers: (0..PODS).map(typical::container_row).collect(),
    }
    .encode_to_vec();
    let mut list = || {
        let (ticket, known) = node.next_list();
        let mut listed = Rows::new(known);
        let mut add = |row: Row<'_>| pleg_generic::add(&mut listed, row);
        rows::sandboxes(&sandboxes, &mut add).expect("a message");
        rows::containers(&containers, &mut add).expect("a message");
        node.answer_list(ticket, listed);
    };
    // The rows are met for the first time.
    list();
    counted(|| (0..rounds).for_each(|_| list()))
}

/// The same lists, as rows that are decoded already.
fn relist_in_full(rounds: usize) -> Walked {
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
    let interner = &mut Interner::default();
    let sandboxes = (0..PODS).map(typical::sandbox_row);
    let mut rows: Vec<_> = sandboxes
        .filter_map(|row| convert::sandbox_row_with(row, interner))
        .collect();
    let containers = (0..PODS).map(typical::container_row);
    rows.extend(containers.filter_map(|row| convert::container_row_with(row, interner)));
    rows
}

/// A machine and its driver's part of it.
struct Node {
    machine: Reconciler,
    now: Instant,
    list: Option<(Ticket, KnownIds)>,
    decoder: EventDecoder,
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
        self.machine.handle_event(self.now, arrival);
        while let Some(output) = self.machine.poll_output() {
            black_box(output);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let event = self.decoder.read(bytes).expect("a message");
        self.arrive(event.expect("it names an id"));
    }

    fn next_list(&mut self) -> (Ticket, KnownIds) {
        loop {
            self.perform();
            if let Some(list) = self.list.take() {
                return list;
            }
            let due = self.machine.poll_timeout().unwrap_or(self.now);
            self.now = due.max(self.now).after(MS);
            self.machine.handle_timeout(self.now);
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
        self.machine.handle_list(self.now, list);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::List { ticket, known, .. } => self.list = Some((ticket, known)),
                Output::Inspect { ticket, held, .. } => {
                    let found = held.iter().filter_map(|held| self.statuses.get(&held.id));
                    let inspection = Inspection {
                        ticket,
                        began: self.now,
                        ended: self.now,
                        found: found.cloned().collect(),
                        ..Inspection::new(None)
                    };
                    self.now = self.now.after(Duration::from_micros(10));
                    self.machine.handle_inspection(self.now, inspection);
                }
                _ => {}
            }
        }
    }
}

/// What the status calls answer.
fn statuses() -> BTreeMap<Id, Report> {
    let mut interner = Interner::default();
    let of = |n| {
        let running = v1::ContainerState::ContainerRunning;
        [
            convert::sandbox_status_with(typical::sandbox_status(n), &mut interner),
            convert::container_status_with(typical::container_status(n, running), &mut interner),
        ]
    };
    let all = (0..PODS).flat_map(of).flatten();
    all.map(|report| (report.id.clone(), report)).collect()
}

/// A machine that knows the node of 1,000 pods, all inspected, and has nothing to do.
fn settled() -> Node {
    let now = Instant::from_nanos(1_000_000);
    let machine = Reconciler::new(Settings::default(), now).expect("the defaults are valid");
    let mut node = Node {
        machine,
        now,
        list: None,
        decoder: EventDecoder::new(),
        statuses: statuses(),
    };
    let wall = WallTime::from_nanos(WALL);
    node.machine
        .handle_stream(now, StreamChange::Subscribed { at: now, wall });
    while !(node.machine.health(node.now).synced && node.machine.is_idle()) {
        let ticket = node.next_list();
        node.answer_list(ticket.0, rows().into_iter().collect());
    }
    node
}
