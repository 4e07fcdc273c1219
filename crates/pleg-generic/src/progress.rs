//! Shows which call of a pod read is unanswered.

use std::sync::{Arc, Mutex, PoisonError};

use pleg_runtime::core::{Id, Kind};

/// One call of a pod read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// `ListPodSandbox`, filtered by the pod's uid.
    Sandboxes,
    /// `ListContainers`, filtered by the pod's uid.
    Containers,
    /// The status of one id.
    Status(Id, Kind),
}

impl PodCall {
    /// The CRI operation.
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Sandboxes => "ListPodSandbox",
            Self::Containers => "ListContainers",
            Self::Status(_, kind) => kind.status_operation(),
        }
    }
}

/// Shows the unanswered call of a pod read, so that health can name a call that hangs. Clones show the same pod read.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<Option<PodCall>>>);

impl Progress {
    /// The earliest call that is unanswered; `None` before the first call and after the last status call.
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
