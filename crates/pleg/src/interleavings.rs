//! The interleavings of the writer with its consumers, explored by shuttle: the cache, those who
//! wait, the subscriptions and the shutdown are the product's own; the machine is driven by a
//! writer of the tests, on a node that fits into a lock. `just shuttle` runs it.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod cache;
mod node;
mod samples;
mod subscriptions;
mod waiting;

/// Explores a scenario: half of the schedules by chance, half by priorities that change rarely,
/// which finds what needs few switches at the right places.
fn explore(scenario: impl Fn() + Clone + Send + Sync + 'static) {
    let schedules = std::env::var("PLEG_SCHEDULES").ok();
    let schedules = schedules.and_then(|n| n.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(scenario.clone(), schedules / 2);
    shuttle::check_pct(scenario, schedules / 2, 3);
}
