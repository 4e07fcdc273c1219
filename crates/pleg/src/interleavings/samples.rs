//! Sample views and announcements.

use std::sync::Arc;

use pleg_core::{
    ContainerState, ContainerStatus, Instant, Kind, LifecycleType, PodLifecycleEvent, PodStatus,
    PodView, Subject,
};

pub(super) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

pub(super) fn something(pod: &str, as_of: u64) -> PodView {
    let mut status = PodStatus::nothing(pod.into());
    status.containers = [ContainerStatus::new("a", "a", ContainerState::Running)].into();
    PodView::new(Arc::new(status), Some(at(as_of)), None)
}

pub(super) fn something_like(view: &PodView, as_of: u64) -> PodView {
    PodView::new(view.status.clone(), Some(at(as_of)), None)
}

pub(super) fn announcement(what: LifecycleType, number: u64) -> PodLifecycleEvent {
    let subject = Subject::new(number.to_string(), Kind::Container, "a");
    PodLifecycleEvent::new(what, "p", Some(subject), at(number))
}
