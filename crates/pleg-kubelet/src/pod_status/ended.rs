//! The terminated state of a container.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated};
use pleg::core::ContainerStatus;
use pleg::{Exit, WallTime};

use super::api_time;

/// Upstream's reason if a container's end is not known.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// Upstream's exit code if a container's end is not known.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// The terminated state from the runtime's status.
pub(super) fn from_status(status: &ContainerStatus, id: String) -> ContainerStateTerminated {
    let details = &status.details;
    // As upstream: a container that never started has the epoch.
    let never = details.exit_code.map(|_| WallTime::from_nanos(0));
    ContainerStateTerminated {
        container_id: Some(id),
        started_at: details.started_at.or(never).map(api_time),
        finished_at: details.finished_at.map(api_time),
        message: text(&details.message),
        ..with_code(details.exit_code, &details.reason)
    }
}

/// The terminated state from an exit record.
pub(super) fn from_record(record: &Exit, id: String) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(id),
        finished_at: record.finished_at.map(api_time),
        ..with_code(record.exit_code, &record.reason)
    }
}

/// The message for a container that was running when it was last reported, if neither it nor an exit record exists.
pub(super) const VANISHED: &str = "The container could not be located when the pod was deleted.  \
                                   The container used to be Running";

/// The message if the runtime does not know the container's state.
pub(super) const NOT_LOCATED: &str =
    "The container could not be located when the pod was terminated";

/// The state of an init container that is gone although a regular one exists: it must have succeeded.
pub(super) fn inferred_success() -> ContainerStateTerminated {
    let message = "Unable to get init container status from container runtime and pod has been \
                   initialized, treat it as exited normally";
    ContainerStateTerminated {
        exit_code: 0,
        reason: Some("Completed".to_owned()),
        message: Some(message.to_owned()),
        ..ContainerStateTerminated::default()
    }
}

fn with_code(exit_code: Option<i32>, reason: &str) -> ContainerStateTerminated {
    match exit_code {
        Some(exit_code) => ContainerStateTerminated {
            exit_code,
            reason: text(reason),
            ..ContainerStateTerminated::default()
        },
        None => unknown(""),
    }
}

pub(super) fn unknown(message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        message: text(message),
        exit_code: UNKNOWN_EXIT_CODE,
        reason: Some(STATUS_UNKNOWN.to_owned()),
        ..ContainerStateTerminated::default()
    }
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The state of a container that has ended.
pub(super) fn state(ended: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(ended),
        ..ContainerState::default()
    }
}
