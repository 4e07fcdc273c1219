//! A failed call to the runtime, as it is kept beside the last good status of a pod.

use std::fmt;

use crate::types::status::Text;

/// Why a call to the runtime failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The runtime does not know the object.
    NotFound,
    /// No answer in time.
    DeadlineExceeded,
    /// No connection: the socket is missing, refuses, or broke.
    Unavailable,
    /// Permission to use the socket was denied.
    PermissionDenied,
    /// The runtime does not implement the call.
    Unimplemented,
    /// The answer exceeds the message size limit.
    TooLarge,
    /// The call was cancelled.
    Cancelled,
    /// The answer does not match the request.
    Malformed,
    /// The runtime answered with an error of its own.
    Failed,
}

impl CallErrorKind {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unavailable => "unavailable",
            Self::PermissionDenied => "permission_denied",
            Self::Unimplemented => "unimplemented",
            Self::TooLarge => "too_large",
            Self::Cancelled => "cancelled",
            Self::Malformed => "malformed",
            Self::Failed => "failed",
        }
    }

    /// Returns true if nothing came from the runtime. A runtime that refuses a call works.
    pub(crate) const fn is_unanswered(self) -> bool {
        matches!(self, Self::Unavailable | Self::DeadlineExceeded)
    }
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A call to the runtime that failed.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CallError {
    /// The CRI operation, for example `ListContainers`.
    pub operation: &'static str,
    /// What kind of failure.
    pub kind: CallErrorKind,
    /// The message of the runtime or the transport.
    pub message: Text,
}

impl CallError {
    /// An error of `operation`.
    pub fn new(operation: &'static str, kind: CallErrorKind, message: impl Into<Text>) -> Self {
        Self {
            operation,
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}): {}", self.operation, self.kind, self.message)
    }
}

impl std::error::Error for CallError {}
