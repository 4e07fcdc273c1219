//! Chaos: the ways in which a runtime can be made worse than its mode, as plain data.
//!
//! [`Chaos`] says what is to happen, `knobs` reads and writes it as text (for flags and for
//! control while it runs), `mischief` throws the dice and counts what fired. Where it bites:
//! `telling` (events), `stream` (what a subscriber gets), `lists` (list answers), and
//! `Engine::admit` (every call).

mod knobs;
mod mischief;

use std::{collections::BTreeMap, fmt, time::Duration};

use tonic::Code;

pub use self::knobs::{KnobError, KnobHelp, help};
pub(crate) use self::{
    knobs::span,
    mischief::{Fate, Mischief},
};

/// How the runtime misbehaves. The default is not at all.
///
/// As text it is one `KNOB=VALUE` a line, as [`Chaos::set`] reads it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Chaos {
    /// What happens to events.
    pub events: EventChaos,
    /// What happens to lists and statuses.
    pub lists: ListChaos,
    /// What happens to calls, by method as the contract names it (`ListContainers`).
    pub calls: BTreeMap<&'static str, CallChaos>,
    /// What happens to every call.
    pub all_calls: CallChaos,
    /// What happens to calls that name a pod's sandbox or containers, by the pod's uid.
    pub pods: BTreeMap<String, CallChaos>,
    /// What happens to calls that name any sandbox or container.
    pub all_pods: CallChaos,
}

/// Chaos of events. Each event passes each of these once.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EventChaos {
    /// Lost without a trace.
    pub drop: Rate,
    /// Told twice.
    pub duplicate: Rate,
    /// Told after its successor (or after 100 ms, where none comes).
    pub swap: Rate,
    /// With the statuses that the sandbox's event before had.
    pub freeze: Rate,
    /// Without the sandbox's status.
    pub nil_sandbox: Rate,
    /// Without containers' statuses (on the wire, none and nil are one).
    pub no_containers: Rate,
    /// With an empty element among the containers' statuses.
    pub hole: Rate,
    /// `created_at` is 0.
    pub stamp_zero: Rate,
    /// `created_at` is far below 0, as Go's zero time is.
    pub stamp_negative: Rate,
    /// `created_at` is in seconds.
    pub stamp_seconds: Rate,
    /// `created_at` lies an hour ahead.
    pub stamp_future: Rate,
    /// With so many more bytes (see `oversize_bytes`).
    pub oversize: Rate,
    /// How many; 5 MB by default.
    pub oversize_bytes: Option<usize>,
    /// Waits that long between the copying of its statuses and its stamp.
    pub stamp_pause: Duration,
    /// Every stream ends with OK after that many events.
    pub end_after: Option<usize>,
    /// Streams say nothing any more, and never will again: a dead stream that looks alive.
    pub mute: bool,
}

/// Chaos of lists and statuses.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListChaos {
    /// A list is answered with OK and no rows.
    pub empty: Rate,
    /// Every row has so many more bytes.
    pub pad: Option<usize>,
    /// The largest message, instead of the runtime's own limit.
    pub limit: Option<usize>,
    /// The rows of a page of streamed lists, where there are any.
    pub page: Option<usize>,
    /// A streamed list begins with a page without rows.
    pub empty_page: Rate,
    /// A streamed list fails after that many pages.
    pub break_after: Option<usize>,
    /// There are no streamed lists.
    pub unimplemented: bool,
    /// The status of something that exists is answered with `NotFound`.
    pub not_found: Rate,
}

/// Chaos of calls.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CallChaos {
    /// Each takes that much longer.
    pub latency: Duration,
    /// They are not obeyed meanwhile.
    pub hang: Option<Hang>,
    /// They fail.
    pub fail: Option<Failure>,
}

/// For how long calls hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// Until the knob is turned off.
    On,
    /// For that long since the knob was set; then all go on, those that waited, too.
    For(Duration),
}

/// A failure of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// With which code.
    pub code: Code,
    /// How often.
    pub rate: Rate,
}

/// How often something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Never.
    #[default]
    Never,
    /// In so many of a million cases, by dice.
    Millionths(u32),
    /// Once: in that case since the knob was set, counted from 1.
    Nth(u64),
}

impl Rate {
    /// In every case.
    pub const ALWAYS: Self = Self::Millionths(1_000_000);

    /// In so many of a hundred cases; more than a hundred is all of them.
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

impl CallChaos {
    fn is_off(&self) -> bool {
        *self == Self::default()
    }
}
