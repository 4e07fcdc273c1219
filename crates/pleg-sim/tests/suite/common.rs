//! Helpers of the tests: a client over an in-process connection, and pods to create.

#![allow(unreachable_pub, reason = "tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use pleg_cri::v1::{self, runtime_service_client::RuntimeServiceClient};
use pleg_sim::{Mode, Sim, SimBuilder};
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};

/// The timeout of every wait in the tests. In a test that passes, no wait takes as long as this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// In paused time, a timeout of this length elapses when every task is idle. Longer than the `swap` knob's delay.
const IDLE: Duration = Duration::from_millis(200);

/// A simulator whose wall clock counts 1, 2, 3, … from a valid time, so that timestamps differ.
pub fn sim() -> SimBuilder {
    let clock = AtomicI64::new(1_700_000_000_000_000_000);
    Sim::builder()
        .seed(7)
        .wall_clock(Arc::new(move || clock.fetch_add(1, Ordering::SeqCst)))
}

/// A simulator with the mode `mode`.
pub fn sim_with_mode(mode: Mode) -> Sim {
    sim().mode(mode).build()
}

/// Fails the test instead of hanging.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(TIMEOUT, future).await;
    in_time.expect("in time")
}

/// Returns true if the future is still pending when every task is idle. Needs a current-thread runtime in paused time:
/// only there does the timeout elapse when every task is idle.
pub async fn is_pending_when_idle<F: Future + Unpin>(future: &mut F) -> bool {
    let done = tokio::time::timeout(Duration::from_millis(10), future);
    done.await.is_err()
}

/// Returns when every task is idle, in paused time.
pub async fn idle() {
    is_pending_when_idle(&mut std::future::pending::<()>()).await;
}

/// A CRI client with short forms of the requests that tests send.
#[derive(Clone)]
pub struct Client(pub RuntimeServiceClient<Channel>);

impl Client {
    pub async fn connect(sim: &Sim) -> Self {
        let (client, server) = tokio::io::duplex(64 << 10);
        sim.serve_stream(server);
        let mut io = Some(TokioIo::new(client));
        let connect = tower::service_fn(move |_| {
            let not_connected = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            std::future::ready(io.take().ok_or_else(not_connected))
        });
        let endpoint = Endpoint::from_static("http://sim");
        let channel = endpoint.connect_with_connector(connect).await.unwrap();
        Self(RuntimeServiceClient::new(channel))
    }

    /// A client over a unix socket.
    pub async fn connect_unix(path: &std::path::Path) -> Self {
        let endpoint = Endpoint::try_from(format!("unix://{}", path.display())).unwrap();
        let channel = with_timeout(endpoint.connect()).await.unwrap();
        Self(RuntimeServiceClient::new(channel))
    }

    pub async fn version(&mut self) -> Result<v1::VersionResponse, Status> {
        call(self.0.version(v1::VersionRequest::default())).await
    }

    /// Subscribes; returns with the first event.
    pub async fn stream(&mut self) -> Result<Stream, Status> {
        call(self.0.get_container_events(v1::GetEventsRequest {})).await
    }

    /// Runs a sandbox. Has no timeout, because a fault or a subscriber may make the call hang.
    pub async fn try_run(&mut self, config: v1::PodSandboxConfig) -> Result<String, Status> {
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            ..Default::default()
        };
        let sandbox = self.0.run_pod_sandbox(request).await?;
        Ok(sandbox.into_inner().pod_sandbox_id)
    }

    pub async fn run(&mut self, pod: &str) -> String {
        with_timeout(self.try_run(pod_config(pod))).await.unwrap()
    }

    pub async fn try_create(
        &mut self,
        sandbox: &str,
        config: v1::ContainerConfig,
        of_sandbox: v1::PodSandboxConfig,
    ) -> Result<String, Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(of_sandbox),
        };
        let created = call(self.0.create_container(request)).await;
        created.map(|created| created.container_id)
    }

    pub async fn create(&mut self, sandbox: &str, name: &str, attempt: u32, cmd: &str) -> String {
        let config = container_config(name, attempt, cmd);
        let created = self.try_create(sandbox, config, v1::PodSandboxConfig::default());
        created.await.unwrap()
    }

    pub async fn try_start(&mut self, id: &str) -> Result<(), Status> {
        let container_id = id.to_owned();
        let request = v1::StartContainerRequest { container_id };
        call(self.0.start_container(request)).await.map(drop)
    }

    pub async fn create_and_start(&mut self, sandbox: &str, name: &str, command: &str) -> String {
        let id = self.create(sandbox, name, 0, command).await;
        self.try_start(&id).await.unwrap();
        id
    }

    pub async fn stop(&mut self, id: &str, timeout: i64) {
        let container_id = id.to_owned();
        let request = v1::StopContainerRequest {
            container_id,
            timeout,
        };
        call(self.0.stop_container(request)).await.unwrap();
    }

    pub async fn remove(&mut self, id: &str) {
        let container_id = id.to_owned();
        let request = v1::RemoveContainerRequest { container_id };
        call(self.0.remove_container(request)).await.unwrap();
    }

    pub async fn stop_sandbox(&mut self, id: &str) {
        let pod_sandbox_id = id.to_owned();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id };
        call(self.0.stop_pod_sandbox(request)).await.unwrap();
    }

    pub async fn remove_sandbox(&mut self, id: &str) {
        let pod_sandbox_id = id.to_owned();
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
        call(self.0.remove_pod_sandbox(request)).await.unwrap();
    }

    pub async fn sandbox_status(
        &mut self,
        id: &str,
    ) -> Result<v1::PodSandboxStatusResponse, Status> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        call(self.0.pod_sandbox_status(request)).await
    }

    pub async fn status(&mut self, id: &str) -> Result<v1::ContainerStatus, Status> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let status = call(self.0.container_status(request)).await?;
        Ok(status.status.unwrap())
    }

    pub async fn sandboxes(&mut self) -> Vec<v1::PodSandbox> {
        let list = v1::ListPodSandboxRequest::default();
        call(self.0.list_pod_sandbox(list)).await.unwrap().items
    }

    /// Lists the containers. Has no timeout, because a fault may make the call hang.
    pub async fn containers(&mut self) -> Result<Vec<v1::Container>, Status> {
        let list = v1::ListContainersRequest::default();
        let rows = self.0.list_containers(list).await?;
        Ok(rows.into_inner().containers)
    }
}

