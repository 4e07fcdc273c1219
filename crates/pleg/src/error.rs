//! The errors of the public API.

use std::time::Duration;

use pleg_core::{CallError, InvalidSetting, PodView};
use pleg_evented::InvalidPolicy;

/// The generator cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A setting of the reconnect policy is invalid.
    #[error(transparent)]
    Reconnect(#[from] InvalidPolicy),
    /// There is no current tokio runtime.
    #[error("there is no tokio runtime: call `spawn` inside of one")]
    NoRuntime,
}

/// The reason why a caller that waited for a view got none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The generator has shut down.
    #[error("the generator has shut down")]
    Closed,
    /// No read that began after the requested instant has ended in time.
    #[error("no read newer than requested within {within:?}")]
    DeadlineExceeded {
        /// The time limit of the wait.
        within: Duration,
    },
    /// The read for this waiter failed.
    #[error("the pod could not be read: {error}")]
    Read {
        /// The error of the read.
        error: CallError,
        /// The last good view of the pod, which is older than the requested instant.
        last_good: Box<PodView>,
    },
}

/// The reason why a requested full list did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelistError {
    /// The generator has shut down.
    #[error("the generator has shut down")]
    Closed,
    /// The list failed.
    #[error(transparent)]
    Failed(CallError),
}
