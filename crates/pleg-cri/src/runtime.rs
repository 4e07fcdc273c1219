//! [`CriRuntime`]: the CRI calls that a pod lifecycle event generator makes, each with a deadline,
//! metrics and errors that name the operation.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, EventProfile, Id, Report};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tonic::transport::Channel;

use crate::budget::{Calls, ReceiveBudget};
use crate::config::{ConfigError, CriConfig};
use crate::diagnose::{ConnectError, diagnose};
use crate::error::{call_error, malformed, no_connection, timed_out};
use crate::events::Events;
use crate::interner::{self, Interner};
use crate::metrics::{Measurement, Operation};
use crate::transport::{self, Connections, Connector, KUBELET_API};
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{convert, quirks, v1};

/// A client for a runtime that implements CRI v1, on a unix socket or on connections that the
/// embedder creates.
///
/// It connects with the first call and reconnects after the connection is lost. All calls share one
/// connection. Every event stream has its own, so that calls and events do not delay each other.
pub struct CriRuntime {
    config: CriConfig,
    connector: Connector,
    channel: Channel,
    /// For the responses of all calls but those of the generated clients.
    budget: ReceiveBudget,
    pub(crate) connections: Connections,
    /// The number of the connection on which the runtime returned `Unimplemented` for a streaming
    /// list; 0 for none. On another connection the runtime may have another version.
    pub(crate) unary_lists_on_connection: AtomicU64,
    clock: Clock,
    /// For rows and statuses. Event streams have their own.
    pub(crate) interner: Mutex<Interner>,
}

impl CriRuntime {
    /// Creates a client for the endpoint. Does not connect yet.
    ///
    /// # Errors
    /// If a setting is out of range, or outside of a tokio runtime.
    pub fn new(config: CriConfig) -> Result<Self, ConfigError> {
        let connector = Connector::unix(&config);
        Self::with(connector, config)
    }

    /// Creates a client that connects with `connect`: over an in-process pipe, through a proxy, or
    /// on a socket that another component has opened. Does not connect yet.
    ///
    /// `connect` is called for each connection: with the first call, for every event stream, and
    /// after a connection is lost. It has 5 s. If it returns an error, the call fails, and the next
    /// call tries again. Only [`diagnose`](Self::diagnose) uses the endpoint in `config`.
    ///
    /// # Errors
    /// If a setting is out of range, or outside of a tokio runtime.
    pub fn with_connector<C, F, S>(config: CriConfig, connect: C) -> Result<Self, ConfigError>
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::with(Connector::new(connect), config)
    }

    fn with(connector: Connector, config: CriConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime);
        }
        let connections = Connections::default();
        let channel = transport::reconnecting(&connector, &connections);
        let unary_lists_on_connection = AtomicU64::new(0);
        Ok(Self {
            budget: ReceiveBudget::new(config.receive_budget),
            config,
            connector,
            channel,
            connections,
            unary_lists_on_connection,
            clock: Clock::start(),
            interner: Mutex::default(),
        })
    }

    /// Checks the endpoint on a separate connection. Takes less than 8 s.
    ///
    /// # Errors
    /// The reason why the endpoint cannot be used. The message names the endpoint and suggests what
    /// to do.
    pub async fn diagnose(&self) -> Result<RuntimeVersion, ConnectError> {
        diagnose(&self.config.endpoint).await
    }

    /// The settings.
    pub const fn config(&self) -> &CriConfig {
        &self.config
    }

    /// The generated client of the runtime service, for callers that create pods: without
    /// deadlines, conversion and metrics.
    pub fn runtime_client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(self.config.message_limit)
    }

    /// The generated client of the image service.
    pub fn image_client(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
            .max_decoding_message_size(self.config.message_limit)
    }

    /// The channel of all calls, within the budget for received bytes.
    pub(crate) fn channel(&self) -> impl Calls + use<> {
        self.budget.limit(self.channel.clone())
    }

    /// The client of the calls with deadlines.
    fn calls(&self) -> RuntimeServiceClient<impl Calls + use<>> {
        RuntimeServiceClient::new(self.channel())
            .max_decoding_message_size(self.config.message_limit)
    }

    fn interner(&self) -> MutexGuard<'_, Interner> {
        interner::lock(&self.interner)
    }

    /// Runs an operation. The deadline applies to all of its calls together.
    pub(crate) async fn operation<T>(
        &self,
        operation: Operation,
        calls: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let mut measurement = Measurement::begin(operation, self.clock);
        let deadline = self.config.call_deadline;
        let result = match tokio::time::timeout(deadline, calls).await {
            Ok(result) => result.map_err(|status| call_error(operation, &status)),
            Err(_elapsed) => Err(timed_out(operation, deadline)),
        };
        measurement.failed = result.is_err();
        result
    }
}

impl Runtime for CriRuntime {
    type Events = Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.sandboxes(scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.containers(scope, row).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let operation = Operation::SANDBOX_STATUS;
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: false,
        };
        // The container statuses in the response are not used: few runtimes set them, and an empty
        // list means nothing (quirk `container statuses in PodSandboxStatus`).
        let status = self
            .operation(operation, async {
                Ok(self
                    .calls()
                    .pod_sandbox_status(request)
                    .await?
                    .into_inner()
                    .status)
            })
            .await?;
        status
            .and_then(|status| convert::sandbox_status_with(status, &mut self.interner()))
            .ok_or_else(|| malformed(operation, "the response has no status"))
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let operation = Operation::CONTAINER_STATUS;
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        let status = self
            .operation(operation, async {
                Ok(self
                    .calls()
                    .container_status(request)
                    .await?
                    .into_inner()
                    .status)
            })
            .await?;
        status
            .and_then(|status| convert::container_status_with(status, &mut self.interner()))
            .ok_or_else(|| malformed(operation, "the response has no status"))
    }

    async fn subscribe(&self) -> Result<Events, CallError> {
        let connected = async { transport::single(self.connector.connect().await?).await };
        let channel = connected
            .await
            .map_err(|error| no_connection(Operation::EVENTS, &error))?;
        Ok(Events::new(channel, self.config.message_limit, self.clock))
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        Ok(quirks::event_profile(&self.version().await?))
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let request = v1::VersionRequest {
            version: KUBELET_API.to_owned(),
        };
        self.operation(Operation::VERSION, async {
            Ok(convert::version(
                self.calls().version(request).await?.into_inner(),
            ))
        })
        .await
    }
}

impl fmt::Debug for CriRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriRuntime")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
