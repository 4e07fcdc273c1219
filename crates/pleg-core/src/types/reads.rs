//! The observations of the read side: lists, inspections, single statuses. Plain data, in domain types.

use std::sync::Arc;

use crate::types::error::CallError;
use crate::types::ids::{Id, Kind};
use crate::types::report::Report;
use crate::types::report::ReportedState;
use crate::types::time::Instant;

/// A complete or failed list of the whole node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// All sandboxes and all containers, or the error: a list that is not complete says nothing
    /// (invariant 5).
    pub rows: Result<Rows, CallError>,
}

/// The ids that the reconciler knows with complete identity, in the order of ids.
///
/// An identity never changes, so a list row of such an id can only report a state. A list request
/// names these ids, and the reader decodes only the rows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownIds(Arc<[(Id, Kind)]>);

impl KnownIds {
    /// The known ids, which must be sorted.
    pub(crate) fn new(in_order: Arc<[(Id, Kind)]>) -> Self {
        debug_assert!(in_order.is_sorted());
        Self(in_order)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of an id of that kind.
    fn place(&self, id: &str, kind: Kind) -> Option<usize> {
        let place = self
            .0
            .binary_search_by(|(known, _)| known.cmp_str(id))
            .ok()?;
        (self.0[place].1 == kind).then_some(place)
    }
}

/// The rows of a complete list.
///
/// Built row by row: [`state_of`](Self::state_of) for each row, and [`push`](Self::push) for each
/// row that it does not accept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    known: KnownIds,
    /// The listed state of each known id; `None` if it is not listed.
    states: Box<[Option<ReportedState>]>,
    new: Vec<Report>,
}

impl Rows {
    /// The rows of an answer to a request that named the ids `known`, still empty.
    pub fn new(known: KnownIds) -> Self {
        Self {
            states: vec![None; known.len()].into(),
            known,
            new: Vec::new(),
        }
    }

    /// The rows of an answer to a request that named the ids `known`, from fully decoded rows.
    pub fn of(known: KnownIds, rows: impl IntoIterator<Item = Report>) -> Self {
        let mut all = Self::new(known);
        for row in rows {
            if !all.state_of(row.id.as_str(), row.identity.kind, row.shown) {
                all.push(row);
            }
        }
        all
    }

    /// Adds a row of which only id, kind and state are decoded, if the request named that id.
    /// Returns false if it did not, or if the id was listed before: then the row must be fully
    /// decoded and pushed.
    #[must_use]
    pub fn state_of(&mut self, id: &str, kind: Kind, shown: ReportedState) -> bool {
        let Some(place) = self.known.place(id, kind) else {
            return false;
        };
        let state = &mut self.states[place];
        let first = state.is_none();
        if first {
            *state = Some(shown);
        }
        first
    }

    /// Adds a fully decoded row. Of a known id that was listed before, only the later state counts: a runtime should not
    /// list an id twice, and one that does would contradict itself in every list.
    pub fn push(&mut self, row: Report) {
        let place = self.known.place(row.id.as_str(), row.identity.kind);
        match place.and_then(|place| self.states[place].as_mut()) {
            Some(listed) => *listed = listed.later(row.shown),
            None => self.new.push(row),
        }
    }

    /// The ids that the request named.
    pub(crate) fn known_ids(&self) -> KnownIds {
        self.known.clone()
    }

