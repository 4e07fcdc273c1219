//! The memory of `pleg agent` with runtimes that send much more than they are asked for.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_cri::v1;
use pleg_cri::v1::runtime_service_server::RuntimeService;
use pleg_tests::usage;
use pleg_tests::wait::until;
use tonic::{Request, Response, Status};

use super::agent::Agent;
use super::run::{TIMEOUT, arg};
use crate::support::{TestDir, serve};

/// A runtime that ignores list filters.
#[derive(Clone, Debug)]
pub(super) struct Unfiltered {
    pods: usize,
    /// How many bytes of annotations each response contains.
    padding: Arc<AtomicUsize>,
    statuses: Arc<AtomicUsize>,
}

impl Unfiltered {
    /// A runtime with small responses.
    pub(super) fn new(pods: usize) -> Self {
        Self {
            pods,
            padding: Arc::default(),
            statuses: Arc::default(),
        }
    }

    /// Annotations that fill a response of so many rows.
    fn padding(&self, rows: usize) -> BTreeMap<String, String> {
        let bytes = self.padding.load(Ordering::Relaxed) / rows;
        [("padding".to_owned(), "x".repeat(bytes))].into()
    }
}

const CONTAINERS: usize = 2;

fn metadata(n: usize) -> v1::PodSandboxMetadata {
    v1::PodSandboxMetadata {
        name: format!("pod-{n:05}"),
        uid: uid(n),
        namespace: "test".to_owned(),
        attempt: 0,
    }
}

fn uid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn sandbox_id(n: usize) -> String {
    format!("{n:064x}")
}

fn container_id(n: usize, of: usize) -> String {
    format!("{:064x}", (of + 1) << 32 | n)
}

fn labels(n: usize) -> BTreeMap<String, String> {
    [
        ("io.kubernetes.pod.uid", uid(n)),
        ("io.kubernetes.pod.name", format!("pod-{n:05}")),
        ("io.kubernetes.pod.namespace", "test".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

#[tonic::async_trait]
impl RuntimeService for Unfiltered {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse::default()))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        let padding = self.padding(self.pods);
        let items = (0..self.pods).map(|n| v1::PodSandbox {
            id: sandbox_id(n),
            metadata: Some(metadata(n)),
            created_at: 1_700_000_000_000_000_000,
            labels: labels(n),
            annotations: padding.clone(),
            ..v1::PodSandbox::default()
        });
        let items = items.collect();
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn list_containers(
        &self,
        _: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let padding = self.padding(self.pods * CONTAINERS);
        let all = (0..self.pods).flat_map(|n| (0..CONTAINERS).map(move |of| (n, of)));
        let containers = all.map(|(n, of)| v1::Container {
            id: container_id(n, of),
            pod_sandbox_id: sandbox_id(n),
            metadata: Some(v1::ContainerMetadata {
                name: format!("app-{of}"),
                attempt: 0,
            }),
            state: v1::ContainerState::ContainerRunning.into(),
            created_at: 1_700_000_000_000_000_000,
            labels: labels(n),
            annotations: padding.clone(),
            ..v1::Container::default()
        });
        let containers = containers.collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Result<Response<v1::PodSandboxStatusResponse>, Status> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let id = request.into_inner().pod_sandbox_id;
        let n = usize::from_str_radix(&id, 16).map_err(|_| Status::not_found(id.clone()))?;
        let status = v1::PodSandboxStatus {
            id,
            metadata: Some(metadata(n)),
            created_at: 1_700_000_000_000_000_000,
            labels: labels(n),
            annotations: self.padding(1),
            ..v1::PodSandboxStatus::default()
        };
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(status),
            ..v1::PodSandboxStatusResponse::default()
        }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let id = request.into_inner().container_id;
        let n = usize::from_str_radix(&id, 16).map_err(|_| Status::not_found(id.clone()))?;
        let status = v1::ContainerStatus {
            id,
            metadata: Some(v1::ContainerMetadata {
                name: format!("app-{}", (n >> 32) - 1),
                attempt: 0,
            }),
            state: v1::ContainerState::ContainerRunning.into(),
            created_at: 1_700_000_000_000_000_000,
            started_at: 1_700_000_000_000_000_000,
            labels: labels(n & 0xffff_ffff),
            annotations: self.padding(1),
            ..v1::ContainerStatus::default()
        };
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(status),
            ..v1::ContainerStatusResponse::default()
        }))
    }
}

