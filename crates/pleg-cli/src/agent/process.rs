//! Metrics about this process, under the names that all Prometheus clients use, and one with the version of the build.

use std::path::Path;
use std::time::Duration;

use metrics::{describe_counter, describe_gauge, gauge};
use nix::time::{ClockId, clock_gettime};

use crate::proc::{Open, Proc};

const BUILD: &str = "pleg_build_info";
const CPU: &str = "process_cpu_seconds_total";
const CPU_HELP: &str = "CPU time of this process, user and system.";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const OPEN_FILES: &str = "process_open_fds";
const MOST_FILES: &str = "process_max_fds";
const THREADS: &str = "process_threads";
const STARTED: &str = "process_start_time_seconds";

pub(super) fn describe() {
    describe_gauge!(BUILD, "1 for the `version` of pleg.");
    describe_counter!(CPU, CPU_HELP);
    describe_gauge!(RESIDENT, "Memory of this process that is in RAM.");
    describe_gauge!(VIRTUAL, "Virtual memory of this process.");
    describe_gauge!(OPEN_FILES, "Open file descriptors.");
    describe_gauge!(MOST_FILES, "The most file descriptors that may be open.");
    describe_gauge!(THREADS, "Threads of this process.");
    describe_gauge!(STARTED, "Unix time of the start of this process.");
}

/// Writes the present values. What cannot be read is left out.
pub(super) fn show() {
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let proc = Proc::below(Path::new("/"));
    if let Some(Open { open, limit }) = proc.descriptors(std::process::id()) {
        // One of them reads the directory.
        gauge!(OPEN_FILES).set(open.saturating_sub(1) as f64);
        gauge!(MOST_FILES).set(limit as f64);
    }
    if let Some(own) = proc.process("self") {
        gauge!(RESIDENT).set(own.resident() as f64);
        gauge!(VIRTUAL).set(own.memory as f64);
        gauge!(THREADS).set(own.threads as f64);
        if let Some(boot) = proc.boot() {
            gauge!(STARTED).set(own.started_at(boot));
        }
    }
}

/// The CPU time in Prometheus' text format. A counter of the recorder would have whole numbers only.
pub(super) fn cpu() -> String {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
    let shown = used.map(|used| {
        let seconds = used.as_secs_f64();
        format!("# HELP {CPU} {CPU_HELP}\n# TYPE {CPU} counter\n{CPU} {seconds}\n\n")
    });
    shown.unwrap_or_default()
}
