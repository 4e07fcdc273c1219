//! The published record of one sandbox or container, and its changes by reads and events.

use crate::constants::END_IS_FINAL_FOR;
use crate::pods::details;
use crate::pods::status_calls::StatusCalls;
use crate::types::{
    CallError, ContainerState, ContainerStatus, Details, Id, Identity, Instant, Kind, KnownState,
    Report, ReportedState, SandboxState, SandboxStatus, Text, WallTime,
};

/// One published id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) identity: Identity,
    /// The id has the pod-uid label, so a list of its pod shows the id.
    pub(crate) in_pod_lists: bool,
    /// The last known state. `None`: the runtime has only ever reported UNKNOWN.
    pub(crate) state: Option<KnownState>,
    /// The runtime reports UNKNOWN now.
    pub(crate) unknown: bool,
    /// The id was UNKNOWN once, or a read undid its end or removal. The runtime may send no events about such an id.
    pub(crate) is_irregular: bool,
    /// The instant at which the end of the id was recorded.
    pub(crate) ended_at: Option<Instant>,
    pub(crate) details: Details,
    pub(crate) status: StatusCalls,
}

/// The result of comparing an observation with the recorded state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The observation shows the recorded state.
    Same,
    /// The observation shows another state, and no end is recorded: the state replaces the recorded one.
    Changed,
    /// A read begun more than ten seconds after the recorded end shows that the id has not ended: the end is undone.
    Undone,
    /// A read begun within ten seconds after the recorded end shows that the id has not ended. The read may be stale.
    TooEarly,
    /// A read that began before the end was recorded shows that the id had not ended. This does not contradict the end.
    Older,
}

impl Record {
    /// The record of an id that a row shows for the first time.
    pub(crate) fn new(row: &Report, in_pod_lists: bool) -> Self {
        Self {
            identity: row.identity.clone(),
            in_pod_lists,
            state: None,
            unknown: true,
            is_irregular: false,
            ended_at: None,
            details: row.details.clone(),
            status: StatusCalls::default(),
        }
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.identity.kind
    }

