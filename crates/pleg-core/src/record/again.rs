//! What is said of an id once more: a list row or a status that tells nothing new. Most are.

use super::Record;
use crate::belief::Call;
use crate::ids::{Id, Kind, PodUid};
use crate::observed::{Details, Identity, Report, Shown, Unchanged};
use crate::order::Position;
use crate::time::Instant;

impl Record {
    /// Whether a list shows what is believed, undisputed and of a pod whose name is known: it
    /// supports that, and nothing else about the state follows from it.
    pub(crate) fn is_as_shown(&self, id: &Id, kind: Kind, shown: Shown) -> bool {
        let shown = Position::shown(kind, shown);
        shown.is_some()
            && shown == self.position
            && kind == self.kind()
            && self.unknown.is_none()
            && !self.is_denied()
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
    pub(crate) fn is_as_told(&self, report: &Report) -> bool {
        self.is_as_shown(&report.id, report.identity.kind, report.shown)
            && self.identity.pod == report.identity.pod
            && !self.provisional
            && self.details == report.details
            && self.identity.knows(&report.identity)
    }

    /// An event told what is held.
    pub(crate) fn told_again(&mut self, arrived: Instant) {
        self.event_details = self.event_details.max(Some(arrived));
    }

    /// A list shows what is believed.
    pub(crate) fn supported(&mut self) {
        self.provisional = false;
        self.belief.confirm(Call::List);
    }

    /// Whether all is known that a row says which is unchanged, as far as it matters.
    pub(crate) fn resolves(&self, row: &Unchanged, began: Instant) -> bool {
        let same = self.row == Some(row.fingerprint);
        if !self.is_removed() {
            // Of an id whose kind was a guess, and a wrong one, no details were taken over.
            return same && row.kind == self.kind();
        }
        // What it said was let go. That matters only if this row brings the id back.
        let late = began <= self.believed_since();
        late || (same
            && !self
                .belief
                .would_be_overruled(Call::List, began, Position::Removed))
    }

    /// What a row says that is unchanged: taken over again, the rest of it would change nothing.
    pub(crate) fn said_again(&self, row: &Unchanged) -> Report {
        Report {
            id: row.id.clone(),
            shown: row.shown,
            identity: Identity {
                kind: row.kind,
                pod: self.named_pod(&row.id).cloned(),
                ..self.identity.clone()
            },
            details: Details::none(row.kind),
        }
    }
}
