//! The `pleg` command.
fn main() {}
