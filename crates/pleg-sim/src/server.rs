//! Serving: gRPC on a unix socket or on one given connection. Touches sockets and files.

use std::{
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{StreamExt as _, stream};
use pleg_cri::v1::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::{Server, server::Router};

use crate::{
    engine::Engine,
    error::SimError,
    habits::StartHabit,
    io::Severable,
    run::{Phase, Run},
    service::CriService,
};

/// A socket that is being served. Dropping this does not end it.
#[derive(Debug)]
#[must_use = "it says when the serving has ended"]
pub struct Serving {
    path: PathBuf,
    stop: CancellationToken,
    task: TaskTracker,
}

impl Serving {
    pub(crate) const fn new(path: PathBuf, stop: CancellationToken, task: TaskTracker) -> Self {
        Self { path, stop, task }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts its connections, removes the socket, and returns when all of that is done. The
    /// runtime itself goes on, with its subscribers and its queue; `Sim::restart` is another
    /// thing.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.wait().await;
    }

    /// Returns when the serving has ended, by whatever cause.
    pub async fn stopped(self) {
        self.task.wait().await;
    }
}

/// Serves a new socket until `shutdown`, or until the simulator ends; with each of the runtime's
/// processes anew.
pub(crate) fn serve_unix(
    engine: &Arc<Engine>,
    path: &Path,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, SimError> {
    let socket = Socket::bind(path)?;
    let stop = engine.stop.child_token();
    let task = TaskTracker::new();
    let serving = Serving::new(path.to_owned(), stop.clone(), task.clone());
    engine.sockets.send_modify(|s| s.wanted += 1);
    let engine = Arc::clone(engine);
    let all = engine.tasks.clone();
    // Twice tracked: by the handle, and by the simulator.
    all.spawn(task.track_future(async move {
        let until = async {
            tokio::select! {
                () = shutdown => stop.cancel(),
                () = stop.cancelled() => {}
            }
        };
        let every_run = async {
            if let Err(error) = serve_every_run(&engine, socket, &stop).await {
                tracing::warn!(%error, "the socket is not served any more");
            }
            stop.cancel();
        };
        futures::future::join(until, every_run).await;
        engine.sockets.send_modify(|s| s.wanted -= 1);
    }));
    task.close();
    Ok(serving)
}

/// Until `stop`: each process of the runtime binds the socket anew.
async fn serve_every_run(
    engine: &Arc<Engine>,
    mut socket: Socket,
    stop: &CancellationToken,
) -> Result<(), SimError> {
    let mut phase = engine.phase.subscribe();
    loop {
        let path = socket.path.clone();
        {
            let run = engine.run();
            let serving = serve_run(engine, &run, socket, stop);
            run.servers.track_future(serving).await;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = phase.wait_for(|p| *p != Phase::Down) => socket = Socket::bind(&path)?,
        }
    }
}

/// Until `stop`, or the end of that process.
async fn serve_run(engine: &Arc<Engine>, run: &Run, socket: Socket, stop: &CancellationToken) {
    engine.sockets.send_modify(|s| s.bound += 1);
    let Socket {
        path,
        listener,
        file,
    } = socket;
    // Those that connect to a silent runtime wait in the listener's queue.
    if open_for_business(engine, run, stop).await {
        let incoming = UnixListenerStream::new(listener).map(|accepted| {
            let cuts = [stop.clone(), run.connections()];
            accepted.map(|io| Severable::new(io, cuts, CancellationToken::new(), engine.clock))
        });
        let ends = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = run.ends.cancelled() => {}
            }
        };
        let served = router(engine).serve_with_incoming_shutdown(incoming, ends);
        if let Err(error) = served.await {
            tracing::warn!(%error, "serving ended");
        }
    }
    // Who is killed leaves the socket behind, and it refuses.
    if !run.was_killed() || stop.is_cancelled() {
        file.remove(&path);
    }
    engine.sockets.send_modify(|s| s.bound -= 1);
}

/// Returns when connections are accepted; false if that does not come.
async fn open_for_business(engine: &Engine, run: &Run, stop: &CancellationToken) -> bool {
    if engine.habits.starting != StartHabit::Silent || engine.phase() == Phase::Serving {
        return !run.ends.is_cancelled();
    }
    tokio::select! {
        ready = engine.until_ready() => ready.is_ok(),
        () = stop.cancelled() => false,
        () = run.ends.cancelled() => false,
    }
}

/// Serves one connection until either side ends it, or the runtime's process ends.
pub(crate) fn serve_stream<IO>(engine: &Arc<Engine>, io: IO)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (engine, run) = (Arc::clone(engine), engine.run());
    let all = engine.tasks.clone();
    let servers = run.servers.clone();
    all.spawn(servers.track_future(async move {
        if !open_for_business(&engine, &run, &engine.stop).await {
            return;
        }
        let closed = CancellationToken::new();
        let cuts = [engine.stop.clone(), run.connections()];
        let io = Severable::new(io, cuts, closed.clone(), engine.clock);
        let incoming = stream::iter([Ok::<_, io::Error>(io)]).chain(stream::pending());
        let ended = async {
            tokio::select! {
                () = closed.cancelled() => {}
                () = run.ends.cancelled() => {}
            }
        };
        let served = router(&engine).serve_with_incoming_shutdown(incoming, ended);
        if let Err(error) = served.await {
            tracing::warn!(%error, "serving ended");
        }
    }));
}

fn router(engine: &Arc<Engine>) -> Router {
    let service = CriService::new(Arc::clone(engine));
    let limit = engine.habits.message_limit;
    let runtime = RuntimeServiceServer::new(service.clone())
        .max_decoding_message_size(limit)
        // What it sends is held to the limit in the words of grpc-go (`lists`, `stream`).
        .max_encoding_message_size(usize::MAX);
    let images = ImageServiceServer::new(service)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(usize::MAX);
    Server::builder().add_service(runtime).add_service(images)
}

/// A socket that is bound.
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

impl Socket {
    pub(crate) fn bind(path: &Path) -> Result<Self, SimError> {
        make_way(path)?;
        let failed = |what| {
            move |source| SimError::Io {
                what,
                path: path.to_owned(),
                source,
            }
        };
        Ok(Self {
            path: path.to_owned(),
            listener: UnixListener::bind(path).map_err(failed("bind"))?,
            file: SocketFile::of(path).map_err(failed("look at"))?,
        })
    }
}
/// Removes a socket that a dead server left behind, and nothing else.
fn make_way(path: &Path) -> Result<(), SimError> {
    let failed = |what| {
        move |source| SimError::Io {
            what,
            path: path.to_owned(),
            source,
        }
    };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at")(error)),
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
            std::fs::remove_file(path).map_err(failed("remove the stale socket"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("try")(error)),
    }
}

/// The file of a socket that we bound, recognised if somebody has replaced it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketFile(u64, u64);

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(Self(file.dev(), file.ino()))
    }

    pub(crate) fn remove(self, path: &Path) {
        if Self::of(path).is_ok_and(|now| now == self) {
            // If that fails, the next server finds a stale socket and deals with it.
            let _ = std::fs::remove_file(path);
        }
    }
}
