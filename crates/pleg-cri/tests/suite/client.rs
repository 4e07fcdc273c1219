//! Tests the calls that change the runtime. Uses the simulator, and a service that returns empty responses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use metrics_util::debugging::DebuggingRecorder;
use pleg_cri::v1::image_service_server::{ImageService, ImageServiceServer};
use pleg_cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use pleg_cri::{CriClient, Written, v1};
use pleg_runtime::core::{CallError, CallErrorKind, Id, Instant};
use pleg_sim::Sim;
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::common::{connected, simulated};

const SECOND: Duration = Duration::from_secs(1);

fn sandbox(uid: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: uid.into(),
            uid: uid.into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

fn container(command: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "app".into(),
            attempt: 0,
        }),
        command: vec![command.into()],
        ..Default::default()
    }
}

fn image(name: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: name.into(),
        ..Default::default()
    }
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// A running container and its sandbox.
async fn running(client: &CriClient, command: &str) -> (Id, Id) {
    let pod = client.run_pod_sandbox(sandbox("p"), "").await;
    let pod = pod.result.unwrap();
    let created = client.create_container(&pod, container(command), sandbox("p"));
    let id = created.await.result.unwrap();
    client.start_container(&id).await.result.unwrap();
    (pod, id)
}

/// Checks that `ended` is between `began` (the start of the call) and now. Returns the result of the call.
fn succeeded<T>(client: &CriClient, began: Instant, written: Written<T>) -> T {
    assert!(began <= written.ended && written.ended <= client.clock().now());
    written.into_result().unwrap()
}

#[tokio::test]
async fn successful_write_call_returns_the_instant_of_its_end() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    // Makes the calls in a separate task, as pod workers do.
    let calls = tokio::spawn(async move {
        let now = || client.clock().now();
        let began = now();
        let pod = succeeded(
            &client,
            began,
            client.run_pod_sandbox(sandbox("p"), "").await,
        );
        let began = now();
        let created = client.create_container(&pod, container(""), sandbox("p"));
        let id = succeeded(&client, began, created.await);
        let began = now();
        succeeded(&client, began, client.start_container(&id).await);
        let update = v1::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            ..Default::default()
        };
        let began = now();
        succeeded(
            &client,
            began,
            client.update_container_resources(update).await,
        );
        let update = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: pod.to_string(),
            ..Default::default()
        };
        let began = now();
        succeeded(
            &client,
            began,
            client.update_pod_sandbox_resources(update).await,
        );
        client.reopen_container_log(&id).await.unwrap();
        let began = now();
        succeeded(&client, began, client.stop_container(&id, SECOND).await);
        let began = now();
        succeeded(&client, began, client.remove_container(&id).await);
        let began = now();
        succeeded(&client, began, client.stop_pod_sandbox(&pod).await);
        let began = now();
        succeeded(&client, began, client.remove_pod_sandbox(&pod).await);
    });
    calls.await.unwrap();
    sim.shutdown().await;
}

