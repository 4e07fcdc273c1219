//! The error of `diagnose` for everything that a path can lead to.
use std::convert::Infallible;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{Fake, FakeState, Serving, client, serve, spawn_server};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pleg_cri::v1::image_service_server::{ImageService, ImageServiceServer};
use pleg_cri::v1::runtime_service_server::RuntimeServiceServer;
use pleg_cri::{ConnectError, diagnose};
use pleg_runtime::RuntimeVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tonic::Status;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;

/// The error of the path. Checks that it comes in time, is a single line and names the endpoint.
async fn error_at(path: &Path) -> ConnectError {
    let error = diagnose_in_time(path).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("unix://{}", path.display())),
        "{text}"
    );
    assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
    error
}

async fn diagnose_in_time(path: &Path) -> Result<RuntimeVersion, ConnectError> {
    let endpoint = path.to_str().unwrap().parse().unwrap();
    tokio::time::timeout(Duration::from_secs(8), diagnose(&endpoint))
        .await
        .expect("in time")
}

/// Passes each connection to `handle`.
fn serve_each<F>(
    path: &Path,
    handle: impl Fn(UnixStream) -> F + Send + Sync + Clone + 'static,
) -> Serving
where
    F: Future<Output = ()> + Send + 'static,
{
    spawn_server(path, move |listener: UnixListener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    })
}

#[track_caller]
fn assert_not_cri(error: &ConnectError, expected: &str) {
    let ConnectError::NotCri { what, .. } = error else {
        panic!("{error:?}")
    };
    assert!(what.contains(expected), "{what}");
}

#[tokio::test]
async fn runtime_returns_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = Fake::default().serve(&path);
    let version = diagnose_in_time(&path).await.unwrap();
    assert_eq!((&*version.name, &*version.version), ("fake", "1.2.3"));
    assert_eq!(client(&path).diagnose().await.unwrap(), version);
}

#[tokio::test]
async fn missing_path_returns_missing() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["s", "no/such/dir/s"].map(|name| dir.path().join(name)) {
        assert!(matches!(
            error_at(&path).await,
            ConnectError::Missing { .. }
        ));
    }
    std::fs::write(dir.path().join("file"), "").unwrap();
    let below_a_file = dir.path().join("file/s");
    assert!(matches!(
        error_at(&below_a_file).await,
        ConnectError::Missing { .. }
    ));
}

#[tokio::test]
async fn file_or_directory_returns_not_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let error = error_at(&path).await;
    assert!(
        matches!(
            error,
            ConnectError::NotASocket {
                what: "a regular file",
                ..
            }
        ),
        "{error:?}"
    );
    let error = error_at(dir.path()).await;
    assert!(
        matches!(
            error,
            ConnectError::NotASocket {
                what: "a directory",
                ..
            }
        ),
        "{error:?}"
    );
    let error = error_at("/dev/null".as_ref()).await;
    assert!(
        matches!(
            error,
            ConnectError::NotASocket {
                what: "not a socket",
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn datagram_socket_returns_connect_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _datagrams = tokio::net::UnixDatagram::bind(&path).unwrap();
    assert!(matches!(
        error_at(&path).await,
        ConnectError::Connect { .. }
    ));
}

#[tokio::test]
async fn stale_socket_returns_not_listening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(
        error_at(&path).await,
        ConnectError::NotListening { .. }
    ));
}

#[tokio::test]
async fn server_without_response_returns_silent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // The kernel completes the connection without accept.
    let listener = UnixListener::bind(&path).unwrap();
    assert!(matches!(error_at(&path).await, ConnectError::Silent { .. }));
    drop(listener);
    let path = dir.path().join("t");
    let _serving = serve_each(&path, |mut stream| async move {
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received).await;
    });
    assert!(matches!(error_at(&path).await, ConnectError::Silent { .. }));
}

#[tokio::test]
async fn closed_connection_returns_not_cri() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = serve_each(&path, |stream| async move { drop(stream) });
    assert_not_cri(&error_at(&path).await, "closes the connection");
}

