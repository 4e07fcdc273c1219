//! What is said of an id once more: a list row or a status that tells nothing new. Most are.

use super::Record;
use crate::evidence::Call;
use crate::ids::{Id, Kind, PodUid};
use crate::observed::{Details, Report, ReportedState};
use crate::order::Position;
use crate::time::Instant;

impl Record {
    /// Whether a list shows what is recorded, undisputed and of a pod whose name is known: it
    /// supports that, and nothing else about the state follows from it.
    pub(crate) fn is_recorded_as(&self, id: &Id, kind: Kind, shown: ReportedState) -> bool {
        let shown = Position::shown(kind, shown);
        shown.is_some()
            && shown == self.position
            && kind == self.kind()
            && self.unknown.is_none()
            && !self.is_contradicted()
            && self.named_pod(id).is_some()
    }

    /// Its pod, unless its sandbox's id stands in for that.
    fn named_pod(&self, id: &Id) -> Option<&PodUid> {
        let own = self.identity.sandbox.as_ref().unwrap_or(id);
        let pod = self.identity.pod.as_ref();
        pod.filter(|pod| pod.as_str() != own.as_str())
    }

    /// Whether a status in an event says what is held, and nothing else: joining it would change
    /// nothing.
    pub(crate) fn is_repeated_by(&self, report: &Report) -> bool {
        self.is_recorded_as(&report.id, report.identity.kind, report.shown)
            && self.identity.pod == report.identity.pod
            && !self.provisional
            && self.details == report.details
            && self.identity.knows(&report.identity)
    }

    /// An event told what is held.
    pub(crate) fn repeated(&mut self, arrived: Instant) {
        self.event_details = self.event_details.max(Some(arrived));
    }

    /// A list shows what is recorded.
    pub(crate) fn confirm_by_list(&mut self) {
        self.provisional = false;
        self.reports.shown(self.position);
        self.evidence.confirm(Call::List);
    }

    /// Whether it exists and its identity is complete: all that a list row of it can say is its
    /// state.
    pub(crate) fn is_known_to_exist(&self, id: &Id) -> bool {
        let known = &self.identity;
        let own = match known.kind {
            Kind::Sandbox => true,
            Kind::Container => known.sandbox.is_some() && known.name.is_some(),
        };
        own && !self.is_removed()
            && known.namespace.is_some()
            && known.pod_name.is_some()
            && known.created_at.is_some()
            && self.named_pod(id).is_some()
    }

    /// What a list row in that state says of an id whose identity is complete.
    pub(crate) fn row(&self, id: &Id, shown: ReportedState) -> Report {
        Report {
            id: id.clone(),
            shown,
            identity: self.identity.clone(),
            details: Details::none(self.kind()),
        }
    }
}
