//! [`CriRuntime`]: the CRI calls that a pod lifecycle event generator makes, each with a deadline,
//! metrics and errors that name the operation.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::TryFutureExt as _;
use http_body::Body;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, EventProfile, Id, Labels, Report};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use prost::Message;
use prost::bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::http;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{BoxError, Layer, Service};

use crate::client::CriClient;
use crate::config::{ConfigError, CriConfig};
use crate::connection::Connection;
use crate::convert::brief::{BriefContainer, BriefSandbox, BriefStatus, StatusResponse};
use crate::diagnose::{ConnectError, diagnose};
use crate::error::{malformed, no_connection};
use crate::events::Events;
use crate::metrics::Operation;
use crate::subscriber_check::SubscriberCheck;
use crate::transport::{self, CallRequest, CallService, Connector, version_request};
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{convert, quirks, v1};

/// A client for a runtime that implements CRI v1, on a unix socket or on connections that the
/// embedder creates.
///
/// The client connects with the first call and reconnects after the connection is lost. All calls share one connection.
/// Every event stream has its own connection, so that calls and events do not delay each other. Clones share the
/// connection of calls.
///
/// Each call runs in a `tracing` span `cri` of level debug, with the fields `operation` (the name of
/// the call) and `id` (the id that it reads, or the uid of the pod that it lists).
#[derive(Clone)]
#[must_use]
pub struct CriRuntime {
    pub(crate) connection: Connection,
    others: Option<SubscriberCheck>,
    /// The number of the connection on which the runtime returned `Unimplemented` for a streaming list; 0 if none. On a
    /// new connection the client tries streaming lists again, because the runtime may have another version.
    pub(crate) unary_lists_on_connection: Arc<AtomicU64>,
}

impl CriRuntime {
    /// Creates a client for the endpoint. Does not connect yet.
    ///
    /// # Errors
    /// If a setting is out of range, or if this is called outside of a tokio runtime.
    pub fn new(config: CriConfig) -> Result<Self, ConfigError> {
        let connector = Connector::unix(&config);
        Self::with(connector, config)
    }

