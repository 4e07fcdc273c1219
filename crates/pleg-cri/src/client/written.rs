//! The outcome of a write.

use pleg_runtime::core::{CallError, Instant};

/// The outcome of a call that may have changed a sandbox or a container.
///
/// The change may have happened even if the call failed. So both a success and a failure have the instant at which the
/// call ended: a status newer than this instant (`Pleg::newer_than`) contains the changes of the call. Only a call that
/// timed out or was cancelled may take effect even later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the next decision needs a status that is newer than `ended`"]
pub struct Written<T> {
    /// The result of the call.
    pub result: Result<T, CallError>,
    /// The instant at which the call ended, even if the call failed.
    pub ended: Instant,
}

impl<T> Written<T> {
    /// Returns the result without the instant, for a caller that has already stored `ended`.
    ///
    /// # Errors
    /// The error of the call.
    pub fn into_result(self) -> Result<T, CallError> {
        self.result
    }

    pub(super) fn and_then<U>(self, check: impl FnOnce(T) -> Result<U, CallError>) -> Written<U> {
        Written {
            result: self.result.and_then(check),
            ended: self.ended,
        }
    }

    /// Replaces the response of a call, a message without fields, by `()`.
    pub(super) fn empty(self) -> Written<()> {
        self.and_then(|_| Ok(()))
    }
}
