//! Finds out why an endpoint cannot be used. Returns an error that names the endpoint, the problem and the solution.
//!
//! Connects to the socket to call `Version`. If that fails, connects again to identify the server by its first bytes.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use pleg_runtime::RuntimeVersion;
use pleg_runtime::core::CallErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::endpoint::Endpoint;
use crate::error::{call_error, clean, is_from_transport, with_cause};
use crate::metrics::Operation;
use crate::transport::version_request;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{convert, transport, v1};

/// The deadline of the `Version` call. A healthy runtime responds within a millisecond.
const VERSION_TIMEOUT: Duration = Duration::from_secs(4);

/// The deadline of each check after a failed `Version` call.
const CHECK_TIMEOUT: Duration = Duration::from_millis(1500);

/// The deadline of the whole diagnosis. It includes time to connect, although on a unix socket a connect succeeds or
/// fails at once.
const TOTAL_TIMEOUT: Duration = Duration::from_millis(7500);

/// The reason why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The path does not exist.
    #[error("there is no socket at {endpoint}: check the path and that the runtime is running")]
    Missing {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// This process has no permission to connect.
    #[error("permission denied on {endpoint}: run as root, or as a member of the socket's group")]
    PermissionDenied {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The path is not a socket.
    #[error("{endpoint} is {what}: use the path of the runtime's socket")]
    NotASocket {
        /// The endpoint.
        endpoint: Endpoint,
        /// The type of the file.
        what: &'static str,
    },
    /// No process listens on the socket.
    #[error("no process listens on {endpoint}: the socket is stale; start the runtime")]
    NotListening {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// Connecting failed for another reason.
    #[error("cannot connect to {endpoint}: {message}")]
    Connect {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error of the operating system.
        message: String,
    },
    /// The server is not a CRI runtime.
    #[error("{endpoint} is not a container runtime: {what}; use the socket of a CRI runtime")]
    NotCri {
        /// The endpoint.
        endpoint: Endpoint,
        /// The observed behavior.
        what: String,
    },
    /// The server sends nothing.
    #[error(
        "{endpoint} accepts connections but does not respond: the server hangs, is still \
         starting, or is not a CRI runtime"
    )]
    Silent {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The server speaks HTTP/2, but does not respond to `Version`.
    #[error("the runtime at {endpoint} does not respond to Version: it hangs or is still starting")]
    Unresponsive {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The runtime reports that it is not ready yet.
    #[error("the runtime at {endpoint} is still starting ({message}): try again")]
    Starting {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error message of the runtime.
        message: String,
    },
    /// The server speaks gRPC, but does not have the CRI runtime service.
    #[error(
        "{endpoint} is a gRPC server without CRI: if it is containerd, remove \"cri\" from \
         disabled_plugins and restart it"
    )]
    CriDisabled {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The runtime is older than CRI v1 (containerd < 1.6, CRI-O < 1.20).
    #[error(
        "the runtime at {endpoint} ({runtime}) supports only CRI v1alpha2, but v1 is required: \
         upgrade it (containerd 1.6, CRI-O 1.20 or later)"
    )]
    OnlyV1Alpha2 {
        /// The endpoint.
        endpoint: Endpoint,
        /// The runtime's name and version.
        runtime: String,
    },
    /// The runtime returned an error for `Version`.
    #[error("the runtime at {endpoint} returned an error for Version: {message}")]
    Failed {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error message of the runtime.
        message: String,
    },
}

/// Checks an endpoint: connects, calls `Version` and, if that fails, finds out why.
///
/// Takes less than 8 s with any server.
///
/// # Errors
/// The reason why the endpoint cannot be used. The message names the endpoint and suggests a solution.
///
/// # Cancel safety
/// Dropping the future ends the check and changes nothing.
pub async fn diagnose(endpoint: &Endpoint) -> Result<RuntimeVersion, ConnectError> {
    let silent = |_elapsed| ConnectError::Silent {
        endpoint: endpoint.clone(),
    };
    tokio::time::timeout(TOTAL_TIMEOUT, check_endpoint(endpoint))
        .await
        .map_err(silent)?
}

async fn check_endpoint(endpoint: &Endpoint) -> Result<RuntimeVersion, ConnectError> {
    let connected = transport::connect(endpoint.path()).await;
    let stream = connected.map_err(|error| connect_error(endpoint, &error))?;
    let channel = match transport::single(stream).await {
        Ok(channel) => channel,
        Err(error) => {
            let message = with_cause(&error.to_string(), &error);
            return Err(identify_server(endpoint, Some(message)).await);
        }
    };
    let request = version_request();
    let mut client = RuntimeServiceClient::new(channel.clone());
    match tokio::time::timeout(VERSION_TIMEOUT, client.version(request)).await {
        Ok(Ok(version)) => Ok(convert::version(version.into_inner())),
        Ok(Err(status)) if is_from_transport(&status) => {
            let message = with_cause(status.message(), &status);
            Err(identify_server(endpoint, Some(message)).await)
        }
        Ok(Err(status)) => Err(status_error(endpoint, &status, channel).await),
        Err(_elapsed) => Err(identify_server(endpoint, None).await),
    }
}

