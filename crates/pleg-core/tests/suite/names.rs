//! Tests the names in metrics, logs and consumers' code, because these names are part of the interface.

use pleg_core::LifecycleType::{
    ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted, PodSync,
};
use pleg_core::{CallErrorKind, ContainerState, Kind, KnownState, Mode, SandboxState, Source};

#[test]
fn lifecycle_types_have_upstreams_names() {
    let of_ids = [ContainerStarted, ContainerDied, ContainerRemoved];
    for what in of_ids.into_iter().chain([ContainerChanged, PodSync]) {
        let name = format!("{what:?}");
        assert_eq!((what.as_str(), what.to_string()), (&*name, name.clone()));
    }
}

#[test]
fn metric_labels_are_short_and_lower_case() {
    let sources = [Source::Stream, Source::Relist, Source::Inspection].map(Source::as_str);
    assert_eq!(sources, ["stream", "relist", "inspection"]);
    let modes = [Mode::Auto, Mode::Evented, Mode::Polling].map(Mode::as_str);
    assert_eq!(modes, ["auto", "evented", "polling"]);
    let kinds = [Kind::Sandbox, Kind::Container].map(Kind::as_str);
    assert_eq!(kinds, ["sandbox", "container"]);
    let errors = [
        (CallErrorKind::NotFound, "not_found"),
        (CallErrorKind::DeadlineExceeded, "deadline_exceeded"),
        (CallErrorKind::Unavailable, "unavailable"),
        (CallErrorKind::PermissionDenied, "permission_denied"),
        (CallErrorKind::Unimplemented, "unimplemented"),
        (CallErrorKind::TooLarge, "too_large"),
        (CallErrorKind::Cancelled, "cancelled"),
        (CallErrorKind::Malformed, "malformed"),
        (CallErrorKind::Failed, "failed"),
    ];
    assert!(errors.iter().all(|(kind, name)| kind.as_str() == *name));
}

#[test]
fn states_have_the_names_of_the_cri() {
    use SandboxState::{NotReady, Ready, Unknown};
    let last_ready = Some(true);
    let sandboxes = [Ready, NotReady, Unknown { last_ready }].map(SandboxState::as_str);
    assert_eq!(sandboxes, ["Ready", "NotReady", "Unknown"]);
    for (state, last, name) in [
        (ContainerState::Created, KnownState::Created, "Created"),
        (ContainerState::Running, KnownState::Running, "Running"),
        (ContainerState::Exited, KnownState::Exited, "Exited"),
    ] {
        assert_eq!(state.as_str(), name);
        let unknown = ContainerState::Unknown { last: Some(last) };
        assert_eq!(unknown.as_str(), format!("Unknown (was {name})"));
    }
    assert_eq!(ContainerState::Unknown { last: None }.as_str(), "Unknown");
}
