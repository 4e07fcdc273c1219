//! The errors that the simulator returns to Rust callers, and the errors of CRI calls for gRPC clients.
//!
//! The error messages and gRPC codes of calls are those of containerd, as far as clients see them. Most errors have the
//! code `Unknown`, because the runtimes return plain errors.

use pleg_cri::v1::ContainerState;
use tonic::Status;

/// The reason why the simulator refuses a socket, a mode, a version, a knob or a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SimError(pub(crate) String);

pub(crate) fn not_found(kind: &str, id: &str) -> Status {
    let text = format!("an error occurred when try to find {kind} {id:?}: not found");
    Status::not_found(text)
}

/// A sandbox or container cannot be created, because another one has its name.
pub(crate) fn name_taken(kind: &str, name: &str, by: &str) -> Status {
    Status::unknown(format!(
        "failed to reserve {kind} name {name:?}: name {name:?} is reserved for {by:?}"
    ))
}

pub(crate) fn sandbox_not_ready(id: &str) -> Status {
    Status::unknown(format!("sandbox container {id:?} is not running"))
}

pub(crate) fn wrong_state(state: ContainerState) -> Status {
    Status::unknown(format!("container is in {} state", state.as_str_name()))
}

/// The error for a request that lacks the field `what`.
pub(crate) fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("{what} is required"))
}

pub(crate) fn shutting_down() -> Status {
    Status::unavailable("the runtime is shutting down")
}
