//! The HTTP server of the agent.
//!
//! It must not harm the agent, whatever its clients do. Each connection serves one request, has a
//! deadline for its header and one for everything, and bounded buffers. The number of connections is
//! limited; at the limit, a new connection replaces the oldest one. So idle and slow clients cannot
//! keep others out, and the descriptors that the connections to the runtime need stay free.

mod access;
mod listen;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use pleg::runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub(crate) use access::Access;
pub(crate) use listen::{Listen, Listener};

/// The most connections at a time.
const CONNECTIONS: u64 = 128;
/// How many descriptors are left for everything but these connections. The agent uses about 20; a
/// connection to the runtime needs one.
const RESERVED_DESCRIPTORS: u64 = 64;
/// The deadline of a request's header.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a connection: TLS handshake, request and response.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(15);
/// The most bytes of a request's header.
const HEADER_BYTES: usize = 16 << 10;
/// How long to wait if no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A complete response.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Answers requests. The second argument says whether the client may read everything.
pub(crate) type Handler = Arc<dyn Fn(&Request<Incoming>, bool) -> Reply + Send + Sync>;

/// Serves until this future is dropped. `descriptors` is how many files this process may open.
pub(crate) async fn serve(
    listener: Listener,
    access: watch::Receiver<Arc<Access>>,
    handler: Handler,
    descriptors: u64,
) -> Infallible {
    let spare = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
    let mut connections = Connections::new(spare.clamp(1, CONNECTIONS));
    let clock = Clock::start();
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok(stream) => {
                failing = false;
                let access = access.borrow().clone();
                let connection = serve_connection(stream, access, handler.clone());
                connections.add(connection).await;
                // The new task runs before further connections can replace it.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("cannot accept an HTTP connection: {error}; trying again");
                }
                clock.sleep_until(clock.now().after(ACCEPT_PAUSE)).await;
            }
        }
    }
}

/// The open connections. They are closed when this is dropped.
struct Connections {
    limit: usize,
    tasks: JoinSet<()>,
    /// In the order of their start. Some may have ended.
    oldest: VecDeque<AbortHandle>,
}

impl Connections {
    fn new(limit: u64) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            tasks: JoinSet::new(),
            oldest: VecDeque::new(),
        }
    }

    /// Starts a connection. At the limit, the oldest one is closed first.
    async fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.oldest.retain(|task| !task.is_finished());
        if self.tasks.len() >= self.limit {
            if let Some(task) = self.oldest.pop_front() {
                task.abort();
            }
            self.tasks.join_next().await;
        }
        let limited = async {
            // It is the client that was too slow.
            let _elapsed = tokio::time::timeout(CONNECTION_DEADLINE, connection).await;
        };
        self.oldest.push_back(self.tasks.spawn(limited));
    }
}

async fn serve_connection(stream: listen::Stream, access: Arc<Access>, handler: Handler) {
    match access.tls() {
        None => serve_requests(stream, access, handler).await,
        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => serve_requests(stream, access, handler).await,
            Err(error) => tracing::debug!("TLS handshake failed: {error}"),
        },
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    access: Arc<Access>,
    handler: Handler,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let reply = handler(&request, access.allows(request.headers()));
        async move { Ok::<_, Infallible>(reply) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("an HTTP connection failed: {error}");
    }
}
