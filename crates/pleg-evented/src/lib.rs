//! The stream side: subscribes to a runtime's events, drains them, says how a stream ended, and
//! reconnects, for ever.
//!
//! [`run`] is the whole of it. It judges nothing: what arrives is stamped and handed on, in the
//! order of its arrival. It never waits for who takes it, because a subscriber that stops reading
//! blocks containerd's own container creation (invariant 8); what the taker leaves behind is joined per
//! id until it comes back.
//!
//! May touch: the [`Runtime`] that it was given, through [`Runtime::subscribe`] alone, and the
//! clock. No gRPC, no merge, no lock that anybody else holds.
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

/// What the stream side hands over, in the order in which it happened.
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
