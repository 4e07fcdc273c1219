//! The deadline of a pod: `activeDeadlineSeconds` after its start.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pleg::WallTime;

use super::phase::{FAILED, SUCCEEDED};

/// The time until the pod reaches its deadline, zero after it. `None` if it has none, or has not started.
pub(crate) fn time_left(pod: &Pod, status: &PodStatus, now: WallTime) -> Option<Duration> {
    let deadline = pod.spec.as_ref()?.active_deadline_seconds?;
    let start = status.start_time.as_ref()?.0.as_second();
    let end = start.saturating_add(deadline).saturating_mul(1_000_000_000);
    let left = end.saturating_sub(now.as_nanos());
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}

/// The phase of a pod that has reached its deadline before it ended: sets reason and message as well.
pub(super) fn failed(
    status: &mut PodStatus,
    pod: &Pod,
    previous: Option<&PodStatus>,
    now: WallTime,
) -> Option<&'static str> {
    const REASON: &str = "DeadlineExceeded";
    let phase = previous.and_then(|p| p.phase.as_deref());
    let had_ended = matches!(phase, Some(FAILED | SUCCEEDED));
    let by_deadline = previous.and_then(|p| p.reason.as_deref()) == Some(REASON);
    let left = time_left(pod, status, now)?;
    if !left.is_zero() || had_ended && !by_deadline {
        return None;
    }
    status.reason = Some(REASON.to_owned());
    let message = "Pod was active on the node longer than the specified deadline";
    status.message = Some(message.to_owned());
    Some(FAILED)
}