/// Makes a call. Checks that the response has the fixed date: with a real date, its length would vary with time.
async fn call<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    let response = with_timeout(call).await?;
    let date = response.metadata().get("date").unwrap();
    assert_eq!(date, "Thu, 01 Jan 1970 00:00:00 GMT");
    Ok(response.into_inner())
}

pub fn pod_config(pod: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.into(),
            uid: format!("uid-{pod}"),
            namespace: "default".into(),
            attempt: 0,
        }),
        labels: [
            ("pod".to_owned(), pod.to_owned()),
            ("io.kubernetes.pod.uid".to_owned(), format!("uid-{pod}")),
        ]
        .into(),
        ..Default::default()
    }
}

pub fn namespaces(config: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    let linux = config.linux.get_or_insert_default();
    let security = linux.security_context.get_or_insert_default();
    security.namespace_options.get_or_insert_default()
}

pub fn container_config(name: &str, attempt: u32, command: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.into(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: "app:1".into(),
            ..Default::default()
        }),
        command: command.split_whitespace().map(str::to_owned).collect(),
        // The labels that a kubelet sets on the containers of pod "p".
        labels: [
            ("name".to_owned(), name.to_owned()),
            ("io.kubernetes.pod.uid".to_owned(), "uid-p".to_owned()),
        ]
        .into(),
        ..Default::default()
    }
}

type Stream = Streaming<v1::ContainerEventResponse>;
type NextEvent = Result<Option<v1::ContainerEventResponse>, Status>;

/// A subscriber that reads its events. The stream exists as soon as the first event has arrived.
pub struct Events {
    call: tokio::task::JoinHandle<Result<Stream, Status>>,
    stream: Option<Stream>,
}

impl Events {
    /// Subscribes on a separate connection, and waits until the runtime has registered the subscriber.
    pub async fn subscribe(sim: &Sim) -> Self {
        let before = sim.counts().subscribers;
        let mut client = Client::connect(sim).await;
        client.0 = client.0.max_decoding_message_size(16 << 20);
        let call = tokio::spawn(async move {
            let stream = client.0.get_container_events(v1::GetEventsRequest {});
            Ok(stream.await?.into_inner())
        });
        with_timeout(sim.wait_for_subscribers(before + 1)).await;
        Self { call, stream: None }
    }

    /// Returns true if the runtime has sent response headers.
    pub fn has_headers(&self) -> bool {
        self.call.is_finished()
    }

    async fn receive(&mut self) -> NextEvent {
        if self.stream.is_none() {
            self.stream = Some((&mut self.call).await.unwrap()?);
        }
        self.stream.as_mut().unwrap().message().await
    }

    pub async fn try_next(&mut self) -> NextEvent {
        with_timeout(self.receive()).await
    }

    pub async fn next(&mut self) -> v1::ContainerEventResponse {
        self.try_next().await.unwrap().expect("an event")
    }

    /// The events that arrive until every task is idle (see [`is_pending_when_idle`]).
    pub async fn all(&mut self) -> Vec<v1::ContainerEventResponse> {
        let mut all = Vec::new();
        while let Ok(event) = tokio::time::timeout(IDLE, self.receive()).await {
            all.push(event.unwrap().expect("an event"));
        }
        all
    }
}

/// An event as text: TYPE(name) sandbox state [container:state…], with names instead of ids.
pub fn event_text(event: &v1::ContainerEventResponse, names: &[(&str, &str)]) -> String {
    let name = |id: &str| names.iter().find(|(i, _)| *i == id).map_or("?", |(_, n)| n);
    let word = |constant: &'static str| constant.split('_').nth(1).unwrap();
    let kind = word(event.container_event_type().as_str_name());
    let sandbox = event.pod_sandbox_status.as_ref();
    let sandbox = sandbox.map_or("nil", |s| word(s.state().as_str_name()));
    let containers = event.containers_statuses.iter().map(|c| {
        let (name, state) = (name(&c.id), word(c.state().as_str_name()));
        match state {
            "EXITED" => format!("{name}:EXITED={} {}", c.exit_code, c.reason),
            _ => format!("{name}:{state}"),
        }
    });
    let mut containers: Vec<_> = containers.collect();
    containers.sort();
    let (subject, containers) = (name(&event.container_id), containers.join(", "));
    format!("{kind}({subject}) {sandbox} [{containers}]")
}
