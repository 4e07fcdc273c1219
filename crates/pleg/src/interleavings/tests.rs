//! Tests the cache and the callers that wait for it, in many interleavings.

mod cache;
mod waiting;
