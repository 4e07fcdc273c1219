//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod guide;
mod kubelet;
mod plan;
mod probes;
mod workers;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::Pleg;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

fn pod(names: &[&str]) -> Pod {
    let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": containers});
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

async fn pass(pleg: &Pleg, time: Duration) {
    pleg.clock().sleep_until(pleg.now().after(time)).await;
}

/// Waits until `so` returns true, for at most 15 min. Returns how long that took.
async fn until(pleg: &Pleg, so: impl Fn() -> bool) -> Duration {
    let began = pleg.now();
    while !so() {
        assert!(pleg.now().since(began) < 900 * SECOND, "not in time");
        pass(pleg, Duration::from_millis(10)).await;
    }
    pleg.now().since(began)
}
