//! The interface between a pod lifecycle event generator and a container runtime.
//!
//! [`Runtime`] has the calls that the generator makes: two lists, two statuses, the event stream and `Version`. It uses
//! only domain types of `pleg-core`: a test can implement a runtime without gRPC, and no wire type reaches the core.
//! [`clock`] is the only module that reads a clock.
//!
//! ```
//! use std::time::Duration;
//!
//! use pleg_runtime::clock::Clock;
//!
//! // Use one clock for a runtime's calls and for the callers that wait for the calls' effects.
//! let clock = Clock::start();
//! let began = clock.now();
//! let deadline = began.after(Duration::from_secs(5));
//! assert!(clock.now() < deadline);
//! ```
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `fake` | no | the module `fake`: a runtime in memory, for tests |

pub mod clock;
#[cfg(feature = "fake")]
pub mod fake;
mod row;
mod runtime;

pub use pleg_core as core;
pub use row::Row;
pub use runtime::{Runtime, RuntimeVersion, Scope};
