//! Sample views and announcements, as the reconciler makes them.

use std::sync::Arc;

use pleg_core::{
    Instant, LifecycleType, List, Output, PodLifecycleEvent, PodStatus, PodView, Reconciler,
    Settings,
};

use super::node::{Node, inspection};

pub(super) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

pub(super) fn something(pod: &str, as_of: u64) -> PodView {
    let mut status = PodStatus::nothing(pod.into());
    status.containers = [container()].into();
    PodView::new(Arc::new(status), Some(at(as_of)), None)
}

/// A container, as the reconciler makes it.
fn container() -> pleg_core::ContainerStatus {
    let now = at(1);
    let mut machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let node = Node::default();
    node.start("p", "a");
    let Some(Output::List { ticket, .. }) = machine.poll_output() else {
        panic!("it lists first");
    };
    let rows = Ok(node.exists().into_iter().collect());
    let (began, ended) = (now, now);
    machine.handle_list(
        now,
        List {
            ticket,
            began,
            ended,
            rows,
        },
    );
    loop {
        if let Some(Output::Publish { view, .. }) = machine.poll_output() {
            return view.status.containers[0].clone();
        }
    }
}

pub(super) fn something_like(view: &PodView, as_of: u64) -> PodView {
    PodView::new(view.status.clone(), Some(at(as_of)), None)
}

pub(super) fn announcement(what: LifecycleType, number: u64) -> PodLifecycleEvent {
    // `PodLifecycleEvent` is non-exhaustive, so it is copied from one that the reconciler made.
    static MADE: std::sync::OnceLock<PodLifecycleEvent> = std::sync::OnceLock::new();
    let mut event = MADE.get_or_init(made_by_the_machine).clone();
    event.event = what;
    event.detected = at(number);
    if let Some(subject) = &mut event.subject {
        subject.id = number.to_string().into();
    }
    event
}

fn made_by_the_machine() -> PodLifecycleEvent {
    let now = at(1);
    let mut machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let node = Node::default();
    node.start("p", "a");
    loop {
        match machine.poll_output() {
            Some(Output::List { ticket, .. }) => {
                let rows = Ok(node.exists().into_iter().collect());
                let (began, ended) = (now, now);
                machine.handle_list(
                    now,
                    List {
                        ticket,
                        began,
                        ended,
                        rows,
                    },
                );
            }
            Some(Output::Inspect { ticket, .. }) => {
                machine.handle_inspection(now, inspection(ticket, now, now, node.exists()));
            }
            Some(Output::Announce(event)) => return event,
            Some(_) => {}
            None => panic!("it announces what it finds"),
        }
    }
}
