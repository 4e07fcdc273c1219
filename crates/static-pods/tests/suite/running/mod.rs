//! `static_pods` on simulated runtimes: its worker, in this process.

mod fields;
mod node;
mod runtimes;
mod statuses;
mod statuses_table;
mod trouble;
mod valid;
