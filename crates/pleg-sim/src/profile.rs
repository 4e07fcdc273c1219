//! The profile of a runtime: everything that differs between modes and versions, as one value.
//! Pure.
//!
//! No other module depends on the mode or the version.

use pleg_node_model::{Delivery, Profile, Version};
use tonic::Code;

use crate::mode::Mode;

#[derive(Clone, Debug)]
pub(crate) struct RuntimeProfile {
    /// For messages.
    pub(crate) mode: Mode,
    /// The version that `Version` returns.
    pub(crate) version: String,
    /// How the runtime's objects change, and which events it sends and how.
    pub(crate) node: Profile,
    /// CRI-O: it refuses what CRI-O and conmon refuse, such as a log whose directory is missing; it sends
    /// STOPPED of a sandbox before `StopPodSandbox` returns, unless the sandbox has a pause process; it
    /// reports no runtime handler; on `SIGTERM` it ends its streams with OK and waits for clients to
    /// disconnect.
    pub(crate) is_crio: bool,
    /// The timestamp that `PodSandboxStatus` returns, and whether it returns container statuses.
    pub(crate) timestamp: Timestamp,
    pub(crate) status_has_containers: bool,
    /// The number of items per page of a streaming list; `None` without streaming lists.
    pub(crate) list_page_size: Option<usize>,
    /// The maximum message size, in both directions.
    pub(crate) message_limit: usize,
    pub(crate) startup: StartupBehavior,
}

/// The timestamp of `PodSandboxStatus`, taken before the statuses are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timestamp {
    None,
    Seconds,
    Nanos,
}

/// How the runtime responds during startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartupBehavior {
    /// Every call fails with that code.
    Fails(Code),
    /// Connections are accepted and get no response.
    Silent,
}

impl RuntimeProfile {
    /// The profile of the given version, or of the nearest version that belongs to the mode.
    pub(crate) fn of(mode: Mode, version: &str) -> Self {
        let known = mode.version(version);
        let mut profile = match mode {
            Mode::Crio | Mode::Silent | Mode::CrioDisabled => Self::crio(mode, known),
            _ => Self::containerd(mode, known),
        };
        match mode {
            Mode::Unimplemented => profile.node.delivery = Delivery::Unimplemented,
            Mode::CrioDisabled => {
                profile.node.delivery = Delivery::Disabled;
                profile.timestamp = Timestamp::None;
                profile.status_has_containers = false;
            }
            _ => {}
        }
        version.clone_into(&mut profile.version);
        profile
    }

    /// The runtime, and why a second subscriber takes no events from others there. `None` if it
    /// does.
    pub(crate) fn no_second_subscriber(&self) -> Option<String> {
        let why = match self.node.delivery {
            Delivery::OneSubscriber => return None,
            Delivery::AllAndKept | Delivery::AllOrLost => "every subscriber gets every event",
            Delivery::Disabled | Delivery::Unimplemented => "there is no event stream",
        };
        let (mode, name, version) = (self.mode, self.node.name, &self.version);
        Some(format!("mode {mode} ({name} {version}), where {why}"))
    }

    fn containerd(mode: Mode, version: Version) -> Self {
        let has_timestamp = version.within((2, 0, 0), (2, 0, 3));
        let is_v2 = version >= Version(2, 0, 0);
        Self {
            mode,
            version: String::new(),
            node: Profile::containerd(&version.to_string()),
            is_crio: false,
            timestamp: if has_timestamp {
                Timestamp::Nanos
            } else {
                Timestamp::None
            },
            status_has_containers: false,
            list_page_size: (version >= Version(2, 4, 0)).then_some(5000),
            message_limit: 16 << 20,
            startup: StartupBehavior::Fails(if is_v2 {
                Code::Unavailable
            } else {
                Code::Unknown
            }),
        }
    }

    fn crio(mode: Mode, version: Version) -> Self {
        let seconds = version < Version(1, 29, 9)
            || version.within((1, 30, 0), (1, 30, 6))
            || version.within((1, 31, 0), (1, 31, 1));
        Self {
            mode,
            version: String::new(),
            node: Profile::crio(&version.to_string()),
            is_crio: true,
            timestamp: if seconds {
                Timestamp::Seconds
            } else {
                Timestamp::Nanos
            },
            status_has_containers: true,
            list_page_size: (version >= Version(1, 36, 0)).then_some(3000),
            message_limit: 80 << 20,
            startup: StartupBehavior::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_profile_follows_version() {
        let of = |v| RuntimeProfile::of(Mode::Containerd2, v);
        for (version, timestamp) in [
            ("v2.0.0", Timestamp::Nanos),
            ("v2.0.2", Timestamp::Nanos),
            ("v2.0.3", Timestamp::None),
            ("v2.4.0", Timestamp::None),
        ] {
            let profile = of(version);
            assert_eq!(profile.timestamp, timestamp, "{version}");
            assert!(!profile.status_has_containers, "{version}");
        }
        assert_eq!(of("v2.3.4").list_page_size, None);
        assert_eq!(of("v2.4.0-beta.0").list_page_size, Some(5000));
        let old = RuntimeProfile::of(Mode::Starting, "1.7.24");
        assert_eq!(old.startup, StartupBehavior::Fails(Code::Unknown));
        assert_eq!(
            of("v2.1.0").startup,
            StartupBehavior::Fails(Code::Unavailable)
        );
    }

    #[test]
    fn crio_profile_follows_version() {
        let of = |v| RuntimeProfile::of(Mode::Crio, v);
        for (version, timestamp) in [
            ("1.28.3", Timestamp::Seconds),
            ("1.29.8", Timestamp::Seconds),
            ("1.29.9", Timestamp::Nanos),
            ("1.30.5", Timestamp::Seconds),
            ("1.30.6", Timestamp::Nanos),
            ("1.31.0", Timestamp::Seconds),
            ("1.31.1", Timestamp::Nanos),
            ("1.32.0", Timestamp::Nanos),
        ] {
            assert_eq!(of(version).timestamp, timestamp, "{version}");
        }
        assert_eq!(
            (of("1.35.9").list_page_size, of("1.36.0").list_page_size),
            (None, Some(3000))
        );
    }

    /// For a version that does not belong to the mode, the profile is that of the nearest one, but
    /// `Version` returns the given one.
    #[test]
    fn unknown_version_gets_nearest_profile_of_mode() {
        for (mode, version, delivery) in [
            (Mode::Containerd2, "1.6.0", Delivery::AllAndKept),
            (Mode::Containerd17, "v9.9.9", Delivery::OneSubscriber),
            (Mode::Crio, "soon", Delivery::AllOrLost),
            (Mode::Unimplemented, "v2.0.0", Delivery::Unimplemented),
            (Mode::CrioDisabled, "1.36.3", Delivery::Disabled),
        ] {
            let profile = RuntimeProfile::of(mode, version);
            assert_eq!(
                (profile.node.delivery, &*profile.version),
                (delivery, version)
            );
        }
        assert!(Mode::Containerd2.check_version("1.6.0").is_err());
        for mode in Mode::ALL {
            assert!(mode.check_version(mode.default_version()).is_ok(), "{mode}");
            assert_eq!(mode.name().parse::<Mode>().ok(), Some(mode));
        }
    }
}
