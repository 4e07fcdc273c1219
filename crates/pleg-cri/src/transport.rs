//! Connections, over a unix socket or whatever the embedder hands out: the one that reconnects, for
//! calls, and the one of its own that every event stream gets.
//!
//! No HTTP/2 keepalive pings (quirk `pings are punished`) and no timeout of the channel (quirk
//! `headers come with the first event`), here or anywhere: signs of life come from calls that have
//! a deadline.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint as Http};
use tower::service_fn;

use crate::config::CriConfig;

/// The version of the kubelet's API, which a `Version` request carries.
pub(crate) const KUBELET_API: &str = "0.1.0";

/// How long connecting may take. A socket that exists answers at once, whatever its owner does.
const DIAL: Duration = Duration::from_secs(5);

/// The largest head of an answer. An error's text travels there, and runtimes quote whole outputs
/// of programs in it; more than this breaks the call.
const LARGEST_HEAD: u32 = 1 << 20;

/// How often the reconnecting channel has connected. The number names the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<AtomicU64>);

impl Connections {
    /// The number of the connection that a call issued now will use, as far as can be known: the
    /// first one if there was none yet.
    pub(crate) fn current(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

/// Something that HTTP/2 can be spoken over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

type Dialling = BoxFuture<'static, io::Result<Box<dyn Io>>>;

/// How a connection is had.
#[derive(Clone)]
pub(crate) struct Dialler(Arc<dyn Fn() -> Dialling + Send + Sync>);

impl Dialler {
    /// By the socket of the endpoint.
    pub(crate) fn unix(config: &CriConfig) -> Self {
        let path: Arc<Path> = config.endpoint.path().into();
        Self::by(move || {
            let path = path.clone();
            async move { UnixStream::connect(&path).await }
        })
    }

    /// By asking the embedder.
    pub(crate) fn by<C, F, S>(connect: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Io,
    {
        Self(Arc::new(move || {
            connect()
                .map(|dialled| dialled.map(|stream| Box::new(stream) as Box<dyn Io>))
                .boxed()
        }))
    }

    pub(crate) async fn dial(&self) -> io::Result<Box<dyn Io>> {
        within_dial((self.0)()).await
    }
}

/// A channel that connects with its first call, and again whenever the connection was lost.
///
/// Must be called inside a tokio runtime.
pub(crate) fn reconnecting(dialler: &Dialler, connections: &Connections) -> Channel {
    let (dialler, connections) = (dialler.clone(), connections.clone());
    http().connect_with_connector_lazy(service_fn(move |_| {
        let (dialler, connections) = (dialler.clone(), connections.clone());
        async move {
            let stream = dialler.dial().await?;
            connections.0.fetch_add(1, Ordering::Relaxed);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    }))
}

/// A channel over this one connection; once that is lost, every call fails.
pub(crate) async fn over(stream: impl Io) -> io::Result<Channel> {
    let mut stream = Some(stream);
    let once = service_fn(move |_| {
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    within_dial(async {
        http()
            .connect_with_connector(once)
            .await
            .map_err(io::Error::other)
    })
    .await
}

/// A connection to that socket.
pub(crate) async fn dial(path: &Path) -> io::Result<UnixStream> {
    within_dial(UnixStream::connect(path)).await
}

async fn within_dial<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let elapsed = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 5 s");
    tokio::time::timeout(DIAL, connecting)
        .await
        .map_err(elapsed)?
}

/// The authority is what the kubelet sends; nobody looks at it.
fn http() -> Http {
    Http::from_static("http://localhost").http2_max_header_list_size(LARGEST_HEAD)
}
