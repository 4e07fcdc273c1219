//! The CRI as gRPC services. `lists` creates list responses and `stream` creates event streams.

use std::{future::Future, sync::Arc, time::Duration};

use pleg_cri::v1::{
    self, image_service_server::ImageService, runtime_service_server::RuntimeService,
};
use pleg_node_model::Delivery;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    engine::Engine, error::CallError, faults::Call, profile::Timestamp, script::Script, stream,
};

type CallResult<T> = Result<Response<T>, Status>;

/// The gRPC services of a simulated runtime.
#[derive(Clone, Debug)]
pub struct CriService {
    engine: Arc<Engine>,
}

impl CriService {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub(crate) async fn admit(&self, method: &'static str, id: &str) -> Result<(), Status> {
        if self.engine.stop.is_cancelled() {
            return Err(CallError::ShuttingDown.into());
        }
        self.engine.admit(Call { method, id }).await
    }

    /// A call that changes something. It runs to completion even if the client disconnects, as Go
    /// handlers do, so that every change sends its events.
    pub(crate) async fn change<F, T>(
        &self,
        method: &'static str,
        id: String,
        work: impl FnOnce(Arc<Engine>, String) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, CallError>> + Send + 'static,
        T: Send + 'static,
    {
        self.admit(method, &id).await?;
        let work = work(Arc::clone(&self.engine), id);
        let done = self.engine.tasks.spawn(work).await;
        let done = done.map_err(|_| Status::internal("the call's task has ended early"))?;
        Ok(done?)
    }

    /// Fails unless the container runs.
    fn check_running(&self, id: &str) -> Result<(), CallError> {
        match self.engine.world().container_state(id)? {
            v1::ContainerState::ContainerRunning => Ok(()),
            other => Err(CallError::WrongState(other.as_str_name())),
        }
    }
}

#[tonic::async_trait]
impl RuntimeService for CriService {
    // === runtime ===

