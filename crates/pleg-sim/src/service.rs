//! The CRI as gRPC has it. Translates, and decides nothing but what is particular to a call's
//! form: pages, when headers go out, that a call goes on when its client has given up.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use pleg_cri::v1::{
    self, image_service_server::ImageService, runtime_service_server::RuntimeService,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    delivery::Event,
    engine::Engine,
    error::Refusal,
    faults::Call,
    habits::{StreamHabit, Timestamp},
};

type Answer<T> = Result<Response<T>, Status>;

/// The services of a simulated runtime.
#[derive(Clone, Debug)]
pub struct CriService {
    engine: Arc<Engine>,
}

impl CriService {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn admit(&self, method: &'static str, id: &str) -> Result<(), Status> {
        if self.engine.stop.is_cancelled() {
            return Err(Refusal::ShuttingDown.into());
        }
        self.engine.admit(Call { method, id }).await
    }

    /// What the runtime tells from now on, until its process ends.
    fn subscribe(&self) -> impl Stream<Item = Event> + Send + use<> {
        let (out, events) = mpsc::channel(1);
        let run = self.engine.run();
        // A task of its own: it must outlive the client, to go unnoticed as a dead subscriber.
        self.engine
            .tasks
            .spawn(async move { run.delivery.serve(out).await });
        ReceiverStream::new(events)
    }

    /// The rows of a page of that streamed list.
    fn page(&self, method: &str) -> Result<usize, Status> {
        self.engine.habits.page.ok_or_else(|| {
            Status::unimplemented(format!(
                "unknown method {method} for service runtime.v1.RuntimeService"
            ))
        })
    }

    /// Does it to the end even if the client gives up, as Go's handlers do: what has been changed
    /// is also told.
    async fn to_the_end<F, T>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<T, Status>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let task = self.engine.tasks.spawn(work(Arc::clone(&self.engine)));
        task.await
            .map_err(|_| Status::internal("the call's task has ended early"))
    }
}

