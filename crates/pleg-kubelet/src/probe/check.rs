//! One check of a probe: a connection, an HTTP request, a gRPC health check, or a command in the container.

use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use pleg::Id;
use pleg::core::{CallError, CallErrorKind};
use pleg_cri::CriClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{grpc, tls};

/// The largest response body that is read. Upstream's limit.
const MAX_BODY: usize = 10 << 10;

pub(super) const USER_AGENT: &str = "kube-probe/1.37";

/// A check of a probe or hook. An empty host is the pod's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Opens a connection.
    Tcp { host: String, port: u16 },
    /// Sends a GET request. A status from 200 to 399 is a success. The certificate of a server with TLS is not
    /// verified, as upstream does not.
    Http {
        tls: bool,
        host: String,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    /// Calls `grpc.health.v1.Health/Check` of the pod, without TLS. `SERVING` is a success; an empty service is the
    /// server as a whole.
    Grpc { port: u16, service: String },
    /// Runs a command in the container. Exit code 0 is a success.
    Exec { command: Vec<String> },
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    /// The connection, the request or the gRPC call failed. `what` names the server.
    #[error("{what}: {source}")]
    Failed {
        what: String,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
    #[error("gRPC service has health status {0} (2 is NOT_SERVING)")]
    NotServing(i32),
    #[error("the command ended with exit code {0}")]
    ExitCode(i32),
    /// The command could not be run.
    #[error(transparent)]
    Exec(#[from] CallError),
    #[error("{0}")]
    Invalid(String),
}

impl CheckError {
    pub(super) fn failed<E: Into<Box<dyn Error + Send + Sync>>>(
        what: String,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed {
            what,
            source: error.into(),
        }
    }

    /// Returns false if the check could not be performed: as upstream, that changes no result. A command that took too
    /// long has failed.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Self::Exec(error) => error.kind == CallErrorKind::DeadlineExceeded,
            Self::Invalid(_) => false,
            _ => true,
        }
    }
}

/// Runs commands in containers.
pub trait Exec: Send + Sync + 'static {
    /// Runs a command and returns its exit code.
    ///
    /// # Errors
    /// If it could not be run, or took longer than `timeout` (`DeadlineExceeded`).
    fn exec(
        &self,
        container: &Id,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<i32, CallError>> + Send;
}

impl Exec for CriClient {
    async fn exec(
        &self,
        container: &Id,
        command: &[String],
        timeout: Duration,
    ) -> Result<i32, CallError> {
        let response = self.exec_sync(container, command.to_vec(), timeout).await?;
        Ok(response.exit_code)
    }
}

impl Check {
    /// Performs the check. `address` is the pod's, for checks that name no host.
    ///
    /// # Errors
    /// If it fails or cannot be performed.
    pub(crate) async fn perform<E: Exec>(
        &self,
        exec: &E,
        container: &Id,
        address: &str,
        timeout: Duration,
    ) -> Result<(), CheckError> {
        let or_pod = |host: &str| if host.is_empty() { address } else { host }.to_owned();
        match self {
            Self::Tcp { host, port } => {
                let host = or_pod(host);
                within(timeout, async { connect(&host, *port).await.map(drop) }).await
            }
            Self::Http {
                tls: is_tls,
                host,
                port,
                path,
                headers,
            } => {
                let host = or_pod(host);
                let request = request(&host_and_port(&host, *port), path, headers)?;
                within(timeout, http(*is_tls, &host, *port, request)).await
            }
            Self::Grpc { port, service } => {
                within(timeout, grpc::check(host_and_port(address, *port), service)).await
            }
            Self::Exec { command } => match exec.exec(container, command, timeout).await? {
                0 => Ok(()),
                code => Err(CheckError::ExitCode(code)),
            },
        }
    }
}

/// A GET request with upstream's headers.
///
/// # Errors
/// If the path or a header is not valid.
fn request(
    address: &str,
    path: &str,
    headers: &[(String, String)],
) -> Result<Request<Empty<Bytes>>, CheckError> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut request = Request::get(format!("{slash}{path}"))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close");
    let mut names = headers.iter().map(|(name, _)| name);
    if !names.any(|name| name.eq_ignore_ascii_case("host")) {
        request = request.header(header::HOST, address);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new());
    request.map_err(|e| CheckError::Invalid(format!("the HTTP probe is not valid: {e}")))
}

/// Sends a request.
///
/// # Errors
/// If the response has no status from 200 to 399.
async fn http(
    is_tls: bool,
    host: &str,
    port: u16,
    request: Request<Empty<Bytes>>,
) -> Result<(), CheckError> {
    let stream = connect(host, port).await?;
    let address = host_and_port(host, port);
    let status = match is_tls {
        false => exchange(stream, request).await,
        true => {
            let stream = tls::begin(stream, host).await;
            let failed = CheckError::failed(format!("cannot connect to {address}"));
            exchange(stream.map_err(failed)?, request).await
        }
    };
    let status = status.map_err(CheckError::failed(format!("request to {address} failed")))?;
    match (200..400).contains(&status) {
        true => Ok(()),
        false => Err(CheckError::Status(status)),
    }
}

/// Sends a request on a connection, and returns the status of the response.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
) -> Result<u16, hyper::Error> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let exchange = async {
        let mut response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let mut read = 0;
        while read < MAX_BODY
            && let Some(Ok(frame)) = response.frame().await
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
        Ok(status)
    };
    tokio::pin!(exchange, connection);
    let mut open = true;
    loop {
        tokio::select! {
            status = &mut exchange => return status,
            // An error of the connection is also the error of the request.
            _ = &mut connection, if open => open = false,
        }
    }
}

async fn within(
    timeout: Duration,
    check: impl Future<Output = Result<(), CheckError>>,
) -> Result<(), CheckError> {
    tokio::time::timeout(timeout, check)
        .await
        .unwrap_or(Err(CheckError::TimedOut(timeout)))
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, CheckError> {
    let what = || format!("cannot connect to {}", host_and_port(host, port));
    let connected = TcpStream::connect((host, port)).await;
    connected.map_err(|error| CheckError::failed(what())(error))
}

fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_could_not_be_run_is_no_failure() {
        let is_failure = |kind| CheckError::Exec(CallError::new("ExecSync", kind, "")).is_failure();
        assert!(!is_failure(CallErrorKind::Unavailable));
        assert!(is_failure(CallErrorKind::DeadlineExceeded));
    }
}