#[tokio::test]
async fn failed_write_call_returns_the_instant_of_its_end() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    let began = client.clock().now();
    let started = client.start_container(&"missing".into()).await;
    assert!(began <= started.ended && started.ended <= client.clock().now());
    let error = started.into_result().unwrap_err();
    assert_eq!(error.operation, "StartContainer");
    assert_eq!(error.kind, CallErrorKind::NotFound, "{error:?}");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn call_without_response_ends_at_the_kubelets_deadline() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    client.status().await.unwrap();
    sim.set_knob("all.hang=on").unwrap();
    let id = Id::from("x");
    let clock = client.clock();
    let began = clock.now();
    let timed_out = |error: CallError, after: Duration| {
        assert_eq!(error.kind, CallErrorKind::DeadlineExceeded, "{error:?}");
        let within = format!("no response within {after:?}");
        assert_eq!(&*error.message, within, "{error:?}");
    };
    let write = |written: Written<()>, after: Duration| {
        // On paused time each clock read adds 1 ns: after up to 1000 reads `began` is up to 1 µs after tokio's time.
        let took = written.ended.since(began) + Duration::from_micros(1);
        assert!(took >= after && took < after + SECOND, "{took:?}");
        timed_out(written.result.unwrap_err(), after);
    };
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let grace = Duration::from_secs(30);
    let (run, start, stop, exec, pull, list) = tokio::join!(
        client.run_pod_sandbox(sandbox("p"), ""),
        client.start_container(&id),
        client.stop_container(&id, grace),
        client.exec_sync(&id, words("true"), SECOND),
        client.pull_image(image("app:1"), None, None),
        client.list_images(),
    );
    timed_out(run.result.unwrap_err(), minutes(4));
    write(start, minutes(2));
    write(stop, minutes(2) + grace);
    timed_out(exec.unwrap_err(), minutes(2) + SECOND);
    timed_out(pull.unwrap_err(), minutes(30));
    timed_out(list.unwrap_err(), minutes(2));
    sim.set_knob("all.hang=off").unwrap();
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn exec_returns_the_exit_code_or_fails_after_its_timeout() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    let (_, id) = running(&client, "").await;
    for (command, code) in [("true", 0), ("false", 1), ("sh -c exit 3", 3)] {
        let output = client.exec_sync(&id, words(command), SECOND).await;
        assert_eq!(output.unwrap().exit_code, code, "{command}");
    }
    let began = client.clock().now();
    // The client rounds the time limit of the command up to 1 s.
    let limit = Duration::from_millis(300);
    let slow = client.exec_sync(&id, words("exit 0 60000"), limit).await;
    assert_eq!(slow.unwrap_err().kind, CallErrorKind::DeadlineExceeded);
    let took = client.clock().now().since(began);
    assert!(took >= SECOND && took < 2 * SECOND, "{took:?}");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn grace_period_is_rounded_up_to_whole_seconds() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    let (_, id) = running(&client, "ignore-term").await;
    let began = client.clock().now();
    let stopped = client.stop_container(&id, Duration::from_millis(1200));
    stopped.await.result.unwrap();
    let took = client.clock().now().since(began);
    assert!(took >= 2 * SECOND && took < 3 * SECOND, "{took:?}");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pulled_image_exists_until_removed() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    assert_eq!(client.image_status(image("app:1")).await.unwrap(), None);
    sim.set_knob("pull_image.latency=20m").unwrap();
    let reference = client.pull_image(image("app:1"), None, None).await.unwrap();
    let status = client.image_status(image("app:1")).await.unwrap().unwrap();
    assert_eq!(status.id, reference);
    assert_eq!(client.list_images().await.unwrap(), [status]);
    client.remove_image(image("app:1")).await.unwrap();
    assert_eq!(client.list_images().await.unwrap(), []);
    sim.shutdown().await;
}

