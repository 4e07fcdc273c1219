//! Tests of `static_pods` on simulated runtimes: the workers run in the test process.

mod fields;
mod node;
mod runtimes;
mod statuses;
mod statuses_table;
mod trouble;
mod valid;
