//! Configurable faults, as plain data.
//!
//! [`FaultProfile`] is the configuration. `knobs` reads and writes it as text, for flags and for
//! control at run time. `injector` makes the random decisions and counts the faults that fired. The faults
//! take effect in `events` (events), `stream` (what a subscriber receives), `lists` (list
//! responses) and `Engine::admit` (every call).

mod injector;
mod knobs;
mod values;

use std::{collections::BTreeMap, fmt, time::Duration};

use tonic::Code;

pub use self::knobs::{KnobError, KnobHelp, knob_help};
pub(crate) use self::{
    injector::{Injector, Publish},
    values::duration,
};

/// The faults that the runtime shows. The default is none.
///
/// As text it is one `KNOB=VALUE` per line, in the syntax of [`FaultProfile::set`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FaultProfile {
    /// Faults of events.
    pub events: EventFaultProfile,
    /// Faults of list and status responses.
    pub lists: ListFaultProfile,
    /// Faults of calls, by method name as in the CRI (`ListContainers`).
    pub calls: BTreeMap<&'static str, CallFaultProfile>,
    /// Faults of every call.
    pub all_calls: CallFaultProfile,
    /// Faults of calls that name a sandbox or container of a pod, by the pod's uid.
    pub pods: BTreeMap<String, CallFaultProfile>,
    /// Faults of calls that name any sandbox or container.
    pub all_pods: CallFaultProfile,
}

/// Faults of events. Each applies to each event once.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EventFaultProfile {
    /// The event is lost.
    pub drop: Rate,
    /// The event is sent twice.
    pub duplicate: Rate,
    /// The event is sent after the next event, or after 100 ms if there is none. It is counted in
    /// [`Sim::fired`](crate::Sim::fired) only if it was sent after another event.
    pub swap: Rate,
    /// The event carries the statuses of the sandbox's previous event.
    pub freeze: Rate,
    /// The event has no sandbox status.
    pub nil_sandbox: Rate,
    /// The event has no container statuses. (On the wire, empty and nil are the same.)
    pub no_containers: Rate,
    /// The event has an additional, empty container status.
    pub hole: Rate,
    /// `created_at` is 0.
    pub stamp_zero: Rate,
    /// `created_at` is negative, as Go's zero time is.
    pub stamp_negative: Rate,
    /// `created_at` is in seconds.
    pub stamp_seconds: Rate,
    /// `created_at` is one hour in the future.
    pub stamp_future: Rate,
    /// The event is larger by `oversize_bytes`.
    pub oversize: Rate,
    /// The additional size; 5 MB by default.
    pub oversize_bytes: Option<usize>,
    /// How long an event waits between the copy of its statuses and its timestamp.
    pub stamp_pause: Duration,
    /// A second subscriber takes that share of the events, as another client of the same runtime
    /// does where each event goes to one subscriber only (containerd 1.7, CRI-O up to 1.27). The
    /// other subscribers never get what it takes. It takes the same share while it is the only
    /// subscriber. It is not counted in [`Sim::subscribers`](crate::Sim::subscribers).
    ///
    /// No effect if every subscriber gets every event, or if there is no event stream;
    /// [`Sim::set_knob`](crate::Sim::set_knob) then returns [`KnobError::Mode`].
    pub second_subscriber: Rate,
    /// Every stream ends with OK after that many events.
    pub end_after: Option<usize>,
    /// Existing streams deliver nothing from now on, even after this is turned off: a dead stream
    /// that looks alive.
    pub mute: bool,
}

/// Faults of list and status responses.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListFaultProfile {
    /// A list is answered with OK and no items.
    pub empty: Rate,
    /// Every item is larger by that many bytes.
    pub pad: Option<usize>,
    /// The maximum message size, instead of the runtime's own limit.
    pub limit: Option<usize>,
    /// The number of items per page of a streaming list. No effect if the runtime has no streaming
    /// lists.
    pub page: Option<usize>,
    /// A streaming list starts with an empty page.
    pub empty_page: Rate,
    /// A streaming list fails after that many pages.
    pub break_after: Option<usize>,
    /// Streaming lists are not implemented.
    pub unimplemented: bool,
    /// The status of an existing id is answered with `NotFound`.
    pub not_found: Rate,
    /// The runtime's own status has the condition `NetworkReady=false`.
    pub network_not_ready: bool,
}

/// Faults of calls.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CallFaultProfile {
    /// Each call takes that much longer.
    pub latency: Duration,
    /// Calls hang.
    pub hang: Option<Hang>,
    /// Calls fail.
    pub fail: Option<Failure>,
}

/// For how long calls hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// Until the knob is turned off.
    On,
    /// For that long since the knob was set. Then all calls proceed, including those that waited.
    For(Duration),
}

/// A failure of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// The status code.
    pub code: Code,
    /// How often.
    pub rate: Rate,
}

/// How often a fault fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Never.
    #[default]
    Never,
    /// In that many of a million cases, at random.
    Millionths(u32),
    /// Once: in the n-th case since the knob was set, counted from 1.
    Nth(u64),
}

impl Rate {
    /// In every case.
    pub const ALWAYS: Self = Self::Millionths(1_000_000);

    /// In that percentage of cases; values above 100 mean every case.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self::Millionths(if percent > 100 {
            1_000_000
        } else {
            percent * 10_000
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("off"),
            Self::Nth(n) => write!(f, "#{n}"),
            Self::Millionths(n) => write!(f, "{}%", f64::from(*n) / 10_000.0),
        }
    }
}

impl CallFaultProfile {
    fn is_off(&self) -> bool {
        *self == Self::default()
    }
}
