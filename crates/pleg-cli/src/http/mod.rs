//! The HTTP server of the agent.
//!
//! Its clients must not be able to harm the agent. Each connection serves one request, with deadlines and bounded
//! buffers. At the limit of connections, a new connection closes an old one: its client's oldest if this client has
//! more than half of all connections, else the oldest of all. If new connections waited instead, a user of the node
//! who holds all connections open would make the kubelet's probes fail.

mod access;
mod listen;
mod rejected;
pub(crate) mod tls;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use pleg::runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::bounded;
pub(crate) use access::Access;
use access::NO_TOKEN;
pub(crate) use listen::Listen;
use listen::Listener;
use rejected::Rejected;

/// The maximum number of connections of a listener. Bounds memory and open files: a process may have 1,024.
const CONNECTIONS: usize = 128;
/// The maximum number of connections that were closed for newer ones and whose descriptors are still open.
const CLOSING: usize = 32;
/// The deadline of a TLS handshake, and of a request's header.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a whole connection. A client of an event stream connects again and resumes.
const DEADLINE: Duration = Duration::from_secs(5 * 60);
/// The maximum size of a request's header; hyper accepts no smaller limit.
const HEADER_BYTES: usize = 8 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

type Headers<'a> = &'a [(HeaderName, &'static str)];

pub(crate) fn reply(code: StatusCode, headers: Headers<'_>, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()).boxed_unsync());
    *reply.status_mut() = code;
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        reply.headers_mut().insert(name, value);
    }
    reply
}

/// Answers requests. The second argument is true if the client may read pods and metrics, and false if only health.
pub(crate) type Handler = Arc<dyn Fn(&Request<Incoming>, bool) -> Reply + Send + Sync>;

/// Serves until the returned future is dropped, which closes the connections.
pub(crate) async fn serve(
    listener: Listener,
    access: watch::Receiver<Arc<Access>>,
    handler: Handler,
) -> Infallible {
    let server = Arc::new(Server::new(access, handler, Rejected::default()));
    tokio::select! {
        never = accept(&listener, &server) => never,
        never = server.rejected.report() => never,
    }
}

#[derive(derive_more::Constructor)]
struct Server {
    access: watch::Receiver<Arc<Access>>,
    handler: Handler,
    rejected: Rejected,
}

async fn accept(listener: &Listener, server: &Arc<Server>) -> Infallible {
    // The connections, each with its client, the oldest first. Some may have ended already.
    let mut open: VecDeque<(String, AbortOnDropHandle<()>)> = VecDeque::new();
    let descriptors = Arc::new(Semaphore::new(CONNECTIONS + CLOSING));
    let clock = Clock::start();
    let mut failing = false;
    loop {
        let descriptor = descriptors.clone().acquire_owned().await;
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("cannot accept an HTTP connection: {error}; trying again");
                }
                clock.sleep_until(clock.now().after(ACCEPT_PAUSE)).await;
                continue;
            }
        };
        failing = false;
        let mut connection = Box::pin(serve_one(stream, client.clone(), server.clone()));
        // A request that was already sent is answered here, before a newer connection can close this one.
        if futures::poll!(&mut connection).is_ready() {
            continue;
        }
        open.retain(|(_, connection)| !connection.is_finished());
        if open.len() >= CONNECTIONS {
            open.remove(to_close(&open, &client));
        }
        let connection = tokio::spawn(async move {
            connection.await;
            drop(descriptor);
        });
        open.push_back((client, AbortOnDropHandle::new(connection)));
    }
}

/// The index of the connection to close: the oldest, but `client`'s oldest if `client` has more than half of all.
fn to_close<T>(open: &VecDeque<(String, T)>, client: &str) -> usize {
    let has_most = open.iter().filter(|(other, _)| other == client).count() > CONNECTIONS / 2;
    let may_close = |(other, _): &(String, T)| !has_most || other == client;
    open.iter().position(may_close).unwrap_or(0)
}

async fn serve_one(mut stream: Box<dyn Connection>, client: String, server: Arc<Server>) {
    let (access, rejected) = (server.access.borrow().clone(), &server.rejected);
    if let Some(tls) = &access.tls {
        stream = match timeout(HEADER_DEADLINE, tls.accept(stream)).await {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => return rejected.handshake(&error, &client),
            Err(_) => return,
        };
    }
    let service = service_fn(|request: Request<Incoming>| {
        let checked = access.check(request.headers());
        let reply = (server.handler)(&request, checked.is_ok());
        // Does not log a kubelet's probe, which sends no token and needs none.
        if let Err(reason) = checked
            && (reason != NO_TOKEN || reply.status() == StatusCode::UNAUTHORIZED)
        {
            rejected.note(reason, &client);
        }
        async move { Ok::<_, Infallible>(reply) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(DEADLINE, connection).await {
        tracing::debug!("an HTTP connection failed: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_with_over_half_of_all_connections_loses_its_oldest() {
        let open = |few: usize| {
            let client = |n| if n < few { "few" } else { "many" };
            let clients = (0..CONNECTIONS).map(client);
            clients.map(|client| (client.to_owned(), ())).collect()
        };
        assert_eq!(to_close(&open(10), "many"), 10);
        assert_eq!(to_close(&open(10), "few"), 0);
        assert_eq!(to_close(&open(CONNECTIONS / 2), "many"), 0);
    }
}