    /// Creates a client that connects with `connect`: over an in-process pipe, through a proxy, or
    /// on a socket that another component has opened. Does not connect yet.
    ///
    /// The client calls `connect` for each connection: with the first call, for every event stream, and after the loss
    /// of a connection. `connect` has a time limit of 5 s. If it fails, the CRI call that needs the connection fails,
    /// and the next CRI call tries again. Only [`diagnose`](Self::diagnose) uses the endpoint in `config`.
    ///
    /// # Errors
    /// If a setting is out of range, or if this is called outside of a tokio runtime.
    pub fn with_connector<C, F, S>(config: CriConfig, connect: C) -> Result<Self, ConfigError>
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::with(Connector::new(connect), config)
    }

    fn with(connector: Connector, config: CriConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            connection: Connection::new(connector, config)?,
            others: None,
            unary_lists_on_connection: Arc::default(),
        })
    }

    /// Wraps every call in a [`tower::Layer`]: for tracing, authentication or fault injection. The layer applies to
    /// calls, lists and event streams, and to a [`client`](Self::client) that is made afterwards. The last layer is the
    /// outermost.
    ///
    /// A deadline includes the time in the layers. If a layer returns an error, the call fails: a [`CallError`] keeps
    /// its kind, any other error becomes `Unavailable`.
    ///
    /// The response headers of `GetContainerEvents` arrive with the first event, which may take hours:
    /// a layer must not set a timeout on that call.
    ///
    /// ```
    /// use pleg_cri::{CallRequest, CriConfig, CriRuntime};
    /// use tower::util::MapRequestLayer;
    ///
    /// # use tonic::codegen::http;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # let _entered = tokio.enter();
    /// let config = CriConfig::new("unix:///run/proxy.sock".parse()?);
    /// let token = "Bearer 5a1f".parse::<http::HeaderValue>()?;
    /// let authenticate = MapRequestLayer::new(move |mut call: CallRequest| {
    ///     call.headers_mut().insert("authorization", token.clone());
    ///     call
    /// });
    /// let runtime = CriRuntime::new(config)?.with_layer(authenticate);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_layer<L, B>(mut self, layer: L) -> Self
    where
        L: Layer<CallService> + Send + Sync + 'static,
        L::Service: Service<
                CallRequest,
                Response = http::Response<B>,
                Error: Into<BoxError>,
                Future: Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let layers = self.connection.layers.clone().within(layer);
        self.connection = self.connection.with_layers(layers);
        self
    }

    /// Sets the check for another subscriber, for a program that runs next to a kubelet. If the runtime gives each
    /// event to one subscriber only, [`Runtime::stream_hazard`] calls `check`, which returns the reason to expect
    /// another subscriber, if any. Without a check, the client expects no other subscriber.
    ///
    /// `check` may block. If it takes longer than 2 s, the client expects another subscriber.
    pub fn with_subscriber_check<F>(mut self, check: F) -> Self
    where
        F: Fn() -> Option<String> + Send + Sync + 'static,
    {
        self.others = Some(SubscriberCheck::new(check));
        self
    }

    /// Uses the given clock, and passes it to each [`client`](Self::client) made afterwards. For tests on paused time
    /// ([`Clock::start_at`]).
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.connection.clock = clock;
        self
    }

    /// The clock of this client and of the clients that [`client`](Self::client) returns.
    pub const fn clock(&self) -> Clock {
        self.connection.clock
    }

    /// A client for the calls that change the runtime, with this client's settings, layers and clock. It has its own
    /// connection, so that reads and writes do not delay each other. Does not connect yet.
    pub fn client(&self) -> CriClient {
        CriClient::new(self.connection.separate())
    }

    /// Checks the endpoint on a separate connection. Takes less than 8 s.
    ///
    /// # Errors
    /// The reason why the endpoint cannot be used. The message names the endpoint and suggests a solution.
    ///
    /// # Cancel safety
    /// Dropping the future ends the check and changes nothing.
    pub async fn diagnose(&self) -> Result<RuntimeVersion, ConnectError> {
        diagnose(&self.config().endpoint).await
    }

    /// The settings.
    pub fn config(&self) -> &CriConfig {
        &self.connection.config
    }

    // The raw channel, for the tests of this workspace: without deadlines, conversion, metrics and layers.
    #[doc(hidden)]
    pub fn runtime_client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.connection.raw_channel())
            .max_decoding_message_size(self.config().message_limit)
    }

    /// Makes a call whose response is decoded as `A`, a message type that may lack some of the response's fields.
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<Response<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let mut client = self.connection.grpc().await?;
        let codec = ProstCodec::default();
        client.unary(Request::new(request), path, codec).await
    }

    /// Makes a call that reads the object `id`. Measures the call, and limits its time.
    async fn read<T>(
        &self,
        operation: Operation,
        id: &str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let deadline = self.config().call_deadline;
        let call = call.map_ok(Response::into_inner);
        let connection = &self.connection;
        connection.operation(operation, id, deadline, call).await
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
        let path = "/runtime.v1.RuntimeService/PodSandboxStatus";
        let call = self.call::<_, StatusResponse<BriefSandbox>>(path, request);
        report(operation, self.read(operation, id.as_str(), call).await?)
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let operation = Operation::CONTAINER_STATUS;
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        let path = "/runtime.v1.RuntimeService/ContainerStatus";
        let call = self.call::<_, StatusResponse<BriefContainer>>(path, request);
        report(operation, self.read(operation, id.as_str(), call).await?)
    }

    async fn subscribe(&self) -> Result<Events, CallError> {
        let connector = &self.connection.connector;
        let connected = async { transport::single(connector.connect().await?).await };
        let channel = connected
            .await
            .map_err(|error| no_connection(Operation::EVENTS, &error))?;
        let service = self.connection.layers.around(channel);
        Ok(Events::new(service, self.config(), self.connection.clock))
    }

    async fn stream_hazard(&self) -> Result<Option<String>, CallError> {
        let version = self.version().await?;
        let is_shared = quirks::event_profile(&version).splits_events_between_subscribers;
        let other = match &self.others {
            Some(check) if is_shared => check.run().await,
            _ => None,
        };
        Ok(quirks::stream_hazard(&version, other.as_deref()))
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        Ok(quirks::event_profile(&self.version().await?))
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let mut client = self.connection.runtime();
        let call = client.version(version_request());
        let version = self.read(Operation::VERSION, "", call).await;
        version.map(convert::version)
    }
}

/// The status in a response.
fn report<S: BriefStatus>(
    operation: Operation,
    response: StatusResponse<S>,
) -> Result<Report, CallError> {
    let status = response.status;
    // Lists bring labels and annotations.
    let report = status.and_then(|status| status.report(Labels::default(), Labels::default()));
    report.ok_or_else(|| malformed(operation, "the response has no status"))
}

impl fmt::Debug for CriRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriRuntime")
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}
