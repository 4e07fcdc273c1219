//! Statuses of pods, letter by letter.

mod containers;
mod pods;
mod setup;
