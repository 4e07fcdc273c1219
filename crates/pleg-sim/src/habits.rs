//! The habits of a runtime: all that differs between modes and versions, as one value. Pure.
//!
//! Nothing else in the simulator asks which mode or version it is.

use tonic::Code;

use crate::{mode::Mode, version::Version};

/// Go's zero time in nanoseconds, wrapped around: what containerd 2 gives as the creation of a
/// sandbox that its controller has forgotten.
pub(crate) const NO_TIME: i64 = -6_795_364_578_871_345_152;

#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// What `Version` calls the runtime, and its version.
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) stream: StreamHabit,
    pub(crate) told: Told,
    /// Which containers' statuses go with an event.
    pub(crate) scope: Scope,
    /// Statuses of a container that is just gone are left as empty elements (CRI-O 1.31 to 1.34).
    pub(crate) leaves_holes: bool,
    /// Handlers are named in sandboxes' rows and statuses.
    pub(crate) names_handlers: bool,
    /// What `PodSandboxStatus` has beside the status.
    pub(crate) timestamp: Timestamp,
    pub(crate) status_has_containers: bool,
    /// A container whose start failed is removed again, instead of staying as exited.
    pub(crate) removes_failed_starts: bool,
    /// Whether the reason `OOMKilled` is there in time for the event.
    pub(crate) knows_oom_at_once: bool,
    /// There is no pause process, unless containers share their pod's process namespace.
    pub(crate) drops_pause: bool,
    /// The rows of a page of streamed lists; `None` where there are none such.
    pub(crate) page: Option<usize>,
    /// The largest message, either way.
    pub(crate) message_limit: usize,
    pub(crate) starting: StartHabit,
    /// Being stopped by `SIGTERM`, it ends its streams with OK and says goodbye.
    pub(crate) says_goodbye: bool,
}

/// How `GetContainerEvents` is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamHabit {
    /// One queue; each event goes to one subscriber.
    Competing,
    /// All go to each, waiting for each.
    Broadcast,
    /// All go to each, from a queue that nobody waits for.
    Draining,
    /// Ends at once, with OK.
    Disabled,
    Unimplemented,
}

/// Which events are told.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
pub(crate) struct Told {
    pub(crate) sandbox_created: bool,
    pub(crate) sandbox_deleted: SandboxDeleted,
    /// Also for containers that go with their sandbox.
    pub(crate) inner_deleted: bool,
    /// A sandbox's end is told before `StopPodSandbox` returns, unless it has a pause process.
    pub(crate) stop_in_call: bool,
    /// Nothing is told of what is gone by then, or whose sandbox is.
    pub(crate) only_what_exists: bool,
    /// `StopContainer` wrongly tells a removal, too (CRI-O ≤ 1.27.0).
    pub(crate) stop_as_deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxDeleted {
    Never,
    /// Once it is forgotten: without its status.
    Afterwards,
    /// While lists still show it, with an absurd time of creation.
    Before,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of its sandbox.
    Sandbox,
    /// Those that have its pod's uid as a label, newest first.
    Pod,
}

/// The timestamp of `PodSandboxStatus`, taken before the statuses are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timestamp {
    None,
    Seconds,
    Nanos,
}

/// What clients meet while the runtime starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartHabit {
    /// Every call fails with that code.
    Fails(Code),
    /// Connections are accepted, and nothing is said on them.
    Silent,
}

impl Habits {
    /// Of the version nearest to the given one that the mode knows.
    pub(crate) fn of(mode: Mode, version: &str) -> Self {
        let known = mode.version(version);
        let habits = match mode {
            Mode::Containerd17 | Mode::Containerd2 | Mode::Starting => Self::containerd(known),
            Mode::Unimplemented => Self {
                stream: StreamHabit::Unimplemented,
                ..Self::containerd(known)
            },
            Mode::Crio | Mode::Silent => Self::crio(known),
            Mode::CrioDisabled => Self {
                stream: StreamHabit::Disabled,
                timestamp: Timestamp::None,
                status_has_containers: false,
                ..Self::crio(known)
            },
        };
        Self {
            version: version.to_owned(),
            ..habits
        }
    }

