//! The page `docs/benchmarks.md` and its pictures, from files of results.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Writes it.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write(_results: &[PathBuf], _out: &Path) -> Result<()> {
    Ok(())
}
