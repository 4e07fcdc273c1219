//! What is wrong with an endpoint: one connection, one question, and a sentence that says what
//! was found, where, and what to do.
//!
//! Touches nothing but the socket, on connections of its own.

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
use crate::error::{call_error, clean, is_local, with_cause};
use crate::metrics::Operation;
use crate::transport::KUBELET_API;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{convert, transport, v1};

/// How long the runtime has to say its version; a runtime that is well says it in a millisecond.
const ANSWER: Duration = Duration::from_secs(4);

/// How long each question after that may take.
const AFTERTHOUGHT: Duration = Duration::from_millis(1500);

/// How long the whole may take. Connecting comes on top of the questions; a unix socket does it
/// at once or not at all.
const WHOLE: Duration = Duration::from_millis(7500);

/// Why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is nothing at that path.
    #[error("there is no socket at {endpoint}: is the runtime running, and is this its path?")]
    Missing {
        /// Where.
        endpoint: Endpoint,
    },
    /// We may not use the socket.
    #[error("permission denied on {endpoint}: run as root, or as a member of the socket's group")]
    PermissionDenied {
        /// Where.
        endpoint: Endpoint,
    },
    /// The path leads to something else.
    #[error("{endpoint} is {what}: give the path of the runtime's socket")]
    NotASocket {
        /// Where.
        endpoint: Endpoint,
        /// What it is.
        what: &'static str,
    },
    /// The socket was left behind by somebody who is gone.
    #[error("nobody listens on {endpoint}: the socket is a leftover; start the runtime")]
    NobodyListens {
        /// Where.
        endpoint: Endpoint,
    },
    /// Connecting failed in another way.
    #[error("cannot connect to {endpoint}: {message}")]
    Dial {
        /// Where.
        endpoint: Endpoint,
        /// What the system said.
        message: String,
    },
    /// Somebody else listens there.
    #[error("{endpoint} is no container runtime: {what}; give the socket of a CRI runtime")]
    NotCri {
        /// Where.
        endpoint: Endpoint,
        /// What gave it away.
        what: String,
    },
    /// Not a word.
    #[error(
        "{endpoint} accepts connections and says nothing: its owner is stuck, still starting, \
         or no CRI runtime"
    )]
    Silent {
        /// Where.
        endpoint: Endpoint,
    },
    /// It speaks HTTP/2 as a runtime does, but gives no answer.
    #[error("the runtime at {endpoint} does not say its version: it is stuck or still starting")]
    Unresponsive {
        /// Where.
        endpoint: Endpoint,
    },
    /// A runtime that says that it is not ready yet.
    #[error("the runtime at {endpoint} is still starting ({message}): try again")]
    Starting {
        /// Where.
        endpoint: Endpoint,
        /// What it said.
        message: String,
    },
    /// A gRPC server, without the runtime service.
    #[error(
        "{endpoint} is a gRPC server without CRI: if it is containerd, take \"cri\" out of its \
         disabled_plugins and restart it"
    )]
    CriOff {
        /// Where.
        endpoint: Endpoint,
    },
    /// A runtime from before CRI v1 (containerd < 1.6, CRI-O < 1.20).
    #[error(
        "the runtime at {endpoint} ({runtime}) speaks only CRI v1alpha2, and v1 is needed: \
         upgrade it (containerd 1.6, CRI-O 1.20 or later)"
    )]
    OnlyV1Alpha2 {
        /// Where.
        endpoint: Endpoint,
        /// Its name and version.
        runtime: String,
    },
    /// The runtime answered the plainest of questions with an error.
    #[error("the runtime at {endpoint} does not say its version: {message}")]
    Failed {
        /// Where.
        endpoint: Endpoint,
        /// What it said.
        message: String,
    },
}

/// Tries an endpoint: connects, asks for the version, and where that fails finds out why.
///
/// Takes less than 8 s, whatever is at the other end.
///
/// # Errors
/// What is wrong, where, and what to do about it.
pub async fn diagnose(endpoint: &Endpoint) -> Result<RuntimeVersion, ConnectError> {
    let silent = |_elapsed| ConnectError::Silent {
        endpoint: endpoint.clone(),
    };
    tokio::time::timeout(WHOLE, investigate(endpoint))
        .await
        .map_err(silent)?
}

async fn investigate(endpoint: &Endpoint) -> Result<RuntimeVersion, ConnectError> {
    let dialled = transport::dial(endpoint.path()).await;
    let stream = dialled.map_err(|error| dial_error(endpoint, &error))?;
    let channel = match transport::over(stream).await {
        Ok(channel) => channel,
        Err(error) => {
            let message = with_cause(&error.to_string(), &error);
            return Err(unspeakable(endpoint, Some(message)).await);
        }
    };
    let request = v1::VersionRequest {
        version: KUBELET_API.to_owned(),
    };
    let mut client = RuntimeServiceClient::new(channel.clone());
    match tokio::time::timeout(ANSWER, client.version(request)).await {
        Ok(Ok(version)) => Ok(convert::version(version.into_inner())),
        Ok(Err(status)) if is_local(&status) => {
            let message = with_cause(status.message(), &status);
            Err(unspeakable(endpoint, Some(message)).await)
        }
        Ok(Err(status)) => Err(answered(endpoint, &status, channel).await),
        Err(_elapsed) => Err(unspeakable(endpoint, None).await),
    }
}

