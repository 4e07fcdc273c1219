//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod log;
mod manifests;
mod running;
mod validation;

use static_pods::manifest::{Manifest, ManifestError};

/// The only pod of a file without unknown fields.
fn parse(file: &str, contents: &str, node: &str) -> Result<Manifest, ManifestError> {
    let mut all = Manifest::parse_all(file.as_ref(), contents, node, true);
    assert_eq!(all.len(), 1);
    all.remove(0)
}
