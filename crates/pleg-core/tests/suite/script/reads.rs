//! Reads, answered by hand.

use pleg_core::{
    CallError, CallErrorKind, Id, Inspection, Instant, KnownIds, List, PodUid, Report, Rows,
    StatusRead, Version,
};

use super::{Asked, Script, failure};

impl Script {
    /// The number of ids that the oldest list request names.
    pub(crate) fn known_ids(&self) -> Option<usize> {
        self.lists.front().map(|(_, _, known)| known.len())
    }

    /// The calls requested since the last time, in order: `list`, `p1 (changed)`.
    pub(crate) fn take_requested(&mut self) -> Vec<String> {
        std::mem::take(&mut self.requested)
    }

    /// The same without lists.
    pub(crate) fn take_requested_of_pods(&mut self) -> Vec<String> {
        let requested = self.take_requested().into_iter();
        requested.filter(|read| read != "list").collect()
    }

    pub(crate) fn lists_wanted(&self) -> usize {
        self.lists.len()
    }

    pub(crate) fn inspection_wanted(&self) -> Option<&PodUid> {
        self.inspections.front().map(|asked| &asked.uid)
    }

    pub(crate) fn inspections_wanted(&self) -> usize {
        self.inspections.len()
    }

    pub(crate) fn reads_wanted(&self) -> usize {
        self.readings.len()
    }

    pub(crate) fn read_wanted_of(&self) -> Option<Id> {
        self.readings.front().map(|(_, id)| id.clone())
    }

    pub(crate) fn read_wanted(&self) -> bool {
        !self.readings.is_empty()
    }

    pub(crate) fn versions_wanted(&self) -> usize {
        self.versions.len()
    }

    /// Answers the oldest requested list, which began when it was requested.
    pub(crate) fn list(&mut self, rows: &[Report]) {
        self.list_ends(Ok(rows.to_vec()));
    }

    /// Requests a list and answers it.
    pub(crate) fn relist_shows(&mut self, rows: &[Report]) {
        self.relist();
        self.list(rows);
    }

    pub(crate) fn list_fails(&mut self, kind: CallErrorKind) {
        self.list_ends(Err(CallError::new("List", kind, "")));
    }

    fn list_ends(&mut self, rows: Result<Vec<Report>, CallError>) {
        let (ticket, asked, mut known) = self.lists.pop_front().expect("a list is wanted");
        if self.decodes_all_rows {
            known = KnownIds::default();
        }
        let rows = rows.map(|rows| Rows::of(known, rows));
        self.pass(1);
        let (began, ended) = (Instant::from_nanos(asked + self.begins_after), self.now());
        self.machine.handle_list(
            ended,
            List {
                ticket,
                began,
                ended,
                rows,
            },
        );
        self.drain();
    }

    /// The oldest requested inspection ends after the others.
    pub(crate) fn postpone_inspection(&mut self) {
        self.inspections.rotate_left(1);
    }

    /// Answers the oldest requested inspection, which began when it was requested.
    pub(crate) fn inspect(&mut self, found: &[Report], gone: &[&str]) {
        self.inspect_unsettled(found, gone, &[]);
    }

    /// The same; the status calls of these rows returned NotFound.
    pub(crate) fn inspect_unsettled(
        &mut self,
        found: &[Report],
        gone: &[&str],
        unsettled: &[Report],
    ) {
        let mut read = Inspection::new(None);
        read.found = found.to_vec();
        read.gone = gone.iter().map(|&id| id.into()).collect();
        read.unsettled = unsettled.to_vec();
        self.inspection_ends(read);
    }

    pub(crate) fn inspection_fails(&mut self, found: &[Report]) {
        let mut read = Inspection::new(Some(failure("")));
        read.found = found.to_vec();
        self.inspection_ends(read);
    }

    /// Answers the oldest requested inspection with this, except for ticket and stamps.
    pub(crate) fn inspected(&mut self, read: Inspection) {
        self.inspection_ends(read);
    }

    fn inspection_ends(&mut self, read: Inspection) {
        let asked = self.inspections.pop_front();
        let Asked { ticket, at, .. } = asked.expect("an inspection is wanted");
        self.pass(1);
        let (began, ended) = (Instant::from_nanos(at + self.begins_after), self.now());
        let inspection = Inspection {
            ticket,
            began,
            ended,
            ..read
        };
        self.machine.handle_inspection(ended, inspection);
        self.drain();
    }

    /// Answers the requested status call.
    pub(crate) fn read(&mut self, report: Report) {
        self.read_ends(Ok(report));
    }

    pub(super) fn read_ends(&mut self, report: Result<Report, CallError>) {
        let (ticket, _) = self.readings.pop_front().expect("a read is wanted");
        let began = self.now();
        self.pass(1);
        let ended = self.now();
        self.machine.handle_status_read(
            ended,
            StatusRead {
                ticket,
                began,
                ended,
                report,
            },
        );
        self.drain();
    }

    pub(crate) fn probe_fails(&mut self, kind: CallErrorKind) {
        self.read_ends(Err(CallError::new("Read", kind, "")));
    }

    pub(crate) fn version_answers(&mut self) {
        self.version_ends(Ok(()));
    }

    pub(crate) fn version_fails(&mut self, kind: CallErrorKind) {
        self.version_ends(Err(CallError::new("Version", kind, "")));
    }

    fn version_ends(&mut self, outcome: Result<(), CallError>) {
        let ticket = self.versions.pop_front().expect("Version was called");
        let version = Version {
            ticket,
            ended: self.now(),
            outcome,
        };
        self.machine.handle_version(self.now(), version);
        self.drain();
    }
}
