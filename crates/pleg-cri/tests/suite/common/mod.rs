//! A fake runtime: gRPC on a unix socket, with configured behavior.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::{StreamExt, stream};
use pleg_cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use pleg_cri::v1::{self};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_runtime::core::{CallError, CallErrorKind};
use pleg_sim::Sim;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::codegen::BoxStream;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

type CallResult<T> = Result<Response<T>, Status>;

/// The configured behavior of the fake runtime, and the calls that it received.
#[derive(Default)]
pub(crate) struct FakeState {
    pub(crate) version: Option<Status>,
    pub(crate) version_hangs: bool,
    pub(crate) sandboxes: Vec<v1::PodSandbox>,
    pub(crate) containers: Vec<v1::Container>,
    /// The pages of a streaming list, each as its number of rows or an error. `None`: not implemented.
    pub(crate) stream: Option<Vec<Result<usize, Status>>>,
    /// If true, a streaming list stays open after its last page.
    pub(crate) stream_hangs: bool,
    pub(crate) sandbox_statuses: BTreeMap<String, Option<v1::PodSandboxStatus>>,
    pub(crate) container_statuses: BTreeMap<String, Option<v1::ContainerStatus>>,
    pub(crate) status_hangs: bool,
    /// The timestamp and the container statuses that every `PodSandboxStatus` response has.
    pub(crate) timestamp_and_containers: (i64, Vec<v1::ContainerStatus>),
    /// The event stream, for one subscriber. `None`: not implemented.
    pub(crate) events: Option<mpsc::Receiver<Result<v1::ContainerEventResponse, Status>>>,
    /// If true, the response headers of the event stream are sent with the first event, as grpc-go does.
    pub(crate) delay_headers: bool,
    /// The names of the calls so far. The next two fields are the filters of the list calls.
    pub(crate) calls: Vec<&'static str>,
    pub(crate) sandbox_filters: Vec<Option<v1::PodSandboxFilter>>,
    pub(crate) container_filters: Vec<Option<v1::ContainerFilter>>,
}

#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<FakeState>>);

