//! The runtimes that can be simulated, by name. The module has no I/O, clock or state.

use std::{fmt, str::FromStr};

use pleg_node_model::Version;

use crate::error::SimError;

/// The end of the version range of a mode that includes all later versions.
const NEWEST: Version = Version(u32::MAX, 0, 0);

/// A runtime to simulate. `profile.rs` defines the behavior of each mode and version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// containerd 1.7.
    Containerd17,
    /// containerd 2.
    #[default]
    Containerd2,
    /// CRI-O with `enable_pod_events`.
    Crio,
    /// CRI-O with its default configuration.
    CrioDisabled,
    /// containerd 1.6.
    Unimplemented,
    /// containerd during startup, until the control command `ready`.
    Starting,
    /// CRI-O during startup, until the control command `ready`.
    Silent,
}

impl Mode {
    /// All modes, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Containerd17,
        Self::Containerd2,
        Self::Crio,
        Self::CrioDisabled,
        Self::Unimplemented,
        Self::Starting,
        Self::Silent,
    ];

    /// The name that [`Mode::from_str`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Containerd17 => "containerd-1.7",
            Self::Containerd2 => "containerd-2",
            Self::Crio => "crio",
            Self::CrioDisabled => "crio-disabled",
            Self::Unimplemented => "unimplemented",
            Self::Starting => "starting",
            Self::Silent => "silent",
        }
    }

    /// A description of one line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Containerd17 => "each event goes to one subscriber; a dead one loses an event",
            Self::Containerd2 => "every subscriber gets every event; a slow one blocks the runtime",
            Self::Crio => "no events for the removal of a pod; unread events are lost",
            Self::CrioDisabled => "CRI-O's default: the event stream ends immediately with OK",
            Self::Unimplemented => "containerd 1.6: no event stream",
            Self::Starting => "containerd during startup: every call fails until `ctl ready`",
            Self::Silent => "CRI-O during startup: no call is answered until `ctl ready`",
        }
    }

    /// The version of the runtime if none is configured.
    #[must_use]
    pub const fn default_version(self) -> &'static str {
        self.versions().2
    }

    /// The first version of the mode, the first version after those of the mode, and the default version.
    const fn versions(self) -> (Version, Version, &'static str) {
        match self {
            Self::Containerd17 => (Version(1, 7, 0), Version(1, 8, 0), "1.7.24"),
            Self::Containerd2 => (Version(2, 0, 0), NEWEST, "v2.4.0"),
            Self::Crio => (Version(1, 26, 0), NEWEST, "1.36.3"),
            Self::CrioDisabled | Self::Silent => (Version(1, 20, 0), NEWEST, "1.36.3"),
            Self::Unimplemented => (Version(1, 5, 0), Version(1, 7, 0), "1.6.20"),
            Self::Starting => (Version(1, 7, 0), NEWEST, "v2.4.0"),
        }
    }

    pub(crate) const fn is_crio(self) -> bool {
        matches!(self, Self::Crio | Self::CrioDisabled | Self::Silent)
    }

    /// Checks that the version of the runtime belongs to this mode.
    ///
    /// # Errors
    /// If the text is not a version, or the version belongs to another mode.
    pub fn check_version(self, text: &str) -> Result<(), SimError> {
        let (is_crio, (from, to, default)) = (self.is_crio(), self.versions());
        let version = Version::parse(text);
        if version.is_some_and(|version| from <= version && version < to) {
            return Ok(());
        }
        let name = if is_crio { "CRI-O" } else { "containerd" };
        let until = match to {
            NEWEST => "or later".to_owned(),
            to => format!("to before {to}"),
        };
        Err(SimError(format!(
            "version {text:?} does not belong to mode {self}, which simulates {name} {from} {until}, such \
             as {default}"
        )))
    }

    /// The version that selects the profile: the version in `text` (or else the default version), limited to the mode's
    /// range. A version above the range becomes the end of the range, which has the profile of the versions before it.
    pub(crate) fn version(self, text: &str) -> Version {
        let (from, to, default) = self.versions();
        let parsed = Version::parse(text).or_else(|| Version::parse(default));
        parsed.unwrap_or(from).clamp(from, to)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self, SimError> {
        let mode = Self::ALL.into_iter().find(|m| m.name() == text);
        mode.ok_or_else(|| {
            let modes = Self::ALL.map(Self::name).join(", ");
            SimError(format!("no mode {text:?}; the modes are {modes}"))
        })
    }
}
