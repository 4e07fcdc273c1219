//! The commands as people and programs run them, beside a simulated runtime with pods that a
//! small kubelet makes.

#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod bench;
mod pods;
mod run;
mod services;
mod sim;
mod watch;
