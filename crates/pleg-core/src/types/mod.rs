//! The domain types: what goes into the reconciler, what comes out, and what is published.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod go_duration;
pub(crate) mod ids;
pub(crate) mod labels;
pub(crate) mod lifecycle;
pub(crate) mod reads;
pub(crate) mod report;
#[cfg(feature = "serde")]
mod serialization;
pub(crate) mod status;
pub(crate) mod time;
