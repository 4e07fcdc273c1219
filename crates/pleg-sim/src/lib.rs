//! A simulated CRI runtime that speaks real gRPC over a unix socket or any other connection.
//!
//! The simulator answers CRI calls and sends container events as a real runtime does. It also reproduces the runtime
//! behavior that clients have trouble with: response headers that arrive only with the first event, dead subscribers
//! that are noticed only at the next send, timestamps taken after the statuses they belong to, and connections closed
//! with "too_many_pings". The [`Mode`] selects the runtime, and the version selects the details:
//!
//! | mode | event delivery | other behavior |
//! | --- | --- | --- |
//! | `containerd-1.7` | one queue of 1000 events for all subscribers, each event goes to one of them; a full queue drops new events; queued events never expire; the event sent to a dead subscriber is lost | DELETED of a sandbox has no sandbox status |
//! | `containerd-2` | every subscriber gets every event, with a buffer of 100; a subscriber that does not read blocks the runtime; without subscribers, events wait for 5 minutes | DELETED of a sandbox has an invalid `created_at` and is sent before lists stop showing the sandbox |
//! | `crio` | every subscriber gets every event from a queue of 1000 that drops new events when full; a subscriber that does not read delays the other subscribers; after the last subscriber leaves, events are lost (up to 1.27: as containerd 1.7) | no CREATED and no DELETED for sandboxes, no DELETED for containers that are removed with their sandbox; statuses of the whole pod; containers that fail to start disappear; a graceful stop ends streams with OK |
//! | `crio-disabled` | the stream ends immediately with OK | the default configuration of CRI-O |
//! | `unimplemented` | `Unimplemented` | containerd 1.6 |
//! | `starting` | every call fails with "server is not initialized yet" | until the control command `ready`; the status code depends on the version |
//! | `silent` | the socket accepts connections and does not respond | CRI-O, until the control command `ready` |
//!
//! The version of the runtime selects further details: the timestamp and the containers of `PodSandboxStatus`,
//! streaming lists and their page size, the time at which the reason `OOMKilled` becomes available, and two quirks of
//! CRI-O: empty statuses (1.31 to 1.34) and a DELETED event for a stopped container (up to 1.27.0).
//!
//! Containers run no process. The last words of the command and its arguments select the behavior:
//!
//! | last words of command + args | after the start | exit code on `SIGTERM` | exit code on `SIGKILL` |
//! | --- | --- | --- | --- |
//! | `exit CODE [MILLISECONDS]`; `true` or `false`, alone or after `-c` | exits with code CODE (`true`: 0, `false`: 1) after that time | 143 | 137 |
//! | `oom [MILLISECONDS]` | exits with code 137 and reason `OOMKilled` after that time | 143 | 137 |
//! | `ignore-term` | keeps running | does not exit | 137 |
//! | `fail-start` | the start fails: the container has exited with code 128 and reason `StartError` (CRI-O: is removed) | | |
//! | anything else | keeps running | 0 | 137 |
//!
//! `ListPodSandbox`, `ListContainers` and their streaming variants visit every item of the node,
//! with or without a filter, as in containerd ([`Sim::visited_items`] counts them). Status calls
//! look up a single id.
//!
//! # Faults
//!
//! Faults are knobs, which are set from text: `drop=5%`, `list_containers.hang=30s` ([`Sim::set_knob`], `--chaos` of
//! `pleg sim`, and at run time `pleg sim ctl`). [`knob_help`] describes all of them. A rate is `5%`, `on`, or `#3`,
//! which stands for the third case after the knob is set. The seed determines all random decisions. [`Sim::fired`]
//! returns how often each knob fired.
//!
//! [`Sim::control`] and [`Sim::serve_control`] execute [`control_commands`]: they restart the runtime, cut
//! connections and make containers exit.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pleg_sim::{Mode, Sim};
//!
//! let sim = Sim::builder().mode(Mode::Crio).runtime_version("1.31.0").seed(7).build();
//! let serving = sim.serve_unix("/tmp/sim.sock", std::future::pending())?;
//! sim.set_knob("list_containers.hang=10s")?;
//! // Point a client at the socket.
//! sim.control("restart kill down=5s").await?;
//! serving.stop().await;
//! sim.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Limitations
//!
//! * Exec, attach, port-forward, stats and metrics are not implemented. `ExecSync` runs nothing and returns the exit
//!   code that its command names.
//! * The simulator loses no exits when the runtime restarts, although containerd before 1.7.34 and 2.0.9 may lose
//!   some. It never reports `CONTAINER_UNKNOWN`.
//!
//! The simulated sandboxes and containers are those of `pleg-node-model`. The simulator does not use
//! `pleg-core`: it shares no code with the state machine that it tests.

mod connection;
mod control;
mod delivery;
mod engine;
mod error;
mod events;
mod faults;
mod id;
mod knobs;
mod lists;
mod mode;
mod pods;
mod process;
mod profile;
mod programs;
mod refusals;
mod script;
mod server;
mod service;
mod sim;
mod views;
mod workload;
mod world;

pub use control::control_commands;
pub use delivery::Counts;
pub use engine::WallClock;
pub use error::SimError;
pub use knobs::{check_knob, knob_help};
pub use mode::Mode;
pub use process::Phase;
pub use server::Serving;
pub use service::CriService;
pub use sim::{Sim, SimBuilder};
pub use workload::{WorkloadConfig, WorkloadHandle};
