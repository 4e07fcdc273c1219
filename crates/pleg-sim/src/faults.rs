//! Faults that are decided by code.
//!
//! Every call passes [`Faults::before`] and every event passes [`Faults::event`]. The default
//! implementation is a healthy runtime. Faults that need no code are in
//! [`FaultProfile`](crate::FaultProfile).

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

/// Decides which faults happen. Every method has a healthy default.
///
/// The methods are called from many tasks and must not block.
pub trait Faults: Send + Sync + fmt::Debug + 'static {
    /// Called before a call is executed.
    fn before(&self, call: Call<'_>) -> CallFault {
        let _ = call;
        CallFault::None
    }

    /// Called before an event is published; may change the event.
    fn event(&self, event: &mut v1::ContainerEventResponse) {
        let _ = event;
    }
}

/// A healthy runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healthy;

impl Faults for Healthy {}
