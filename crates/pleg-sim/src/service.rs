//! The CRI as gRPC services. `lists` creates list responses and `events` creates event streams.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use pleg_cri::v1::{
    self, ContainerState, image_service_server::ImageService,
    runtime_service_server::RuntimeService,
};
use pleg_node_model::Delivery;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    engine::Engine,
    error::{missing, not_found, wrong_state},
    events, refusals,
    script::Script,
    views::is_image,
};

type CallResult<T> = Result<Response<T>, Status>;

/// The gRPC services of a simulated runtime.
#[derive(Clone, Debug)]
pub struct CriService {
    pub(crate) engine: Arc<Engine>,
}

impl CriService {
    /// A call that changes the node. It runs to completion even if the client disconnects, like Go handlers, so that
    /// the events of every change are sent.
    async fn change<F, T>(
        &self,
        method: &str,
        id: String,
        work: impl FnOnce(Arc<Engine>, String) -> F,
    ) -> CallResult<T>
    where
        F: Future<Output = Result<T, Status>> + Send + 'static,
        T: Send + 'static,
    {
        self.engine.admit(method, &id).await?;
        let work = work(Arc::clone(&self.engine), id);
        let done = self.engine.tasks.spawn(work).await;
        let done = done.map_err(|_| Status::internal("the call's task has ended early"))?;
        done.map(Response::new)
    }

    fn check_running(&self, id: &str) -> Result<(), Status> {
        match self.engine.world().container_state(id)? {
            ContainerState::ContainerRunning => Ok(()),
            other => Err(wrong_state(other)),
        }
    }
}

#[tonic::async_trait]
impl RuntimeService for CriService {
    // === runtime ===