impl Fake {
    pub(crate) fn new(state: FakeState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The default behavior of the fake runtime, modified by `change`.
    pub(crate) fn with(change: impl FnOnce(&mut FakeState)) -> Self {
        let fake = Self::default();
        change(&mut fake.lock());
        fake
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }

    fn record_call(&self, call: &'static str) -> MutexGuard<'_, FakeState> {
        let mut state = self.lock();
        state.calls.push(call);
        state
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.lock().calls)
    }

    async fn hang_if(&self, hangs: fn(&FakeState) -> bool) {
        if hangs(&self.lock()) {
            std::future::pending::<()>().await;
        }
    }

    fn router(&self) -> Router {
        let service = RuntimeServiceServer::new(self.clone());
        Server::builder().add_service(service.max_encoding_message_size(usize::MAX))
    }

    /// Serves on a socket, in a separate thread.
    pub(crate) fn serve(&self) -> TestServer {
        TestServer::start(|listener| serve(self.router(), listener))
    }

    /// Serves on the socket of a server that was killed.
    pub(crate) fn serve_again(&self, server: &mut TestServer) {
        server.restart(|listener| serve(self.router(), listener));
    }
}

#[tonic::async_trait]
impl RuntimeService for Fake {
    async fn version(&self, _: Request<v1::VersionRequest>) -> CallResult<v1::VersionResponse> {
        let error = self.record_call("Version").version.take();
        self.hang_if(|s| s.version_hangs).await;
        error.map_or(Ok(()), Err)?;
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: "1.2.3".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> CallResult<v1::ListPodSandboxResponse> {
        let mut state = self.record_call("ListPodSandbox");
        state.sandbox_filters.push(request.into_inner().filter);
        Ok(Response::new(v1::ListPodSandboxResponse {
            items: state.sandboxes.clone(),
        }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> CallResult<BoxStream<v1::StreamPodSandboxesResponse>> {
        let mut state = self.record_call("StreamPodSandboxes");
        state.sandbox_filters.push(request.into_inner().filter);
        pages(&state, &state.sandboxes, |pod_sandboxes| {
            v1::StreamPodSandboxesResponse { pod_sandboxes }
        })
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> CallResult<v1::ListContainersResponse> {
        let mut state = self.record_call("ListContainers");
        state.container_filters.push(request.into_inner().filter);
        Ok(Response::new(v1::ListContainersResponse {
            containers: state.containers.clone(),
        }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> CallResult<BoxStream<v1::StreamContainersResponse>> {
        let mut state = self.record_call("StreamContainers");
        state.container_filters.push(request.into_inner().filter);
        pages(&state, &state.containers, |containers| {
            v1::StreamContainersResponse { containers }
        })
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> CallResult<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let (status, (timestamp, containers_statuses)) = {
            let state = self.record_call("PodSandboxStatus");
            let status = state.sandbox_statuses.get(&id).cloned();
            (status, state.timestamp_and_containers.clone())
        };
        self.hang_if(|s| s.status_hangs).await;
        let status = status.ok_or_else(|| Status::not_found(format!("no sandbox {id}")))?;
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status,
            timestamp,
            containers_statuses,
            ..Default::default()
        }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> CallResult<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let status = {
            let state = self.record_call("ContainerStatus");
            state.container_statuses.get(&id).cloned()
        };
        self.hang_if(|s| s.status_hangs).await;
        let status = status.ok_or_else(|| Status::not_found(format!("no container {id}")))?;
        Ok(Response::new(v1::ContainerStatusResponse {
            status,
            ..Default::default()
        }))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> CallResult<BoxStream<v1::ContainerEventResponse>> {
        let events = self.record_call("GetContainerEvents").events.take();
        let events = events.ok_or_else(|| Status::unimplemented("no events here"))?;
        let mut events = ReceiverStream::new(events).peekable();
        if self.lock().delay_headers {
            std::pin::Pin::new(&mut events).peek().await;
        }
        Ok(Response::new(events.boxed()))
    }
}

/// Divides the rows of a list into the configured pages.
fn pages<Row: Clone, Page: Send + 'static>(
    state: &FakeState,
    rows: &[Row],
    page: impl Fn(Vec<Row>) -> Page,
) -> CallResult<BoxStream<Page>> {
    let pages = state.stream.clone();
    let pages = pages.ok_or_else(|| Status::unimplemented("no streaming lists"))?;
    let mut rows = rows.iter().cloned();
    let mut page = |size| page(rows.by_ref().take(size).collect());
    let pages: Vec<_> = pages.into_iter().map(|size| size.map(&mut page)).collect();
    let pages = stream::iter(pages);
    Ok(Response::new(match state.stream_hangs {
        true => pages.chain(stream::pending()).boxed(),
        false => pages.boxed(),
    }))
}

/// A server on a socket in a directory of its own.
pub(crate) struct TestServer {
    runtime: Option<tokio::runtime::Runtime>,
    dir: TempDir,
}

impl TestServer {
    /// The directory of a server that is not running yet.
    pub(crate) fn stopped() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { runtime: None, dir }
    }

    /// Runs `server` on the socket, in a separate thread.
    pub(crate) fn start<F>(server: impl FnOnce(UnixListener) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut stopped = Self::stopped();
        stopped.restart(server);
        stopped
    }

    fn restart<F>(&mut self, server: impl FnOnce(UnixListener) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let entered = runtime.enter();
        let listener = UnixListener::bind(self.path()).expect("the path is free");
        runtime.spawn(server(listener));
        drop(entered);
        self.runtime = Some(runtime);
    }

    /// Breaks every connection and removes the socket, as a kill does.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = std::fs::remove_file(self.path());
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn config(&self) -> CriConfig {
        config(&self.path())
    }

    pub(crate) fn client(&self) -> CriRuntime {
        CriRuntime::new(self.config()).expect("valid settings")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Serves gRPC on a listening socket.
pub(crate) async fn serve(router: Router, listener: UnixListener) {
    let incoming = UnixListenerStream::new(listener);
    let served = router.serve_with_incoming(incoming).await;
    served.expect("the server runs");
}

pub(crate) fn config(path: &Path) -> CriConfig {
    let path = path.to_str().expect("a UTF-8 path");
    let endpoint = path.parse().expect("a path");
    CriConfig::new(endpoint).with_call_deadline(Duration::from_secs(10))
}

/// The name of the call that failed with `error`, and the kind of `error`.
pub(crate) fn failure(error: &CallError) -> (&'static str, CallErrorKind) {
    (error.operation, error.kind)
}

/// A client of a simulated runtime, in this process.
pub(crate) fn simulated(sim: &Arc<Sim>) -> CriRuntime {
    let sim = sim.clone();
    connected(move |io| sim.serve_stream(io))
}

/// A client whose connections are served by `serve`, in this process.
pub(crate) fn connected(serve: impl Fn(DuplexStream) + Send + Sync + 'static) -> CriRuntime {
    let connect = move || {
        let (near, far) = tokio::io::duplex(64 << 10);
        serve(far);
        std::future::ready(Ok(near))
    };
    let config = CriConfig::new("/in/this/process".parse().expect("a path"));
    CriRuntime::with_connector(config, connect).expect("valid settings")
}

pub(crate) fn sandbox(id: &str) -> v1::PodSandbox {
    v1::PodSandbox {
        id: id.into(),
        created_at: 1_700_000_000_000_000_000,
        ..Default::default()
    }
}

pub(crate) fn container(id: &str) -> v1::Container {
    v1::Container {
        id: id.into(),
        created_at: 1_700_000_000_000_000_000,
        ..Default::default()
    }
}

pub(crate) fn event(id: &str) -> v1::ContainerEventResponse {
    v1::ContainerEventResponse {
        container_id: id.into(),
        container_event_type: v1::ContainerEventType::ContainerStartedEvent.into(),
        ..Default::default()
    }
}