#[tokio::test]
async fn http_1_server_returns_not_cri() {
    const RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n";
    for disconnects in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _serving = serve_each(&path, move |mut stream| async move {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                received.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(RESPONSE).await.unwrap();
            if !disconnects {
                let _ = stream.read_to_end(&mut received).await;
            }
        });
        assert_not_cri(&error_at(&path).await, "HTTP/1");
    }
}

#[tokio::test]
async fn unknown_protocol_returns_not_cri() {
    // Longer and shorter than an HTTP/2 frame header, and very long. With and without disconnect.
    let long: &[u8] = &[0xff; 100_000];
    for garbage in [&b"SSH-2.0-OpenSSH_9.7\r\n"[..], b"\x1b[31m", long] {
        for disconnects in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("s");
            let _serving = serve_each(&path, move |mut stream| async move {
                let _ = stream.write_all(garbage).await;
                if !disconnects {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            });
            assert_not_cri(&error_at(&path).await, "it sends \"");
        }
    }
}

#[tokio::test]
async fn http_2_server_without_grpc_returns_not_cri() {
    for (body, expected) in [("", "not gRPC"), ("nothing here", "not valid")] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _serving = serve_each(&path, move |stream| async move {
            let service = hyper::service::service_fn(|_: hyper::Request<Incoming>| async {
                let response = hyper::Response::builder().status(404);
                Ok::<_, Infallible>(response.body(body.to_owned()).unwrap())
            });
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
        });
        assert_not_cri(&error_at(&path).await, expected);
    }
}

#[tokio::test]
async fn hanging_version_returns_unresponsive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = Fake::new(FakeState {
        version_hangs: true,
        ..FakeState::default()
    })
    .serve(&path);
    assert!(matches!(
        error_at(&path).await,
        ConnectError::Unresponsive { .. }
    ));
}

#[tokio::test]
async fn starting_runtime_returns_starting() {
    for code in [tonic::Code::Unknown, tonic::Code::Unavailable] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let starting = Some(Status::new(code, "server is not initialized yet"));
        let _serving = Fake::new(FakeState {
            version: starting,
            ..FakeState::default()
        })
        .serve(&path);
        assert!(matches!(
            error_at(&path).await,
            ConnectError::Starting { .. }
        ));
    }
}

#[tokio::test]
async fn version_error_returns_failed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let version = Some(Status::internal("no\x07idea\n"));
    let _serving = Fake::new(FakeState {
        version,
        ..FakeState::default()
    })
    .serve(&path);
    let error = error_at(&path).await;
    assert!(matches!(&error, ConnectError::Failed { message, .. } if message == "no idea"));
}

struct Images;

impl ImageService for Images {}

#[tokio::test]
async fn grpc_server_without_runtime_service_returns_cri_disabled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = serve(
        &path,
        Server::builder().add_service(ImageServiceServer::new(Images)),
    );
    assert!(matches!(
        error_at(&path).await,
        ConnectError::CriDisabled { .. }
    ));
}

/// The runtime service with the name of v1alpha2. The messages of `Version` are the same.
#[derive(Clone)]
struct V1Alpha2(RuntimeServiceServer<Fake>);

impl NamedService for V1Alpha2 {
    const NAME: &'static str = "runtime.v1alpha2.RuntimeService";
}

impl<B> Service<http::Request<B>> for V1Alpha2
where
    RuntimeServiceServer<Fake>: Service<http::Request<B>>,
{
    type Response = <RuntimeServiceServer<Fake> as Service<http::Request<B>>>::Response;
    type Error = <RuntimeServiceServer<Fake> as Service<http::Request<B>>>::Error;
    type Future = <RuntimeServiceServer<Fake> as Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let path = request.uri().path().replace("v1alpha2", "v1");
        *request.uri_mut() = path.parse().unwrap();
        self.0.call(request)
    }
}

#[tokio::test]
async fn v1alpha2_runtime_returns_only_v1alpha2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let old = V1Alpha2(RuntimeServiceServer::new(Fake::default()));
    let _serving = serve(&path, Server::builder().add_service(old));
    let error = error_at(&path).await;
    assert!(
        matches!(&error, ConnectError::OnlyV1Alpha2 { runtime, .. } if runtime == "fake 1.2.3"),
        "{error:?}"
    );
}
