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
    codegen::http::{HeaderValue, Response, header::DATE},
    transport::Server,
};
use tower::util::MapResponseLayer;

use crate::{
    connection::Connection,
    engine::Engine,
    error::SimError,
    process::{Phase, Process},
    service::CriService,
    sim::Sim,
};

/// A socket that is being served. Dropping this value does not stop the serving.
#[derive(Debug)]
#[must_use = "its `stop` stops the serving"]
pub struct Serving {
    path: PathBuf,
    stop: CancellationToken,
    task: TaskTracker,
}

impl Serving {
    /// Runs the future of `serve` as a task. `serve` gets a token, whose cancellation must end the future.
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

    /// Returns when serving has ended, for any reason.
    pub async fn stopped(self) {
        self.task.wait().await;
    }
}

impl Sim {
    /// Serves a unix socket until `shutdown` completes, the returned handle stops the serving, or the simulator ends.
    /// Replaces a socket file that no process listens on. After a restart, the new process of the runtime binds the
    /// socket again. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If another process listens on the socket, if the path exists and is not a socket, or if the
    /// operating system returns an error.
    pub fn serve_unix(
        &self,
        path: impl AsRef<Path>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Serving, SimError> {
        let path = path.as_ref();
        let socket = SocketFile::bind(path)?;
        let engine = Arc::clone(&self.engine);
        Ok(Serving::start(&self.engine, path, async move |stop| {
            let until_shutdown = async {
                shutdown.await;
                stop.cancel();
            };
            let serve = async {
                if let Err(error) = serve_every_process(&engine, socket, &stop).await {
                    tracing::warn!(%error, "stopped serving the socket");
                }
                stop.cancel();
            };
            futures::future::join(stop.run_until_cancelled(until_shutdown), serve).await;
        }))
    }

    /// Serves one connection, such as one end of a `tokio::io::duplex`, until either side closes it, or the simulated
    /// runtime's process ends. Must be called inside a tokio runtime.
    pub fn serve_stream<IO>(&self, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (engine, process) = (Arc::clone(&self.engine), self.engine.process());
        let servers = process.servers.clone();
        self.engine.tasks.spawn(servers.track_future(async move {
            let closed = engine.stop.child_token();
            let incoming = stream::iter([Ok(io)]).chain(stream::pending());
            serve_connections(&engine, &process, incoming, &closed, Some(&closed)).await;
        }));
    }
}

/// Binds and serves the socket for every process of the runtime, until the token `stop` is cancelled.
async fn serve_every_process(
    engine: &Arc<Engine>,
    mut socket: (UnixListener, SocketFile),
    stop: &CancellationToken,
) -> Result<(), SimError> {
    let mut phase = engine.phase.subscribe();
    loop {
        let (process, path) = (engine.process(), socket.1.path.clone());
        let serving = serve_process(engine, &process, socket, stop);
        process.servers.track_future(serving).await;
        let started = phase.wait_for(|p| *p != Phase::Down);
        let is_stopped = stop.run_until_cancelled(started).await.is_none();
        let next = (!is_stopped).then(|| SocketFile::bind(&path)).transpose();
        engine.unbound.send_modify(|unbound| *unbound -= 1);
        match next? {
            Some(next) => socket = next,
            None => return Ok(()),
        }
    }
}

/// Serves until the token `stop` is cancelled, or until the runtime's process ends.
async fn serve_process(
    engine: &Arc<Engine>,
    process: &Process,
    (listener, file): (UnixListener, SocketFile),
    stop: &CancellationToken,
) {
    let incoming = UnixListenerStream::new(listener);
    serve_connections(engine, process, incoming, stop, None).await;
    // A killed process of the runtime leaves its socket file behind.
    let was_killed = process.was_killed.load(Ordering::Relaxed);
    if !was_killed || stop.is_cancelled() {
        file.remove();
    }
    engine.unbound.send_modify(|unbound| *unbound += 1);
}

/// Serves connections until `stop` is cancelled or `process` ends. A connection that closes cancels `closed`, if given.
async fn serve_connections<IO>(
    engine: &Arc<Engine>,
    process: &Process,
    incoming: impl Stream<Item = io::Result<IO>>,
    stop: &CancellationToken,
    closed: Option<&CancellationToken>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ended = || async {
        stop.run_until_cancelled(process.ended.cancelled()).await;
    };
    // While CRI-O does not respond, connections wait in the listener's backlog.
    let is_ready = async { !engine.profile.is_crio || engine.wait_until_ready().await.is_ok() };
    let accepts = tokio::select! {
        is_ready = is_ready => is_ready && !process.ended.is_cancelled(),
        () = ended() => false,
    };
    if !accepts {
        return;
    }
    let incoming = incoming.map(|accepted| {
        let cuts = [stop.clone(), process.connections()];
        let closed = closed.cloned().map(CancellationToken::drop_guard);
        accepted.map(|io| Connection::new(io, cuts, closed, engine.clock))
    });
    let engine = Arc::clone(engine);
    let limit = engine.profile.message_limit;
    let service = CriService { engine };
    // tonic must not limit responses: `lists` and `events` do so, with the error message of grpc-go.
    let runtime = RuntimeServiceServer::new(service.clone())
        .max_decoding_message_size(limit)
        .max_encoding_message_size(usize::MAX);
    let images = ImageServiceServer::new(service)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(usize::MAX);
    // Runtimes send no date header. Without this fixed date, hyper would add the current time, and the length of a
    // response would depend on whether the previous response has the same date.
    let fix_date = |mut response: Response<Body>| {
        let date = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
        response.headers_mut().insert(DATE, date);
        response
    };
    let server = Server::builder().layer(MapResponseLayer::new(fix_date));
    let router = { server }.add_service(runtime).add_service(images);
    if let Err(error) = router.serve_with_incoming_shutdown(incoming, ended()).await {
        tracing::warn!(%error, "serving failed");
    }
}

/// The file of a bound socket.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and inode numbers of the socket file, to detect that the file was replaced.
    id: (u64, u64),
}

impl SocketFile {
    /// Binds a socket. Replaces a socket file that no process listens on, and no other file.
    pub(crate) fn bind(path: &Path) -> Result<(UnixListener, Self), SimError> {
        let shown = path.display();
        let refused = |why: &str| Err(SimError(format!("{shown} {why}")));
        let failed =
            |what: &str, error: io::Error| SimError(format!("cannot {what} {shown}: {error}"));
        if let Ok(file) = std::fs::symlink_metadata(path) {
            if !file.file_type().is_socket() {
                return refused("exists and is not a socket; remove it or choose another path");
            }
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => {
                    return refused(
                        "is in use: another process listens on it; stop that process or choose \
                         another path",
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let removed = std::fs::remove_file(path);
                    removed.map_err(|error| failed("remove the stale socket", error))?;
                }
                // Ignore other errors of `connect`: if the file still exists, `bind` fails.
                Err(_) => {}
            }
        }
        let listener = UnixListener::bind(path).map_err(|error| failed("bind", error))?;
        let id = file_id(path).map_err(|error| failed("inspect", error))?;
        let path = path.to_owned();
        Ok((listener, Self { path, id }))
    }

    /// Removes the file, unless it was replaced.
    pub(crate) fn remove(&self) {
        if file_id(&self.path).is_ok_and(|now| now == self.id) {
            // If the removal fails, the next server on this path removes the stale socket file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}
