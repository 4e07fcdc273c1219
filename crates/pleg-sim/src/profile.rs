//! The profile of a runtime: everything that differs between modes and versions, as one value. The module has no I/O.
//!
//! No other module depends on the version, and only `SimBuilder::build` depends on the mode, for the first phase.

use pleg_node_model::{Delivery, Profile, Version};
use tonic::Code;

use crate::{error::SimError, mode::Mode};

#[derive(Clone, Debug)]
pub(crate) struct RuntimeProfile {
    /// The mode, only for messages.
    pub(crate) mode: Mode,
    /// The version that `Version` returns.
    pub(crate) version: String,
    /// The part of the profile that decides how calls change the node, and which events the runtime sends.
    pub(crate) node: Profile,
    /// The runtime is CRI-O. It refuses what CRI-O and conmon refuse, such as a log whose directory is missing; it
    /// sends STOPPED of a sandbox before `StopPodSandbox` returns, unless the sandbox has a pause process; it reports
    /// no runtime handler; on `SIGTERM` it ends its streams with OK and waits for clients to disconnect; during startup
    /// it accepts connections and does not respond.
    pub(crate) is_crio: bool,
    /// The gRPC code that every call fails with during startup (containerd).
    pub(crate) startup_code: Code,
    /// The unit of the timestamp that `PodSandboxStatus` returns, in nanoseconds; `None` without a timestamp.
    pub(crate) timestamp_unit: Option<i64>,
    /// `PodSandboxStatus` returns container statuses.
    pub(crate) status_has_containers: bool,
    /// The number of items per page of a streaming list; `None` without streaming lists.
    pub(crate) list_page_size: Option<usize>,
    /// The maximum message size, in both directions.
    pub(crate) message_limit: usize,
}

impl RuntimeProfile {
    /// The profile of the given version, or of the nearest version that belongs to the mode.
    pub(crate) fn of(mode: Mode, version: &str) -> Self {
        let (known, is_crio) = (mode.version(version), mode.is_crio());
        let node = match mode {
            Mode::Unimplemented => Profile::unimplemented(),
            Mode::CrioDisabled => Profile::crio_disabled(&known.to_string()),
            _ if is_crio => Profile::crio(&known.to_string()),
            _ => Profile::containerd(&known.to_string()),
        };
        let has_seconds = known < Version(1, 29, 9)
            || (Version(1, 30, 0)..Version(1, 30, 6)).contains(&known)
            || known == Version(1, 31, 0);
        let pages = match is_crio {
            true => (Version(1, 36, 0), 3000),
            false => (Version(2, 4, 0), 5000),
        };
        Self {
            mode,
            version: version.to_owned(),
            node,
            is_crio,
            startup_code: match known < Version(2, 0, 0) {
                true => Code::Unknown,
                false => Code::Unavailable,
            },
            timestamp_unit: match mode {
                Mode::CrioDisabled => None,
                _ if is_crio && has_seconds => Some(1_000_000_000),
                _ if is_crio || (Version(2, 0, 0)..Version(2, 0, 3)).contains(&known) => Some(1),
                _ => None,
            },
            status_has_containers: is_crio && mode != Mode::CrioDisabled,
            list_page_size: (known >= pages.0).then_some(pages.1),
            message_limit: if is_crio { 80 << 20 } else { 16 << 20 },
        }
    }

    /// Fails if the knob `second_subscriber` has no effect: the runtime sends each event to all subscribers or to none.
    pub(crate) fn check_second_subscriber(&self) -> Result<(), SimError> {
        let why = match self.node.delivery {
            Delivery::OneSubscriber => return Ok(()),
            Delivery::AllOrQueued | Delivery::AllOrLost => "every subscriber gets every event",
            Delivery::Disabled | Delivery::Unimplemented => "there is no event stream",
        };
        let (mode, name, version) = (self.mode, self.node.name, &self.version);
        Err(SimError(format!(
            "second_subscriber has no effect in mode {mode} ({name} {version}), where {why}; use mode \
             containerd-1.7, or mode crio with version 1.27 or older"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_timestamp_and_page_size_depend_on_runtime_version() {
        let (nanos, seconds) = (Some(1), Some(1_000_000_000));
        for (mode, version, unit, pages) in [
            (Mode::Containerd2, "v2.0.2", nanos, None),
            (Mode::Containerd2, "v2.0.3", None, None),
            (Mode::Containerd2, "v2.3.4", None, None),
            (Mode::Containerd2, "v2.4.0-beta.0", None, Some(5000)),
            (Mode::Crio, "1.29.8", seconds, None),
            (Mode::Crio, "1.29.9", nanos, None),
            (Mode::Crio, "1.30.5", seconds, None),
            (Mode::Crio, "1.30.6", nanos, None),
            (Mode::Crio, "1.31.0", seconds, None),
            (Mode::Crio, "1.31.1", nanos, None),
            (Mode::Crio, "1.36.0", nanos, Some(3000)),
            (Mode::CrioDisabled, "1.36.0", None, Some(3000)),
        ] {
            let profile = RuntimeProfile::of(mode, version);
            let found = (profile.timestamp_unit, profile.list_page_size);
            assert_eq!(found, (unit, pages), "{version}");
            assert_eq!(profile.status_has_containers, mode == Mode::Crio);
            let limit = if mode.is_crio() { 80 << 20 } else { 16 << 20 };
            assert_eq!(profile.message_limit, limit);
        }
    }

    /// If the version does not belong to the mode, the nearest version of the mode selects the profile, but `Version`
    /// returns the given version.
    #[test]
    fn version_outside_mode_gets_profile_of_nearest_version() {
        let (to_all, none) = ("every subscriber gets every event", "no event stream");
        for (mode, version, delivery, no_second_subscriber) in [
            (Mode::Containerd2, "1.6.0", Delivery::AllOrQueued, to_all),
            (Mode::Containerd17, "v9.9.9", Delivery::OneSubscriber, ""),
            (Mode::Crio, "soon", Delivery::AllOrLost, to_all),
            (Mode::Unimplemented, "v2.0.0", Delivery::Unimplemented, none),
            (Mode::CrioDisabled, "1.36.3", Delivery::Disabled, none),
        ] {
            let profile = RuntimeProfile::of(mode, version);
            let found = (profile.node.delivery, &*profile.version);
            assert_eq!(found, (delivery, version));
            let error = profile.check_second_subscriber().err();
            let error = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(no_second_subscriber), "{error}");
            assert_eq!(error.is_empty(), no_second_subscriber.is_empty());
        }
        assert!(Mode::Containerd2.check_version("1.6.0").is_err());
        for mode in Mode::ALL {
            assert!(mode.check_version(mode.default_version()).is_ok(), "{mode}");
            assert_eq!(mode.name().parse::<Mode>().ok(), Some(mode));
        }
    }
}
