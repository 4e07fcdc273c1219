//! The details and the identity of one id: what each source adds to them (invariants 3 and 7).

use crate::state::details::{self, Weight};
use crate::state::effect::{DetailsChange, Effect};
use crate::state::order::Position;
use crate::state::record::Record;
use crate::types::ids::Kind;
use crate::types::report::{Details, Report};
use crate::types::status::ContainerDetails;
use crate::types::time::Instant;

impl Record {
    /// Merges the details of an event.
    pub(crate) fn details_from_event(&mut self, report: &Report, arrived: Instant) -> Effect {
        let identity = self.identity.fill_from(&report.identity);
        let newest = self.event_details.is_none_or(|e| arrived >= e) && self.read_details.is_none();
        self.event_details = self.event_details.max(Some(arrived));
        let weight = if newest {
            Weight::NewestEvent
        } else {
            Weight::Fills
        };
        let mut effect = self.take_details(report, weight, identity);
        // A status of an earlier state is no newer than the record.
        let same_state = self.position == Position::shown(report.identity.kind, report.shown);
        effect.disputed = self.read_details.is_some() && same_state && self.differs(report);
        effect
    }

    /// Merges the details of a status call.
    pub(crate) fn details_from_read(&mut self, report: &Report, began: Instant) -> Effect {
        let identity = self.identity.fill_from(&report.identity);
        let newest = self.event_details.is_none_or(|e| began > e)
            && self.read_details.is_none_or(|r| began >= r);
        self.read_details = self.read_details.max(Some(began));
        let mut effect = self.take_details(
            report,
            if newest {
                Weight::NewestRead
            } else {
                Weight::Fills
            },
            identity,
        );
        // An event arrived during the read: neither is final, whatever state the status shows.
        effect.disputed = !newest && self.differs(report);
        effect
    }

    /// Merges the details of a list row. Rows have few details, so they only fill empty fields.
    pub(crate) fn details_from_row(&mut self, report: &Report) -> Effect {
        let identity = self.identity.fill_from(&report.identity);
        self.take_details(report, Weight::Fills, identity)
    }

    /// Merges the details that reads showed while the id was recorded as removed.
    pub(crate) fn details_shown_while_removed(&mut self, shown: &Details) {
        details::merge(&mut self.details, shown, Weight::NewestRead);
        self.drop_end();
    }

    /// Whether the details of an id that exists differ from those of a status.
    fn differs(&self, report: &Report) -> bool {
        !self.is_removed() && details::differ(&self.details, &report.details)
    }

    fn take_details(&mut self, report: &Report, weight: Weight, identity: bool) -> Effect {
        let had_exit = self.exit_code().is_some();
        if self.is_removed() && self.announced.is_silent() {
            return Effect::default();
        }
        if self.is_removed() {
            // Exit details are merged even now; nothing else of a removed id is kept.
            let (Details::Container(known), Details::Container(said)) =
                (&mut self.details, &report.details)
            else {
                return Effect::default();
            };
            let end = exit_of(said);
            let mut kept = Details::from(exit_of(known));
            let changed = details::merge(&mut kept, &Details::from(end), Weight::Fills);
            if let Details::Container(kept) = kept {
                *known = kept;
            }
            return self.details_changed(changed, had_exit);
        }
        let changed = details::merge(&mut self.details, &report.details, weight);
        self.details_changed(changed || identity, had_exit)
    }

    fn details_changed(&self, changed: bool, had_exit: bool) -> Effect {
        let late = !had_exit && self.exit_code().is_some() && self.has_died();
        Effect {
            details: match late {
                true => DetailsChange::LateExitCode,
                false => changed.into(),
            },
            ..Effect::default()
        }
    }

    /// Of a removed id only the exit details are kept.
    pub(super) fn drop_details(&mut self) {
        self.details = match &self.details {
            Details::Container(c) => Details::from(exit_of(c)),
            Details::Sandbox(_) => Details::none(Kind::Sandbox),
        };
        self.provisional = false;
        self.unsettled = false;
        self.held = false;
        self.disputed = false;
        self.error = None;
    }
}

fn exit_of(c: &ContainerDetails) -> ContainerDetails {
    ContainerDetails {
        started_at: c.started_at,
        finished_at: c.finished_at,
        exit_code: c.exit_code,
        reason: c.reason.clone(),
        message: c.message.clone(),
        ..ContainerDetails::default()
    }
}
