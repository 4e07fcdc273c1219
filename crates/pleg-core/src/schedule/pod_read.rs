//! One inspection: which calls it makes, and the result of their answers (invariant 3).
//!
//! It makes two lists, of the sandboxes and of the containers with the pod's uid, and one status
//! call for each id whose status is owed, that the lists show as new or changed, or that they do
//! not show. If nothing changed in the pod, it makes only the two lists.

use std::collections::{BTreeMap, VecDeque};

use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::reads::{FailedStatus, HeldId, Inspection, Ticket};
use crate::types::report::{Report, ReportedState};
use crate::types::time::Instant;

/// A call of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// `ListPodSandbox`, of the pod's uid.
    Sandboxes,
    /// `ListContainers`, of the pod's uid.
    Containers,
    /// The status of one id.
    Status(Id, Kind),
}

/// An inspection in progress.
///
/// The caller performs each [`next_call`](Self::next_call), also concurrently, and passes back each
/// answer.
#[derive(Clone, Debug)]
pub struct PodRead {
    waiting: VecDeque<PodCall>,
    in_flight: Vec<PodCall>,
    /// The number of lists that have not been answered.
    lists: usize,
    ids: BTreeMap<Id, Entry>,
    error: Option<CallError>,
}

/// What the inspection knows of one id.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    /// The recorded state, if the request named the id.
    held: Option<ReportedState>,
    /// The row in a list of this inspection.
    row: Option<Report>,
    /// Whether its status call was made or is queued.
    asked: bool,
    status: Option<Result<Report, CallError>>,
}

impl Entry {
    const fn new(kind: Kind, held: Option<ReportedState>) -> Self {
        Self {
            kind,
            held,
            row: None,
            asked: false,
            status: None,
        }
    }
}

impl PodCall {
    /// The CRI operation.
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Sandboxes => "ListPodSandbox",
            Self::Containers => "ListContainers",
            Self::Status(_, kind) => kind.status_operation(),
        }
    }
}

impl PodRead {
    /// An inspection of a pod for which these ids are held.
    pub fn new(held: &[HeldId]) -> Self {
        let lists = [PodCall::Sandboxes, PodCall::Containers];
        let mut read = Self {
            lists: lists.len(),
            waiting: lists.into(),
            in_flight: Vec::new(),
            ids: BTreeMap::new(),
            error: None,
        };
        for held in held {
            let entry = Entry::new(held.kind, Some(held.shown));
            read.ids.insert(held.id.clone(), entry);
            if held.owed {
                read.ask(&held.id);
            }
        }
        read
    }

    /// Whether a row of a list concerns this pod, for which these ids are held, sorted. Some runtimes
    /// ignore the filter of a list, and return every row of the node.
    pub fn concerns(uid: &PodUid, held: &[HeldId], row: &Report) -> bool {
        let is_other = row.identity.pod.as_ref().is_some_and(|pod| pod != uid);
        let is_held = || held.binary_search_by(|held| held.id.cmp(&row.id)).is_ok();
        !is_other || row.identity.unlabelled || is_held()
    }

    /// The next call, if one can be made now. When no call is in flight and there is no next one,
    /// the inspection has ended.
    pub fn next_call(&mut self) -> Option<PodCall> {
        let call = self.waiting.pop_front()?;
        self.in_flight.push(call.clone());
        Some(call)
    }

    /// The unanswered call that was made first.
    pub fn oldest_call(&self) -> Option<&PodCall> {
        self.in_flight.first()
    }

    /// A call was answered: with all rows of a list, or the report of a status.
    pub fn answered(&mut self, call: &PodCall, answer: Result<Vec<Report>, CallError>) {
        self.in_flight.retain(|other| other != call);
        match (call, answer) {
            (PodCall::Status(id, _), answer) => {
                if let Some(entry) = self.ids.get_mut(id) {
                    let report = answer.map(|reports| reports.into_iter().next());
                    entry.status = report.transpose();
                }
            }
            (PodCall::Sandboxes | PodCall::Containers, Ok(rows)) => {
                self.lists -= 1;
                for row in rows {
                    self.listed(row);
                }
                if self.lists == 0 {
                    self.ask_for_missing();
                }
            }
            (PodCall::Sandboxes | PodCall::Containers, Err(error)) => {
                self.error.get_or_insert(error);
            }
        }
    }

