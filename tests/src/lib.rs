//! What the whole-system tests are made of: private runtimes ([`daemon`]), a small kubelet that
//! drives their CRI ([`kubelet`]), the lives that it leads pods through ([`lives`]), a runtime that is
//! listened in on ([`tap`]), connections that break as they are told to ([`line`](mod@line)), separate ones for
//! calls and events ([`split`]), a stream that is not read ([`undrained`]), and the checks that hold what was announced and cached against what
//! was done and is listed ([`check`]).

#![allow(
    clippy::print_stdout,
    reason = "a test says what it measured and why it skips"
)]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

pub mod check;
pub mod daemon;
pub mod fresh;
pub mod generator;
pub mod kubelet;
pub mod line;
pub mod lives;
pub mod outage;
pub mod second_subscriber;
pub mod split;
pub mod tap;
pub mod undrained;
pub mod wait;
pub mod workers;
