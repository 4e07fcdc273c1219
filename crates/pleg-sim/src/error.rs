//! Errors: of serving (for callers) and of CRI calls (for gRPC clients).

use std::{io, path::PathBuf, time::Duration};

use tonic::Status;

use crate::mode::Mode;

/// Why the simulator cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Another process listens on the socket.
    #[error("{} is in use: another process listens on it; stop that process or choose another path", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path exists and is not a socket. The file is not changed.
    #[error("{} exists and is not a socket; remove it or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The mode does not exist.
    #[error("no mode {name:?}; the modes are {}", names())]
    Mode {
        /// The name in the request.
        name: String,
    },
    /// The version does not belong to the mode.
    #[error("version {version:?} does not belong to mode {mode}, which simulates {wanted}")]
    Version {
        /// The version in the request.
        version: String,
        /// The mode.
        mode: Mode,
        /// The versions that belong to the mode.
        wanted: String,
    },
    /// The operating system returned an error.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

fn names() -> String {
    Mode::ALL.map(Mode::name).join(", ")
}

/// Why a call is rejected. Messages and codes are those of containerd, as far as clients see them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("an error occurred when try to find sandbox {0:?}: not found")]
    NoSandbox(String),
    #[error("an error occurred when try to find container {0:?}: not found")]
    NoContainer(String),
    #[error("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {by:?}")]
    SandboxNameTaken { name: String, by: String },
    #[error("failed to reserve container name {name:?}: name {name:?} is reserved for {by:?}")]
    ContainerNameTaken { name: String, by: String },
    #[error("sandbox container {0:?} is not running")]
    SandboxNotReady(String),
    #[error("container is in {0} state")]
    WrongState(&'static str),
    #[error("failed to start container {0:?}: failed to create containerd task: no such program")]
    StartFailed(String),
    /// CRI-O refuses what containerd accepts.
    #[error("{0}")]
    Refused(String),
    #[error("timeout {0:?} exceeded: context deadline exceeded")]
    ExecTimedOut(Duration),
    #[error("{0} is required")]
    Missing(&'static str),
    #[error("the runtime is shutting down")]
    ShuttingDown,
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let text = error.to_string();
        match error {
            CallError::NoSandbox(_) | CallError::NoContainer(_) => Self::not_found(text),
            CallError::Missing(_) => Self::invalid_argument(text),
            CallError::ShuttingDown => Self::unavailable(text),
            CallError::ExecTimedOut(_) => Self::deadline_exceeded(text),
            // The runtimes return these as plain errors, without a code.
            CallError::SandboxNameTaken { .. }
            | CallError::ContainerNameTaken { .. }
            | CallError::SandboxNotReady(_)
            | CallError::WrongState(_)
            | CallError::Refused(_)
            | CallError::StartFailed(_) => Self::unknown(text),
        }
    }
}