    /// Whether both have the same rows, for the same set of known ids.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.known.0, &other.known.0)
            && self.states == other.states
            && self.new == other.new
    }

    /// Each id that the request named, with its listed state.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&Id, Kind, Option<ReportedState>)> {
        let ids = self.known.0.iter().zip(&self.states);
        ids.map(|((id, kind), state)| (id, *kind, *state))
    }

    /// The fully decoded rows, in the order of the list.
    pub fn new_rows(&self) -> &[Report] {
        &self.new
    }

    /// Whether a known id of that kind is listed.
    pub(crate) fn lists_known(&self, id: &Id, kind: Kind) -> bool {
        let place = self.known.place(id.as_str(), kind);
        place.is_some_and(|place| self.states[place].is_some())
    }

    /// Whether every known id is listed, and no other id.
    pub(crate) fn lists_exactly_known(&self) -> bool {
        self.new.is_empty() && self.states.iter().all(Option::is_some)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.new.len() + self.states.iter().flatten().count()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<Report> for Rows {
    /// The rows of an answer to a request that named no id.
    fn from_iter<T: IntoIterator<Item = Report>>(reports: T) -> Self {
        Self {
            new: reports.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// An id that is held for a pod, in the request for its inspection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldId {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The recorded state. If the lists show it, the id has not changed.
    pub shown: ReportedState,
    /// Whether its status must be read even if the id has not changed.
    pub owed: bool,
}

/// A status call that failed or timed out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailedStatus {
    /// The id.
    pub id: Id,
    /// Its row, if a list of the inspection showed it.
    pub row: Option<Report>,
    /// The error.
    pub error: CallError,
}

/// The result of reading one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// Every status that was read.
    pub found: Vec<Report>,
    /// Every id that the request named, that no list of this inspection showed, and whose status
    /// call returned NotFound.
    pub gone: Vec<Id>,
    /// The row of every id that a list of this inspection showed and whose status call returned
    /// NotFound.
    pub unsettled: Vec<Report>,
    /// Every id whose status was not read, because the lists showed it in the state that the
    /// request gave.
    pub unchanged: Vec<(Id, ReportedState)>,
    /// Every status call that failed with another error.
    pub failed: Vec<FailedStatus>,
    /// Why a list of the inspection failed. Then only the statuses in `found` count.
    pub error: Option<CallError>,
}

impl Inspection {
    /// An empty inspection, failed if there is an error.
    pub const fn new(error: Option<CallError>) -> Self {
        Self {
            ticket: Ticket(0),
            began: Instant::ORIGIN,
            ended: Instant::ORIGIN,
            found: Vec::new(),
            gone: Vec::new(),
            unsettled: Vec::new(),
            unchanged: Vec::new(),
            failed: Vec::new(),
            error,
        }
    }

    /// Whether the inspection says something of the id.
    pub fn names(&self, id: &Id) -> bool {
        self.found.iter().any(|report| report.id == *id)
            || self.gone.contains(id)
            || self.unsettled.iter().any(|row| row.id == *id)
            || self.unchanged.iter().any(|(other, _)| other == id)
            || self.failed.iter().any(|failed| failed.id == *id)
    }
}

/// The read of a single status. It proves no freshness and no absence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusRead {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the call.
    pub began: Instant,
    /// Stamped after it.
    pub ended: Instant,
    /// The status.
    pub report: Result<Report, CallError>,
}

/// The result of a `Version` call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped after the call.
    pub ended: Instant,
    /// Success, or the error.
    pub outcome: Result<(), CallError>,
}

/// The number of a request to the read side. Later requests have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Ticket {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::report::{Details, Identity};

    const RUNNING: ReportedState = ReportedState::Running;

    fn row(id: &str, kind: Kind) -> Report {
        Report::new(id, RUNNING, Identity::new(kind), Details::none(kind))
    }

    /// The container "c" and the sandbox "s".
    fn known() -> KnownIds {
        let ids = [("c".into(), Kind::Container), ("s".into(), Kind::Sandbox)];
        KnownIds::new(ids.into())
    }

    #[test]
    fn row_of_a_known_id_is_a_state_and_each_other_row_is_new() {
        let known = known();
        let new = [row("d", Kind::Container), row("s", Kind::Container)];
        let rows = [row("c", Kind::Container)].into_iter().chain(new.clone());
        let rows = Rows::of(known.clone(), rows);
        let (c, s) = (Id::from("c"), Id::from("s"));
        let states = [
            (&c, Kind::Container, Some(RUNNING)),
            (&s, Kind::Sandbox, None),
        ];
        assert!(rows.known().eq(states));
        assert_eq!(rows.new_rows(), new);
        assert_eq!((rows.len(), rows.is_empty()), (3, false));
        assert_eq!(rows.known_ids(), known);
    }

    #[test]
    fn known_id_that_is_listed_twice_is_in_the_later_state() {
        use ReportedState::{Exited, Unknown};
        let cases = [
            ([RUNNING, Exited], Exited),
            ([Exited, RUNNING], Exited),
            ([Unknown, RUNNING], RUNNING),
            ([RUNNING, Unknown], RUNNING),
        ];
        for (listed, later) in cases {
            let rows = listed.map(|shown| Report {
                shown,
                ..row("c", Kind::Container)
            });
            let rows = Rows::of(known(), rows);
            let states: Vec<_> = rows.known().filter_map(|(_, _, state)| state).collect();
            assert_eq!(
                (states, rows.new_rows().len()),
                (vec![later], 0),
                "{listed:?}"
            );
        }
    }

    #[test]
    fn rows_are_the_same_only_for_the_same_set_of_known_ids() {
        let rows = Rows::new(known());
        assert!(rows.is_empty() && rows.is_same(&rows.clone()));
        assert!(!rows.is_same(&Rows::new(known())));
        let mut more = rows.clone();
        more.push(row("d", Kind::Container));
        assert!(!rows.is_same(&more));
        assert_eq!(
            (known().is_empty(), KnownIds::default().is_empty()),
            (false, true)
        );
    }

    #[test]
    fn exactly_the_known_ids_are_listed_if_none_is_missing_or_new() {
        let (c, s) = (row("c", Kind::Container), row("s", Kind::Sandbox));
        let d = row("d", Kind::Container);
        for (rows, exactly) in [
            (vec![c.clone(), s.clone()], true),
            (vec![c.clone()], false),
            (vec![c, s, d], false),
        ] {
            let rows = Rows::of(known(), rows);
            assert_eq!(rows.lists_exactly_known(), exactly, "{rows:?}");
        }
    }
}
