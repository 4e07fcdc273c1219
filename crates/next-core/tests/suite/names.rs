//! Names that metrics, logs and consumers see: they are part of the interface.

use pleg_core::{
    CallErrorKind, ContainerState, Kind, KnownState, LifecycleType, Mode, SandboxState, Source,
};

#[test]
fn lifecycle_types_have_upstreams_names() {
    use LifecycleType::{
        ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted, PodSync,
    };
    for (what, name) in [
        (ContainerStarted, "ContainerStarted"),
        (ContainerDied, "ContainerDied"),
        (ContainerRemoved, "ContainerRemoved"),
        (ContainerChanged, "ContainerChanged"),
        (PodSync, "PodSync"),
    ] {
        assert_eq!((what.as_str(), what.to_string().as_str()), (name, name));
    }
}

#[test]
fn labels_have_short_lower_case_names() {
    let sources = [Source::Stream, Source::Relist, Source::Inspection];
    assert_eq!(
        sources.map(Source::as_str),
        ["stream", "relist", "inspection"]
    );
    let modes = [Mode::Evented, Mode::Polling];
    assert_eq!(modes.map(Mode::as_str), ["evented", "polling"]);
    let kinds = [Kind::Sandbox, Kind::Container];
    assert_eq!(kinds.map(Kind::as_str), ["sandbox", "container"]);
    for (kind, name) in [
        (CallErrorKind::NotFound, "not_found"),
        (CallErrorKind::DeadlineExceeded, "deadline_exceeded"),
        (CallErrorKind::Unavailable, "unavailable"),
        (CallErrorKind::PermissionDenied, "permission_denied"),
        (CallErrorKind::Unimplemented, "unimplemented"),
        (CallErrorKind::TooLarge, "too_large"),
        (CallErrorKind::Cancelled, "cancelled"),
        (CallErrorKind::Malformed, "malformed"),
        (CallErrorKind::Failed, "failed"),
    ] {
        assert_eq!((kind.as_str(), kind.to_string().as_str()), (name, name));
    }
}

#[test]
fn states_have_the_names_of_the_cri() {
    let last_ready = Some(true);
    let sandbox_states = [
        SandboxState::Ready,
        SandboxState::NotReady,
        SandboxState::Unknown { last_ready },
    ];
    assert_eq!(
        sandbox_states.map(SandboxState::as_str),
        ["Ready", "NotReady", "Unknown"]
    );
    let known_states = [
        (KnownState::Created, "Created"),
        (KnownState::Running, "Running"),
        (KnownState::Exited, "Exited"),
    ];
    for (last, name) in known_states {
        assert_eq!(last.as_str(), name);
        let unknown = ContainerState::Unknown { last: Some(last) };
        assert_eq!(unknown.as_str(), format!("Unknown (was {name})"));
    }
    let container_states = [
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Unknown { last: None },
    ];
    assert_eq!(
        container_states.map(ContainerState::as_str),
        ["Created", "Running", "Exited", "Unknown"]
    );
}
