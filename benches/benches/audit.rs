//! An audit that finds nothing new, from the socket to the verdict, beside the floor that it is to
//! stay under: only decoding the same bytes with prost.
//!
//! The runtime is a process of its own that sends lists encoded ahead, their maps in random order
//! as Go's are. What is measured is CPU time of this process, which has one thread, and what it
//! allocates; the transport's share of both is in it, and shown by itself.
//!
//! Run with `cargo bench -p pleg-benches --bench audit [-- PODS CONTAINERS]`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that cannot start should stop"
)]
#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::alloc::System;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::time::{ClockId, clock_gettime};
use pleg_core::{Inspection, Output, Reconciler, Report, Settings, StreamChange, WallTime};
use pleg_cri::{CriConfig, CriRuntime, convert, v1};
use pleg_generic::Reader;
use pleg_runtime::clock::Clock;
use pleg_runtime::{Runtime, Scope};
use prost::Message;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::net::UnixListener;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Encodings of the same node that follow one another.
const SHUFFLES: usize = 4;

fn id(kind: &str, n: usize) -> String {
    let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{mixed:016x}{kind:0>48}")
}

fn labels(n: usize) -> BTreeMap<String, String> {
    [
        (
            "io.kubernetes.pod.name",
            format!("frontend-7d4b9c6f8d-{n:05}"),
        ),
        ("io.kubernetes.pod.namespace", "production".into()),
        (
            "io.kubernetes.pod.uid",
            format!("{n:08}-0000-4000-8000-000000000000"),
        ),
        ("app.kubernetes.io/name", "frontend".into()),
        ("app.kubernetes.io/instance", "frontend-production".into()),
        ("pod-template-hash", "7d4b9c6f8d".into()),
        ("io.kubernetes.container.name", "app".into()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn annotations(n: usize) -> BTreeMap<String, String> {
    [
        ("io.kubernetes.container.hash", format!("{n:08x}")),
        ("io.kubernetes.container.restartCount", "0".into()),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log".into(),
        ),
        (
            "io.kubernetes.container.terminationMessagePolicy",
            "File".into(),
        ),
        (
            "kubernetes.io/config.seen",
            "2026-11-21T12:00:00.000000000Z".into(),
        ),
        (
            "cni.projectcalico.org/containerID",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn sandbox(n: usize) -> v1::PodSandbox {
    v1::PodSandbox {
        id: id("a", n),
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("frontend-7d4b9c6f8d-{n:05}"),
            uid: format!("{n:08}-0000-4000-8000-000000000000"),
            namespace: "production".into(),
            attempt: 0,
        }),
        created_at: 1_700_000_000_000_000_000 + n as i64,
        labels: labels(n),
        annotations: annotations(n),
        ..Default::default()
    }
}

fn container(pod: usize, nth: usize) -> v1::Container {
    v1::Container {
        id: id("b", pod * 10 + nth),
        pod_sandbox_id: id("a", pod),
        metadata: Some(v1::ContainerMetadata {
            name: format!("app-{nth}"),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: "registry.example.com/team/frontend:1.2.3".into(),
            ..Default::default()
        }),
        image_ref: format!("sha256:{:064x}", 7),
        state: v1::ContainerState::ContainerRunning as i32,
        created_at: 1_700_000_000_000_000_000 + pod as i64,
        labels: labels(pod),
        annotations: annotations(pod),
        ..Default::default()
    }
}

/// The fields of a row in another order: maps are what has several of them.
fn shuffled(row: &[u8], dice: &mut u64) -> Vec<u8> {
    let (mut rest, mut fields) = (row, Vec::new());
    while !rest.is_empty() {
        let start = rest;
        let (tag, wire) = prost::encoding::decode_key(&mut rest).expect("a field");
        let context = prost::encoding::DecodeContext::default();
        prost::encoding::skip_field(wire, tag, &mut rest, context).expect("a field");
        fields.push((tag, &start[..start.len() - rest.len()]));
    }
    for last in (1..fields.len()).rev() {
        *dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let other = (*dice >> 33) as usize % (last + 1);
        if fields[last].0 == fields[other].0 {
            fields.swap(last, other);
        }
    }
    fields
        .into_iter()
        .flat_map(|(_, field)| field)
        .copied()
        .collect()
}

fn message(rows: impl Iterator<Item = Vec<u8>>, dice: &mut u64) -> Bytes {
    let mut message = Vec::new();
    for row in rows {
        let row = shuffled(&row, dice);
        prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut message);
        prost::encoding::encode_varint(row.len() as u64, &mut message);
        message.extend(row);
    }
    message.into()
}

/// The pages of both lists.
#[derive(Clone)]
struct Node {
    sandboxes: Vec<Bytes>,
    containers: Vec<Bytes>,
}

impl Node {
    fn new(pods: usize, containers: usize, shuffle: usize) -> Self {
        let dice = &mut (shuffle as u64 + 1);
        // As containerd's streaming lists: 5000 rows a page.
        let page = if pods * containers > 10_000 {
            5000
        } else {
            usize::MAX
        };
        let rows: Vec<_> = (0..pods).map(|n| sandbox(n).encode_to_vec()).collect();
        let sandboxes = pages(&rows, page, dice);
        let rows: Vec<_> = (0..pods)
            .flat_map(|pod| (0..containers).map(move |nth| container(pod, nth).encode_to_vec()))
            .collect();
        Self {
            sandboxes,
            containers: pages(&rows, page, dice),
        }
    }

    fn bytes(&self) -> usize {
        self.sandboxes
            .iter()
            .chain(&self.containers)
            .map(Bytes::len)
            .sum()
    }
}

fn pages(rows: &[Vec<u8>], page: usize, dice: &mut u64) -> Vec<Bytes> {
    let page = page.min(rows.len().max(1));
    rows.chunks(page)
        .map(|rows| message(rows.iter().cloned(), dice))
        .collect()
}

// --- the runtime ---

fn serve(path: &Path, pods: usize, containers: usize) {
    let nodes: Vec<_> = (0..SHUFFLES)
        .map(|n| Node::new(pods, containers, n))
        .collect();
    let nodes = Arc::new((nodes, AtomicUsize::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async move {
        let listener = UnixListener::bind(path).expect("a socket");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let nodes = nodes.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let nodes = nodes.clone();
                async move {
                    let (nodes, turn) = &*nodes;
                    let node = &nodes[turn.fetch_add(1, Ordering::Relaxed) / 2 % SHUFFLES];
                    let streams = node.sandboxes.len() > 1;
                    let pages = match request.uri().path() {
                        "/runtime.v1.RuntimeService/ListPodSandbox" if !streams => &node.sandboxes,
                        "/runtime.v1.RuntimeService/ListContainers" if !streams => &node.containers,
                        "/runtime.v1.RuntimeService/StreamPodSandboxes" if streams => {
                            &node.sandboxes
                        }
                        "/runtime.v1.RuntimeService/StreamContainers" if streams => {
                            &node.containers
                        }
                        _ => &Vec::new(),
                    };
                    // Unimplemented, where there is nothing.
                    let status = if pages.is_empty() { "12" } else { "0" };
                    let mut frames = Vec::new();
                    for page in pages {
                        let mut head = vec![0];
                        head.extend((page.len() as u32).to_be_bytes());
                        frames.push(Ok::<_, Infallible>(Frame::data(Bytes::from(head))));
                        frames.push(Ok(Frame::data(page.clone())));
                    }
                    let mut trailers = hyper::HeaderMap::new();
                    trailers.insert("grpc-status", header::HeaderValue::from_static(status));
                    frames.push(Ok(Frame::trailers(trailers)));
                    let response = Response::builder()
                        .header(header::CONTENT_TYPE, "application/grpc")
                        .body(StreamBody::new(stream::iter(frames)));
                    Ok::<_, Infallible>(response.expect("an answer"))
                }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_send_buf_size(4 << 20)
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
}

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// --- the audit ---

/// CPU time of this thread, in nanoseconds.
fn cpu() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux");
    (spent.tv_sec() as u64) * 1_000_000_000 + spent.tv_nsec() as u64
}

/// The medians of CPU time and of allocations over so many times.
struct Measured {
    nanos: u64,
    least: u64,
    allocations: usize,
    bytes: usize,
}

async fn measure<F: Future<Output = ()>>(times: usize, mut one: impl FnMut() -> F) -> Measured {
    let (mut nanos, mut allocations, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let region = Region::new(ALLOCATOR);
        let before = cpu();
        let begun = region.change().allocations;
        one().await;
        let change = region.change();
        nanos.push(cpu() - before);
        allocations.push(change.allocations + change.reallocations - begun);
        bytes.push(change.bytes_allocated);
    }
    let least = nanos.iter().copied().min().unwrap_or_default();
    nanos.sort_unstable();
    allocations.sort_unstable();
    bytes.sort_unstable();
    Measured {
        nanos: nanos[times / 2],
        least,
        allocations: allocations[times / 2],
        bytes: bytes[times / 2],
    }
}

struct Auditor {
    machine: Reconciler,
    reader: Reader<CriRuntime>,
    clock: Clock,
    reports: HashMap<String, Report>,
    /// How many lists found nothing new.
    quiet: usize,
}

impl Auditor {
    /// Goes on until a list was read; false if something had to be inspected for it.
    async fn audit(&mut self) -> bool {
        let mut listed = false;
        loop {
            let mut inspected = false;
            while let Some(output) = self.machine.poll_output() {
                match output {
                    Output::List {
                        ticket,
                        deadline,
                        known,
                    } => {
                        let list = self.reader.list(ticket, deadline, known).await;
                        if let Err(error) = &list.rows {
                            panic!("{error}");
                        }
                        self.machine.handle_list(self.clock.now(), list);
                        listed = true;
                    }
                    Output::Inspect { ticket, held, .. } => {
                        let now = self.clock.now();
                        let found = held
                            .iter()
                            .map(|held| self.reports[held.id.as_str()].clone());
                        let inspection = Inspection {
                            ticket,
                            began: now,
                            ended: now,
                            found: found.collect(),
                            ..Inspection::new(None)
                        };
                        self.machine.handle_inspection(now, inspection);
                        inspected = true;
                    }
                    _ => {}
                }
            }
            if listed {
                self.quiet += usize::from(!inspected);
                return !inspected;
            }
            // The next list is asked for now, not when it is due.
            self.machine
                .relist_now(self.clock.now(), pleg_core::WaiterId::new(1));
        }
    }
}

async fn run(path: &Path, pods: usize, containers: usize) {
    let config = CriConfig::new(path.to_str().expect("text").parse().expect("a socket"));
    let clock = Clock::start();
    let cri = || CriRuntime::new(config.clone().with_message_limit(80 << 20)).expect("settings");
    let node = Node::new(pods, containers, 0);
    let mut reports = HashMap::new();
    for page in &node.sandboxes {
        let rows = v1::ListPodSandboxResponse::decode(&**page)
            .expect("a list")
            .items;
        let rows = rows.into_iter().filter_map(convert::sandbox_row);
        reports.extend(rows.map(|r| (r.id.to_string(), r)));
    }
    for page in &node.containers {
        let rows = v1::ListContainersResponse::decode(&**page)
            .expect("a list")
            .containers;
        let rows = rows.into_iter().filter_map(convert::container_row);
        reports.extend(rows.map(|r| (r.id.to_string(), r)));
    }
    let now = clock.now();
    let mut machine = Reconciler::new(Settings::default(), now).expect("settings");
    let wall = WallTime::from_nanos(1_700_000_000_000_000_000);
    machine.handle_stream(now, StreamChange::Subscribed { at: now, wall });
    let mut auditor = Auditor {
        machine,
        reader: Reader::new(Arc::new(cri()), clock),
        clock,
        reports,
        quiet: 0,
    };
    while auditor.quiet < 3 {
        auditor.audit().await;
    }

    let times = if pods > 2000 { 40 } else { 200 };
    println!(
        "{pods} pods, {containers} containers each, {} bytes",
        node.bytes()
    );
    let show = |what: &str, m: &Measured, floor: u64| {
        println!(
            "  {what:<44} {:>8.3} ms (least {:>8.3}) {:>9} allocations {:>11} bytes {:>6.2} x",
            m.nanos as f64 / 1e6,
            m.least as f64 / 1e6,
            m.allocations,
            m.bytes,
            m.nanos as f64 / floor as f64,
        );
    };
    // In turns, so that what else the machine does falls on all of them.
    for round in 0..3 {
        let decoding = measure(times / 3, || async {
            for page in &node.sandboxes {
                std::hint::black_box(v1::ListPodSandboxResponse::decode(&**page).expect("a list"));
            }
            for page in &node.containers {
                std::hint::black_box(v1::ListContainersResponse::decode(&**page).expect("a list"));
            }
        })
        .await;
        println!(" round {round}");
        show("decoded by prost, nothing else", &decoding, decoding.nanos);
        let states = measure(times / 3, || async {
            let mut rows = 0_usize;
            let mut row = |_: pleg_runtime::Row<'_>| rows += 1;
            for page in &node.sandboxes {
                pleg_cri::rows::sandboxes(page.clone(), &mut row).expect("a list");
            }
            for page in &node.containers {
                pleg_cri::rows::containers(page.clone(), &mut row).expect("a list");
            }
            std::hint::black_box(rows);
        })
        .await;
        show("ids and states, nothing else", &states, decoding.nanos);
        let runtime = cri();
        let transport = {
            let read = || async {
                let mut rows = 0_usize;
                let mut row = |_: pleg_runtime::Row<'_>| rows += 1;
                runtime
                    .list_sandboxes(&Scope::Node, &mut row)
                    .await
                    .expect("a list");
                runtime
                    .list_containers(&Scope::Node, &mut row)
                    .await
                    .expect("a list");
                std::hint::black_box(rows);
            };
            read().await;
            measure(times / 3, read).await
        };
        show(
            "from the socket, ids and states",
            &transport,
            decoding.nanos,
        );
        let cell = tokio::sync::Mutex::new(&mut auditor);
        let audit = measure(times / 3, || async {
            assert!(cell.lock().await.audit().await, "nothing is new");
        })
        .await;
        show(
            "an audit, from the socket to the verdict",
            &audit,
            decoding.nanos,
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [serving, path, pods, containers] = &args[..]
        && serving == "serve"
    {
        let number = |n: &String| n.parse().expect("a number");
        return serve(Path::new(path), number(pods), number(containers));
    }
    let number = |n: usize, default| {
        args.get(n)
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let (pods, containers) = (number(0, 1000), number(1, 1));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cri.sock");
    let program = std::env::current_exe().expect("this program");
    let served = Command::new(program)
        .arg("serve")
        .arg(&path)
        .args([pods.to_string(), containers.to_string()])
        .spawn();
    let _served = Served(served.expect("a runtime"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        run(&path, pods, containers).await;
    });
}
