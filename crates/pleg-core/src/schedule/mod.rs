//! When the node is listed and a pod is inspected, which read answers which waiter, and what is
//! known of the event stream: whether it is open, what it should report, and how much it loses.

pub(crate) mod cause;
pub(crate) mod loss;
pub(crate) mod pending;
pub(crate) mod pod_read;
pub(crate) mod profile;
pub(crate) mod relist;
pub(crate) mod scheduler;
pub(crate) mod stream;
pub(crate) mod waiters;
