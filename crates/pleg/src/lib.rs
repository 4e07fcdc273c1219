//! A pod lifecycle event generator.
mod builder;
mod cache;
mod driver;
mod error;
mod fifo;
mod handle;
mod liveness;
mod log;
mod metrics;
mod subscription;

pub use builder::Builder;
pub use error::{RelistError, StartError, WaitError};
pub use fifo::{Fifo, FifoEvent};
pub use handle::{HealthWatch, Pleg};
pub use pleg_core as core;
pub use pleg_evented::{InvalidPolicy, ReconnectSettings};
pub use pleg_runtime as runtime;
pub use subscription::{Delivery, Subscription};