fn dial_error(endpoint: &Endpoint, error: &io::Error) -> ConnectError {
    let endpoint = endpoint.clone();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ConnectError::Missing { endpoint }
        }
        io::ErrorKind::PermissionDenied => ConnectError::PermissionDenied { endpoint },
        // The system refuses so where nobody listens, and also where no socket is.
        io::ErrorKind::ConnectionRefused => match what_else(endpoint.path()) {
            Some(what) => ConnectError::NotASocket { endpoint, what },
            None => ConnectError::NobodyListens { endpoint },
        },
        _ => ConnectError::Dial {
            endpoint,
            message: clean(&error.to_string()),
        },
    }
}

/// What a path leads to, if that is no socket.
fn what_else(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    match () {
        () if kind.is_socket() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_file() => Some("a plain file"),
        () => Some("no socket"),
    }
}

/// Somebody answered in gRPC, or at least in HTTP/2.
async fn answered(endpoint: &Endpoint, status: &Status, channel: Channel) -> ConnectError {
    let (endpoint, error) = (endpoint.clone(), call_error(Operation::VERSION, status));
    let message = error.message.to_string();
    // tonic's words for an answer without a gRPC status, whatever code it makes of it.
    if message.starts_with("grpc-status header missing") {
        let what = "it speaks HTTP/2, but not gRPC".to_owned();
        return ConnectError::NotCri { endpoint, what };
    }
    match error.kind {
        CallErrorKind::Unimplemented => match v1alpha2(channel).await {
            Some(runtime) => ConnectError::OnlyV1Alpha2 { endpoint, runtime },
            None => ConnectError::CriOff { endpoint },
        },
        CallErrorKind::Unavailable => ConnectError::Starting { endpoint, message },
        CallErrorKind::Malformed => {
            let what = format!("its answer is no version ({message})");
            ConnectError::NotCri { endpoint, what }
        }
        _ => ConnectError::Failed { endpoint, message },
    }
}

/// The name and version of a runtime that speaks v1alpha2, whose `Version` has v1's messages.
async fn v1alpha2(channel: Channel) -> Option<String> {
    let path = PathAndQuery::from_static("/runtime.v1alpha2.RuntimeService/Version");
    let request = v1::VersionRequest {
        version: KUBELET_API.to_owned(),
    };
    let codec = tonic_prost::ProstCodec::<_, v1::VersionResponse>::default();
    let mut grpc = tonic::client::Grpc::new(channel);
    let asking = async {
        grpc.ready().await.ok()?;
        grpc.unary(tonic::Request::new(request), path, codec)
            .await
            .ok()
    };
    let version = tokio::time::timeout(AFTERTHOUGHT, asking)
        .await
        .ok()??
        .into_inner();
    Some(clean(&format!(
        "{} {}",
        version.runtime_name, version.runtime_version
    )))
}

/// There was no answer in gRPC, by this error or in time: finds out what there is instead.
async fn unspeakable(endpoint: &Endpoint, error: Option<String>) -> ConnectError {
    let mut heard = Vec::new();
    let sniffed = tokio::time::timeout(AFTERTHOUGHT, sniff(endpoint.path(), &mut heard)).await;
    let endpoint = endpoint.clone();
    let not_cri = |what: &str| ConnectError::NotCri {
        endpoint: endpoint.clone(),
        what: what.into(),
    };
    match (sniffed, error) {
        _ if heard.starts_with(b"HTTP/") => not_cri("it speaks HTTP/1"),
        (_, None) if is_http2(&heard) => ConnectError::Unresponsive { endpoint },
        (_, Some(message)) if is_http2(&heard) => ConnectError::Failed { endpoint, message },
        _ if !heard.is_empty() => not_cri(&format!("it says \"{}\"", heard.escape_ascii())),
        (Err(_elapsed), _) => ConnectError::Silent { endpoint },
        (Ok(Ok(())), _) => not_cri("it hangs up without a word"),
        // It went away meanwhile.
        (Ok(Err(error)), _) => dial_error(&endpoint, &error),
    }
}

/// Says hello in HTTP/2 and collects the first bytes of the answer.
async fn sniff(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    /// The preface, and an empty SETTINGS frame.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ENOUGH: u64 = 24;
    let mut stream = transport::dial(path).await?;
    // One that talks and hangs up may not take the hello; what it said is still to be had.
    let _ = stream.write_all(HELLO).await;
    let mut answer = stream.take(ENOUGH);
    while answer.limit() > 0 {
        match answer.read_buf(bytes).await {
            Ok(0) | Err(_) => break,
            Ok(_) if is_http2(bytes) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether this is the head of a SETTINGS frame, with which every HTTP/2 server begins.
fn is_http2(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, 4, 0, 0, 0, 0, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root passes every door, so the closed one is made by hand.
    #[test]
    fn a_refused_permission_is_named() {
        let endpoint: Endpoint = "/run/x.sock".parse().unwrap();
        let error = dial_error(&endpoint, &io::Error::from_raw_os_error(13));
        assert_eq!(error, ConnectError::PermissionDenied { endpoint });
        assert!(
            error
                .to_string()
                .contains("permission denied on unix:///run/x.sock")
        );
    }
}
