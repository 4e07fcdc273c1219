//! Delays the calls that are faulty.

use std::time::Duration;

use bytes::Bytes;
use pleg_cri::v1;

use super::call::decode;
use super::{Shared, lock};

/// Waits for the delay that the current faults give to this call.
pub(super) async fn delay_call(shared: &Shared, method: &str, message: &Bytes) {
    let faults = *lock(&shared.call_faults);
    if faults.hung_pod && names_first_pod(shared, method, message) {
        // Until the caller cancels the call.
        std::future::pending::<()>().await;
    }
    let mut delay = faults.call_ms;
    if faults.slow_list > 0 && is_full(method, message) {
        delay += faults.slow_list;
    }
    if delay > 0 {
        let until = Duration::from_millis(delay);
        shared
            .clock
            .sleep_until(shared.clock.now().after(until))
            .await;
    }
}

/// Whether the call reads the status of the first pod or of one of its containers.
fn names_first_pod(shared: &Shared, method: &str, message: &Bytes) -> bool {
    let asked = message.clone();
    let id = match method {
        "PodSandboxStatus" => {
            decode::<v1::PodSandboxStatusRequest>(asked).map(|r| r.pod_sandbox_id)
        }
        "ContainerStatus" => decode::<v1::ContainerStatusRequest>(asked).map(|r| r.container_id),
        _ => return false,
    };
    let table = lock(&shared.table);
    let first = table.pods().keys().next().copied();
    id.is_ok_and(|id| first.is_some() && table.pod_of(&id) == first)
}

/// Whether the call lists all containers.
fn is_full(method: &str, message: &Bytes) -> bool {
    // The requests of a list and of its streaming variant have the same fields.
    matches!(method, "ListContainers" | "StreamContainers")
        && decode::<v1::ListContainersRequest>(message.clone())
            .is_ok_and(|r| r.filter.unwrap_or_default() == v1::ContainerFilter::default())
}
