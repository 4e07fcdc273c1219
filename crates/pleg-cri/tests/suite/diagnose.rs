//! Everything that can be at the other end of a path, and the sentence that is said of it.
use std::convert::Infallible;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{Fake, Serving, Told, client, serve, threads};
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

/// The error at that path: in time, in one line, and it says where.
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

/// A server that treats each connection so.
fn each<F>(path: &Path, treat: impl Fn(UnixStream) -> F + Send + Sync + Clone + 'static) -> Serving
where
    F: Future<Output = ()> + Send + 'static,
{
    threads(path, move |listener: UnixListener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(treat(stream));
        }
    })
}

#[track_caller]
fn assert_no_cri(error: &ConnectError, what_it_is: &str) {
    let ConnectError::NotCri { what, .. } = error else {
        panic!("{error:?}")
    };
    assert!(what.contains(what_it_is), "{what}");
}

#[tokio::test]
async fn a_runtime_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = Fake::default().serve(&path);
    let version = diagnose_in_time(&path).await.unwrap();
    assert_eq!((&*version.name, &*version.version), ("fake", "1.2.3"));
    assert_eq!(client(&path).diagnose().await.unwrap(), version);
}

#[tokio::test]
async fn nothing_is_there() {
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
async fn it_is_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let error = error_at(&path).await;
    assert!(
        matches!(
            error,
            ConnectError::NotASocket {
                what: "a plain file",
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
                what: "no socket",
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn it_is_a_socket_of_another_kind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _datagrams = tokio::net::UnixDatagram::bind(&path).unwrap();
    assert!(matches!(error_at(&path).await, ConnectError::Dial { .. }));
}

#[tokio::test]
async fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(
        error_at(&path).await,
        ConnectError::NobodyListens { .. }
    ));
}

#[tokio::test]
async fn it_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // Never accepted: the system answers for it.
    let listener = UnixListener::bind(&path).unwrap();
    assert!(matches!(error_at(&path).await, ConnectError::Silent { .. }));
    drop(listener);
    let path = dir.path().join("t");
    let _serving = each(&path, |mut stream| async move {
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
    });
    assert!(matches!(error_at(&path).await, ConnectError::Silent { .. }));
}

#[tokio::test]
async fn it_hangs_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = each(&path, |stream| async move { drop(stream) });
    assert_no_cri(&error_at(&path).await, "hangs up");
}

#[tokio::test]
async fn it_speaks_http_1() {
    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n";
    for hangs_up in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _serving = each(&path, move |mut stream| async move {
            let mut heard = Vec::new();
            while !heard.ends_with(b"\r\n\r\n") {
                heard.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(ANSWER).await.unwrap();
            if !hangs_up {
                let _ = stream.read_to_end(&mut heard).await;
            }
        });
        assert_no_cri(&error_at(&path).await, "HTTP/1");
    }
}

#[tokio::test]
async fn it_speaks_garbage() {
    // More than an HTTP/2 frame's head, less, and a lot; one that then waits and one that goes.
    let lots: &[u8] = &[0xff; 100_000];
    for garbage in [&b"SSH-2.0-OpenSSH_9.7\r\n"[..], b"\x1b[31m", lots] {
        for hangs_up in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("s");
            let _serving = each(&path, move |mut stream| async move {
                let _ = stream.write_all(garbage).await;
                if !hangs_up {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            });
            assert_no_cri(&error_at(&path).await, "it says \"");
        }
    }
}

#[tokio::test]
async fn it_speaks_http_2_but_no_grpc() {
    for (body, what_it_is) in [("", "not gRPC"), ("nothing here", "no version")] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _serving = each(&path, move |stream| async move {
            let service = hyper::service::service_fn(|_: hyper::Request<Incoming>| async {
                let response = hyper::Response::builder().status(404);
                Ok::<_, Infallible>(response.body(body.to_owned()).unwrap())
            });
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
        });
        assert_no_cri(&error_at(&path).await, what_it_is);
    }
}

#[tokio::test]
async fn it_never_says_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = Fake::told(Told {
        version_hangs: true,
        ..Told::default()
    })
    .serve(&path);
    assert!(matches!(
        error_at(&path).await,
        ConnectError::Unresponsive { .. }
    ));
}

#[tokio::test]
async fn it_is_starting() {
    for code in [tonic::Code::Unknown, tonic::Code::Unavailable] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let starting = Some(Status::new(code, "server is not initialized yet"));
        let _serving = Fake::told(Told {
            version: starting,
            ..Told::default()
        })
        .serve(&path);
        assert!(matches!(
            error_at(&path).await,
            ConnectError::Starting { .. }
        ));
    }
}

#[tokio::test]
async fn it_answers_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let version = Some(Status::internal("no\x07idea\n"));
    let _serving = Fake::told(Told {
        version,
        ..Told::default()
    })
    .serve(&path);
    let error = error_at(&path).await;
    assert!(matches!(&error, ConnectError::Failed { message, .. } if message == "no idea"));
}

struct Images;

impl ImageService for Images {}

#[tokio::test]
async fn its_cri_is_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _serving = serve(
        &path,
        Server::builder().add_service(ImageServiceServer::new(Images)),
    );
    assert!(matches!(error_at(&path).await, ConnectError::CriOff { .. }));
}

/// The runtime service under its old name; the messages of `Version` are the same.
#[derive(Clone)]
struct Old(RuntimeServiceServer<Fake>);

impl NamedService for Old {
    const NAME: &'static str = "runtime.v1alpha2.RuntimeService";
}

impl<B> Service<http::Request<B>> for Old
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
async fn it_speaks_only_v1alpha2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let old = Old(RuntimeServiceServer::new(Fake::default()));
    let _serving = serve(&path, Server::builder().add_service(old));
    let error = error_at(&path).await;
    assert!(
        matches!(&error, ConnectError::OnlyV1Alpha2 { runtime, .. } if runtime == "fake 1.2.3"),
        "{error:?}"
    );
}
