//! Serves gRPC on a unix socket or on a given connection.

use std::{
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use futures::{Stream, StreamExt as _, stream};
use pleg_cri::v1::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    body::Body,
    codegen::http::{self, HeaderValue, header::DATE},
    transport::{Server, server::Router},
};
use tower::{
    layer::util::{Identity, Stack},
    util::MapResponseLayer,
};

use crate::{
    connection::Connection,
    engine::Engine,
    error::SimError,
    process::{Phase, Process},
    service::CriService,
};

/// A socket that is being served. Dropping this does not stop it.
#[derive(Debug)]
#[must_use = "this stops serving"]
pub struct Serving {
    path: PathBuf,
    stop: CancellationToken,
    task: TaskTracker,
}

impl Serving {
    /// Starts serving as a task of the simulator. The future ends when the token is cancelled.
    pub(crate) fn start<F>(
        engine: &Engine,
        path: &Path,
        serve: impl FnOnce(CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, task) = (engine.stop.child_token(), TaskTracker::new());
        engine.tasks.spawn(task.track_future(serve(stop.clone())));
        task.close();
        let path = path.to_owned();
        Self { path, stop, task }
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts the connections and removes the socket. Returns when both are done, without waiting for
    /// calls in progress: a hanging call fails with its connection. The runtime keeps running, with
    /// its subscribers and queued events; the control command `restart` restarts it.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.wait().await;
    }

    /// Returns when serving has ended, for whatever reason.
    pub async fn stopped(self) {
        self.task.wait().await;
    }
}

/// Serves a new socket until `shutdown` completes or the simulator ends. Every process of the
/// runtime binds the socket again.
pub(crate) fn serve_unix(
    engine: &Arc<Engine>,
    path: &Path,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, SimError> {
    let socket = Socket::bind(path)?;
    engine.sockets.send_modify(|s| s.wanted += 1);
    let of_task = Arc::clone(engine);
    Ok(Serving::start(engine, path, async move |stop| {
        let wait_for_shutdown = async {
            tokio::select! {
                () = shutdown => stop.cancel(),
                () = stop.cancelled() => {}
            }
        };
        let serve = async {
            if let Err(error) = serve_every_process(&of_task, socket, &stop).await {
                tracing::warn!(%error, "stopped serving the socket");
            }
            stop.cancel();
        };
        futures::future::join(wait_for_shutdown, serve).await;
        of_task.sockets.send_modify(|s| s.wanted -= 1);
    }))
}

/// Binds and serves the socket for every process of the runtime, until `stop`.
async fn serve_every_process(
    engine: &Arc<Engine>,
    mut socket: Socket,
    stop: &CancellationToken,
) -> Result<(), SimError> {
    let mut phase = engine.phase.subscribe();
    loop {
        let path = socket.path.clone();
        {
            let process = engine.process();
            let serving = serve_process(engine, &process, socket, stop);
            process.servers.track_future(serving).await;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = phase.wait_for(|p| *p != Phase::Down) => socket = Socket::bind(&path)?,
        }
    }
}

/// Serves until `stop`, or until the process ends.
async fn serve_process(
    engine: &Arc<Engine>,
    process: &Process,
    socket: Socket,
    stop: &CancellationToken,
) {
    engine.sockets.send_modify(|s| s.bound += 1);
    let Socket {
        path,
        listener,
        file,
    } = socket;
    let incoming = UnixListenerStream::new(listener);
    serve_connections(engine, process, incoming, stop, None).await;
    // A killed process leaves its socket file behind.
    let was_killed = process.was_killed.load(Ordering::Relaxed);
    if !was_killed || stop.is_cancelled() {
        file.remove(&path);
    }
    engine.sockets.send_modify(|s| s.bound -= 1);
}

/// Returns true when connections are accepted, and false if the process ends first.
async fn wait_until_accepting(
    engine: &Engine,
    process: &Process,
    stop: &CancellationToken,
) -> bool {
    if !engine.profile.is_crio || engine.phase() == Phase::Serving {
        return !process.ended.is_cancelled();
    }
    tokio::select! {
        ready = engine.wait_until_ready() => ready.is_ok(),
        () = stop.cancelled() => false,
        () = process.ended.cancelled() => false,
    }
}

/// Serves one connection until either side closes it, or the process ends.
pub(crate) fn serve_stream<IO>(engine: &Arc<Engine>, io: IO)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (of_task, process) = (Arc::clone(engine), engine.process());
    let servers = process.servers.clone();
    engine.tasks.spawn(servers.track_future(async move {
        let closed = of_task.stop.child_token();
        let incoming = stream::iter([Ok(io)]).chain(stream::pending());
        serve_connections(&of_task, &process, incoming, &closed, Some(&closed)).await;
    }));
}

