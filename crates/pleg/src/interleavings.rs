//! Tests in which shuttle runs the driver and its consumers in many orders. Cache, waiters, subscriptions and shutdown
//! are the real code. A small driver, written for these tests, runs the reconciler on a simulated node that is stored
//! behind a mutex. `just shuttle` runs the tests.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod node;
mod samples;
mod subscriptions;
mod tests;

/// Runs a scenario in many schedules: half of them are random, half use probabilistic concurrency testing (PCT), which
/// finds bugs that need few task switches at the right places.
fn explore(scenario: impl Fn() + Clone + Send + Sync + 'static) {
    let schedules = std::env::var("PLEG_SCHEDULES").ok();
    let schedules = schedules.and_then(|n| n.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(scenario.clone(), schedules / 2);
    shuttle::check_pct(scenario, schedules / 2, 3);
}
