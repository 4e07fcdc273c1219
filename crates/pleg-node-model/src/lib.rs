//! A model of a Kubernetes node's container runtime.
//!
//! [`Node`] holds the sandboxes and containers with the whole history of their states. Its methods change them as CRI
//! calls, exits and kills do, and return the events that the runtime would send. [`Profile`] describes as data how
//! runtimes and their versions differ. Lists, statuses and events are available for any instant, so a caller can also
//! produce answers that are out of date.
//!
//! The time is an argument of the methods, in nanoseconds of a monotonic clock. The model makes no random choice.
//!
//! ```
//! use pleg_node_model::{Kind, NewContainer, Node, Pod, Profile, State};
//!
//! let mut node = Node::new(Profile::containerd("2.1.0"));
//! let pod = Pod::new("uid-1", "default", "web");
//! node.run_sandbox("s", &pod, 0, 10)?;
//! node.create_container(NewContainer::new("c", "s", "app"), 20)?;
//! node.start(&"c".into(), 30)?;
//! let events = node.exit(&"c".into(), 3, "Error", 40);
//! assert_eq!(events[0].to_string(), "STOPPED(c)");
//! assert_eq!(node.state("c"), Some(State::Exited));
//! assert_eq!(node.rows(Kind::Container, None, 35).len(), 1);
//! # Ok::<(), pleg_node_model::Refused>(())
//! ```

mod event;
mod node;
mod object;
mod profile;
mod version;
mod views;

pub use event::{Due, Event, EventType};
pub use node::{NewContainer, Node, Refused, Step};
pub use object::{Change, Exit, Id, Kind, Label, Object, Overrides, Pod, Skew, State};
pub use profile::{Delivery, GO_ZERO_TIME, Profile, SandboxDeleted, StatusScope};
pub use version::Version;
pub use views::{Row, Shown, Source, Status};
