//! [`CriRuntime`]: the CRI calls that a pod lifecycle event generator makes, each with a deadline,
//! a measurement and an error that names it.

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

use crate::config::{ConfigError, CriConfig};
use crate::diagnose::{ConnectError, diagnose};
use crate::error::{call_error, malformed, no_connection, timed_out};
use crate::events::Events;
use crate::metrics::{Measured, Operation};
use crate::pool::{self, Pool};
use crate::transport::{self, Connections, Dialler, KUBELET_API};
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{convert, quirks, v1};

/// A runtime that speaks CRI v1, on a unix socket or on connections that the embedder makes.
///
/// Connects with its first call, and again whenever the connection was lost. All calls share one
/// connection; every event stream has its own, so that neither waits for the other.
pub struct CriRuntime {
    config: CriConfig,
    dialler: Dialler,
    channel: Channel,
    pub(crate) connections: Connections,
    /// The connection on which the runtime said that it does not offer streaming lists; 0 for
    /// none. Another connection may lead to another version of it.
    pub(crate) unary_lists_on: AtomicU64,
    clock: Clock,
    /// What the rows and statuses that are read have in common. Events have their own.
    pub(crate) pool: Mutex<Pool>,
}

impl CriRuntime {
    /// A runtime at that endpoint. Nothing is tried yet.
    ///
    /// # Errors
    /// If a setting makes no sense, or outside of a tokio runtime.
    pub fn new(config: CriConfig) -> Result<Self, ConfigError> {
        let dialler = Dialler::unix(&config);
        Self::dialled_by(dialler, config)
    }

    /// A runtime that is reached by `connect`: over an in-process pipe, through a proxy, on a
    /// socket that somebody else has opened. Nothing is tried yet.
    ///
    /// `connect` is called for each connection, with the first call, for every event stream and
    /// again whenever a connection was lost; it has 5 s. An error means that nobody can be reached
    /// now, and is no reason to stop asking. The endpoint in `config` is a name then; only
    /// [`diagnose`](Self::diagnose) looks at it.
    ///
    /// # Errors
    /// If a setting makes no sense, or outside of a tokio runtime.
    pub fn with_connector<C, F, S>(config: CriConfig, connect: C) -> Result<Self, ConfigError>
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::dialled_by(Dialler::by(connect), config)
    }

    fn dialled_by(dialler: Dialler, config: CriConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ConfigError::NoRuntime);
        }
        let connections = Connections::default();
        let channel = transport::reconnecting(&dialler, &connections);
        let unary_lists_on = AtomicU64::new(0);
        Ok(Self {
            config,
            dialler,
            channel,
            connections,
            unary_lists_on,
            clock: Clock::start(),
            pool: Mutex::default(),
        })
    }

    /// Tries the endpoint on a connection of its own, and says what is wrong with it, if anything
    /// is. Takes less than 8 s.
    ///
    /// # Errors
    /// What is wrong, where, and what to do about it.
    pub async fn diagnose(&self) -> Result<RuntimeVersion, ConnectError> {
        diagnose(&self.config.endpoint).await
    }

    /// The settings.
    pub const fn config(&self) -> &CriConfig {
        &self.config
    }

    /// The bare client of the runtime service, for those who make pods: without deadlines,
    /// conversion and metrics.
    pub fn runtime_client(&self) -> RuntimeServiceClient<Channel> {
        self.client(self.channel.clone())
    }

    /// The bare client of the image service.
    pub fn image_client(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
            .max_decoding_message_size(self.config.message_limit)
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        pool::lock(&self.pool)
    }

    fn client(&self, channel: Channel) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(channel).max_decoding_message_size(self.config.message_limit)
    }

    /// One operation, within the deadline as a whole, whichever calls it is made of.
    pub(crate) async fn operation<T>(
        &self,
        operation: Operation,
        calls: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let mut measured = Measured::begin(operation, self.clock);
        let deadline = self.config.call_deadline;
        let answer = match tokio::time::timeout(deadline, calls).await {
            Ok(answer) => answer.map_err(|status| call_error(operation, &status)),
            Err(_elapsed) => Err(timed_out(operation, deadline)),
        };
        measured.failed = answer.is_err();
        answer
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
        // The container statuses beside it are not used: few runtimes fill them, and empty means
        // nothing (quirk `container statuses of a sandbox status`).
        let status = self
            .operation(operation, async {
                Ok(self
                    .runtime_client()
                    .pod_sandbox_status(request)
                    .await?
                    .into_inner()
                    .status)
            })
            .await?;
        status
            .and_then(|status| convert::sandbox_status_with(status, &mut self.pool()))
            .ok_or_else(|| malformed(operation, "the answer has no status"))
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
                    .runtime_client()
                    .container_status(request)
                    .await?
                    .into_inner()
                    .status)
            })
            .await?;
        status
            .and_then(|status| convert::container_status_with(status, &mut self.pool()))
            .ok_or_else(|| malformed(operation, "the answer has no status"))
    }

    async fn subscribe(&self) -> Result<Events, CallError> {
        let connected = async { transport::over(self.dialler.dial().await?).await };
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
                self.runtime_client().version(request).await?.into_inner(),
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