fn connect_error(endpoint: &Endpoint, error: &io::Error) -> ConnectError {
    let endpoint = endpoint.clone();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ConnectError::Missing { endpoint }
        }
        io::ErrorKind::PermissionDenied => ConnectError::PermissionDenied { endpoint },
        // The kernel also refuses a connection to a path that is not a socket, so check the type of the file.
        io::ErrorKind::ConnectionRefused => match other_file_type(endpoint.path()) {
            Some(what) => ConnectError::NotASocket { endpoint, what },
            None => ConnectError::NotListening { endpoint },
        },
        _ => ConnectError::Connect {
            endpoint,
            message: clean(&error.to_string()),
        },
    }
}

/// The type of the file, unless it is a socket.
fn other_file_type(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    match () {
        () if kind.is_socket() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_file() => Some("a regular file"),
        () => Some("not a socket"),
    }
}

/// The error for a status that the server sent, or that tonic made from an HTTP/2 response.
async fn status_error(endpoint: &Endpoint, status: &Status, channel: Channel) -> ConnectError {
    let (endpoint, error) = (endpoint.clone(), call_error(Operation::VERSION, status));
    let message = error.message.to_string();
    // A response without a gRPC status, recognised by tonic's message, because tonic's code for it varies.
    if message.starts_with("grpc-status header missing") {
        let what = "it speaks HTTP/2, but not gRPC".to_owned();
        return ConnectError::NotCri { endpoint, what };
    }
    match error.kind {
        CallErrorKind::Unimplemented => match v1alpha2(channel).await {
            Some(runtime) => ConnectError::OnlyV1Alpha2 { endpoint, runtime },
            None => ConnectError::CriDisabled { endpoint },
        },
        CallErrorKind::Unavailable => ConnectError::Starting { endpoint, message },
        CallErrorKind::Malformed => {
            let what = format!("its response to Version is not valid ({message})");
            ConnectError::NotCri { endpoint, what }
        }
        _ => ConnectError::Failed { endpoint, message },
    }
}

/// The name and version of a runtime that implements v1alpha2. There, `Version` has the same
/// messages as in v1.
async fn v1alpha2(channel: Channel) -> Option<String> {
    let path = PathAndQuery::from_static("/runtime.v1alpha2.RuntimeService/Version");
    let request = version_request();
    let codec = tonic_prost::ProstCodec::<_, v1::VersionResponse>::default();
    let mut grpc = tonic::client::Grpc::new(channel);
    let call = async {
        grpc.ready().await.ok()?;
        let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
        answer.ok().map(tonic::Response::into_inner)
    };
    let answer = tokio::time::timeout(CHECK_TIMEOUT, call).await.ok()??;
    let (name, version) = (answer.runtime_name, answer.runtime_version);
    Some(clean(&format!("{name} {version}")))
}

/// The error for a server that sent no gRPC response, chosen by the first bytes that the server sends.
/// `error` is the message of the failed call; `None` if the call timed out.
async fn identify_server(endpoint: &Endpoint, error: Option<String>) -> ConnectError {
    let mut received = Vec::new();
    let reading = read_first_bytes(endpoint.path(), &mut received);
    let read = tokio::time::timeout(CHECK_TIMEOUT, reading).await;
    let endpoint = endpoint.clone();
    let not_cri = |what: &str| ConnectError::NotCri {
        endpoint: endpoint.clone(),
        what: what.into(),
    };
    match (read, error) {
        _ if received.starts_with(b"HTTP/") => not_cri("it speaks HTTP/1"),
        (_, None) if is_http2(&received) => ConnectError::Unresponsive { endpoint },
        (_, Some(message)) if is_http2(&received) => ConnectError::Failed { endpoint, message },
        _ if !received.is_empty() => not_cri(&format!("it sends \"{}\"", received.escape_ascii())),
        (Err(_elapsed), _) => ConnectError::Silent { endpoint },
        (Ok(Ok(())), _) => not_cri("it closes the connection without a response"),
        // The server has stopped since the failed `Version` call.
        (Ok(Err(error)), _) => connect_error(&endpoint, &error),
    }
}

/// Sends the HTTP/2 preface and reads the first bytes of the response.
async fn read_first_bytes(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    /// The preface, and an empty SETTINGS frame.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const MAX_BYTES: u64 = 24;
    let mut stream = transport::connect(path).await?;
    // A server that sends first and disconnects may not read the preface, so a failed write is ignored: the bytes that
    // the server sent can still be read.
    let _ = stream.write_all(PREFACE).await;
    let mut response = stream.take(MAX_BYTES);
    while response.limit() > 0 {
        match response.read_buf(bytes).await {
            Ok(0) | Err(_) => break,
            Ok(_) if is_http2(bytes) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Returns true if `bytes` starts with the header of a SETTINGS frame, the first frame of every HTTP/2 server.
fn is_http2(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, 4, 0, 0, 0, 0, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root may connect to every socket, so the test constructs the error instead of provoking it.
    #[test]
    fn permission_denied_error_names_endpoint() {
        let endpoint: Endpoint = "/run/x.sock".parse().unwrap();
        let error = connect_error(&endpoint, &io::Error::from_raw_os_error(13));
        assert_eq!(error, ConnectError::PermissionDenied { endpoint });
        assert!(
            error
                .to_string()
                .contains("permission denied on unix:///run/x.sock")
        );
    }
}
