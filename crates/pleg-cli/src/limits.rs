//! What this process may use: memory.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Larger blocks are mapped one by one, so that they are returned when they are freed. Without this
/// setting, glibc raises the threshold with each such block that is freed, and keeps the memory.
const MMAP_THRESHOLD: &str = "glibc.malloc.mmap_threshold=131072";
/// Marks the program that was started again, because glibc may remove [`TUNABLES`] from the environment.
const STARTED_AGAIN: &str = "PLEG_STARTED_AGAIN";

/// Starts this program again, as the same process, with a fixed threshold for the allocator, which glibc reads only at
/// the start: memory after a flood of large responses is returned. Does nothing without glibc, or if it is configured.
pub(crate) fn return_freed_memory() {
    let is_configured = [TUNABLES, STARTED_AGAIN].map(|name| env::var_os(name).is_some());
    if !cfg!(target_env = "gnu") || is_configured != [false; 2] {
        return;
    }
    let mut args = env::args_os();
    if let (Ok(program), Some(name)) = (env::current_exe(), args.next()) {
        let mut command = Command::new(program);
        command.arg0(name).args(args).env(STARTED_AGAIN, "1");
        let error = command.env(TUNABLES, MMAP_THRESHOLD).exec();
        tracing::debug!("cannot configure the allocator: {error}");
    }
}
