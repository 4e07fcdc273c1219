//! Tests the error that `diagnose` returns for every kind of path and server.
use std::convert::Infallible;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{Fake, TestServer, serve};
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

/// The error of `diagnose` for the path. Checks that it returns in time and is one line that names the endpoint.
async fn error_at(path: &Path) -> ConnectError {
    let error = diagnose_in_time(path).await.unwrap_err();
    let text = error.to_string();
    let endpoint = format!("unix://{}", path.display());
    assert!(text.contains(&endpoint), "{text}");
    assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
    error
}

/// The name of the variant of `ConnectError` that `diagnose` returns for the path.
async fn problem_at(path: &Path) -> String {
    let text = format!("{:?}", error_at(path).await);
    text.split(' ').next().unwrap().to_owned()
}

async fn diagnose_in_time(path: &Path) -> Result<RuntimeVersion, ConnectError> {
    let endpoint = path.to_str().unwrap().parse().unwrap();
    let diagnosed = tokio::time::timeout(Duration::from_secs(8), diagnose(&endpoint));
    diagnosed.await.expect("in time")
}

/// Passes each connection to `handle`.
fn serve_each<F>(handle: impl Fn(UnixStream) -> F + Send + Sync + Clone + 'static) -> TestServer
where
    F: Future<Output = ()> + Send + 'static,
{
    TestServer::start(move |listener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    })
}

async fn assert_not_cri(server: &TestServer, expected: &str) {
    let error = error_at(&server.path()).await;
    let ConnectError::NotCri { what, .. } = error else {
        panic!("{error:?}")
    };
    assert!(what.contains(expected), "{what}");
}

#[tokio::test]
async fn healthy_runtime_is_diagnosed_with_its_version() {
    let server = Fake::default().serve();
    let version = diagnose_in_time(&server.path()).await.unwrap();
    assert_eq!((&*version.name, &*version.version), ("fake", "1.2.3"));
    assert_eq!(server.client().diagnose().await.unwrap(), version);
}

#[tokio::test]
async fn missing_path_is_diagnosed_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for name in ["s", "no/such/dir/s", "file/s"] {
        assert_eq!(problem_at(&dir.path().join(name)).await, "Missing");
    }
}

#[tokio::test]
async fn file_or_directory_is_diagnosed_as_not_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    for (path, expected) in [
        (&*path, "a regular file"),
        (dir.path(), "a directory"),
        ("/dev/null".as_ref(), "not a socket"),
    ] {
        let error = error_at(path).await;
        let ConnectError::NotASocket { what, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(what, expected);
    }
}

#[tokio::test]
async fn datagram_stale_and_silent_sockets_are_diagnosed_differently() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name| dir.path().join(name);
    let _datagrams = tokio::net::UnixDatagram::bind(path("datagram")).unwrap();
    drop(UnixListener::bind(path("stale")).unwrap());
    // The kernel completes a connection even if the server does not call accept.
    let _listener = UnixListener::bind(path("silent")).unwrap();
    for (name, problem) in [
        ("datagram", "Connect"),
        ("stale", "NotListening"),
        ("silent", "Silent"),
    ] {
        assert_eq!(problem_at(&path(name)).await, problem, "{name}");
    }
}

#[tokio::test]
async fn server_that_does_not_respond_is_diagnosed_as_silent() {
    let server = serve_each(|mut stream| async move {
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received).await;
    });
    assert_eq!(problem_at(&server.path()).await, "Silent");
}

#[tokio::test]
async fn server_that_closes_connections_is_diagnosed_as_not_cri() {
    let server = serve_each(|stream| async move { drop(stream) });
    assert_not_cri(&server, "closes the connection").await;
}

#[tokio::test]
async fn http_1_server_is_diagnosed_as_not_cri() {
    const RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n";
    for disconnects in [false, true] {
        let server = serve_each(move |mut stream| async move {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                received.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(RESPONSE).await.unwrap();
            if !disconnects {
                let _ = stream.read_to_end(&mut received).await;
            }
        });
        assert_not_cri(&server, "HTTP/1").await;
    }
}

#[tokio::test]
async fn server_with_unknown_protocol_is_diagnosed_as_not_cri() {
    // The server sends more or fewer bytes than an HTTP/2 frame header has, or very many, and may then disconnect.
    let long: &[u8] = &[0xff; 100_000];
    for garbage in [&b"SSH-2.0-OpenSSH_9.7\r\n"[..], b"\x1b[31m", long] {
        for disconnects in [false, true] {
            let server = serve_each(move |mut stream| async move {
                let _ = stream.write_all(garbage).await;
                if !disconnects {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            });
            assert_not_cri(&server, "it sends \"").await;
        }
    }
}

#[tokio::test]
async fn http_2_server_without_grpc_is_diagnosed_as_not_cri() {
    for (body, expected) in [("", "not gRPC"), ("nothing here", "not valid")] {
        let server = serve_each(move |stream| async move {
            let service = hyper::service::service_fn(|_: hyper::Request<Incoming>| async {
                let response = hyper::Response::builder().status(404);
                Ok::<_, Infallible>(response.body(body.to_owned()).unwrap())
            });
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
        });
        assert_not_cri(&server, expected).await;
    }
}

#[tokio::test]
async fn runtime_with_hanging_version_call_is_diagnosed_as_unresponsive() {
    let server = Fake::with(|s| s.version_hangs = true).serve();
    assert_eq!(problem_at(&server.path()).await, "Unresponsive");
}

#[tokio::test]
async fn failing_version_call_is_diagnosed_as_starting_or_failed() {
    for code in [tonic::Code::Unknown, tonic::Code::Unavailable] {
        let starting = Status::new(code, "server is not initialized yet");
        let server = Fake::with(|s| s.version = Some(starting)).serve();
        assert_eq!(problem_at(&server.path()).await, "Starting");
    }
    let failed = Status::internal("no\x07idea\n");
    let server = Fake::with(|s| s.version = Some(failed)).serve();
    let error = error_at(&server.path()).await;
    assert!(matches!(&error, ConnectError::Failed { message, .. } if message == "no idea"));
}

struct Images;

impl ImageService for Images {}

#[tokio::test]
async fn grpc_server_without_runtime_service_is_diagnosed_as_cri_disabled() {
    let router = Server::builder().add_service(ImageServiceServer::new(Images));
    let server = TestServer::start(|listener| serve(router, listener));
    assert_eq!(problem_at(&server.path()).await, "CriDisabled");
}

/// Serves the v1 service under the name of v1alpha2, because `Version` has the same messages in both.
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
async fn v1alpha2_runtime_is_diagnosed_as_only_v1alpha2() {
    let old = V1Alpha2(RuntimeServiceServer::new(Fake::default()));
    let router = Server::builder().add_service(old);
    let server = TestServer::start(|listener| serve(router, listener));
    let error = error_at(&server.path()).await;
    let ConnectError::OnlyV1Alpha2 { runtime, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(runtime, "fake 1.2.3");
}
