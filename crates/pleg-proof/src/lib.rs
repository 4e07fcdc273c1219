//! Tests the core (`pleg-core`) on a simulated node with random faults and pod workers, and checks all its outputs.
//!
//! A [`World`] advances by one action at a time, and every choice comes from a [`Choose`]: a seeded generator
//! for soaks, a byte string for shrinking, an enumerator for small worlds.

mod checker;
pub mod choose;
mod convert;
pub mod coverage;
pub mod faults;
pub mod shrink;
pub mod small;
pub mod soak;
pub mod worker;
mod world;

pub use choose::Choose;
pub use world::{EPOCH, Failure, MS, SECOND, World};