    /// The deadline has passed: each unanswered call has failed.
    pub fn give_up(&mut self, error: impl Fn(&PodCall) -> CallError) {
        while !(self.in_flight.is_empty() && self.waiting.is_empty()) {
            let in_flight = std::mem::take(&mut self.in_flight);
            let waiting = std::mem::take(&mut self.waiting);
            for call in in_flight.into_iter().chain(waiting) {
                self.answered(&call, Err(error(&call)));
            }
        }
    }

    /// Queues the status call of that id, once.
    fn ask(&mut self, id: &Id) {
        if let Some(entry) = self.ids.get_mut(id)
            && !std::mem::replace(&mut entry.asked, true)
        {
            self.waiting
                .push_back(PodCall::Status(id.clone(), entry.kind));
        }
    }

    fn listed(&mut self, row: Report) {
        let (id, shown) = (row.id.clone(), row.shown);
        let new = || Entry::new(row.identity.kind, None);
        let entry = self.ids.entry(id.clone()).or_insert_with(new);
        let changed = entry.held != Some(shown);
        match &mut entry.row {
            Some(known) => {
                known.identity.fill_from(&row.identity);
            }
            unseen => *unseen = Some(row),
        }
        if changed {
            self.ask(&id);
        }
    }

    /// Both lists were answered: queues the status calls of held ids that were not listed.
    fn ask_for_missing(&mut self) {
        let missing = self.ids.iter().filter(|(_, entry)| entry.row.is_none());
        let missing: Vec<Id> = missing.map(|(id, _)| id.clone()).collect();
        for id in missing {
            self.ask(&id);
        }
    }

