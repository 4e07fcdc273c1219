//! The differences between runtimes and their versions, as data.

use crate::version::Version;

/// The creation time that containerd 2 reports for a sandbox whose removal has begun: Go's zero time in
/// nanoseconds, after an integer overflow.
pub const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

/// The delivery of events by `GetContainerEvents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Each event goes to one subscriber. While there is no subscriber, the first 1,000 events wait for the next
    /// subscriber (containerd 1.7, CRI-O up to 1.27).
    OneSubscriber,
    /// Each event goes to every subscriber. While there is no subscriber, events wait for five minutes (containerd 2).
    AllOrQueued,
    /// Each event goes to every subscriber. While there is no subscriber, events are lost (CRI-O since 1.28).
    AllOrLost,
    /// The runtime ends the stream at once with OK: its events are disabled (CRI-O's default).
    Disabled,
    /// The runtime does not implement `GetContainerEvents` (containerd 1.6).
    Unimplemented,
}

/// The time of DELETED of a sandbox, relative to the removal of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxDeleted {
    /// The runtime does not send DELETED of sandboxes (CRI-O).
    Never,
    /// The runtime sends DELETED after the removal, so DELETED has no status of the sandbox (containerd 1.7).
    AfterRemoval,
    /// The runtime sends DELETED, whose status has [`GO_ZERO_TIME`], while lists still show the sandbox (containerd 2).
    BeforeRemoval,
}

/// The containers whose statuses an event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusScope {
    /// Events carry the statuses of the sandbox's containers (containerd).
    Sandbox,
    /// Events carry the statuses of containers whose label has the pod's uid (CRI-O).
    Pod,
}

/// The behaviour of one version of a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The name that `Version` returns.
    pub name: &'static str,
    /// The delivery of events.
    pub delivery: Delivery,
    /// The runtime sends CREATED of a sandbox. CRI-O does not, because it has no status of a new sandbox yet.
    pub sandbox_created: bool,
    /// The time at which the runtime sends DELETED of a sandbox.
    pub sandbox_deleted: SandboxDeleted,
    /// The runtime also sends DELETED of containers that it removes together with their sandbox.
    pub deleted_with_sandbox: bool,
    /// `StopContainer` also sends DELETED, which is a bug (CRI-O up to 1.27.0).
    pub deleted_on_stop: bool,
    /// CRI-O sends no event if the sandbox is gone when CRI-O reads the statuses, and no STOPPED of a container that is
    /// gone by then. So a removal can suppress STOPPED.
    pub requires_existing: bool,
    /// The containers whose statuses an event carries.
    pub scope: StatusScope,
    /// DELETED of a container carries an empty status (CRI-O 1.31 to 1.34).
    pub empty_status_after_removal: bool,
    /// The runtime removes a container that fails to start, instead of keeping it as exited (CRI-O).
    pub removes_failed_starts: bool,
    /// STOPPED of a container that is out of memory has the reason `OOMKilled`.
    pub oom_reason_in_event: bool,
    /// The runtime starts a pause process only if the containers share its process namespace (CRI-O).
    pub drops_infra_container: bool,
}

impl Profile {
    /// The profile of a containerd version. An unknown version counts as the newest.
    pub fn containerd(version: &str) -> Self {
        let version = Version::parse(version).unwrap_or(Version(u32::MAX, 0, 0));
        let is_v2 = version >= Version(2, 0, 0);
        Self {
            name: "containerd",
            delivery: match is_v2 {
                true => Delivery::AllOrQueued,
                false if version < Version(1, 7, 0) => Delivery::Unimplemented,
                false => Delivery::OneSubscriber,
            },
            sandbox_created: true,
            sandbox_deleted: match is_v2 {
                true => SandboxDeleted::BeforeRemoval,
                false => SandboxDeleted::AfterRemoval,
            },
            deleted_with_sandbox: true,
            deleted_on_stop: false,
            requires_existing: false,
            scope: StatusScope::Sandbox,
            empty_status_after_removal: false,
            removes_failed_starts: false,
            oom_reason_in_event: version >= Version(2, 3, 0),
            drops_infra_container: false,
        }
    }

    /// The profile of a CRI-O version with `enable_pod_events`. An unknown version counts as the newest.
    pub fn crio(version: &str) -> Self {
        let version = Version::parse(version).unwrap_or(Version(u32::MAX, 0, 0));
        Self {
            name: "cri-o",
            delivery: match version < Version(1, 28, 0) {
                true => Delivery::OneSubscriber,
                false => Delivery::AllOrLost,
            },
            sandbox_created: false,
            sandbox_deleted: SandboxDeleted::Never,
            deleted_with_sandbox: false,
            deleted_on_stop: version < Version(1, 27, 1),
            requires_existing: true,
            scope: StatusScope::Pod,
            empty_status_after_removal: (Version(1, 31, 0)..Version(1, 35, 0)).contains(&version),
            removes_failed_starts: true,
            oom_reason_in_event: true,
            drops_infra_container: true,
        }
    }

    /// The profile of CRI-O with its default configuration, which disables events.
    pub fn crio_disabled(version: &str) -> Self {
        Self {
            delivery: Delivery::Disabled,
            ..Self::crio(version)
        }
    }

    /// The profile of containerd 1.6, which has no `GetContainerEvents`.
    pub fn unimplemented() -> Self {
        Self::containerd("1.6.20")
    }

    /// Returns true if the runtime delivers events at all.
    pub const fn has_events(&self) -> bool {
        !matches!(self.delivery, Delivery::Disabled | Delivery::Unimplemented)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_delivery_depends_on_runtime_version() {
        for (profile, delivery) in [
            (Profile::unimplemented(), Delivery::Unimplemented),
            (Profile::containerd("1.7.24~ds1"), Delivery::OneSubscriber),
            (Profile::containerd("v2.0.0"), Delivery::AllOrQueued),
            (Profile::crio("1.27.9"), Delivery::OneSubscriber),
            (Profile::crio("1.28.0"), Delivery::AllOrLost),
            (Profile::crio_disabled("1.36.3"), Delivery::Disabled),
        ] {
            assert_eq!(profile.delivery, delivery);
        }
    }
}
