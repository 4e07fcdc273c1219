//! The stream side: subscribes to a runtime's events, drains them, classifies the end of a stream,
//! and reconnects, for ever.
//!
//! [`run`] is its entry point. It stamps each event and passes it on, in the order of arrival,
//! without interpreting it. It never waits for the writer, because a subscriber that stops reading
//! blocks containerd's own container creation (invariant 8). While the writer is slow, queued
//! events are joined per id.
//!
//! It uses only [`Runtime::subscribe`] of its [`Runtime`], and the clock: no gRPC, no merge, no
//! lock that is held elsewhere.
//!
//! [`Runtime`]: pleg_runtime::Runtime
//! [`Runtime::subscribe`]: pleg_runtime::Runtime::subscribe

mod backoff;
mod gauges;
mod handover;
mod policy;
mod queue;
mod reader;
mod stream_end;

use pleg_runtime::core::{Arrival, Instant, StreamChange};

pub use gauges::ReaderGauges;
pub use handover::{ObservationSender, Observations, handover};
pub use policy::{InvalidPolicy, ReconnectPolicy, ReconnectSettings};
pub use reader::run;

/// An observation of the stream side, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one"
)]
pub enum StreamObservation {
    /// The stream began or ended.
    Change(StreamChange),
    /// An event arrived on it.
    Event(Arrival),
}

impl StreamObservation {
    /// When it was made.
    pub const fn at(&self) -> Instant {
        match self {
            Self::Change(change) => change.at(),
            Self::Event(arrival) => arrival.arrived,
        }
    }
}