    /// The result, when no call is in flight.
    pub fn finish(self, ticket: Ticket, began: Instant, ended: Instant) -> Inspection {
        let complete = self.error.is_none();
        let mut read = Inspection {
            ticket,
            began,
            ended,
            ..Inspection::new(self.error)
        };
        for (id, entry) in self.ids {
            match (entry.status, entry.row) {
                (Some(Ok(mut report)), row) => {
                    if let Some(row) = &row {
                        // A container status does not name its sandbox (CRI v1 has no such field); only the row does.
                        report.identity.fill_from(&row.identity);
                    }
                    read.found.push(report);
                }
                (Some(Err(error)), Some(row)) if error.kind == CallErrorKind::NotFound => {
                    read.unsettled.push(row);
                }
                (Some(Err(error)), None) if error.kind == CallErrorKind::NotFound => {
                    read.gone.push(id);
                }
                (Some(Err(error)), row) => read.failed.push(FailedStatus { id, row, error }),
                (None, Some(row)) => read.unchanged.push((id, row.shown)),
                // A list failed before it was known whether the status is needed.
                (None, None) => {}
            }
        }
        if !complete {
            // Incomplete lists prove no absence.
            read.gone.clear();
            read.unsettled.clear();
            read.unchanged.clear();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::report::{Details, Identity};
    use crate::types::time::WallTime;

    const RUNNING: ReportedState = ReportedState::Running;

    fn held(id: &str, owed: bool) -> HeldId {
        HeldId {
            id: id.into(),
            kind: Kind::Container,
            shown: RUNNING,
            owed,
        }
    }

    /// A list row of a container, with complete identity.
    fn row(id: &str) -> Report {
        let identity = Identity {
            kind: Kind::Container,
            pod: Some("p".into()),
            unlabelled: false,
            namespace: Some("ns".into()),
            pod_name: Some("web".into()),
            sandbox: Some("s".into()),
            name: Some("app".into()),
            attempt: 0,
            created_at: Some(WallTime::from_nanos(1)),
        };
        Report::new(id, RUNNING, identity, Details::none(Kind::Container))
    }

    fn error(kind: CallErrorKind) -> CallError {
        CallError::new("ContainerStatus", kind, "")
    }

    #[test]
    fn result_follows_from_list_and_status_of_each_id() {
        let held = [
            held("failed", true),
            held("failed unlisted", true),
            held("gone", false),
            held("unchanged", false),
            held("unsettled", true),
        ];
        let listed = ["failed", "found", "unchanged", "unsettled"].map(row);
        let mut read = PodRead::new(&held);
        while let Some(call) = read.next_call() {
            let answer = match &call {
                PodCall::Sandboxes => Ok(Vec::new()),
                PodCall::Containers => Ok(listed.to_vec()),
                PodCall::Status(id, kind) if id.as_str() == "found" => {
                    // A status may name nothing but the id.
                    let mut identity = Identity::new(*kind);
                    identity.unlabelled = true;
                    let found = Report::new(id.clone(), RUNNING, identity, Details::none(*kind));
                    Ok(vec![found])
                }
                PodCall::Status(id, _) if id.as_str().starts_with("failed") => {
                    Err(error(CallErrorKind::Failed))
                }
                PodCall::Status(..) => Err(error(CallErrorKind::NotFound)),
            };
            read.answered(&call, answer);
        }
        let failed = |id: &str, row| FailedStatus {
            id: id.into(),
            row,
            error: error(CallErrorKind::Failed),
        };
        let (began, ended) = (Instant::from_nanos(1), Instant::from_nanos(2));
        let expected = Inspection {
            ticket: Ticket(7),
            began,
            ended,
            found: vec![row("found")],
            gone: vec!["gone".into()],
            unsettled: vec![row("unsettled")],
            unchanged: vec![("unchanged".into(), RUNNING)],
            failed: vec![
                failed("failed", Some(row("failed"))),
                failed("failed unlisted", None),
            ],
            error: None,
        };
        assert_eq!(read.finish(Ticket(7), began, ended), expected);
    }

    #[test]
    fn attempt_that_a_status_lacks_is_that_of_its_row() {
        let mut read = PodRead::new(&[]);
        while let Some(call) = read.next_call() {
            let answer = match &call {
                PodCall::Containers => {
                    let mut row = row("c");
                    row.identity.attempt = 3;
                    vec![row]
                }
                PodCall::Sandboxes => Vec::new(),
                PodCall::Status(id, kind) => {
                    let identity = Identity::new(*kind);
                    vec![Report::new(
                        id.clone(),
                        RUNNING,
                        identity,
                        Details::none(*kind),
                    )]
                }
            };
            read.answered(&call, Ok(answer));
        }
        let read = read.finish(Ticket(1), Instant::ORIGIN, Instant::ORIGIN);
        assert_eq!(read.found[0].identity.attempt, 3);
    }

    #[test]
    fn oldest_call_is_the_first_without_an_answer() {
        let mut read = PodRead::new(&[]);
        while read.next_call().is_some() {}
        assert_eq!(read.oldest_call(), Some(&PodCall::Sandboxes));
        read.answered(&PodCall::Sandboxes, Ok(Vec::new()));
        assert_eq!(read.oldest_call(), Some(&PodCall::Containers));
    }

    #[test]
    fn unanswered_calls_have_failed_after_the_deadline() {
        let mut read = PodRead::new(&[held("c", true)]);
        while read.next_call().is_some() {}
        read.give_up(|call| CallError::new(call.operation(), CallErrorKind::DeadlineExceeded, ""));
        assert_eq!(read.oldest_call(), None);
        let read = read.finish(Ticket(1), Instant::ORIGIN, Instant::ORIGIN);
        assert_eq!(read.error.map(|e| e.operation), Some("ListPodSandbox"));
        let failed: Vec<_> = read.failed.iter().map(|f| f.id.as_str()).collect();
        assert_eq!(failed, ["c"]);
    }
}
