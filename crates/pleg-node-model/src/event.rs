//! The events that changes cause, and the statuses that events carry.

use std::fmt;

use crate::node::Node;
use crate::object::{Id, Kind, Object, State};
use crate::profile::{GO_ZERO_TIME, SandboxDeleted, StatusScope};
use crate::views::{Source, Status};

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// CONTAINER_CREATED_EVENT
    Created,
    /// CONTAINER_STARTED_EVENT
    Started,
    /// CONTAINER_STOPPED_EVENT
    Stopped,
    /// CONTAINER_DELETED_EVENT
    Deleted,
}

/// An event that the runtime is about to send: the change has happened, but the event has no statuses yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due {
    /// The type of the event.
    pub what: EventType,
    /// The sandbox or container that the event is about.
    pub subject: Id,
    /// The earliest instant at which the runtime reads the statuses for the event.
    pub at: u64,
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = format!("{:?}", self.what).to_uppercase();
        write!(f, "{what}({})", self.subject)
    }
}

/// One message of the event stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The type of the event.
    pub what: EventType,
    /// The sandbox or container that the event is about.
    pub subject: Id,
    /// The status of the sandbox, if the runtime still has it.
    pub sandbox: Option<Status>,
    /// The statuses of containers. `None` is a status without any field, which some versions of CRI-O send.
    pub containers: Vec<Option<Status>>,
}

impl Node {
    /// The event `due`, with the statuses as they are at the instant `at`. `None` if the runtime sends no event.
    pub fn event(&self, due: &Due, at: u64) -> Option<Event> {
        let profile = self.profile();
        let subject = self.object(&due.subject)?;
        let sandbox = self.object(subject.sandbox_id())?;
        let is_gone = |o: &Object| o.state_at(at) == Some(State::Removed);
        let needs_subject = due.what == EventType::Stopped && subject.kind == Kind::Container;
        if profile.requires_existing && (is_gone(sandbox) || (needs_subject && is_gone(subject))) {
            return None;
        }
        let mut status = sandbox.status(at, Source::Event);
        if let Some(status) = &mut status
            && due.what == EventType::Deleted
            && subject.kind == Kind::Sandbox
            && profile.sandbox_deleted == SandboxDeleted::BeforeRemoval
        {
            status.row.created_at = GO_ZERO_TIME;
        }
        let mut containers: Vec<_> = self.statuses_in_event(sandbox, at).map(Some).collect();
        if profile.empty_status_after_removal
            && due.what == EventType::Deleted
            && subject.kind == Kind::Container
        {
            containers.push(None);
        }
        Some(Event {
            what: due.what,
            subject: due.subject.clone(),
            sandbox: status,
            containers,
        })
    }

    /// The container statuses that an event carries, newest container first.
    fn statuses_in_event(&self, sandbox: &Object, at: u64) -> impl Iterator<Item = Status> {
        let is_shown = |o: &&Object| match self.profile().scope {
            StatusScope::Sandbox => o.sandbox.as_ref() == Some(&sandbox.id),
            StatusScope::Pod => o.label_uid() == Some(&sandbox.pod.uid),
        };
        let containers = self.objects().filter(|o| o.kind == Kind::Container);
        let shown = containers.filter(is_shown);
        let mut shown: Vec<_> = shown
            .filter_map(|o| Some((o.history.first()?.at, o.status(at, Source::Event)?)))
            .collect();
        shown.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
        shown.into_iter().map(|(_, status)| status)
    }
}
