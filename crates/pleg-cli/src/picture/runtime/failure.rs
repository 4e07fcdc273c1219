//! Why a call failed, as it is recorded.

use std::fmt;

use pleg::core::CallError;
use serde::{Deserialize, Serialize};

use crate::text::clip;

/// How many characters of a message are kept.
const MOST: usize = 300;

/// An error of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Failure {
    /// As `CallErrorKind::as_str`.
    pub(crate) kind: String,
    /// The runtime's own words. Empty in a redacted recording.
    pub(crate) message: String,
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self {
            kind: error.kind.as_str().to_owned(),
            message: clip(&error.message, MOST).into_owned(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &*self.message) {
            (kind, "") => f.write_str(kind),
            (kind, message) => write!(f, "{kind}: {message}"),
        }
    }
}
