//! Small worlds, exhaustively: every order of what can happen, under a budget of faults.
//!
//! A world is a handful of beings, a script or two of what happens to them, and a budget of what
//! may go wrong. stateright drives the core itself, not a model of it, through every interleaving
//! of: steps of the scripts, events that arrive, reads that end and what they saw, faults,
//! questions, and time. The laws are compared with the truth after every single output, and at
//! the end of every run what is owed must be done.
//!
//! What is left out, and why that loses nothing:
//!
//! * A read does not observe the node in a step of its own. It remembers every truth since it
//!   began and chooses, when it ends, among them; so does an event for its statuses, between
//!   those from when it happened and those from when it arrives.
//! * Steps of the truth take no time: the core cannot see when they are, only between which of
//!   its inputs. Inputs take no time either, but every read begins a tick after it was asked
//!   for: all that the core compares with each other is when reads began and when inputs came.
//! * Once everything has happened, what is left of the budget is put away (`Rest`), and one fair
//!   order of what is owed stands for all (`Settle`): no fault is left that could tell them apart.

pub mod book;
pub mod cast;
pub mod check;
pub mod model;
pub mod play;
pub mod rest;
pub mod script;
pub mod shift;
pub mod worlds;