    fn containerd(version: Version) -> Self {
        let two = version >= Version::new(2, 0, 0);
        Self {
            name: "containerd",
            version: String::new(),
            stream: if two {
                StreamHabit::Broadcast
            } else {
                StreamHabit::Competing
            },
            told: Told {
                sandbox_created: true,
                sandbox_deleted: if two {
                    SandboxDeleted::Before
                } else {
                    SandboxDeleted::Afterwards
                },
                inner_deleted: true,
                stop_in_call: false,
                only_what_exists: false,
                stop_as_deleted: false,
            },
            scope: Scope::Sandbox,
            leaves_holes: false,
            names_handlers: true,
            timestamp: if version.within((2, 0, 0), (2, 0, 3)) {
                Timestamp::Nanos
            } else {
                Timestamp::None
            },
            status_has_containers: false,
            removes_failed_starts: false,
            knows_oom_at_once: version >= Version::new(2, 3, 0),
            drops_pause: false,
            page: (version >= Version::new(2, 4, 0)).then_some(5000),
            message_limit: 16 << 20,
            starting: StartHabit::Fails(if two {
                Code::Unavailable
            } else {
                Code::Unknown
            }),
            says_goodbye: false,
        }
    }

    fn crio(version: Version) -> Self {
        let seconds = version < Version::new(1, 29, 0)
            || version.within((1, 29, 0), (1, 29, 9))
            || version.within((1, 30, 0), (1, 30, 6))
            || version.within((1, 31, 0), (1, 31, 1));
        Self {
            name: "cri-o",
            version: String::new(),
            stream: if version < Version::new(1, 28, 0) {
                StreamHabit::Competing
            } else {
                StreamHabit::Draining
            },
            told: Told {
                sandbox_created: false,
                sandbox_deleted: SandboxDeleted::Never,
                inner_deleted: false,
                stop_in_call: true,
                only_what_exists: true,
                stop_as_deleted: version < Version::new(1, 27, 1),
            },
            scope: Scope::Pod,
            leaves_holes: version.within((1, 31, 0), (1, 35, 0)),
            names_handlers: false,
            timestamp: if seconds {
                Timestamp::Seconds
            } else {
                Timestamp::Nanos
            },
            status_has_containers: true,
            removes_failed_starts: true,
            knows_oom_at_once: true,
            drops_pause: true,
            page: (version >= Version::new(1, 36, 0)).then_some(3000),
            message_limit: 80 << 20,
            starting: StartHabit::Silent,
            says_goodbye: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_by_version() {
        let of = |v| Habits::of(Mode::Containerd2, v);
        for (version, timestamp) in [
            ("v2.0.0", Timestamp::Nanos),
            ("v2.0.2", Timestamp::Nanos),
            ("v2.0.3", Timestamp::None),
            ("v2.4.0", Timestamp::None),
        ] {
            let habits = of(version);
            assert_eq!(habits.timestamp, timestamp, "{version}");
            assert!(!habits.status_has_containers, "{version}");
        }
        assert_eq!(of("v2.3.4").page, None);
        assert_eq!(of("v2.4.0-beta.0").page, Some(5000));
        assert!(!of("v2.2.7").knows_oom_at_once && of("v2.3.0").knows_oom_at_once);
        let old = Habits::of(Mode::Starting, "1.7.24");
        assert_eq!(old.starting, StartHabit::Fails(Code::Unknown));
        assert_eq!(of("v2.1.0").starting, StartHabit::Fails(Code::Unavailable));
    }

    #[test]
    fn crio_by_version() {
        let of = |v| Habits::of(Mode::Crio, v);
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
        assert_eq!(of("1.27.9").stream, StreamHabit::Competing);
        assert_eq!(of("1.28.0").stream, StreamHabit::Draining);
        assert!(of("1.27.0").told.stop_as_deleted && !of("1.27.1").told.stop_as_deleted);
        for (version, holes) in [
            ("1.30.9", false),
            ("1.31.0", true),
            ("1.34.11", true),
            ("1.35.0", false),
        ] {
            assert_eq!(of(version).leaves_holes, holes, "{version}");
        }
        assert_eq!((of("1.35.9").page, of("1.36.0").page), (None, Some(3000)));
    }

    /// A version that the mode does not know gives the habits of the nearest one; Version says it
    /// all the same.
    #[test]
    fn habits_are_always_those_of_the_mode() {
        let habits = Habits::of(Mode::Containerd2, "1.6.0");
        assert_eq!(
            (habits.stream, habits.version.as_str()),
            (StreamHabit::Broadcast, "1.6.0")
        );
        assert_eq!(
            Habits::of(Mode::Containerd17, "v9.9.9").stream,
            StreamHabit::Competing
        );
        assert_eq!(Habits::of(Mode::Crio, "soon").page, Some(3000));
        assert!(Mode::Containerd2.check_version("1.6.0").is_err());
        for mode in Mode::ALL {
            assert!(mode.check_version(mode.default_version()).is_ok(), "{mode}");
            assert_eq!(mode.name().parse::<Mode>().ok(), Some(mode));
        }
    }
}
