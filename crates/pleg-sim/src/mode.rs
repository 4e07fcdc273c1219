//! Which runtime is simulated: the names that people choose from. Pure.

use std::{fmt, str::FromStr};

use crate::{error::SimError, version::Version};

/// A runtime to be simulated. What is particular to each, and from which version to which, is
/// one value in `habits.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// containerd 1.7: one queue of 1000 events; each goes to one of the subscribers, and a dead
    /// one eats one.
    Containerd17,
    /// containerd 2: every subscriber gets every event, and one that does not read stops the
    /// runtime.
    #[default]
    Containerd2,
    /// CRI-O with `enable_pod_events`: tells nothing of a pod's removal; what nobody reads is
    /// lost.
    Crio,
    /// CRI-O as it is by default: the event stream ends at once with OK.
    CrioDisabled,
    /// containerd 1.6: there is no event stream.
    Unimplemented,
    /// containerd while it starts: every call fails until it is told to be ready.
    Starting,
    /// CRI-O while it starts: its socket accepts and says nothing until it is told to be ready.
    Silent,
}

impl Mode {
    /// All of them, in the order in which they are worth reading about.
    pub const ALL: [Self; 7] = [
        Self::Containerd17,
        Self::Containerd2,
        Self::Crio,
        Self::CrioDisabled,
        Self::Unimplemented,
        Self::Starting,
        Self::Silent,
    ];

    /// The name that [`Mode::from_str`] reads.
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

    /// One line about it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Containerd17 => "subscribers compete for one queue of 1000, dead ones too",
            Self::Containerd2 => "every subscriber gets all; one that does not read stops it",
            Self::Crio => "tells no removal of a pod; what nobody reads is lost",
            Self::CrioDisabled => "CRI-O's default: the event stream ends at once with OK",
            Self::Unimplemented => "containerd 1.6: no event stream",
            Self::Starting => "containerd that is not initialized, until `ctl ready`",
            Self::Silent => "CRI-O whose socket accepts and is silent, until `ctl ready`",
        }
    }

    /// The version that it has unless another is asked for.
    #[must_use]
    pub const fn default_version(self) -> &'static str {
        match self {
            Self::Containerd17 => "1.7.24",
            Self::Containerd2 | Self::Starting => "v2.4.0",
            Self::Crio | Self::CrioDisabled | Self::Silent => "1.36.3",
            Self::Unimplemented => "1.6.20",
        }
    }

    /// Whether that version of the runtime is known to behave as this mode does.
    ///
    /// # Errors
    ///
    /// If it is no version, or one that behaves as another mode does.
    pub fn check_version(self, text: &str) -> Result<(), SimError> {
        let (from, to) = self.range();
        match Version::parse(text) {
            Some(version) if from <= version && version < to => Ok(()),
            _ => Err(SimError::Version {
                version: text.to_owned(),
                mode: self,
                wanted: self.wanted(),
            }),
        }
    }

    /// The version that habits follow: the one that was asked for, or the nearest to it that the
    /// mode knows; the default if it is no version.
    pub(crate) fn version(self, text: &str) -> Version {
        let (from, to) = self.range();
        let parsed = Version::parse(text).or_else(|| Version::parse(self.default_version()));
        parsed.unwrap_or(from).clamp(from, to)
    }

    /// From (inclusive), to (exclusive).
    const fn range(self) -> (Version, Version) {
        match self {
            Self::Containerd17 => (Version::new(1, 7, 0), Version::new(1, 8, 0)),
            Self::Containerd2 => (Version::new(2, 0, 0), Version::NEWEST),
            Self::Crio => (Version::new(1, 26, 0), Version::NEWEST),
            Self::CrioDisabled | Self::Silent => (Version::new(1, 20, 0), Version::NEWEST),
            Self::Unimplemented => (Version::new(1, 5, 0), Version::new(1, 7, 0)),
            Self::Starting => (Version::new(1, 7, 0), Version::NEWEST),
        }
    }

    const fn wanted(self) -> &'static str {
        match self {
            Self::Containerd17 => "containerd 1.7, such as 1.7.24",
            Self::Containerd2 => "containerd 2.0 or later, such as v2.0.1",
            Self::Crio => "CRI-O 1.26 or later, such as 1.31.0",
            Self::CrioDisabled | Self::Silent => "CRI-O 1.20 or later, such as 1.31.0",
            Self::Unimplemented => "containerd 1.5 or 1.6, such as 1.6.20",
            Self::Starting => "containerd 1.7 or later, such as 1.7.24",
        }
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
        mode.ok_or_else(|| SimError::Mode {
            name: text.to_owned(),
        })
    }
}
