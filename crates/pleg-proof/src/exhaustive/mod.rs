//! Small worlds, exhaustively: every order of what can happen, under a budget of faults.
//!
//! A world is a handful of beings, a script or two of what happens to them, and a budget of what
//! may go wrong. stateright drives the core itself, not a model of it, through every interleaving
//! of: steps of the scripts, events that arrive, reads that end and what they saw, faults,
//! questions, and time. The invariants are compared with the oracle after every single output, and at
//! the end of every run what is owed must be done.
//!
//! What is left out without loss:
//!
//! * A read does not observe the node in a step of its own: it remembers every truth since it
//!   began and chooses among them when it ends.
//! * Steps of the oracle take no time: the core cannot see when they are, only between which of
//!   its inputs. A read begins a tick after it was asked for, and inputs take no time: what the
//!   core compares is when reads began with when inputs came.
//! * Equal states at different times are one (`shift`).
//! * Once everything has happened, what is left of the budget is put away, and one fair order of
//!   what is owed stands for all of them: no fault is left that could tell them apart.
//!
//! What is left out by bound, and belongs to the random worlds: more than the budget allows (each
//! world prints its own: faults, waiters, jumps of time, how far events lag, how many steps a read
//! spans); UNKNOWN, absurd stamps and statuses that a runtime leaves out; statuses of one
//! inspection that are read at more than one moment after its lists; reads that begin much later
//! than they were asked for.

pub mod checks;
pub mod execution;
pub mod model;
pub mod quiesce;
pub mod reads;
pub mod scenario;
pub mod search;
pub mod time_shift;
pub mod world_model;
pub mod worlds;