/// A line of `/proc/PID/status`, in MiB.
fn memory(pid: u32, line: &str) -> u64 {
    usage::status(pid, line).expect("it runs") / 1024
}

/// 40 pods are inspected at a time, and every response has 15 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn memory_of_responses_at_the_limit_is_bounded_and_returned() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let runtime = Unfiltered {
        pods: 40,
        padding: Arc::new(AtomicUsize::new(15 << 20)),
        statuses: Arc::default(),
    };
    serve(runtime.clone(), &socket);
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    let pid = agent.running.id();
    let statuses = || async { (runtime.statuses.load(Ordering::Relaxed) >= 120).then_some(()) };
    until(TIMEOUT * 3, "statuses", statuses)
        .await
        .expect("called");
    runtime.padding.store(0, Ordering::Relaxed);
    // Annotations of a plausible size are kept until their status is read again: 15 MiB of all
    // containers, and as much of the last list.
    let returned = || async { (memory(pid, "VmRSS:") <= 90).then_some(()) };
    until(TIMEOUT, "less memory", returned)
        .await
        .unwrap_or_else(|_| panic!("{} MiB are in use", memory(pid, "VmRSS:")));
    let peak = memory(pid, "VmHWM:");
    println!("the peak was {peak} MiB");
    assert!(peak <= 150, "{peak} MiB");
    agent.stop().await;
}

/// A runtime whose list of containers has so many small rows.
#[derive(Clone, Debug, Default)]
struct Rows(Arc<AtomicUsize>);

#[tonic::async_trait]
impl RuntimeService for Rows {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse::default()))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        Ok(Response::new(v1::ListPodSandboxResponse::default()))
    }

    async fn list_containers(
        &self,
        _: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let containers = (0..self.0.load(Ordering::Relaxed)).map(|n| v1::Container {
            id: n.to_string(),
            ..v1::Container::default()
        });
        let containers = containers.collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }
}

/// The longest time in which the agent answered. The runtime, in this process, encodes its lists meanwhile.
fn slowest_answer(address: &str, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    let clock = Clock::start();
    while !is_over.load(Ordering::Relaxed) {
        let asked = clock.now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
        slowest = slowest.max(clock.now().since(asked));
    }
    slowest
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_answers_while_lists_are_large() {
    for (rows, problem) in [
        (150_000, "the list has 150000 rows; at most 100000 are read"),
        // As many as the runtime, in this process and not optimized, sends in time beside other tests.
        (20_000, "[+]list ok"),
    ] {
        let dir = TestDir::new();
        let socket = dir.path("cri.sock");
        let runtime = Rows::default();
        runtime.0.store(rows, Ordering::Relaxed);
        serve(runtime.clone(), &socket);
        let agent = Agent::start(&["-r", arg(&socket)]).await;
        let pid = agent.running.id();
        let address = agent.address.clone();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let asked = tokio::task::spawn_blocking(move || slowest_answer(&address, &over));
        let listed = || async {
            let page = agent.get("/readyz?verbose").await.2;
            page.contains(problem).then_some(())
        };
        until(TIMEOUT * 3, problem, listed).await.expect("listed");
        is_over.store(true, Ordering::Relaxed);
        let slowest = asked.await.unwrap();
        let (peak, clock) = (memory(pid, "VmHWM:"), Clock::start());
        let stopped = clock.now();
        agent.stop().await;
        let ended = clock.now().since(stopped);
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        assert!(ended < Duration::from_secs(1), "{ended:?}");
        assert!(peak < 200, "{peak} MiB");
    }
}
