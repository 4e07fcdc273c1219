//! Containers: create, start, stop, remove, update; logs and `ExecSync`.

use std::time::Duration;

use futures::FutureExt as _;
use pleg_runtime::core::{CallError, Id};

use super::{CriClient, Written, created, seconds};
use crate::metrics::Operation;
use crate::v1;

impl CriClient {
    /// `CreateContainer`: creates a container in a sandbox, and returns its id. `sandbox_config` is the
    /// configuration with which the sandbox was created.
    ///
    /// After a failure the runtime may keep a container with this name and attempt number, so the next create needs
    /// another attempt number.
    pub async fn create_container(
        &self,
        sandbox: &Id,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Written<Id> {
        let operation = Operation::CREATE_CONTAINER;
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.connection.runtime();
        let call = client.create_container(request).boxed();
        self.write(operation, sandbox.as_str(), self.deadline(), call)
            .await
            .and_then(|response| created(operation, response.container_id))
    }

    /// `StartContainer`: starts a created container. Fails if the container was already started. Also fails if the
    /// program cannot be started; in this case the container exits with a code such as 128.
    pub async fn start_container(&self, id: &Id) -> Written<()> {
        let request = v1::StartContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.connection.runtime();
        let call = client.start_container(request).boxed();
        self.write(
            Operation::START_CONTAINER,
            id.as_str(),
            self.deadline(),
            call,
        )
        .await
        .empty()
    }

    /// `StopContainer`: sends the stop signal, and `SIGKILL` after the grace period (in whole seconds, rounded up; with
    /// 0 at once). Returns when the container has exited. Also succeeds if it had exited before, or does not exist.
    pub async fn stop_container(&self, id: &Id, grace_period: Duration) -> Written<()> {
        let request = v1::StopContainerRequest {
            container_id: id.to_string(),
            timeout: seconds(grace_period),
        };
        let mut client = self.connection.runtime();
        let call = client.stop_container(request).boxed();
        let deadline = self.deadline().saturating_add(grace_period);
        self.write(Operation::STOP_CONTAINER, id.as_str(), deadline, call)
            .await
            .empty()
    }

    /// `RemoveContainer`: removes a container, even if it is running. Also succeeds if the container does not exist.
    pub async fn remove_container(&self, id: &Id) -> Written<()> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.connection.runtime();
        let call = client.remove_container(request).boxed();
        self.write(
            Operation::REMOVE_CONTAINER,
            id.as_str(),
            self.deadline(),
            call,
        )
        .await
        .empty()
    }

    /// `UpdateContainerResources`: changes the resources of a container. Of all reads only the status call shows
    /// resources: get them with `Pleg::details_newer_than`.
    pub async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Written<()> {
        let id = request.container_id.clone();
        let mut client = self.connection.runtime();
        let call = client.update_container_resources(request).boxed();
        self.write(Operation::UPDATE_CONTAINER, &id, self.deadline(), call)
            .await
            .empty()
    }

    /// `ReopenContainerLog`: makes the runtime open the log file of a running container again, after somebody renamed
    /// the file. No list and no status shows the log file, so callers need not wait for a newer status.
    ///
    /// # Errors
    /// If the container is not running or has no log, or if the call fails for another reason.
    pub async fn reopen_container_log(&self, id: &Id) -> Result<(), CallError> {
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_string(),
        };
        let mut client = self.connection.runtime();
        let call = client.reopen_container_log(request).boxed();
        self.read(Operation::REOPEN_LOG, id.as_str(), self.deadline(), call)
            .await
            .map(drop)
    }

    /// `ExecSync`: runs a command in a container; returns its output and exit code. A non-zero exit code is no error.
    ///
    /// The runtime ends the command after `timeout` (in whole seconds, rounded up). If `timeout` is 0, the runtime sets
    /// no limit, and the call ends after [`call_deadline`](crate::CriConfig::call_deadline).
    ///
    /// # Errors
    /// `DeadlineExceeded` if the command did not end in time, according to the runtime or this client; any other
    /// failure of the call.
    pub async fn exec_sync(
        &self,
        id: &Id,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command,
            timeout: seconds(timeout),
        };
        let mut client = self.connection.runtime();
        let call = client.exec_sync(request).boxed();
        let deadline = self.deadline().saturating_add(timeout);
        self.read(Operation::EXEC_SYNC, id.as_str(), deadline, call)
            .await
    }
}
