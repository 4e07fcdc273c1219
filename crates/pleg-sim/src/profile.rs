//! The profile of a runtime: everything that differs between modes and versions, as one value.
//! Pure.
//!
//! No other module depends on the mode or the version.

use tonic::Code;

use crate::{mode::Mode, version::Version};

/// Go's zero time in nanoseconds, after an integer overflow: the creation time that containerd 2
/// reports for a sandbox that its controller has already removed.
pub(crate) const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

#[derive(Clone, Debug)]
pub(crate) struct RuntimeProfile {
    /// For messages.
    pub(crate) mode: Mode,
    /// The runtime name and version that `Version` returns.
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) stream: StreamKind,
    pub(crate) events: EventRules,
    /// The container statuses that an event carries.
    pub(crate) scope: StatusScope,
    /// The status of a container that was just removed is sent as an empty element (CRI-O 1.31 to
    /// 1.34).
    pub(crate) empty_status_after_removal: bool,
    /// Sandbox items and statuses contain the runtime handler.
    pub(crate) reports_runtime_handler: bool,
    /// The timestamp that `PodSandboxStatus` returns, and whether it returns container statuses.
    pub(crate) timestamp: Timestamp,
    pub(crate) status_has_containers: bool,
    /// A container that failed to start is removed, instead of staying as exited.
    pub(crate) removes_failed_starts: bool,
    /// It refuses what CRI-O and conmon refuse, such as a log whose directory is missing.
    pub(crate) refuses_as_crio: bool,
    /// Whether the reason `OOMKilled` is available in time for the event.
    pub(crate) oom_reason_in_event: bool,
    /// There is no pause process, unless the containers share the process namespace of the pod.
    pub(crate) drops_infra_container: bool,
    /// The number of items per page of a streaming list; `None` without streaming lists.
    pub(crate) list_page_size: Option<usize>,
    /// The maximum message size, in both directions.
    pub(crate) message_limit: usize,
    pub(crate) startup: StartupBehavior,
    /// On `SIGTERM`, ends its streams with OK and waits for clients to disconnect.
    pub(crate) graceful_stop: bool,
}

/// How `GetContainerEvents` is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// One queue; each event goes to one subscriber.
    Competing,
    /// Every subscriber gets every event, and the runtime waits for each.
    Broadcast,
    /// Every subscriber gets every event, from a queue that never blocks the runtime.
    Draining,
    /// The stream ends immediately with OK.
    Disabled,
    Unimplemented,
}

