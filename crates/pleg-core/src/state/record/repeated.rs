//! Fast paths for list rows and statuses that repeat the record, as most do.

use super::Record;
use crate::state::evidence::Call;
use crate::state::order::Position;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::report::{Details, Report, ReportedState};
use crate::types::time::Instant;

impl Record {
    /// Whether a list row shows the recorded state, uncontradicted, for an id whose pod is named:
    /// then it supports the state and has no other effect on it.
    pub(crate) fn is_recorded_as(&self, id: &Id, kind: Kind, shown: ReportedState) -> bool {
        let shown = Position::shown(kind, shown);
        shown.is_some()
            && shown == self.position
            && kind == self.kind()
            && self.unknown.is_none()
            && !self.is_contradicted()
            && self.named_pod(id).is_some()
    }

    /// Its pod, unless a sandbox's id is used as the pod's uid.
    fn named_pod(&self, id: &Id) -> Option<&PodUid> {
        let own = self.identity.sandbox.as_ref().unwrap_or(id);
        let pod = self.identity.pod.as_ref();
        pod.filter(|pod| pod.as_str() != own.as_str())
    }

    /// Whether a status in an event repeats the record, so that joining it would change nothing.
    pub(crate) fn is_repeated_by(&self, report: &Report) -> bool {
        self.is_recorded_as(&report.id, report.identity.kind, report.shown)
            && self.identity.pod == report.identity.pod
            && !self.provisional
            && self.details == report.details
            && self.identity.knows(&report.identity)
    }

    /// An event repeated the record.
    pub(crate) fn repeated(&mut self, arrived: Instant) {
        self.event_details = self.event_details.max(Some(arrived));
    }

    /// A list row repeats the record.
    pub(crate) fn confirm_by_list(&mut self) {
        self.provisional = false;
        self.reports.shown(self.position);
        self.evidence.confirm(Call::List);
    }

    /// Whether it exists and its identity is complete: then a list row can only report a state.
    pub(crate) fn is_known_to_exist(&self, id: &Id) -> bool {
        let known = &self.identity;
        known.tells_apart()
            && !self.is_removed()
            && known.namespace.is_some()
            && known.pod_name.is_some()
            && self.named_pod(id).is_some()
    }

    /// The report of a list row with that state, for an id whose identity is complete.
    pub(crate) fn row(&self, id: &Id, shown: ReportedState) -> Report {
        Report {
            id: id.clone(),
            shown,
            identity: self.identity.clone(),
            details: Details::none(self.kind()),
        }
    }
}
