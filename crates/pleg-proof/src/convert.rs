//! Converts rows, statuses and events from the node model's types to the core's types.

use pleg_core::{
    ContainerDetails, Details, EventType, Id, Identity, Report, ReportedState, RuntimeEvent,
    SandboxDetails, WallTime,
};
use pleg_node_model::{self as model, Event, Kind, Label, Row, Shown, Status};

pub(crate) fn kind(kind: Kind) -> pleg_core::Kind {
    match kind {
        Kind::Sandbox => pleg_core::Kind::Sandbox,
        Kind::Container => pleg_core::Kind::Container,
    }
}

pub(crate) fn model_kind(kind: pleg_core::Kind) -> Kind {
    match kind {
        pleg_core::Kind::Sandbox => Kind::Sandbox,
        pleg_core::Kind::Container => Kind::Container,
    }
}

fn state(shown: Shown) -> ReportedState {
    match shown {
        Shown::Created => ReportedState::Created,
        Shown::Running => ReportedState::Running,
        Shown::Exited => ReportedState::Exited,
        Shown::Unknown => ReportedState::Unknown,
    }
}

fn identity(row: &Row) -> Identity {
    let mut identity = Identity::new(kind(row.kind));
    let own = Some((&*row.pod.uid).into());
    (identity.pod, identity.unlabelled) = match (row.kind, &row.label) {
        (_, Label::Right) => (own, false),
        (Kind::Sandbox, _) => (own, true),
        (Kind::Container, Label::Missing) => (None, true),
        (Kind::Container, Label::Wrong(uid)) => (Some((&**uid).into()), false),
    };
    identity.namespace = Some((&*row.pod.namespace).into());
    identity.pod_name = Some((&*row.pod.name).into());
    identity.attempt = row.attempt;
    identity.created_at = WallTime::claimed(row.created_at);
    if row.kind == Kind::Container {
        identity.name = Some((&*row.name).into());
        identity.sandbox = row.sandbox.as_deref().map(Id::from);
    }
    identity
}

pub(crate) fn row(row: &Row) -> Report {
    let details = Details::none(kind(row.kind));
    Report::new(&*row.id, state(row.shown), identity(row), details)
}

pub(crate) fn status(status: &Status) -> Report {
    let row = &status.row;
    let details = match row.kind {
        Kind::Sandbox => Details::from(SandboxDetails::default()),
        Kind::Container => {
            let mut details = ContainerDetails::default();
            details.started_at = WallTime::claimed(status.started_at);
            details.finished_at = WallTime::claimed(status.finished_at);
            details.exit_code = status.exit_code;
            details.reason = status.reason.into();
            Details::from(details)
        }
    };
    Report::new(&*row.id, state(row.shown), identity(row), details)
}

pub(crate) fn event_type(what: model::EventType) -> EventType {
    match what {
        model::EventType::Created => EventType::Created,
        model::EventType::Started => EventType::Started,
        model::EventType::Stopped => EventType::Stopped,
        model::EventType::Deleted => EventType::Deleted,
    }
}

/// Converts an event, and sets its time stamp to `created_at`. Leaves out empty container statuses, as the driver does.
pub(crate) fn event(event: &Event, created_at: i64) -> RuntimeEvent {
    let mut out = RuntimeEvent::new(&*event.subject, event_type(event.what));
    out.created_at = created_at;
    out.sandbox = event.sandbox.as_ref().map(status);
    out.containers = event.containers.iter().flatten().map(status).collect();
    out
}
