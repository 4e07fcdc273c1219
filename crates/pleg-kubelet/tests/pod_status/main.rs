//! Statuses of pods, letter by letter.

#![cfg(feature = "k8s-openapi")]

mod containers;
mod pods;
mod setup;
