//! The connection that the clients share, and the deadline, the metrics and the span of each call.

use std::sync::Arc;
use std::time::Duration;

use pleg_runtime::clock::Clock;
use pleg_runtime::core::CallError;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tracing::Instrument as _;

use crate::budget::{Calls, ReceiveBudget};
use crate::config::{ConfigError, CriConfig};
use crate::error::{call_error, timed_out};
use crate::metrics::{Measurement, Operation};
use crate::transport::{self, Connections, Connector, Layers, Transport};
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// A connection to the runtime. It is opened on the first call, and again if it was lost. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) config: Arc<CriConfig>,
    pub(crate) connector: Connector,
    pub(crate) layers: Layers,
    pub(crate) connections: Connections,
    pub(crate) clock: Clock,
    /// The tokio runtime on which connections run.
    tokio: Handle,
    channel: Channel,
    /// The channel within its layers.
    transport: Transport,
    /// The budget for the response bytes of all calls, except calls on the raw channel.
    budget: ReceiveBudget,
}

impl Connection {
    pub(crate) fn new(connector: Connector, config: CriConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let tokio = Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let (config, layers) = (Arc::new(config), Layers::default());
        Ok(Self::with(connector, config, layers, Clock::start(), tokio))
    }

    /// A separate connection with the settings, layers and clock of this one, and its own receive budget.
    pub(crate) fn separate(&self) -> Self {
        Self::with(
            self.connector.clone(),
            self.config.clone(),
            self.layers.clone(),
            self.clock,
            self.tokio.clone(),
        )
    }

    fn with(
        connector: Connector,
        config: Arc<CriConfig>,
        layers: Layers,
        clock: Clock,
        tokio: Handle,
    ) -> Self {
        let _entered = tokio.enter();
        let connections = Connections::default();
        let channel = transport::reconnecting(&connector, &connections);
        Self {
            budget: ReceiveBudget::new(config.receive_budget),
            transport: layers.around(channel.clone()),
            config,
            connector,
            layers,
            connections,
            clock,
            channel,
            tokio: tokio.clone(),
        }
    }

    pub(crate) fn with_layers(self, layers: Layers) -> Self {
        Self {
            transport: layers.around(self.channel.clone()),
            layers,
            ..self
        }
    }

    /// The gRPC channel without the embedder's layers and without a budget.
    pub(crate) fn raw_channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The channel of all calls, within the embedder's layers and the budget for received bytes.
    pub(crate) fn channel(&self) -> impl Calls + use<> {
        self.budget.limit(self.transport.clone())
    }

    /// A client for calls whose messages are not decoded into the generated types.
    pub(crate) async fn grpc(&self) -> Result<Grpc<impl Calls + use<>>, Status> {
        let client = Grpc::new(self.channel());
        let mut client = client.max_decoding_message_size(self.config.message_limit);
        let not_ready = |error| Status::unknown(format!("Service was not ready: {error}"));
        client.ready().await.map_err(not_ready)?;
        Ok(client)
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<impl Calls + use<>> {
        RuntimeServiceClient::new(self.channel())
            .max_decoding_message_size(self.config.message_limit)
    }

    pub(crate) fn images(&self) -> ImageServiceClient<impl Calls + use<>> {
        ImageServiceClient::new(self.channel()).max_decoding_message_size(self.config.message_limit)
    }

    /// Runs an operation on the object `id`. The deadline applies to all CRI calls of the operation together.
    pub(crate) async fn operation<T>(
        &self,
        operation: Operation,
        id: &str,
        deadline: Duration,
        calls: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let span = tracing::debug_span!("cri", operation = operation.name, id);
        let measured = async {
            let mut measurement = Measurement::begin(operation, self.clock);
            let answered = {
                // Uses the timers of `self.tokio`: the caller may run on another executor, which has no tokio timers.
                let _entered = self.tokio.enter();
                tokio::time::timeout(deadline, calls)
            };
            let result = match answered.await {
                Ok(result) => result.map_err(|status| call_error(operation, &status)),
                Err(_elapsed) => Err(timed_out(operation, deadline)),
            };
            measurement.failed = result.is_err();
            result
        };
        measured.instrument(span).await
    }
}
