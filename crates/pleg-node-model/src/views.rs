//! The contents of lists and status calls at an instant.

use std::sync::Arc;

use crate::node::Node;
use crate::object::{Id, Kind, Label, Object, Pod, Skew, State};

/// The state of a sandbox or container as the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shown {
    /// CONTAINER_CREATED
    Created,
    /// CONTAINER_RUNNING or SANDBOX_READY
    Running,
    /// CONTAINER_EXITED or SANDBOX_NOTREADY
    Exited,
    /// CONTAINER_UNKNOWN
    Unknown,
}

/// The kind of message in which the runtime shows a sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In a list.
    List,
    /// In the answer of a status call.
    Status,
    /// In an event.
    Event,
}

/// A row of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The state.
    pub shown: Shown,
    /// The pod.
    pub pod: Pod,
    /// The label with the pod's uid.
    pub label: Label,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    /// A container's name.
    pub name: Arc<str>,
    /// The attempt.
    pub attempt: u32,
    /// The wall-clock time of the creation.
    pub created_at: i64,
}

/// The answer of a status call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The fields that the row and the status of an object have in common.
    pub row: Row,
    /// The wall-clock time of the start; 0 before the start.
    pub started_at: i64,
    /// The wall-clock time of the exit; 0 before the exit.
    pub finished_at: i64,
    /// The exit code; `None` before the exit, and while the runtime does not know the exit code.
    pub exit_code: Option<i32>,
    /// The reason of the exit.
    pub reason: &'static str,
}

impl Object {
    /// The state that lists, statuses or events show at an instant; `None` if they do not show the object.
    pub fn shown(&self, at: u64, source: Source) -> Option<Shown> {
        let is_over = |until: u64| at >= until;
        if !is_over(self.overrides.hidden_until) && source != Source::Event {
            return None;
        }
        let visible = self.history.iter().rev().find(|c| {
            let from = match source {
                Source::List => c.in_lists,
                Source::Status => c.in_statuses,
                Source::Event => c.at,
            };
            c.at <= at && from <= at
        });
        let mut state = visible?.state;
        if state == State::Removed {
            return None;
        }
        let skew = self.overrides.skew.filter(|&(_, until)| !is_over(until));
        match (skew, source) {
            (Some((Skew::RowShows(shown), _)), Source::List) => state = shown,
            (Some((Skew::StatusMissing, _)), Source::Status | Source::Event) => return None,
            _ => {}
        }
        Some(match state {
            _ if !is_over(self.overrides.unknown_until) => Shown::Unknown,
            State::Created => Shown::Created,
            State::Running => Shown::Running,
            State::Exited | State::Removed => Shown::Exited,
        })
    }

    fn as_row(&self, shown: Shown) -> Row {
        Row {
            id: self.id.clone(),
            kind: self.kind,
            shown,
            pod: self.pod.clone(),
            label: self.label.clone(),
            sandbox: self.sandbox.clone(),
            name: self.name.clone(),
            attempt: self.attempt,
            created_at: self.created_at(),
        }
    }

    /// The object's status at an instant; `None` stands for NotFound.
    pub fn status(&self, at: u64, source: Source) -> Option<Status> {
        let shown = self.shown(at, source)?;
        let has_ended = self.kind == Kind::Container && shown == Shown::Exited;
        let code = match at < self.exit.code_known_at {
            true => self.exit.early_code,
            false => Some(self.exit.code),
        };
        let reason = match at < self.exit.reason_known_at {
            true => "Error",
            false => self.exit.reason,
        };
        Some(Status {
            row: self.as_row(shown),
            started_at: self.wall_of(State::Running, at),
            finished_at: match has_ended {
                true => self.wall_of(State::Exited, at),
                false => 0,
            },
            exit_code: code.filter(|_| has_ended),
            reason: if has_ended { reason } else { "" },
        })
    }
}

impl Node {
    /// The rows of a list: all sandboxes or containers, or only those whose label has the uid `label`.
    pub fn rows(&self, kind: Kind, label: Option<&str>, at: u64) -> Vec<Row> {
        let of_pod = |o: &&Object| match label {
            None => true,
            Some(uid) => o.label_uid().is_some_and(|own| &**own == uid),
        };
        let of_kind = self.objects().filter(|o| o.kind == kind);
        let row = |o: &Object| Some(o.as_row(o.shown(at, Source::List)?));
        of_kind.filter(of_pod).filter_map(row).collect()
    }

    /// The status of the sandbox or container `id`; `None` stands for NotFound.
    pub fn status(&self, id: &str, kind: Kind, at: u64) -> Option<Status> {
        let object = self.object(id).filter(|o| o.kind == kind)?;
        object.status(at, Source::Status)
    }
}