    async fn version(&self, _: Request<v1::VersionRequest>) -> CallResult<v1::VersionResponse> {
        self.engine.admit("Version", "").await?;
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: self.engine.profile.node.name.into(),
            runtime_version: self.engine.profile.version.clone(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> CallResult<v1::StatusResponse> {
        self.engine.admit("Status", "").await?;
        let ready_condition = |name: &str| v1::RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        };
        let mut network = ready_condition("NetworkReady");
        if self.engine.faults().is_on("network.not_ready") {
            network.status = false;
            network.reason = "NetworkPluginNotReady".to_owned();
            network.message = "cni plugin not initialized".to_owned();
        }
        let conditions = vec![ready_condition("RuntimeReady"), network];
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            runtime_handlers: vec![v1::RuntimeHandler::default()],
            ..Default::default()
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> CallResult<v1::RuntimeConfigResponse> {
        self.engine.admit("RuntimeConfig", "").await?;
        let mut linux = v1::LinuxRuntimeConfiguration::default();
        linux.set_cgroup_driver(v1::CgroupDriver::Systemd);
        Ok(Response::new(v1::RuntimeConfigResponse {
            linux: Some(linux),
        }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> CallResult<v1::UpdateRuntimeConfigResponse> {
        self.engine.admit("UpdateRuntimeConfig", "").await?;
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    // === sandboxes ===

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> CallResult<v1::RunPodSandboxResponse> {
        let request = request.into_inner();
        let run = async move |engine: Arc<Engine>, _| {
            let config = request.config.ok_or_else(|| missing("sandbox config"))?;
            let mut handler = request.runtime_handler;
            if engine.profile.is_crio {
                refusals::check_sandbox(&config)?;
                handler.clear();
            }
            // First the sandbox becomes ready, then its events are sent, and then the call returns.
            let (pod_sandbox_id, events) = engine.world().run_sandbox(config, handler)?;
            engine.emit(events).await;
            Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
        };
        self.change("RunPodSandbox", String::new(), run).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> CallResult<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let stop = async move |engine: Arc<Engine>, id: String| {
            engine.stop_sandbox(&id).await;
            Ok(v1::StopPodSandboxResponse {})
        };
        self.change("StopPodSandbox", id, stop).await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> CallResult<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let remove = async move |engine: Arc<Engine>, id: String| {
            engine.remove_sandbox(&id).await;
            Ok(v1::RemovePodSandboxResponse {})
        };
        self.change("RemovePodSandbox", id, remove).await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> CallResult<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.engine.admit("PodSandboxStatus", &id).await?;
        let profile = &self.engine.profile;
        // As in real runtimes, the timestamp is taken before the statuses are read.
        let unit = profile.timestamp_unit;
        let timestamp = unit.map_or(0, |unit| self.engine.now() / unit);
        let world = self.engine.world();
        let mut status = world.sandbox_status(&id)?;
        self.engine.pad("status.pad", [&mut status.annotations]);
        if self.engine.faults().fires("status.not_found") {
            return Err(not_found("sandbox", &id));
        }
        let containers_statuses = match profile.status_has_containers {
            true => world.statuses_of(&id),
            false => Vec::new(),
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
    ) -> CallResult<v1::ListPodSandboxResponse> {
        self.engine.admit("ListPodSandbox", "").await?;
        let items = self.engine.sandbox_rows(request.into_inner().filter);
        self.engine.single(v1::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> CallResult<BoxStream<v1::StreamPodSandboxesResponse>> {
        self.engine.admit("StreamPodSandboxes", "").await?;
        let page_size = self.engine.page_size("StreamPodSandboxes")?;
        let rows = self.engine.sandbox_rows(request.into_inner().filter);
        let page = |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes };
        self.engine.pages(page_size, rows, page)
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> CallResult<v1::UpdatePodSandboxResourcesResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.engine.admit("UpdatePodSandboxResources", &id).await?;
        self.engine.world().sandbox(&id)?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }

    // === containers ===

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> CallResult<v1::CreateContainerResponse> {
        let mut request = request.into_inner();
        let sandbox = std::mem::take(&mut request.pod_sandbox_id);
        let create = async move |engine: Arc<Engine>, sandbox: String| {
            let config = request.config.ok_or_else(|| missing("container config"))?;
            if engine.profile.is_crio {
                refusals::check_container(request.sandbox_config.as_ref(), &config)?;
            }
            let (container_id, events) = engine.world().create_container(&sandbox, config)?;
            engine.emit(events).await;
            Ok(v1::CreateContainerResponse { container_id })
        };
        self.change("CreateContainer", sandbox, create).await
    }

    /// The program runs before STARTED is sent, so a short program may have exited by then. A failed start sends no
    /// event.
    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> CallResult<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let start = async move |engine: Arc<Engine>, id: String| {
            let (script, events) = engine.world().start_container(&id)?;
            engine.spawn_program(&id, script);
            engine.emit(events).await;
            Ok(v1::StartContainerResponse {})
        };
        self.change("StartContainer", id, start).await
    }

    /// Returns when the container has exited (at once if it is not running); STOPPED may follow later.
    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> CallResult<v1::StopContainerResponse> {
        let request = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let stop = async move |engine: Arc<Engine>, id: String| {
            engine.stop_program(&id, grace).await;
            let deleted = engine.world().deleted_on_stop(&id);
            engine.emit(deleted).await;
            Ok(v1::StopContainerResponse {})
        };
        self.change("StopContainer", request.container_id, stop)
            .await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> CallResult<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        let remove = async move |engine: Arc<Engine>, id: String| {
            engine.delete_container(&id, false).await;
            Ok(v1::RemoveContainerResponse {})
        };
        self.change("RemoveContainer", id, remove).await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> CallResult<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.engine.admit("ContainerStatus", &id).await?;
        let mut status = self.engine.world().container_status(&id)?;
        self.engine.pad("status.pad", [&mut status.annotations]);
        if self.engine.faults().fires("status.not_found") {
            return Err(not_found("container", &id));
        }
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        }))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> CallResult<v1::ListContainersResponse> {
        self.engine.admit("ListContainers", "").await?;
        let containers = self.engine.container_rows(request.into_inner().filter);
        self.engine
            .single(v1::ListContainersResponse { containers })
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> CallResult<BoxStream<v1::StreamContainersResponse>> {
        self.engine.admit("StreamContainers", "").await?;
        let page_size = self.engine.page_size("StreamContainers")?;
        let rows = self.engine.container_rows(request.into_inner().filter);
        let page = |containers| v1::StreamContainersResponse { containers };
        self.engine.pages(page_size, rows, page)
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> CallResult<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let id = &request.container_id;
        self.engine.admit("UpdateContainerResources", id).await?;
        let mut world = self.engine.world();
        let state = world.container_state(id)?;
        if state == ContainerState::ContainerExited {
            return Err(wrong_state(state));
        }
        if let (Some(container), Some(linux)) = (world.containers.get_mut(id), request.linux) {
            container.resources = Some(linux);
        }
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> CallResult<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.engine.admit("ReopenContainerLog", &id).await?;
        self.check_running(&id)?;
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    /// Runs no program: returns the exit code that the command names, 0 by default. Sends no event.
    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> CallResult<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let id = &request.container_id;
        self.engine.admit("ExecSync", id).await?;
        self.check_running(id)?;
        let limit = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let (exit_code, after) = match Script::parse(&request.cmd, &[]) {
            Script::Exit { code, after } => (code, after),
            _ => (0, Duration::ZERO),
        };
        if !limit.is_zero() && limit < after {
            self.engine.pause(limit).await;
            let text = format!("timeout {limit:?} exceeded: context deadline exceeded");
            return Err(Status::deadline_exceeded(text));
        }
        self.engine.pause(after).await;
        Ok(Response::new(v1::ExecSyncResponse {
            exit_code,
            ..Default::default()
        }))
    }

    // === events ===

    /// The runtime sends the response, and so the response headers, with the first event.
    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> CallResult<BoxStream<v1::ContainerEventResponse>> {
        self.engine.admit("GetContainerEvents", "").await?;
        match self.engine.profile.node.delivery {
            Delivery::Disabled => Ok(Response::new(stream::empty().boxed())),
            Delivery::Unimplemented => {
                let text = "method GetContainerEvents not implemented";
                Err(Status::unimplemented(text))
            }
            _ => events::subscribe(&self.engine).await,
        }
    }
}

#[tonic::async_trait]
impl ImageService for CriService {
    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> CallResult<v1::ListImagesResponse> {
        self.engine.admit("ListImages", "").await?;
        let filter = request.into_inner().filter.and_then(|f| f.image);
        let name = filter.unwrap_or_default().image;
        let mut images: Vec<_> = self.engine.world().images.values().cloned().collect();
        images.retain(|image| name.is_empty() || is_image(image, &name));
        Ok(Response::new(v1::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> CallResult<v1::ImageStatusResponse> {
        self.engine.admit("ImageStatus", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let world = self.engine.world();
        let mut images = world.images.values();
        let image = images.find(|image| is_image(image, &spec.image)).cloned();
        Ok(Response::new(v1::ImageStatusResponse {
            image,
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> CallResult<v1::PullImageResponse> {
        self.engine.admit("PullImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let image_ref = self.engine.world().pull(spec)?;
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> CallResult<v1::RemoveImageResponse> {
        self.engine.admit("RemoveImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let mut world = self.engine.world();
        world
            .images
            .retain(|_, image| !is_image(image, &spec.image));
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> CallResult<v1::ImageFsInfoResponse> {
        self.engine.admit("ImageFsInfo", "").await?;
        Ok(Response::new(v1::ImageFsInfoResponse::default()))
    }
}