    /// The state, as a list row would report it.
    pub(crate) const fn reported(&self) -> ReportedState {
        match self.state {
            _ if self.unknown => ReportedState::Unknown,
            Some(KnownState::Exited) => ReportedState::Exited,
            Some(KnownState::Running) => ReportedState::Running,
            Some(KnownState::Created) => ReportedState::Created,
            None => ReportedState::Unknown,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == Some(KnownState::Exited)
    }

    /// Compares the record with a read that began at `as_of` and shows the state `shown`.
    pub(crate) fn compare(&self, shown: ReportedState, as_of: Instant) -> Seen {
        if let Some(ended) = self.ended_at {
            return match shown {
                // UNKNOWN does not undo an end.
                ReportedState::Exited | ReportedState::Unknown => Seen::Same,
                _ if as_of <= ended => Seen::Older,
                _ if as_of <= ended.after(END_IS_FINAL_FOR) => Seen::TooEarly,
                _ => Seen::Undone,
            };
        }
        match shown == self.reported() {
            true => Seen::Same,
            false => Seen::Changed,
        }
    }

    /// Records the state that a read begun at `as_of` shows.
    pub(crate) fn see(&mut self, shown: ReportedState, as_of: Instant, now: Instant) -> Seen {
        let seen = self.compare(shown, as_of);
        self.is_irregular |= shown == ReportedState::Unknown || seen == Seen::Undone;
        if seen == Seen::Undone {
            self.ended_at = None;
            details::forget_end(&mut self.details);
        }
        if matches!(seen, Seen::Changed | Seen::Undone) {
            self.unknown = shown == ReportedState::Unknown;
            self.state = shown.known().or(self.state);
            if self.has_ended() {
                self.ended_at.get_or_insert(now);
            }
            self.status.state_changed();
        }
        seen
    }

    /// Records the end that a status in an event shows.
    pub(crate) fn end(&mut self, status: &Report, now: Instant) {
        if self.has_ended() {
            // The end is already recorded, so the event's status only fills in missing fields.
            self.details = details::merged(&status.details, &self.details, true);
            return;
        }
        (self.state, self.ended_at) = (Some(KnownState::Exited), Some(now));
        self.unknown = false;
        self.status.ended(now);
        self.details = details::merged(&self.details, &status.details, true);
    }

    /// Merges the details of a status requested at `as_of`. Ignores a status that contradicts the recorded end. If a
    /// status that was requested later is already merged, this status only fills in missing fields.
    pub(crate) fn learn(&mut self, status: &Report, as_of: Instant, now: Instant) {
        self.status.succeeded(self.unknown, now);
        let ended = self.has_ended();
        // A status with the state UNKNOWN does not contradict the recorded end: it fills in missing fields.
        if ended && status.shown < ReportedState::Exited {
            return;
        }
        let is_unknown = ended && status.shown != ReportedState::Exited;
        self.details = match is_unknown || self.status.as_of() > Some(as_of) {
            true => details::merged(&status.details, &self.details, ended),
            false => details::merged(&self.details, &status.details, ended),
        };
        self.status.gave_details(as_of, ended && !is_unknown);
    }

    /// The id's status call failed.
    pub(crate) fn status_failed(&mut self, error: &CallError, outage: bool, now: Instant) {
        self.status.failed(error, self.has_ended(), outage, now);
    }

    /// Returns true if the id's status must be read when the id's row shows the state `row`. A failed call is not
    /// repeated before its retry is due, unless the state has changed or a caller wants details (`all`).
    pub(crate) fn is_due(
        &self,
        row: ReportedState,
        as_of: Instant,
        all: bool,
        now: Instant,
    ) -> bool {
        let changes = matches!(self.compare(row, as_of), Seen::Changed | Seen::Undone);
        let retries = self.status.retry_at().is_some_and(|at| at <= now);
        let is_wanted = self.unknown || self.code_is_due() || retries;
        all || changes || (is_wanted && !self.status.is_in_backoff(now))
    }

    /// Returns true if the exit code is unknown and no status call since the end showed Exited or failed on its own.
    pub(crate) fn code_is_due(&self) -> bool {
        self.kind() == Kind::Container
            && self.has_ended()
            && self.exit_code().is_none()
            && !self.status.read_since_end()
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        let details = self.details.container()?;
        details.exit_code.filter(|_| self.has_ended())
    }

    pub(crate) fn reason(&self) -> Text {
        let details = self.details.container();
        details.map_or_else(Text::default, |details| details.reason.clone())
    }

    /// Returns true if events should report this id's changes: a container that is not [irregular](Self::is_irregular).
    pub(crate) const fn is_regular(&self) -> bool {
        matches!(self.kind(), Kind::Container) && !self.is_irregular
    }

    pub(crate) fn started_at(&self) -> Option<WallTime> {
        let details = self.details.container();
        details.map_or(self.identity.created_at, |details| details.started_at)
    }

    pub(crate) fn finished_at(&self) -> Option<WallTime> {
        let details = self.details.container()?;
        details.finished_at.filter(|_| self.has_ended())
    }

    pub(crate) fn sandbox_status(&self, id: &Id) -> Option<SandboxStatus> {
        let Details::Sandbox(details) = &self.details else {
            return None;
        };
        let ready = self.state.map(|state| state == KnownState::Running);
        Some(SandboxStatus {
            id: id.clone(),
            state: match ready {
                last_ready if self.unknown => SandboxState::Unknown { last_ready },
                Some(true) => SandboxState::Ready,
                _ => SandboxState::NotReady,
            },
            status_missing: self.status.is_missing(),
            error: self.status.error().cloned(),
            attempt: self.identity.attempt,
            created_at: self.identity.created_at,
            details: details.clone(),
        })
    }

    /// The status of the container; `None` for a sandbox. `active`: the container belongs to the pod's active sandbox.
    pub(crate) fn container_status(&self, id: &Id, active: bool) -> Option<ContainerStatus> {
        let details = self.details.container()?;
        Some(ContainerStatus {
            id: id.clone(),
            name: self.identity.name.clone().unwrap_or_default(),
            state: match self.state {
                last if self.unknown => ContainerState::Unknown { last },
                Some(KnownState::Running) => ContainerState::Running,
                Some(KnownState::Exited) => ContainerState::Exited,
                _ => ContainerState::Created,
            },
            status_missing: self.status.is_missing(),
            error: self.status.error().cloned(),
            active,
            sandbox: self.identity.sandbox.clone(),
            attempt: self.identity.attempt,
            created_at: self.identity.created_at,
            details: details.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CallErrorKind, at_ms as at};
    use ReportedState::{Created, Exited, Running};

    fn status(shown: ReportedState, code: Option<i32>) -> Report {
        let details = crate::types::ContainerDetails {
            exit_code: code,
            ..Default::default()
        };
        Report::new("c", shown, Identity::new(Kind::Container), details)
    }

    fn record(shown: ReportedState) -> Record {
        let mut record = Record::new(&status(shown, None), true);
        record.see(shown, at(1), at(1));
        record
    }

    #[test]
    fn no_read_within_ten_seconds_of_an_exit_undoes_it() {
        let mut c = record(Running);
        c.end(&status(Exited, Some(3)), at(1_000));
        c.end(&status(Exited, Some(4)), at(1_000));
        assert_eq!(c.see(Running, at(1_000), at(1_001)), Seen::Older);
        assert_eq!(c.see(Running, at(11_000), at(11_001)), Seen::TooEarly);
        assert_eq!(c.exit_code(), Some(3));
        assert_eq!(c.see(Running, at(11_001), at(11_002)), Seen::Undone);
        assert_eq!((c.state, c.exit_code()), (Some(KnownState::Running), None));
        assert_eq!(c.see(Exited, at(11_003), at(11_004)), Seen::Changed);
    }

    #[test]
    fn created_state_in_a_later_read_replaces_running() {
        let mut c = record(Running);
        assert_eq!(c.see(Created, at(2), at(2)), Seen::Changed);
        assert_eq!(c.state, Some(KnownState::Created));
    }

    #[test]
    fn status_is_read_once_for_an_unknown_exit_code() {
        let mut c = record(Exited);
        assert!(c.code_is_due() && c.is_due(Exited, at(2), false, at(2)));
        c.learn(&status(Exited, None), at(2), at(2));
        assert!(!c.code_is_due() && !c.is_due(Exited, at(3), false, at(3)));
        let mut c = record(Exited);
        let error = CallError::new("x", CallErrorKind::Failed, "");
        c.status_failed(&error, true, at(2));
        assert!(c.code_is_due(), "the runtime as a whole failed");
        assert!(!c.is_due(Exited, at(3), false, at(3)), "before its retry");
        c.status_failed(&error, false, at(3));
        assert!(!c.code_is_due());
        assert!(c.is_due(Exited, at(60_000), false, at(60_000)));
    }
}
