//! The bounded queues at both ends of the writer: observations in, announcements out. They are not
//! part of the reconciler; its driver uses them.

pub(crate) mod backlog;
pub(crate) mod inbox;
pub(crate) mod stream_queue;
