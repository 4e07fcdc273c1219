//! What can go wrong: in serving (for callers), and in obeying a call (for gRPC clients).

use std::{io, path::PathBuf};

use tonic::Status;

use crate::mode::Mode;

/// Why the simulator cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Somebody listens on that socket already.
    #[error("{} is in use: somebody listens on it", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket has that name; it is left alone.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// There is no such mode.
    #[error("no mode {name:?}; there are {}", names())]
    Mode {
        /// What was asked for.
        name: String,
    },
    /// That version does not behave as the mode does.
    #[error("version {version:?} does not fit mode {mode}, which is {wanted}")]
    Version {
        /// What was asked for.
        version: String,
        /// The mode.
        mode: Mode,
        /// What would fit.
        wanted: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which path.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

fn names() -> String {
    Mode::ALL.map(Mode::name).join(", ")
}

/// Why a call is refused. The words and codes are containerd's as far as clients see them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
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
    #[error("{0} is required")]
    Missing(&'static str),
    #[error("the runtime shuts down")]
    ShuttingDown,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NoSandbox(_) | Refusal::NoContainer(_) => Self::not_found(text),
            Refusal::Missing(_) => Self::invalid_argument(text),
            Refusal::ShuttingDown => Self::unavailable(text),
            // Plain errors of containerd: it gives them no code.
            Refusal::SandboxNameTaken { .. }
            | Refusal::ContainerNameTaken { .. }
            | Refusal::SandboxNotReady(_)
            | Refusal::WrongState(_)
            | Refusal::StartFailed(_) => Self::unknown(text),
        }
    }
}