/// Serves connections until `stop`, or until the process ends. A connection that closes cancels
/// `closed`.
async fn serve_connections<IO>(
    engine: &Arc<Engine>,
    process: &Process,
    incoming: impl Stream<Item = io::Result<IO>>,
    stop: &CancellationToken,
    closed: Option<&CancellationToken>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // While the runtime does not respond, connections wait in the listener's backlog.
    if !wait_until_accepting(engine, process, stop).await {
        return;
    }
    let incoming = incoming.map(|accepted| {
        let cuts = [stop.clone(), process.connections()];
        let closed = closed.cloned().map(CancellationToken::drop_guard);
        accepted.map(|io| Connection::new(io, cuts, closed, engine.clock))
    });
    let ended = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = process.ended.cancelled() => {}
        }
    };
    let served = router(engine).serve_with_incoming_shutdown(incoming, ended);
    if let Err(error) = served.await {
        tracing::warn!(%error, "serving failed");
    }
}

type FixedDate = MapResponseLayer<fn(http::Response<Body>) -> http::Response<Body>>;

fn router(engine: &Arc<Engine>) -> Router<Stack<FixedDate, Identity>> {
    let service = CriService::new(Arc::clone(engine));
    let limit = engine.profile.message_limit;
    let runtime = RuntimeServiceServer::new(service.clone())
        .max_decoding_message_size(limit)
        // `lists` and `stream` enforce the limit on responses, with the error message of grpc-go.
        .max_encoding_message_size(usize::MAX);
    let images = ImageServiceServer::new(service)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(usize::MAX);
    Server::builder()
        .layer(MapResponseLayer::new(fix_date as fn(_) -> _))
        .add_service(runtime)
        .add_service(images)
}

/// Sets the `date` header, which runtimes do not send. Without it hyper would add the real date, and the
/// length of a response would depend on whether the second has changed since the last one.
fn fix_date(mut response: http::Response<Body>) -> http::Response<Body> {
    let date = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
    response.headers_mut().insert(DATE, date);
    response
}

/// A bound socket.
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

impl Socket {
    pub(crate) fn bind(path: &Path) -> Result<Self, SimError> {
        remove_stale_socket(path)?;
        Ok(Self {
            path: path.to_owned(),
            listener: UnixListener::bind(path).map_err(io_error("bind", path))?,
            file: SocketFile::of(path).map_err(io_error("inspect", path))?,
        })
    }
}

/// The error of what the operating system refuses to do with the path.
fn io_error(what: &'static str, path: &Path) -> impl Fn(io::Error) -> SimError {
    let path = path.to_owned();
    move |source| SimError::Io {
        what,
        path: path.clone(),
        source,
    }
}

/// Removes a socket file that no process listens on, and no other file.
fn remove_stale_socket(path: &Path) -> Result<(), SimError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("inspect", path)(error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(SimError::NotASocket {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(SimError::InUse {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(io_error("remove the stale socket", path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("connect to", path)(error)),
    }
}

/// The identity of a socket file, to detect that it was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketFile(u64, u64);

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(Self(file.dev(), file.ino()))
    }

    pub(crate) fn remove(self, path: &Path) {
        if Self::of(path).is_ok_and(|now| now == self) {
            // If this fails, the next server removes the stale socket.
            let _ = std::fs::remove_file(path);
        }
    }
}
