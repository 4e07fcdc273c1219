//! Faults that are decided by code.
//!
//! Every call passes [`Faults::before`] and every event passes [`Faults::event`]. The default
//! implementation is a healthy runtime. Faults that are plain data are in [`FaultProfile`](crate::FaultProfile).

use std::{fmt, time::Duration};

use pleg_cri::v1;
use tonic::Status;

/// A CRI call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The method name as in the CRI, such as `ListContainers`.
    pub method: &'static str,
    /// The id of the sandbox or container that the call names; empty if it names none.
    pub id: &'a str,
}

/// What happens to a call before it is executed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum CallFault {
    /// The call is executed.
    #[default]
    None,
    /// The call is executed after that time.
    Delay(Duration),
    /// The call fails.
    Fail(Status),
    /// The call is never answered.
    Hang,
}

/// How an event is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// The event is published once.
    #[default]
    Once,
    /// The event is lost.
    Drop,
    /// The event is published twice.
    Twice,
    /// The event is published after that time. What caused it does not wait.
    Later(Duration),
}

/// Decides which faults happen. Every method has a healthy default.
///
/// The methods are called from many tasks and must not block.
pub trait Faults: Send + Sync + fmt::Debug + 'static {
    /// Called before a call is executed.
    fn before(&self, call: Call<'_>) -> CallFault {
        let _ = call;
        CallFault::None
    }

    /// How long an event waits between the copy of its statuses and its timestamp. This makes
    /// events with old statuses and late timestamps.
    fn pause_before_stamp(&self, id: &str, kind: v1::ContainerEventType) -> Duration {
        let _ = (id, kind);
        Duration::ZERO
    }

    /// Called before an event is published; may change the event. The knobs `drop`, `duplicate` and
    /// `swap` apply only to events for which this returns [`Delivery::Once`].
    fn event(&self, event: &mut v1::ContainerEventResponse) -> Delivery {
        let _ = event;
        Delivery::Once
    }
}

/// A healthy runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healthy;

impl Faults for Healthy {}
