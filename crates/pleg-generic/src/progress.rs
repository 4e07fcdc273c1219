//! Which call an inspection waits for.

use std::sync::{Arc, Mutex, PoisonError};

use pleg_runtime::core::PodCall;

/// Shows which call of an inspection is unanswered, so that one that hangs can be named. Clones show
/// the same inspection.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<Option<PodCall>>>);

impl Progress {
    /// The unanswered call that was made first; `None` before the first call and after the last one.
    pub fn waits_for(&self) -> Option<PodCall> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, call: Option<PodCall>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }
}
