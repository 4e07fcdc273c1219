//! The runtime as a whole: its status and its configuration.

use futures::FutureExt as _;
use pleg_runtime::RuntimeVersion;
use pleg_runtime::core::CallError;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::CriClient;
use crate::convert;
use crate::error::malformed;
use crate::metrics::Operation;
use crate::transport::version_request;
use crate::v1;

impl CriClient {
    /// `Status`: the conditions `RuntimeReady` and `NetworkReady`, and the runtime's handlers. A response without one
    /// of the two conditions is an error.
    ///
    /// # Errors
    /// `Malformed` if a condition is missing, as in the kubelet; otherwise the error of the failed call.
    pub async fn status(&self) -> Result<v1::StatusResponse, CallError> {
        let operation = Operation::STATUS;
        let mut client = self.connection.runtime();
        let call = client.status(v1::StatusRequest { verbose: false }).boxed();
        let response = self.read(operation, "", self.deadline(), call).await?;
        let is_set = |name: &str| {
            let status = response.status.as_ref();
            status.is_some_and(|status| status.conditions.iter().any(|c| c.r#type == name))
        };
        if !is_set("RuntimeReady") || !is_set("NetworkReady") {
            let message = "the condition RuntimeReady or NetworkReady is not set";
            return Err(malformed(operation, message));
        }
        Ok(response)
    }

    /// Makes a call for which `CriClient` has no method, given the gRPC path of the call, for example
    /// `/runtime.v1.RuntimeService/ContainerStats`. Metrics count it as the operation `other`.
    ///
    /// # Errors
    /// `Malformed` if the path is invalid; otherwise the error of the failed call.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let operation = Operation::other(path.rsplit('/').next().unwrap_or(path));
        let path = PathAndQuery::try_from(path)
            .map_err(|error| malformed(operation, &error.to_string()))?;
        let limit = self.config().message_limit;
        let mut grpc = Grpc::new(self.connection.channel()).max_decoding_message_size(limit);
        let call = async move {
            grpc.ready().await.map_err(Status::from_error)?;
            let codec = ProstCodec::default();
            grpc.unary(Request::new(request), path, codec).await
        };
        self.read(operation, "", self.deadline(), call.boxed())
            .await
    }

    /// `Version`: the name and the version of the runtime.
    ///
    /// # Errors
    /// Any failure of the call.
    pub async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let mut client = self.connection.runtime();
        let call = client.version(version_request()).boxed();
        let response = self.read(Operation::VERSION, "", self.deadline(), call);
        response.await.map(convert::version)
    }

    /// `RuntimeConfig`: the cgroup driver.
    ///
    /// # Errors
    /// `Unimplemented` from runtimes older than containerd 2.0 and CRI-O 1.28; any other failure of the
    /// call.
    pub async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError> {
        let mut client = self.connection.runtime();
        let call = client.runtime_config(v1::RuntimeConfigRequest {}).boxed();
        self.read(Operation::RUNTIME_CONFIG, "", self.deadline(), call)
            .await
    }

    /// `UpdateRuntimeConfig`: sets the range of pod addresses. No list and no status shows the range, so callers need
    /// not wait for a newer status.
    ///
    /// # Errors
    /// Any failure of the call.
    pub async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), CallError> {
        let request = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(config),
        };
        let mut client = self.connection.runtime();
        let call = client.update_runtime_config(request).boxed();
        self.read(Operation::UPDATE_RUNTIME_CONFIG, "", self.deadline(), call)
            .await
            .map(drop)
    }
}
