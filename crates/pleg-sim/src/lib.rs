//! A simulated CRI runtime: real gRPC on a unix socket or any other connection.
//!
//! It obeys CRI calls and tells of what happens as containerd 2 does, down to the habits that a
//! client has to live with: response headers only with the first event, a dead subscriber noticed
//! only at the next send, a subscriber that does not read stopping container creation, stamps
//! taken after the statuses they belong to. Containers run no program; their command says how
//! they live:
//!
//! | command + args end with | started | `SIGTERM` | `SIGKILL` |
//! | --- | --- | --- | --- |
//! | `exit CODE [MILLISECONDS]` | ends with CODE after that time | 143 | 137 |
//! | `ignore-term` | runs on | – | 137 |
//! | `fail-start` | the start fails: exited, 128, `StartError` | | |
//! | anything else | runs on | 0 | 137 |
//!
//! ```no_run
//! # async fn example() -> Result<(), pleg_sim::SimError> {
//! let sim = pleg_sim::Sim::builder().seed(7).build();
//! let serving = sim.serve_unix("/tmp/sim.sock", std::future::pending())?;
//! // … point a client at it …
//! serving.stop().await;
//! sim.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The simulator knows nothing of this project's own idea of order or merging: what it says is
//! what a runtime would say.

mod delivery;
mod engine;
mod error;
mod faults;
mod habits;
mod id;
mod io;
mod life;
mod mode;
mod pods;
mod programs;
mod run;
mod script;
mod server;
mod service;
mod sim;
mod telling;
mod version;
mod views;
mod world;

pub use engine::WallClock;
pub use error::SimError;
pub use faults::{Call, CallFault, Delivery, Faults};
pub use life::{LifeConfig, LifeHandle};
pub use mode::Mode;
pub use run::{Ending, Meanwhile, Phase, Restart};
pub use server::Serving;
pub use service::CriService;
pub use sim::{Sim, SimBuilder};
