//! A simulated CRI runtime: real gRPC on a unix socket or any other connection.
//!
//! It obeys CRI calls, and tells of what happens as a real runtime does, down to the habits that a
//! client has to live with: response headers only with the first event, a dead subscriber noticed
//! only at the next send, stamps taken after the statuses they belong to, connections that end with
//! "too_many_pings". Which runtime, is its
//! [`Mode`]; which habits, follows from its version:
//!
//! | mode | events reach subscribers | and |
//! | --- | --- | --- |
//! | `containerd-1.7` | one queue of 1000 for all, each event to one of them; the newest are dropped; what nobody took waits for days; each dead subscriber eats one | a sandbox's DELETED has no sandbox status |
//! | `containerd-2` | all to each, 100 ahead; one that does not read stops the runtime; held 5 minutes while there is none | a sandbox's DELETED has an absurd `created_at`, and is told before lists forget it |
//! | `crio` | all to each, from a queue of 1000 that drops; one that does not read starves the others; once the last has left, all is lost (to 1.27: as containerd 1.7) | no CREATED and no DELETED of sandboxes, none of containers that go with their pod; statuses of the whole pod; failed starts vanish; its stop is a clean end of streams |
//! | `crio-disabled` | the stream ends at once with OK | CRI-O's default |
//! | `unimplemented` | `Unimplemented` | containerd 1.6 |
//! | `starting` | "server is not initialized yet" from every call | until [`Sim::ready`]; the code is that of the version |
//! | `silent` | the socket accepts, and says nothing | CRI-O, until [`Sim::ready`] |
//!
//! By version come also: the timestamp and the containers of `PodSandboxStatus`, streamed lists and
//! their pages, when `OOMKilled` is known, CRI-O's empty elements (1.31 to 1.34) and its DELETED
//! for a stop (to 1.27.0).
//!
//! Containers run no program; their command says how they live:
//!
//! | command + args end with | started | `SIGTERM` | `SIGKILL` |
//! | --- | --- | --- | --- |
//! | `exit CODE [MILLISECONDS]` | ends with CODE after that time | 143 | 137 |
//! | `oom [MILLISECONDS]` | ends with 137, `OOMKilled`, after that time | 143 | 137 |
//! | `ignore-term` | runs on | – | 137 |
//! | `fail-start` | the start fails: exited, 128, `StartError` (CRI-O: removed) | | |
//! | anything else | runs on | 0 | 137 |
//!
//! # Chaos
//!
//! [`Chaos`] makes it worse than its mode: plain data in code ([`SimBuilder::chaos`],
//! [`Sim::set_chaos`]), one `KNOB=VALUE` as text ([`Sim::set_knob`], `pleg sim --chaos`), also while
//! it runs ([`Sim::serve_control`], `pleg sim ctl`). Dice come from the seed; [`Sim::fired`] counts.
//! [`help`] is the full list, in short:
//!
//! | knobs | what they do |
//! | --- | --- |
//! | `drop` `duplicate` `swap` `freeze` | an event is lost, told twice, told after its successor, or shows what the one before showed |
//! | `sandbox.nil` `containers.empty` `containers.hole` | an event lacks statuses, or has an empty one |
//! | `stamp.zero` `.negative` `.seconds` `.future` `.pause` | `created_at` is absurd, or much later than the statuses |
//! | `oversize` `oversize.bytes` | an event is 5 MB larger |
//! | `stream.end_after` `stream.mute` | streams end with OK, or live on and say nothing |
//! | `list.empty` `.pad` `.limit` | lists lie, or are too large |
//! | `list.page` `.empty_page` `.break_after` `.unimplemented` | streamed lists in other pages, broken off, or not there |
//! | `status.not_found` | what is listed has no status |
//! | `CALLS.latency` `.hang` `.fail` | where CALLS is `all`, a call such as `list_containers`, `pod.UID` or `pod.*` |
//!
//! A rate is `5%`, `on`, or `#3` for the third case from now. What depends on more than that is
//! code: [`Faults`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pleg_sim::{Mode, Restart, Sim};
//!
//! let sim = Sim::builder().mode(Mode::Crio).runtime_version("1.31.0").seed(7).build();
//! let serving = sim.serve_unix("/tmp/sim.sock", std::future::pending())?;
//! sim.set_knob("list_containers.hang=10s")?;
//! // … point a client at it …
//! sim.restart(Restart::default()).await;
//! serving.stop().await;
//! sim.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//!
//! * Exec, attach, port-forward, stats and metrics are not there (`ExecSync` ends as its command
//!   says).
//! * It does not lose exits at recovery, as containerd before 1.7.34 and 2.0.9 may, and gives no
//!   `CONTAINER_UNKNOWN`.
//!
//! The simulator knows nothing of this project's own idea of order or merging: what it says is
//! what a runtime would say.

mod chaos;
mod control;
mod delivery;
mod engine;
mod error;
mod faults;
mod habits;
mod id;
mod io;
mod life;
mod lists;
mod mode;
mod pings;
mod pods;
mod programs;
mod run;
mod script;
mod server;
mod service;
mod sim;
mod stream;
mod telling;
mod version;
mod views;
mod world;

pub use chaos::{
    CallChaos, Chaos, EventChaos, Failure, Hang, KnobError, KnobHelp, ListChaos, Rate, help,
};
pub use control::{COMMANDS, ControlError};
pub use engine::WallClock;
pub use error::SimError;
pub use faults::{Call, CallFault, Delivery, Faults};
pub use life::{LifeConfig, LifeHandle};
pub use mode::Mode;
pub use run::{Ending, Meanwhile, Phase, Restart};
pub use server::Serving;
pub use service::CriService;
pub use sim::{Sim, SimBuilder};
