//! What is wrong with the runtime, while something is.

use std::time::Duration;

use bytes::Bytes;
use pleg_cri::v1;

use super::call::decode;
use super::{Shared, lock};

/// Waits as long as what is wrong makes that call wait.
pub(super) async fn hold_up(shared: &Shared, method: &str, message: &Bytes) {
    let trouble = *lock(&shared.trouble);
    if trouble.hung_pod && of_the_first(shared, method, message) {
        // Until the caller gives up.
        std::future::pending::<()>().await;
    }
    let mut delay = trouble.call_ms;
    if trouble.slow_list > 0 && is_full(method, message) {
        delay += trouble.slow_list;
    }
    if delay > 0 {
        let until = Duration::from_millis(delay);
        shared
            .clock
            .sleep_until(shared.clock.now().after(until))
            .await;
    }
}

/// Whether it asks for the status of the first pod or of one of its containers.
fn of_the_first(shared: &Shared, method: &str, message: &Bytes) -> bool {
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

/// Whether it asks for all containers.
fn is_full(method: &str, message: &Bytes) -> bool {
    // The requests of a list and of its streaming sister have the same fields.
    matches!(method, "ListContainers" | "StreamContainers")
        && decode::<v1::ListContainersRequest>(message.clone())
            .is_ok_and(|r| r.filter.unwrap_or_default() == v1::ContainerFilter::default())
}
