//! What can go wrong for those who use the generator.

use std::time::Duration;

use pleg_core::{CallError, InvalidSetting, PodView};
use pleg_evented::InvalidPolicy;

/// The generator cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A setting of the reconnect policy cannot be used.
    #[error(transparent)]
    Reconnect(#[from] InvalidPolicy),
}

/// An answer that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The generator has shut down.
    #[error("the generator has shut down")]
    Closed,
    /// No newer evidence in time.
    #[error("no newer evidence within {within:?}")]
    DeadlineExceeded {
        /// The time that was given.
        within: Duration,
    },
    /// The read that was to bring it failed.
    #[error("the pod could not be read: {error}")]
    Read {
        /// How.
        error: CallError,
        /// The last good view of the pod; older than what was asked for.
        last_good: Box<PodView>,
    },
}

/// A full list that could not be had.
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
