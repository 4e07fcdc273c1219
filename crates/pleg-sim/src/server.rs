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

use crate::{engine::Engine, error::SimError, io::Severable, service::CriService};

/// containerd's limit in both directions.
const MESSAGE_SIZE: usize = 16 << 20;

/// A socket that is being served. Dropping this does not end it.
#[derive(Debug)]
#[must_use = "it says when the serving has ended"]
pub struct Serving {
    path: PathBuf,
    stop: CancellationToken,
    task: TaskTracker,
}

impl Serving {
    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts its connections, removes the socket, and returns when all of that is done. The
    /// world goes on: this is a runtime that restarts, seen from outside.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.wait().await;
    }

    /// Returns when the serving has ended, by whatever cause.
    pub async fn stopped(self) {
        self.task.wait().await;
    }
}

/// Serves a new socket until `shutdown`, or until the simulator ends.
pub(crate) fn serve_unix(
    engine: &Arc<Engine>,
    path: &Path,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, SimError> {
    make_way(path)?;
    let failed = |what| {
        move |source| SimError::Io {
            what,
            path: path.to_owned(),
            source,
        }
    };
    let listener = UnixListener::bind(path).map_err(failed("bind"))?;
    let socket = SocketFile::of(path).map_err(failed("look at"))?;

    let stop = engine.stop.child_token();
    let incoming = {
        let (engine, stop) = (Arc::clone(engine), stop.clone());
        UnixListenerStream::new(listener).map(move |accepted| {
            accepted.map(|io| Severable::new(io, cuts(&engine, &stop), CancellationToken::new()))
        })
    };
    let router = router(engine);
    let task = TaskTracker::new();
    let ends = stop.clone();
    // Twice tracked: by the handle, and by the simulator.
    engine.tasks.spawn(task.track_future(async move {
        let shutdown = async {
            tokio::select! {
                () = shutdown => {}
                () = ends.cancelled() => {}
            }
            ends.cancel();
        };
        if let Err(error) = router
            .serve_with_incoming_shutdown(incoming, shutdown)
            .await
        {
            tracing::warn!(%error, "serving ended");
        }
        socket.remove();
    }));
    task.close();
    Ok(Serving {
        path: path.to_owned(),
        stop,
        task,
    })
}

/// Serves one connection until either side ends it.
pub(crate) fn serve_stream<IO>(engine: &Arc<Engine>, io: IO)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let closed = CancellationToken::new();
    let io = Severable::new(io, cuts(engine, &engine.stop), closed.clone());
    let incoming = stream::iter([Ok::<_, io::Error>(io)]).chain(stream::pending());
    let router = router(engine);
    engine.tasks.spawn(async move {
        let ended = closed.cancelled_owned();
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, ended).await {
            tracing::warn!(%error, "serving ended");
        }
    });
}

fn cuts(engine: &Engine, stop: &CancellationToken) -> [CancellationToken; 2] {
    [stop.clone(), engine.connections()]
}

fn router(engine: &Arc<Engine>) -> Router {
    let service = CriService::new(Arc::clone(engine));
    let runtime = RuntimeServiceServer::new(service.clone())
        .max_decoding_message_size(MESSAGE_SIZE)
        .max_encoding_message_size(MESSAGE_SIZE);
    let images = ImageServiceServer::new(service)
        .max_decoding_message_size(MESSAGE_SIZE)
        .max_encoding_message_size(MESSAGE_SIZE);
    Server::builder().add_service(runtime).add_service(images)
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
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }

    fn remove(&self) {
        if Self::of(&self.path).is_ok_and(|now| now.file == self.file) {
            // If that fails, the next server finds a stale socket and deals with it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
