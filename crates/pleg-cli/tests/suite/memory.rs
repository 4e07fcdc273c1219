//! The memory of `pleg agent` with runtimes that send much more than they are asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pleg_cri::v1;
use pleg_cri::v1::runtime_service_server::RuntimeService;
use pleg_tests::usage;
use pleg_tests::wait::until;
use tonic::{Request, Response, Status};

use super::agent_flood::scrape;
use super::run::{PROMPT, Sim, TIMEOUT, serve};

/// A runtime that ignores list filters, with pods of one container each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfiltered {
    pods: usize,
    /// The number of additional rows with nothing but an id in the list of containers.
    small_rows: usize,
    /// The bytes of annotations in each response.
    padding: Arc<AtomicUsize>,
    statuses: Arc<AtomicUsize>,
}

type Reply<T> = Result<Response<T>, Status>;
type Pairs = BTreeMap<String, String>;

fn reply<T>(message: T) -> Reply<T> {
    Ok(Response::new(message))
}

fn labels(id: &str) -> Pairs {
    let labels = [("uid", id), ("name", id), ("namespace", "test")];
    let label = |(key, value): (&str, &str)| (format!("io.kubernetes.pod.{key}"), value.to_owned());
    labels.map(label).into()
}

fn metadata() -> Option<v1::ContainerMetadata> {
    let name = "app".to_owned();
    Some(v1::ContainerMetadata { name, attempt: 0 })
}

impl Unfiltered {
    /// Each response has this many bytes of annotations.
    pub(crate) fn padded(pods: usize, padding: usize) -> Self {
        Self {
            pods,
            padding: Arc::new(padding.into()),
            ..Self::default()
        }
    }

    /// The annotations of each row, so that a response of `rows` rows has the bytes that are set.
    fn padding(&self, rows: usize) -> Pairs {
        let bytes = self.padding.load(Ordering::Relaxed) / rows.max(1);
        [("padding".to_owned(), "x".repeat(bytes))].into()
    }

    /// The id of a sandbox is the uid of its pod. The id of a container is the same with a prefix.
    fn ids(&self) -> impl Iterator<Item = String> {
        (0..self.pods).map(|n| format!("pod-{n:05}"))
    }
}

#[tonic::async_trait]
impl RuntimeService for Unfiltered {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Reply<v1::VersionResponse> {
        reply(v1::VersionResponse::default())
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<v1::ListPodSandboxRequest>,
    ) -> Reply<v1::ListPodSandboxResponse> {
        let annotations = self.padding(self.pods);
        let items = self.ids().map(|id| v1::PodSandbox {
            labels: labels(&id),
            annotations: annotations.clone(),
            id,
            ..Default::default()
        });
        let items = items.collect();
        reply(v1::ListPodSandboxResponse { items })
    }

    async fn list_containers(
        &self,
        _: Request<v1::ListContainersRequest>,
    ) -> Reply<v1::ListContainersResponse> {
        let annotations = self.padding(self.pods);
        let containers = self.ids().map(|id| v1::Container {
            id: format!("app-{id}"),
            metadata: metadata(),
            state: v1::ContainerState::ContainerRunning.into(),
            labels: labels(&id),
            annotations: annotations.clone(),
            pod_sandbox_id: id,
            ..Default::default()
        });
        let small_rows = (0..self.small_rows).map(|n| v1::Container {
            id: n.to_string(),
            ..Default::default()
        });
        let containers = containers.chain(small_rows).collect();
        reply(v1::ListContainersResponse { containers })
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Reply<v1::PodSandboxStatusResponse> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let id = request.into_inner().pod_sandbox_id;
        let status = v1::PodSandboxStatus {
            labels: labels(&id),
            annotations: self.padding(1),
            id,
            ..Default::default()
        };
        reply(v1::PodSandboxStatusResponse {
            status: Some(status),
            ..Default::default()
        })
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Reply<v1::ContainerStatusResponse> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let id = request.into_inner().container_id;
        let status = v1::ContainerStatus {
            metadata: metadata(),
            state: v1::ContainerState::ContainerRunning.into(),
            labels: labels(id.trim_start_matches("app-")),
            annotations: self.padding(1),
            id,
            ..Default::default()
        };
        reply(v1::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        })
    }
}

fn memory(pid: u32, line: &str) -> u64 {
    usage::status(pid, line).expect("it runs") / 1024
}

/// 40 pods are inspected at a time, and every response has 15 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn memory_of_responses_at_the_limit_is_bounded_and_returned() {
    let place = Sim::down();
    let runtime = Unfiltered::padded(40, 15 << 20);
    serve(runtime.clone(), &place.socket);
    let agent = place.agent("").await;
    let pid = agent.running.id();
    let statuses = || async { (runtime.statuses.load(Ordering::Relaxed) >= 80).then_some(()) };
    let called = until(TIMEOUT * 3, "statuses", statuses).await;
    called.expect("called");
    runtime.padding.store(0, Ordering::Relaxed);
    // Annotations are kept until the next status: 15 MiB of all containers, and 15 MiB of the last list.
    let returned = || async { (memory(pid, "VmRSS:") <= 90).then_some(()) };
    let returned = until(TIMEOUT, "less memory", returned).await;
    assert!(returned.is_ok(), "{} MiB are in use", memory(pid, "VmRSS:"));
    let peak = memory(pid, "VmHWM:");
    println!("the peak was {peak} MiB");
    assert!(peak <= 150, "{peak} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_answers_while_lists_are_large() {
    for (rows, problem) in [
        (150_000, "the list has 150000 rows; at most 100000 are read"),
        // Not more rows: the fake runtime, which is not optimized, must send them in time while other tests run.
        (20_000, "[+]list ok"),
    ] {
        let place = Sim::down();
        let runtime = Unfiltered {
            small_rows: rows,
            ..Unfiltered::default()
        };
        serve(runtime, &place.socket);
        let agent = place.agent("").await;
        let pid = agent.running.id();
        let address = agent.address.parse().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let scrapes = tokio::task::spawn_blocking(move || scrape(address, &over));
        agent.until_shows("/readyz?verbose", problem).await;
        is_over.store(true, Ordering::Relaxed);
        // The times include the encoding of lists by the fake runtime, which runs in this process.
        let scrapes = scrapes.await.unwrap().expect("all answered");
        assert!(scrapes[scrapes.len() - 1] < PROMPT, "{scrapes:?}");
        let peak = memory(pid, "VmHWM:");
        assert!(peak < 200, "{peak} MiB");
    }
}