#[tokio::test]
async fn metrics_of_calls_have_the_kubelets_label_values() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    let (pod, id) = running(&client, "").await;
    let _ = client
        .update_container_resources(v1::UpdateContainerResourcesRequest::default())
        .await;
    let _ = client
        .update_pod_sandbox_resources(v1::UpdatePodSandboxResourcesRequest::default())
        .await;
    client.reopen_container_log(&id).await.unwrap();
    client.exec_sync(&id, words("true"), SECOND).await.unwrap();
    client.status().await.unwrap();
    client.runtime_config().await.unwrap();
    let config = v1::RuntimeConfig::default();
    client.update_runtime_config(config).await.unwrap();
    client.pull_image(image("a"), None, None).await.unwrap();
    client.image_status(image("a")).await.unwrap();
    client.list_images().await.unwrap();
    client.remove_image(image("a")).await.unwrap();
    client.image_fs_info().await.unwrap();
    let _ = client.stop_container(&id, Duration::ZERO).await;
    let _ = client.remove_container(&id).await;
    let _ = client.stop_pod_sandbox(&pod).await;
    let _ = client.remove_pod_sandbox(&pod).await;
    let keys = snapshotter.snapshot().into_vec().into_iter();
    let total = keys.filter(|(key, ..)| key.key().name() == "kubelet_runtime_operations_total");
    let labels: BTreeSet<String> = total
        .flat_map(|(key, ..)| {
            key.key()
                .labels()
                .map(|l| l.value().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let expected = [
        "create_container",
        "exec_sync",
        "image_fs_info",
        "image_status",
        "list_images",
        "pull_image",
        "remove_container",
        "remove_image",
        "remove_podsandbox",
        "reopen_container_log",
        "run_podsandbox",
        "runtime_config",
        "start_container",
        "status",
        "stop_container",
        "stop_podsandbox",
        "update_container",
        "update_podsandbox_resources",
        "update_runtime_config",
    ];
    assert_eq!(labels, expected.map(str::to_owned).into());
    sim.shutdown().await;
}

/// A runtime that answers each call with an empty response, except that a pull never ends.
#[derive(Clone)]
struct Empty {
    pulls: mpsc::UnboundedSender<Pull>,
}

#[derive(Debug, PartialEq, Eq)]
enum Pull {
    Began,
    Cancelled,
}

struct Pulling(mpsc::UnboundedSender<Pull>);

impl Drop for Pulling {
    fn drop(&mut self) {
        let _ = self.0.send(Pull::Cancelled);
    }
}

/// A client of an `Empty` runtime, and a channel that receives the start and the cancellation of each pull.
fn empty() -> (CriClient, mpsc::UnboundedReceiver<Pull>) {
    let (pulls, observed) = mpsc::unbounded_channel();
    let service = Empty { pulls };
    let serve = move |io| {
        let connection = futures::stream::iter([Ok::<_, std::io::Error>(io)]);
        let incoming = connection.chain(futures::stream::pending());
        let server = Server::builder()
            .add_service(RuntimeServiceServer::new(service.clone()))
            .add_service(ImageServiceServer::new(service.clone()))
            .serve_with_incoming(incoming);
        tokio::spawn(server);
    };
    (connected(serve).client(), observed)
}

#[tonic::async_trait]
impl RuntimeService for Empty {
    async fn run_pod_sandbox(
        &self,
        _: Request<v1::RunPodSandboxRequest>,
    ) -> Result<Response<v1::RunPodSandboxResponse>, Status> {
        Ok(Response::new(v1::RunPodSandboxResponse::default()))
    }

    async fn create_container(
        &self,
        _: Request<v1::CreateContainerRequest>,
    ) -> Result<Response<v1::CreateContainerResponse>, Status> {
        Ok(Response::new(v1::CreateContainerResponse::default()))
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(v1::StatusResponse::default()))
    }
}

#[tonic::async_trait]
impl ImageService for Empty {
    async fn image_status(
        &self,
        _: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        Ok(Response::new(v1::ImageStatusResponse {
            image: Some(v1::Image::default()),
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        _: Request<v1::PullImageRequest>,
    ) -> Result<Response<v1::PullImageResponse>, Status> {
        self.pulls.send(Pull::Began).unwrap();
        let _pulling = Pulling(self.pulls.clone());
        std::future::pending().await
    }
}

#[tokio::test]
async fn response_that_lacks_a_required_field_is_malformed() {
    let (client, _pulls) = empty();
    let id = "s".into();
    let run = client.run_pod_sandbox(sandbox("p"), "").await.result;
    let create = client.create_container(&id, container(""), sandbox("p"));
    let errors = [
        run.unwrap_err(),
        create.await.result.unwrap_err(),
        client.status().await.unwrap_err(),
        client.image_status(image("a")).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, CallErrorKind::Malformed, "{error:?}");
    }
}

#[tokio::test]
async fn dropped_pull_is_cancelled_in_the_runtime() {
    let (client, mut pulls) = empty();
    // The aborted task drops `other`. `client` keeps the connection open, because its loss would also end the pull.
    let other = client.clone();
    let pull = tokio::spawn(async move { other.pull_image(image("a"), None, None).await });
    assert_eq!(pulls.recv().await, Some(Pull::Began));
    pull.abort();
    assert_eq!(pulls.recv().await, Some(Pull::Cancelled));
    drop(client);
}

#[tokio::test]
async fn rpc_can_be_called_by_its_grpc_path() {
    let sim = Arc::new(Sim::builder().build());
    let client = simulated(&sim).client();
    let version = "/runtime.v1.RuntimeService/Version";
    let answer = client.call(version, v1::VersionRequest::default()).await;
    let answer: v1::VersionResponse = answer.unwrap();
    assert_eq!(answer.runtime_name, "containerd");
    sim.shutdown().await;
}
