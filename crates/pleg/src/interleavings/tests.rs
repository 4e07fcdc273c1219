//! Cache and waits, in every interleaving.

mod cache;
mod waiting;
