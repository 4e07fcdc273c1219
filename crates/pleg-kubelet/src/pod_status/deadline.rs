//! The deadline of a pod: `activeDeadlineSeconds` after its start.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pleg::WallTime;

use super::phase::{FAILED, SUCCEEDED};

/// The time until the pod reaches its deadline, zero after it. `None` if it has none, or has not started.
pub(crate) fn time_left(pod: &Pod, status: &PodStatus, now: WallTime) -> Option<Duration> {
    of_spec(pod.spec.as_ref()?, status.start_time.as_ref(), now)
}

fn of_spec(spec: &PodSpec, start: Option<&Time>, now: WallTime) -> Option<Duration> {
    let end = start?
        .0
        .as_second()
        .saturating_add(spec.active_deadline_seconds?);
    let left = end
        .saturating_mul(1_000_000_000)
        .saturating_sub(now.as_nanos());
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}

/// The phase of a pod that has reached its deadline before it ended: sets reason and message as well.
pub(super) fn failed(
    status: &mut PodStatus,
    spec: &PodSpec,
    previous: Option<&PodStatus>,
    now: WallTime,
) -> Option<&'static str> {
    const REASON: &str = "DeadlineExceeded";
    let phase = previous.and_then(|p| p.phase.as_deref());
    let had_ended = matches!(phase, Some(FAILED | SUCCEEDED));
    let by_deadline = previous.and_then(|p| p.reason.as_deref()) == Some(REASON);
    let left = of_spec(spec, status.start_time.as_ref(), now)?;
    if !left.is_zero() || had_ended && !by_deadline {
        return None;
    }
    status.reason = Some(REASON.to_owned());
    status.message =
        Some("Pod was active on the node longer than the specified deadline".to_owned());
    Some(FAILED)
}
