//! The places where a simulated runtime can be made to misbehave.
//!
//! Every call passes [`Faults::before`], every event [`Faults::event`]; nothing else in the
//! simulator decides to lie. What is here is only the shape: the default is a healthy runtime.

use std::{fmt, time::Duration};

use pleg_cri::v1;
use tonic::Status;

/// A call of the CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The method as the contract names it, such as `ListContainers`.
    pub method: &'static str,
    /// The sandbox or container it names; empty if none.
    pub id: &'a str,
}

/// What becomes of a call before it is looked at.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum CallFault {
    /// It is obeyed.
    #[default]
    None,
    /// It is obeyed after that time.
    Delay(Duration),
    /// It fails.
    Fail(Status),
    /// It is never answered.
    Hang,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// It is told.
    #[default]
    Once,
    /// It is lost without a trace.
    Drop,
    /// It is told twice.
    Twice,
    /// It is told that much later, behind others; what caused it does not wait.
    Later(Duration),
}

/// Decides about faults. All methods have a healthy default.
///
/// They are called from many tasks and must not block.
pub trait Faults: Send + Sync + fmt::Debug + 'static {
    /// Before a call is obeyed.
    fn before(&self, call: Call<'_>) -> CallFault {
        let _ = call;
        CallFault::None
    }

    /// How long an event waits between the copying of its statuses and its stamp: this makes
    /// stale snapshots with late stamps.
    fn pause_before_stamp(&self, id: &str, kind: v1::ContainerEventType) -> Duration {
        let _ = (id, kind);
        Duration::ZERO
    }

    /// Before an event is told; it may be changed.
    fn event(&self, event: &mut v1::ContainerEventResponse) -> Delivery {
        let _ = event;
        Delivery::Once
    }
}

/// A healthy runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healthy;

impl Faults for Healthy {}
