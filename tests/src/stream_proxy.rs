//! A proxy in front of a runtime's socket that forwards all calls, and answers the call for the event
//! stream as it is configured.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{FutureExt, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Empty, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pleg_cri::Endpoint;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

type Body = BoxBody<Bytes, hyper::Error>;

/// What is done with the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// It is forwarded.
    Forwarded,
    /// The runtime has none: UNIMPLEMENTED.
    NeverOffered,
    /// It ends, and is UNAVAILABLE.
    Away,
}

impl Stream {
    /// The code with which it ends.
    const fn status(self) -> &'static str {
        match self {
            Self::Forwarded => "0",
            Self::NeverOffered => "12",
            Self::Away => "14",
        }
    }
}

/// The proxy. Its connections end when it is dropped.
#[derive(Debug)]
pub struct StreamProxy {
    /// Its socket.
    pub endpoint: Endpoint,
    stream: watch::Sender<Stream>,
    forwarded: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for StreamProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StreamProxy {
    /// Forwards connections to the socket at `at` to that runtime.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn start(at: &Path, runtime: &Endpoint, stream: Stream) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(at)?;
        let (stream, receiver) = watch::channel(stream);
        let forwarded: Arc<AtomicU64> = Arc::default();
        let upstream = Upstream {
            runtime: runtime.clone(),
            stream: receiver,
            forwarded: forwarded.clone(),
        };
        let task = tokio::spawn(accept(listener, upstream));
        Ok(Self {
            endpoint: format!("unix://{}", at.display()).parse()?,
            stream,
            forwarded,
            task,
        })
    }

    /// What is done with the event stream from now on. One that is open ends, unless it is forwarded.
    pub fn set(&self, stream: Stream) {
        self.stream.send_replace(stream);
    }

    /// How many streams were forwarded so far.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Upstream {
    runtime: Endpoint,
    stream: watch::Receiver<Stream>,
    forwarded: Arc<AtomicU64>,
}

async fn accept(listener: UnixListener, upstream: Upstream) {
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        connections.spawn(serve(connection, upstream.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards one connection, until either end of it is closed. One that the runtime does not accept is
/// closed at once.
async fn serve(connection: UnixStream, upstream: Upstream) {
    let Ok(runtime) = UnixStream::connect(upstream.runtime.path()).await else {
        return;
    };
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(runtime));
    let Ok((calls, to_runtime)) = handshake.await else {
        return;
    };
    let service = service_fn(|request| forward(request, calls.clone(), upstream.clone()));
    let from_client = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(connection), service);
    // An error of a connection ends it.
    tokio::select! {
        _ = to_runtime => {}
        _ = from_client => {}
    }
}

async fn forward(
    request: Request<Incoming>,
    mut calls: SendRequest<Incoming>,
    mut upstream: Upstream,
) -> Result<Response<Body>, hyper::Error> {
    if !request.uri().path().ends_with("/GetContainerEvents") {
        return Ok(calls.send_request(request).await?.map(BodyExt::boxed));
    }
    let stream = *upstream.stream.borrow();
    if stream != Stream::Forwarded {
        return Ok(refused(stream));
    }
    upstream.forwarded.fetch_add(1, Ordering::Relaxed);
    let ended = async move {
        let changed = upstream.stream.wait_for(|s| *s != Stream::Forwarded).await;
        changed.map_or(Stream::Away, |stream| *stream)
    };
    let ended = ended.boxed().shared();
    // A runtime answers with the first event.
    tokio::select! {
        response = calls.send_request(request) => Ok(response?.map(|body| until_ended(body, ended))),
        stream = ended.clone() => Ok(refused(stream)),
    }
}

/// The body, until the stream ends.
fn until_ended(
    body: Incoming,
    ended: impl Future<Output = Stream> + Send + Sync + 'static,
) -> Body {
    let end = async { Ok(Frame::trailers(status(Stream::Away))) };
    // If the stream does not end, the runtime's own trailers are sent last.
    let frames = BodyStream::new(body)
        .take_until(ended)
        .chain(futures::stream::once(end));
    BodyExt::boxed(StreamBody::new(frames))
}

fn refused(stream: Stream) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(never).boxed());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.extend(status(stream));
    response
}

const fn never(never: Infallible) -> hyper::Error {
    match never {}
}

fn status(stream: Stream) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from_static(stream.status()));
    headers
}