    async fn version(&self, _: Request<v1::VersionRequest>) -> CallResult<v1::VersionResponse> {
        self.admit("Version", "").await?;
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: self.engine.profile.node.name.into(),
            runtime_version: self.engine.profile.version.clone(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> CallResult<v1::StatusResponse> {
        self.admit("Status", "").await?;
        let ready_condition = |name: &str| v1::RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        };
        let mut network = ready_condition("NetworkReady");
        if self.engine.injector.is_on("network.not_ready") {
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
    ) -> CallResult<v1::UpdateRuntimeConfigResponse> {
        self.admit("UpdateRuntimeConfig", "").await?;
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    // === sandboxes ===

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> CallResult<v1::RunPodSandboxResponse> {
        let v1::RunPodSandboxRequest {
            config,
            runtime_handler,
        } = request.into_inner();
        let run = self.change(
            "RunPodSandbox",
            String::new(),
            async move |engine: Arc<Engine>, _| {
                let config = config.ok_or(CallError::Missing("sandbox config"))?;
                engine.run_sandbox(config, runtime_handler).await
            },
        );
        let pod_sandbox_id = run.await?;
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> CallResult<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.change("StopPodSandbox", id, Engine::stop_sandbox)
            .await?;
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> CallResult<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.change("RemovePodSandbox", id, Engine::remove_sandbox)
            .await?;
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> CallResult<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("PodSandboxStatus", &id).await?;
        let profile = &self.engine.profile;
        let timestamp = match profile.timestamp {
            Timestamp::None => 0,
            Timestamp::Seconds => self.engine.now() / 1_000_000_000,
            Timestamp::Nanos => self.engine.now(),
        };
        let world = self.engine.world();
        let status = world.sandbox_status(&id)?;
        if self.engine.injector.fires("status.not_found") {
            return Err(CallError::NoSandbox(id).into());
        }
        let containers_statuses = if profile.status_has_containers {
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
    ) -> CallResult<v1::ListPodSandboxResponse> {
        self.admit("ListPodSandbox", "").await?;
        let filter = request.into_inner().filter;
        let items = self.engine.sandbox_rows(filter.as_ref());
        self.engine.single(v1::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> CallResult<BoxStream<v1::StreamPodSandboxesResponse>> {
        self.admit("StreamPodSandboxes", "").await?;
        let page_size = self.engine.page_size("StreamPodSandboxes")?;
        let filter = request.into_inner().filter;
        let rows = self.engine.sandbox_rows(filter.as_ref());
        self.engine.pages(page_size, rows, |pod_sandboxes| {
            v1::StreamPodSandboxesResponse { pod_sandboxes }
        })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> CallResult<v1::UpdatePodSandboxResourcesResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.admit("UpdatePodSandboxResources", &id).await?;
        self.engine.world().sandbox(&id)?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }

    // === containers ===

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> CallResult<v1::CreateContainerResponse> {
        let v1::CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config,
            sandbox_config,
        } = request.into_inner();
        let create = self.change(
            "CreateContainer",
            sandbox,
            async move |engine: Arc<Engine>, sandbox| {
                let config = config.ok_or(CallError::Missing("container config"))?;
                let created = engine.create_container(sandbox, config, sandbox_config);
                created.await
            },
        );
        let container_id = create.await?;
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> CallResult<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.change("StartContainer", id, Engine::start_container)
            .await?;
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> CallResult<v1::StopContainerResponse> {
        let v1::StopContainerRequest {
            container_id: id,
            timeout,
        } = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        let stop = move |engine: Arc<Engine>, id| engine.stop_container(id, grace);
        self.change("StopContainer", id, stop).await?;
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> CallResult<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.change("RemoveContainer", id, Engine::remove_container)
            .await?;
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> CallResult<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.admit("ContainerStatus", &id).await?;
        let status = self.engine.world().container_status(&id)?;
        if self.engine.injector.fires("status.not_found") {
            return Err(CallError::NoContainer(id).into());
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
        self.admit("ListContainers", "").await?;
        let filter = request.into_inner().filter;
        let containers = self.engine.container_rows(filter.as_ref());
        self.engine
            .single(v1::ListContainersResponse { containers })
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> CallResult<BoxStream<v1::StreamContainersResponse>> {
        self.admit("StreamContainers", "").await?;
        let page_size = self.engine.page_size("StreamContainers")?;
        let filter = request.into_inner().filter;
        let rows = self.engine.container_rows(filter.as_ref());
        self.engine
            .pages(page_size, rows, |containers| v1::StreamContainersResponse {
                containers,
            })
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> CallResult<v1::UpdateContainerResourcesResponse> {
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
    ) -> CallResult<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.admit("ReopenContainerLog", &id).await?;
        self.check_running(&id)?;
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    /// Runs no program: exits as its command says, without an event. Other commands exit with 0.
    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> CallResult<v1::ExecSyncResponse> {
        let v1::ExecSyncRequest {
            container_id: id,
            cmd,
            timeout,
        } = request.into_inner();
        self.admit("ExecSync", &id).await?;
        self.check_running(&id)?;
        let config = v1::ContainerConfig {
            command: cmd,
            ..Default::default()
        };
        let limit = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        let exit_code = match Script::parse(&config) {
            Script::Exit { after, .. } if !limit.is_zero() && limit < after => {
                self.engine.pause(limit).await;
                return Err(CallError::ExecTimedOut(limit).into());
            }
            Script::Exit { code, after } => {
                self.engine.pause(after).await;
                code
            }
            _ => 0,
        };
        Ok(Response::new(v1::ExecSyncResponse {
            exit_code,
            ..Default::default()
        }))
    }

    // === events ===

    /// The response, and with it the response headers, is sent with the first event.
    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> CallResult<BoxStream<v1::ContainerEventResponse>> {
        self.admit("GetContainerEvents", "").await?;
        match self.engine.profile.node.delivery {
            Delivery::Unimplemented => Err(Status::unimplemented(
                "method GetContainerEvents not implemented",
            )),
            Delivery::Disabled => Ok(stream::empty_stream()),
            Delivery::OneSubscriber | Delivery::AllAndKept | Delivery::AllOrLost => {
                stream::subscribe(&self.engine).await
            }
        }
    }
}

#[tonic::async_trait]
impl ImageService for CriService {
    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> CallResult<v1::ListImagesResponse> {
        self.admit("ListImages", "").await?;
        let filter = request.into_inner().filter;
        let images = self.engine.world().image_rows(filter.as_ref());
        Ok(Response::new(v1::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> CallResult<v1::ImageStatusResponse> {
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
    ) -> CallResult<v1::PullImageResponse> {
        self.admit("PullImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        let image_ref = self.engine.world().pull(spec)?;
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> CallResult<v1::RemoveImageResponse> {
        self.admit("RemoveImage", "").await?;
        let spec = request.into_inner().image.unwrap_or_default();
        self.engine.world().remove_image(&spec.image);
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> CallResult<v1::ImageFsInfoResponse> {
        self.admit("ImageFsInfo", "").await?;
        Ok(Response::new(v1::ImageFsInfoResponse::default()))
    }
}
