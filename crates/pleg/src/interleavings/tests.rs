//! Tests the cache and its waiters, in every interleaving.

mod cache;
mod waiting;