#[tonic::async_trait]
impl RuntimeService for CriService {
    // === the runtime ===

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        self.admit("Version", "").await?;
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: self.engine.habits.name.into(),
            runtime_version: self.engine.habits.version.clone(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        self.admit("Status", "").await?;
        let met = |name: &str| v1::RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        };
        let conditions = vec![met("RuntimeReady"), met("NetworkReady")];
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            runtime_handlers: vec![v1::RuntimeHandler::default()],
            ..Default::default()
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> Answer<v1::RuntimeConfigResponse> {
        self.admit("RuntimeConfig", "").await?;
        let mut linux = v1::LinuxRuntimeConfiguration::default();
        linux.set_cgroup_driver(v1::CgroupDriver::Systemd);
        Ok(Response::new(v1::RuntimeConfigResponse {
            linux: Some(linux),
        }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        self.admit("UpdateRuntimeConfig", "").await?;
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    // === sandboxes ===

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let v1::RunPodSandboxRequest {
            config,
            runtime_handler,
        } = request.into_inner();
        self.admit("RunPodSandbox", "").await?;
        let config = config.ok_or(Refusal::Missing("sandbox config"))?;
        let ran = self
            .to_the_end(|engine| async move { engine.run_sandbox(config, runtime_handler).await });
        let pod_sandbox_id = ran.await??;
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("StopPodSandbox", &id).await?;
        self.to_the_end(|engine| async move { engine.stop_sandbox(&id).await })
            .await?;
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("RemovePodSandbox", &id).await?;
        self.to_the_end(|engine| async move { engine.remove_sandbox(&id).await })
            .await?;
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("PodSandboxStatus", &id).await?;
        let habits = &self.engine.habits;
        let timestamp = match habits.timestamp {
            Timestamp::None => 0,
            Timestamp::Seconds => self.engine.now() / 1_000_000_000,
            Timestamp::Nanos => self.engine.now(),
        };
        let world = self.engine.world();
        let status = world.sandbox_status(&id)?;
        let containers_statuses = if habits.status_has_containers {
            world.statuses_of(&id)
        } else {
            Vec::new()
        };
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(status),
            containers_statuses,
            timestamp,
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        self.admit("ListPodSandbox", "").await?;
        let filter = request.into_inner().filter;
        let items = self.engine.world().sandbox_rows(filter.as_ref());
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<BoxStream<v1::StreamPodSandboxesResponse>> {
        self.admit("StreamPodSandboxes", "").await?;
        let page = self.page("StreamPodSandboxes")?;
        let filter = request.into_inner().filter;
        let rows = self.engine.world().sandbox_rows(filter.as_ref());
        Ok(pages(rows, page, |pod_sandboxes| {
            v1::StreamPodSandboxesResponse { pod_sandboxes }
        }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("UpdatePodSandboxResources", &id).await?;
        self.engine.world().sandbox(&id)?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }

    // === containers ===

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let v1::CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config,
            ..
        } = request.into_inner();
        self.admit("CreateContainer", &sandbox).await?;
        let config = config.ok_or(Refusal::Missing("container config"))?;
        let created = self
            .to_the_end(|engine| async move { engine.create_container(&sandbox, config).await });
        let container_id = created.await??;
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.admit("StartContainer", &id).await?;
        self.to_the_end(|engine| async move { engine.start_container(&id).await })
            .await??;
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let v1::StopContainerRequest {
            container_id: id,
            timeout,
        } = request.into_inner();
        self.admit("StopContainer", &id).await?;
        let grace = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        // A client that gives up ends the wait here, but not containerd's kill after it.
        self.to_the_end(|engine| async move { engine.stop_container(&id, grace).await })
            .await?;
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.admit("RemoveContainer", &id).await?;
        self.to_the_end(|engine| async move { engine.remove_container(&id).await })
            .await?;
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.admit("ContainerStatus", &id).await?;
        let status = self.engine.world().container_status(&id)?;
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        }))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        self.admit("ListContainers", "").await?;
        let filter = request.into_inner().filter;
        let containers = self.engine.world().container_rows(filter.as_ref());
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<BoxStream<v1::StreamContainersResponse>> {
        self.admit("StreamContainers", "").await?;
        let page = self.page("StreamContainers")?;
        let filter = request.into_inner().filter;
        let rows = self.engine.world().container_rows(filter.as_ref());
        Ok(pages(rows, page, |containers| {
            v1::StreamContainersResponse { containers }
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let v1::UpdateContainerResourcesRequest {
            container_id: id,
            linux,
            ..
        } = request.into_inner();
        self.admit("UpdateContainerResources", &id).await?;
        self.engine.update_resources(&id, linux)?;
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.admit("ReopenContainerLog", &id).await?;
        let state = self.engine.world().container(&id)?.state;
        if state != v1::ContainerState::ContainerRunning {
            return Err(Refusal::WrongState(state.as_str_name()).into());
        }
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    // === events ===

    /// The answer, and with it the response headers, comes with the first event.
    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Answer<BoxStream<v1::ContainerEventResponse>> {
        self.admit("GetContainerEvents", "").await?;
        let events = match self.engine.habits.stream {
            StreamHabit::Unimplemented => {
                let refused = Status::unimplemented("method GetContainerEvents not implemented");
                return Err(refused);
            }
            StreamHabit::Disabled => return Ok(Response::new(stream::empty().boxed())),
            StreamHabit::Competing | StreamHabit::Broadcast | StreamHabit::Draining => {
                self.subscribe()
            }
        };
        let mut events = Box::pin(events);
        let Some(first) = events.next().await else {
            if self.engine.habits.says_goodbye {
                return Ok(Response::new(stream::empty().boxed()));
            }
            return Err(Refusal::ShuttingDown.into());
        };
        let all = stream::iter([first]).chain(events);
        Ok(Response::new(
            all.map(|event| Ok(v1::ContainerEventResponse::clone(&event)))
                .boxed(),
        ))
    }
}

#[tonic::async_trait]
impl ImageService for CriService {
    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> Answer<v1::ListImagesResponse> {
        self.admit("ListImages", "").await?;
        let filter = request.into_inner().filter;
        let images = self.engine.world().image_rows(filter.as_ref());
        Ok(Response::new(v1::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        self.admit("ImageStatus", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let image = self.engine.world().image(&spec.image).cloned();
        Ok(Response::new(v1::ImageStatusResponse {
            image,
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Answer<v1::PullImageResponse> {
        self.admit("PullImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let image_ref = self.engine.world().pull(spec)?;
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        self.admit("RemoveImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        self.engine.world().remove_image(&spec.image);
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> Answer<v1::ImageFsInfoResponse> {
        self.admit("ImageFsInfo", "").await?;
        Ok(Response::new(v1::ImageFsInfoResponse::default()))
    }
}

/// The rows in pages; none at all gives no page.
fn pages<R, P>(
    rows: Vec<R>,
    size: usize,
    page: impl Fn(Vec<R>) -> P + Send + 'static,
) -> Response<BoxStream<P>>
where
    R: Send + 'static,
    P: Send + 'static,
{
    let mut rows = rows.into_iter().peekable();
    let pages = std::iter::from_fn(move || {
        rows.peek()?;
        Some(Ok(page(rows.by_ref().take(size).collect())))
    });
    Response::new(stream::iter(pages).boxed())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_page_has_5000_rows() {
        let sizes = |rows: usize| {
            let pages = pages((0..rows).collect(), 5000, |page: Vec<usize>| page).into_inner();
            let sizes = pages.map(|page| page.map_or(0, |page| page.len()));
            sizes.collect::<Vec<_>>().now_or_never().unwrap()
        };
        assert_eq!(sizes(0), []);
        assert_eq!(sizes(5000), [5000]);
        assert_eq!(sizes(10_001), [5000, 5000, 1]);
    }
}
