//! Names that metrics, logs and consumers see: they are part of the interface.

#![allow(missing_docs, reason = "tests")]

use pleg_core::{Cause, ExpectedEvent, LifecycleType, Source};

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
    assert_eq!(
        ExpectedEvent::ALL.map(ExpectedEvent::as_str),
        [
            "container_started",
            "container_stopped",
            "sandbox_started",
            "sandbox_stopped"
        ]
    );
    assert_eq!(
        Cause::ALL.map(Cause::as_str),
        [
            "changed",
            "incomplete",
            "hint",
            "provisional",
            "unknown",
            "waiter",
            "details",
            "relist",
            "reinspect",
            "contradiction",
            "disputed",
            "unsettled",
            "ended",
            "probe",
            "retry"
        ]
    );
}
