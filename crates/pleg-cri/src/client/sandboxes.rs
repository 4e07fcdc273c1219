//! Sandboxes: run, stop, remove, update.

use futures::FutureExt as _;
use pleg_runtime::core::Id;

use super::{CriClient, Written, created};
use crate::metrics::Operation;
use crate::v1;

impl CriClient {
    /// `RunPodSandbox`: creates and starts a sandbox, and returns its id. An empty `runtime_handler`
    /// is the runtime's default.
    ///
    /// After a failure the runtime may keep a sandbox with this name and attempt number, so the next `RunPodSandbox`
    /// needs another attempt number.
    pub async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Written<Id> {
        let operation = Operation::RUN_SANDBOX;
        let uid = config.metadata.as_ref().map(|m| m.uid.clone());
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.to_owned(),
        };
        let mut client = self.connection.runtime();
        let call = client.run_pod_sandbox(request).boxed();
        let deadline = self.deadline().saturating_mul(2);
        self.write(operation, &uid.unwrap_or_default(), deadline, call)
            .await
            .and_then(|response| created(operation, response.pod_sandbox_id))
    }

    /// `StopPodSandbox`: kills the containers that are still running, and frees the network. Also succeeds if the
    /// sandbox is already stopped or does not exist.
    pub async fn stop_pod_sandbox(&self, id: &Id) -> Written<()> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.connection.runtime();
        let call = client.stop_pod_sandbox(request).boxed();
        self.write(Operation::STOP_SANDBOX, id.as_str(), self.deadline(), call)
            .await
            .empty()
    }

    /// `RemovePodSandbox`: removes the sandbox and its containers, even running ones. Also succeeds if the sandbox does
    /// not exist.
    pub async fn remove_pod_sandbox(&self, id: &Id) -> Written<()> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.connection.runtime();
        let call = client.remove_pod_sandbox(request).boxed();
        self.write(
            Operation::REMOVE_SANDBOX,
            id.as_str(),
            self.deadline(),
            call,
        )
        .await
        .empty()
    }

    /// `UpdatePodSandboxResources`: informs the runtime that the resources of the pod have changed. Older runtimes
    /// return `Unimplemented`.
    pub async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Written<()> {
        let id = request.pod_sandbox_id.clone();
        let mut client = self.connection.runtime();
        let call = client.update_pod_sandbox_resources(request).boxed();
        self.write(Operation::UPDATE_SANDBOX, &id, self.deadline(), call)
            .await
            .empty()
    }
}
