//! The HTTP server of the agent.
//!
//! It must not harm the agent, whatever its clients do. Each connection serves one request, has a
//! deadline for its header and one for everything, and bounded buffers. The number of connections is
//! limited; at the limit, a new connection replaces the oldest one of the address that has most. So
//! idle and slow clients cannot keep others out, and the descriptors that the connections to the
//! runtime need stay free.

mod access;
mod listen;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::{self, Cursor};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use pleg::runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) use access::Access;
pub(crate) use listen::{Listen, Listener};

/// The most connections at a time. They bound the memory: the allocator keeps what a flood has used.
const CONNECTIONS: u64 = 128;
/// The most connections that were replaced and are not closed yet. Hostile clients that connect again
/// at once fill the queue of the listener, and a new client waits until those before it are accepted.
/// So none of them is waited for.
const CLOSING: usize = 32;
/// How many descriptors are left for everything but these connections. The agent uses about 20; a
/// connection to the runtime needs one.
const RESERVED_DESCRIPTORS: u64 = 64 + CLOSING as u64;
/// The deadline of a request's header.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a TLS handshake, and of a response.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(15);
/// The deadline of a response without a length, which goes on until then. Its client may resume.
const STREAM_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// The most bytes of a request's header; hyper takes no less.
const HEADER_BYTES: usize = 8 << 10;
/// How long to wait if no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A response. If its body has no length, it goes on for at most [`STREAM_DEADLINE`].
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

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
                let client = stream.client();
                let connection = serve_connection(stream, access, handler.clone());
                connections.add(client, connection).await;
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
    /// Those of each client, in the order of their start. Some may have ended.
    clients: HashMap<Option<IpAddr>, VecDeque<AbortHandle>>,
}

impl Connections {
    fn new(limit: u64) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            tasks: JoinSet::new(),
            clients: HashMap::new(),
        }
    }

    /// Starts a connection. At the limit, it replaces the oldest one of the client that has most.
    async fn add(
        &mut self,
        client: Option<IpAddr>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= self.limit {
            self.close_one();
        }
        while self.tasks.len() >= self.limit + CLOSING {
            self.tasks.join_next().await;
        }
        let own = self.clients.entry(client).or_default();
        own.retain(|task| !task.is_finished());
        own.push_back(self.tasks.spawn(connection));
    }

    fn close_one(&mut self) {
        if self.clients.len() > self.limit {
            self.clients.retain(|_, tasks| {
                tasks.retain(|task| !task.is_finished());
                !tasks.is_empty()
            });
        }
        let busiest = self.clients.values_mut().max_by_key(|tasks| tasks.len());
        let Some(tasks) = busiest else {
            return;
        };
        let mut oldest = std::iter::from_fn(|| tasks.pop_front());
        if let Some(task) = oldest.find(|task| !task.is_finished()) {
            task.abort();
        }
    }
}

async fn serve_connection(stream: listen::Stream, access: Arc<Access>, handler: Handler) {
    match access.tls() {
        None => serve_requests(stream, access, handler).await,
        // In a box: a connection without TLS needs less memory.
        Some(tls) => Box::pin(serve_tls(tls, stream, access, handler)).await,
    }
}

async fn serve_tls(
    tls: Arc<ServerConfig>,
    stream: listen::Stream,
    access: Arc<Access>,
    handler: Handler,
) {
    match timeout(CONNECTION_DEADLINE, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, access, handler).await,
        Ok(Err(error)) => tracing::debug!("TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("the TLS handshake took too long"),
    }
}

async fn serve_requests(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    access: Arc<Access>,
    handler: Handler,
) {
    let Ok(Ok(header)) = timeout(HEADER_DEADLINE, read_header(&mut stream)).await else {
        return;
    };
    let (read, write) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new(header).chain(read), write);
    let goes_on = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        let reply = handler(&request, access.allows(request.headers()));
        let has_length = reply.body().size_hint().exact().is_some();
        goes_on.store(!has_length, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(reply) }
    });
    let connection = http1::Builder::new()
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = Box::pin(connection);
    let mut served = timeout(CONNECTION_DEADLINE, &mut connection).await;
    if served.is_err() && goes_on.load(Ordering::Relaxed) {
        served = timeout(STREAM_DEADLINE, &mut connection).await;
    }
    // If the deadline has passed, it is the client that was too slow, or that resumes.
    if let Ok(Err(error)) = served {
        tracing::debug!("an HTTP connection failed: {error}");
    }
}

/// Reads until the header is complete, the client ends, or there is more than a header may have. hyper
/// would reserve its buffers before the client sends anything.
async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    let mut searched = 0;
    loop {
        let is_end = |at: &[u8]| at.starts_with(b"\n\n") || at.starts_with(b"\n\r\n");
        let mut rest = (searched..header.len()).map(|at| &header[at..]);
        if rest.any(is_end) || header.len() >= HEADER_BYTES {
            return Ok(header);
        }
        // The end may have begun.
        searched = header.len().saturating_sub(2);
        if stream.read_buf(&mut header).await? == 0 {
            return Ok(header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn client_with_most_connections_loses_its_oldest() {
        let mut connections = Connections::new(4);
        let [few, many] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| Some(IpAddr::from(ip)));
        connections.add(few, std::future::pending()).await;
        for _ in 0..20 {
            connections.add(many, std::future::pending()).await;
            tokio::task::yield_now().await;
        }
        let open = |client| connections.clients[&client].iter();
        assert!(open(few).all(|task| !task.is_finished()));
        assert_eq!(open(few).chain(open(many)).count(), 4);
        // Those that have ended do not count.
        for _ in 0..20 {
            connections.add(few, std::future::ready(())).await;
            tokio::task::yield_now().await;
        }
        assert!(connections.clients[&few].len() <= 2);
        assert_eq!(connections.clients[&many].len(), 2);
    }

    #[tokio::test]
    async fn header_is_read_to_its_end_or_limit() {
        let large = "x".repeat(HEADER_BYTES * 3);
        for (parts, expected) in [
            (&["GET / HTTP/1.1\r\nA: b\r", "\n\r", "\n", "body"][..], 3),
            (&["GET /\n", "\n", "body"], 2),
            (&["GET /\r\n"], 1),
            (&[&*large, "more"], 1),
        ] {
            let mut stream: Box<dyn AsyncRead + Unpin> = Box::new(tokio::io::empty());
            for part in parts {
                stream = Box::new(stream.chain(part.as_bytes()));
            }
            let header = read_header(&mut stream).await.expect("read");
            let expected = parts[..expected].concat();
            let most = header.len().min(HEADER_BYTES);
            assert_eq!(header[..most], expected.as_bytes()[..most], "{parts:?}");
            assert_eq!(most, expected.len().min(HEADER_BYTES));
            assert!(header.len() < HEADER_BYTES * 2);
        }
    }
}
