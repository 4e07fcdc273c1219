//! Connections to the runtime: all calls share one connection, which reconnects; each event stream has its own
//! connection. They use a unix socket or a connector that the embedder provides.
//!
//! Connections send no HTTP/2 keepalive pings (quirk `too_many_pings`), and channels have no
//! timeout (quirk `headers with the first event`). Calls with deadlines detect a dead runtime.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::transport::{Channel, Endpoint as Http};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt as _, service_fn};

use crate::config::CriConfig;
use crate::v1;

/// The version of the kubelet's API, which is part of a `Version` request.
const KUBELET_API: &str = "0.1.0";

/// The `Version` request of the kubelet.
pub(crate) fn version_request() -> v1::VersionRequest {
    v1::VersionRequest {
        version: KUBELET_API.to_owned(),
    }
}

/// The time limit of connecting. The kernel accepts connections to a listening socket, so this is fast even if the
/// runtime hangs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of response headers. They carry the error message, in which runtimes quote the
/// whole output of programs. Larger headers fail the call.
const MAX_HEADERS: u32 = 1 << 20;

/// The number of bytes of one response that the runtime may send before the client reads them. The client does not read
/// responses that wait for the receive budget.
const RESPONSE_WINDOW: u32 = 128 << 10;

/// The number of bytes of all responses together that the runtime may send before the client reads them: practically
/// unlimited, because unread responses would otherwise block all others.
const CONNECTION_WINDOW: u32 = i32::MAX as u32;

/// The number of times that the reconnecting channel has connected, which identifies the present connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<AtomicU64>);

impl Connections {
    /// The number of the connection that the next call will probably use; 1 if there is none yet.
    pub(crate) fn current(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

/// A byte stream for HTTP/2.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

type Connecting = BoxFuture<'static, io::Result<Box<dyn Io>>>;

/// Creates connections.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn() -> Connecting + Send + Sync>);

impl Connector {
    /// Connects to the socket of the endpoint.
    pub(crate) fn unix(config: &CriConfig) -> Self {
        let path: Arc<Path> = config.endpoint.path().into();
        Self::new(move || {
            let path = path.clone();
            async move { UnixStream::connect(&path).await }
        })
    }

    /// Connects with the embedder's function.
    pub(crate) fn new<C, F, S>(connect: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Io,
    {
        Self(Arc::new(move || {
            connect()
                .map(|connected| connected.map(|stream| Box::new(stream) as Box<dyn Io>))
                .boxed()
        }))
    }

    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Io>> {
        // A panic of `connect` would end the task that serves all calls of the channel.
        let connecting = AssertUnwindSafe(async { (self.0)().await }).catch_unwind();
        let panicked = |_| Err(io::Error::other("the connector panicked"));
        with_timeout(connecting.map(|connected| connected.unwrap_or_else(panicked))).await
    }
}

/// A call on its way to the runtime: its path is `/runtime.v1.RuntimeService/` or
/// `/runtime.v1.ImageService/` and the name of the call, its body the encoded message in a gRPC frame.
pub type CallRequest = http::Request<CallBody>;

/// The response of a call: each encoded message in its body is in a gRPC frame; the gRPC status is in the
/// trailers, or in the headers if the call failed at once.
pub type CallResponse = http::Response<CallBody>;

/// The service that makes a call. A tower layer wraps this service
/// ([`CriRuntime::with_layer`](crate::CriRuntime::with_layer)).
pub type CallService = BoxCloneSyncService<CallRequest, CallResponse, BoxError>;

/// The body of a call's request or response: gRPC frames, which a layer must pass on unchanged.
#[derive(Debug)]
pub struct CallBody(Body);

impl HttpBody for CallBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A gRPC channel, or a channel within the embedder's layers, as the generated clients use it.
pub(crate) type Transport =
    BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;

type Wrap = dyn Fn(Transport) -> Transport + Send + Sync;

/// The embedder's layers around every channel.
#[derive(Clone, Default)]
pub(crate) struct Layers(Option<Arc<Wrap>>);

impl Layers {
    /// The channel within the layers.
    pub(crate) fn around(&self, channel: Channel) -> Transport {
        self.apply(Transport::new(channel.map_err(BoxError::from)))
    }

    /// These layers within another one.
    pub(crate) fn within<L, B>(self, layer: L) -> Self
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
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Some(Arc::new(move |transport| {
            let calls = self
                .apply(transport)
                .map_request(|request: CallRequest| request.map(|CallBody(body)| body))
                .map_response(|response| response.map(CallBody));
            let calls = layer
                .layer(CallService::new(calls))
                .map_request(|request: http::Request<Body>| request.map(CallBody))
                .map_response(|response: http::Response<B>| response.map(Body::new))
                .map_err(Into::into);
            Transport::new(calls)
        })))
    }

    fn apply(&self, transport: Transport) -> Transport {
        match &self.0 {
            Some(wrap) => wrap(transport),
            None => transport,
        }
    }
}

/// A channel that connects on the first call, and reconnects after the connection is lost.
///
/// Must be called inside a tokio runtime.
pub(crate) fn reconnecting(connector: &Connector, connections: &Connections) -> Channel {
    let (connector, connections) = (connector.clone(), connections.clone());
    let endpoint = endpoint()
        .initial_stream_window_size(RESPONSE_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let (connector, connections) = (connector.clone(), connections.clone());
        async move {
            let stream = connector.connect().await?;
            connections.0.fetch_add(1, Ordering::Relaxed);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    }))
}

/// A channel over the connection `stream` only. After this connection is lost, every call fails.
pub(crate) async fn single(stream: impl Io) -> io::Result<Channel> {
    let mut stream = Some(stream);
    let once = service_fn(move |_| {
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    with_timeout(async {
        endpoint()
            .connect_with_connector(once)
            .await
            .map_err(io::Error::other)
    })
    .await
}

/// Connects to a socket.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    with_timeout(UnixStream::connect(path)).await
}

async fn with_timeout<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let elapsed = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 5 s");
    tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .map_err(elapsed)?
}

/// The client sends the same authority as the kubelet. Runtimes ignore the authority.
fn endpoint() -> Http {
    Http::from_static("http://localhost").http2_max_header_list_size(MAX_HEADERS)
}
