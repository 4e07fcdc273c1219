//! Tests of `static_pods` on simulated runtimes: the workers run in the test process.

mod fields;
mod node;
mod runtimes;
mod statuses;
mod trouble;
mod valid;
