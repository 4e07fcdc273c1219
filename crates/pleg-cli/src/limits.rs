//! How many files this process may open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More is never needed.
const ENOUGH: u64 = 1 << 16;

/// Raises the soft limit of open files to the hard limit, and returns it.
pub(crate) fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let wanted = hard.min(ENOUGH).max(soft);
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}