/// Which events are sent.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent rule")]
pub(crate) struct EventRules {
    pub(crate) sandbox_created: bool,
    pub(crate) sandbox_deleted: SandboxDeleted,
    /// DELETED is also sent for containers that are removed with their sandbox.
    pub(crate) deleted_with_sandbox: bool,
    /// STOPPED of a sandbox is sent before `StopPodSandbox` returns, unless it has a pause process.
    pub(crate) sandbox_stopped_in_call: bool,
    /// No event is sent for an object that is gone by then, or whose sandbox is gone.
    pub(crate) requires_existing: bool,
    /// `StopContainer` also sends DELETED, which is a bug (CRI-O up to 1.27.0).
    pub(crate) deleted_on_stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxDeleted {
    Never,
    /// After the sandbox is removed, so without its status.
    AfterRemoval,
    /// While lists still show the sandbox, with an invalid creation time.
    BeforeRemoval,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusScope {
    /// Those of the sandbox.
    Sandbox,
    /// Those that have the pod's uid as a label, newest first.
    Pod,
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
        let profile = match mode {
            Mode::Containerd17 | Mode::Containerd2 | Mode::Starting => Self::containerd(known),
            Mode::Unimplemented => Self {
                stream: StreamKind::Unimplemented,
                ..Self::containerd(known)
            },
            Mode::Crio | Mode::Silent => Self::crio(known),
            Mode::CrioDisabled => Self {
                stream: StreamKind::Disabled,
                timestamp: Timestamp::None,
                status_has_containers: false,
                ..Self::crio(known)
            },
        };
        Self {
            mode,
            version: version.to_owned(),
            ..profile
        }
    }

    /// The runtime, and why a second subscriber takes no events from others there. `None` if it
    /// does.
    pub(crate) fn no_second_subscriber(&self) -> Option<String> {
        let why = match self.stream {
            StreamKind::Competing => return None,
            StreamKind::Broadcast | StreamKind::Draining => "every subscriber gets every event",
            StreamKind::Disabled | StreamKind::Unimplemented => "there is no event stream",
        };
        let Self {
            mode,
            name,
            version,
            ..
        } = self;
        Some(format!("mode {mode} ({name} {version}), where {why}"))
    }

    fn containerd(version: Version) -> Self {
        let is_v2 = version >= Version::new(2, 0, 0);
        Self {
            mode: Mode::Containerd2,
            name: "containerd",
            version: String::new(),
            stream: if is_v2 {
                StreamKind::Broadcast
            } else {
                StreamKind::Competing
            },
            events: EventRules {
                sandbox_created: true,
                sandbox_deleted: if is_v2 {
                    SandboxDeleted::BeforeRemoval
                } else {
                    SandboxDeleted::AfterRemoval
                },
                deleted_with_sandbox: true,
                sandbox_stopped_in_call: false,
                requires_existing: false,
                deleted_on_stop: false,
            },
            scope: StatusScope::Sandbox,
            empty_status_after_removal: false,
            reports_runtime_handler: true,
            timestamp: if version.within((2, 0, 0), (2, 0, 3)) {
                Timestamp::Nanos
            } else {
                Timestamp::None
            },
            status_has_containers: false,
            removes_failed_starts: false,
            refuses_as_crio: false,
            oom_reason_in_event: version >= Version::new(2, 3, 0),
            drops_infra_container: false,
            list_page_size: (version >= Version::new(2, 4, 0)).then_some(5000),
            message_limit: 16 << 20,
            startup: StartupBehavior::Fails(if is_v2 {
                Code::Unavailable
            } else {
                Code::Unknown
            }),
            graceful_stop: false,
        }
    }

    fn crio(version: Version) -> Self {
        let seconds = version < Version::new(1, 29, 0)
            || version.within((1, 29, 0), (1, 29, 9))
            || version.within((1, 30, 0), (1, 30, 6))
            || version.within((1, 31, 0), (1, 31, 1));
        Self {
            mode: Mode::Crio,
            name: "cri-o",
            version: String::new(),
            stream: if version < Version::new(1, 28, 0) {
                StreamKind::Competing
            } else {
                StreamKind::Draining
            },
            events: EventRules {
                sandbox_created: false,
                sandbox_deleted: SandboxDeleted::Never,
                deleted_with_sandbox: false,
                sandbox_stopped_in_call: true,
                requires_existing: true,
                deleted_on_stop: version < Version::new(1, 27, 1),
            },
            scope: StatusScope::Pod,
            empty_status_after_removal: version.within((1, 31, 0), (1, 35, 0)),
            reports_runtime_handler: false,
            timestamp: if seconds {
                Timestamp::Seconds
            } else {
                Timestamp::Nanos
            },
            status_has_containers: true,
            removes_failed_starts: true,
            refuses_as_crio: true,
            oom_reason_in_event: true,
            drops_infra_container: true,
            list_page_size: (version >= Version::new(1, 36, 0)).then_some(3000),
            message_limit: 80 << 20,
            startup: StartupBehavior::Silent,
            graceful_stop: true,
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
        assert!(!of("v2.2.7").oom_reason_in_event && of("v2.3.0").oom_reason_in_event);
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
        assert_eq!(of("1.27.9").stream, StreamKind::Competing);
        assert_eq!(of("1.28.0").stream, StreamKind::Draining);
        assert!(of("1.27.0").events.deleted_on_stop && !of("1.27.1").events.deleted_on_stop);
        for (version, sends_empty) in [
            ("1.30.9", false),
            ("1.31.0", true),
            ("1.34.11", true),
            ("1.35.0", false),
        ] {
            assert_eq!(
                of(version).empty_status_after_removal,
                sends_empty,
                "{version}"
            );
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
        let profile = RuntimeProfile::of(Mode::Containerd2, "1.6.0");
        assert_eq!(
            (profile.stream, profile.version.as_str()),
            (StreamKind::Broadcast, "1.6.0")
        );
        assert_eq!(
            RuntimeProfile::of(Mode::Containerd17, "v9.9.9").stream,
            StreamKind::Competing
        );
        assert_eq!(
            RuntimeProfile::of(Mode::Crio, "soon").list_page_size,
            Some(3000)
        );
        assert!(Mode::Containerd2.check_version("1.6.0").is_err());
        for mode in Mode::ALL {
            assert!(mode.check_version(mode.default_version()).is_ok(), "{mode}");
            assert_eq!(mode.name().parse::<Mode>().ok(), Some(mode));
        }
    }
}
