//! Exhaustive model checking of small worlds: every order of actions, under a budget of faults.
//!
//! A world has a few objects, one or two scripts of what happens to them, and a budget of faults.
//! stateright runs the core itself, not a model of it, through every interleaving of script steps,
//! event deliveries, completions of reads and what they saw, faults, requests, and time. The
//! invariants are checked after every output, and at the end of every run nothing may be owed. In some
//! worlds pod workers act on the answers (`kubelet`).
//!
//! Reductions that lose nothing:
//!
//! * A read does not observe the node in an action of its own: it records every true state since it
//!   began and chooses among them when it ends.
//! * Script steps take no time: the core only sees between which inputs they happen. A read begins a
//!   tick after its request, and inputs take no time: the core compares when reads began with when
//!   inputs arrived.
//! * Equal states at different times are one state (`time_shift`).
//! * When the scripts have ended, the rest of the budget is dropped, and one fair order of what is
//!   owed stands for all: no fault is left that could distinguish them.
//!
//! Bounds, beyond which the random worlds check: more faults than the budget allows (each world
//! prints its faults, waiters, time jumps, the lag of events, and the steps during a read); UNKNOWN,
//! invalid timestamps and omitted statuses; statuses of one inspection read at more than one instant
//! after its lists; reads that begin much later than requested.

pub mod checks;
pub mod execution;
pub mod kubelet;
pub mod model;
pub mod quiesce;
pub mod reads;
pub mod scenario;
pub mod search;
pub mod state;
pub mod time_shift;
pub mod world_model;
pub mod worlds;
