//! Connections over a unix socket: the one that reconnects, for calls, and the one of its own
//! that every event stream gets.
//!
//! No HTTP/2 keepalive pings (quirk `pings are punished`) and no timeout of the channel (quirk
//! `headers come with the first event`), here or anywhere: signs of life come from calls that have
//! a deadline.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
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

/// A channel that connects with its first call, and again whenever the connection was lost.
///
/// Must be called inside a tokio runtime.
pub(crate) fn reconnecting(config: &CriConfig, connections: &Connections) -> Channel {
    let path: Arc<Path> = config.endpoint.path().into();
    let connections = connections.clone();
    http().connect_with_connector_lazy(service_fn(move |_| {
        let (path, connections) = (path.clone(), connections.clone());
        async move {
            let stream = dial(&path).await?;
            connections.0.fetch_add(1, Ordering::Relaxed);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    }))
}

/// A channel over this one connection; once that is lost, every call fails.
pub(crate) async fn over(stream: UnixStream) -> io::Result<Channel> {
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
