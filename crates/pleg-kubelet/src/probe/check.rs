//! One check of a probe: a connection, an HTTP request, or a command in the container.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use pleg::Id;
use pleg::core::{CallError, CallErrorKind};
use pleg_cri::CriClient;
use tokio::net::TcpStream;

use super::Outcome;

/// The largest response body that is read. Upstream's limit.
const MAX_BODY: usize = 10 << 10;

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Opens a connection.
    Tcp {
        /// The host; the pod's address if empty.
        host: String,
        /// The port.
        port: u16,
    },
    /// Sends a GET request, without TLS. A status from 200 to 399 is a success.
    Http {
        /// The host; the pod's address if empty.
        host: String,
        /// The port.
        port: u16,
        /// The path, with its query.
        path: String,
        /// Further headers.
        headers: Vec<(String, String)>,
    },
    /// Runs a command in the container. Exit code 0 is a success.
    Exec {
        /// The command and its arguments.
        command: Vec<String>,
    },
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No response within the time-out.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    /// The connection failed.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The request failed.
    #[error("request to {address} failed: {source}")]
    Request {
        /// Where to.
        address: String,
        /// Why.
        source: hyper::Error,
    },
    /// The response has another status.
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
    /// The command ended with another exit code than 0.
    #[error("the command ended with exit code {0}")]
    ExitCode(i32),
    /// The command could not be run.
    #[error(transparent)]
    Exec(#[from] CallError),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
}

impl CheckError {
    /// What it means for the probe. A check that could not be performed says nothing, as upstream;
    /// a command that took too long has failed.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Exec(error) if error.kind != CallErrorKind::DeadlineExceeded => Outcome::Unknown,
            Self::Invalid(_) => Outcome::Unknown,
            _ => Outcome::Failure,
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
    pub(super) async fn perform<E: Exec>(
        &self,
        exec: &E,
        container: &Id,
        address: &str,
        timeout: Duration,
    ) -> Result<(), CheckError> {
        let or_pod = |host: &str| if host.is_empty() { address } else { host }.to_owned();
        match self {
            Self::Tcp { host, port } => tcp(&or_pod(host), *port, timeout).await,
            Self::Http {
                host,
                port,
                path,
                headers,
            } => http(&or_pod(host), *port, path, headers, timeout).await,
            Self::Exec { command } => match exec.exec(container, command, timeout).await? {
                0 => Ok(()),
                code => Err(CheckError::ExitCode(code)),
            },
        }
    }
}

/// Opens a connection to `host` and closes it.
///
/// # Errors
/// If it cannot be opened within `timeout`.
async fn tcp(host: &str, port: u16, timeout: Duration) -> Result<(), CheckError> {
    within(timeout, async { connect(host, port).await.map(drop) }).await
}

/// Sends a GET request.
///
/// # Errors
/// If there is no response with a status from 200 to 399 within `timeout`.
async fn http(
    host: &str,
    port: u16,
    path: &str,
    headers: &[(String, String)],
    timeout: Duration,
) -> Result<(), CheckError> {
    let address = address(host, port);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let mut request = Request::get(path)
        .header(header::USER_AGENT, "kube-probe/1.37")
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        request = request.header(header::HOST, &address);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|e| CheckError::Invalid(format!("the HTTP probe is not valid: {e}")))?;
    within(timeout, async {
        let stream = connect(host, port).await?;
        let failed = |source| CheckError::Request {
            address: address.clone(),
            source,
        };
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(failed)?;
        let exchange = async {
            let mut response = sender.send_request(request).await.map_err(failed)?;
            let status = response.status().as_u16();
            let mut read = 0;
            while read < MAX_BODY
                && let Some(Ok(frame)) = response.frame().await
            {
                read += frame.data_ref().map_or(0, Bytes::len);
            }
            Ok::<u16, CheckError>(status)
        };
        tokio::pin!(exchange, connection);
        let mut open = true;
        let status = loop {
            tokio::select! {
                status = &mut exchange => break status?,
                // Its error, if any, is the request's, too.
                _ = &mut connection, if open => open = false,
            }
        };
        if (200..400).contains(&status) {
            Ok(())
        } else {
            Err(CheckError::Status(status))
        }
    })
    .await
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
    TcpStream::connect((host, port))
        .await
        .map_err(|source| CheckError::Connect {
            address: address(host, port),
            source,
        })
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
