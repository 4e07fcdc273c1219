//! One row of a list, on its way from a runtime to whoever listed.

use std::fmt;

use pleg_core::{Kind, Report, ReportedState};

/// One row of a list: its id, kind and state at once, everything else on demand.
///
/// A runtime that is written by hand makes one [from](From) a [`Report`]. One that receives encoded
/// rows makes [`encoded`](Self::encoded) ones: most rows of most lists are of ids whose identity is
/// known, and need not be decoded as a whole.
pub struct Row<'a>(What<'a>);

enum What<'a> {
    Report(Box<Report>),
    Encoded {
        id: &'a str,
        kind: Kind,
        shown: ReportedState,
        decode: &'a dyn Fn() -> Option<Report>,
    },
}

impl<'a> Row<'a> {
    /// A row that `decode` decodes as a whole. It returns `None` if it cannot; then the list must
    /// fail.
    pub const fn encoded(
        id: &'a str,
        kind: Kind,
        shown: ReportedState,
        decode: &'a dyn Fn() -> Option<Report>,
    ) -> Self {
        Self(What::Encoded {
            id,
            kind,
            shown,
            decode,
        })
    }

    /// The id. Never empty.
    pub fn id(&self) -> &str {
        match &self.0 {
            What::Report(report) => report.id.as_str(),
            What::Encoded { id, .. } => id,
        }
    }

    /// Sandbox or container.
    pub fn kind(&self) -> Kind {
        match &self.0 {
            What::Report(report) => report.identity.kind,
            What::Encoded { kind, .. } => *kind,
        }
    }

    /// The state that it shows.
    pub fn shown(&self) -> ReportedState {
        match &self.0 {
            What::Report(report) => report.shown,
            What::Encoded { shown, .. } => *shown,
        }
    }

    /// All that it says; none if that cannot be made out. Then the list it is from will fail.
    pub fn report(self) -> Option<Report> {
        match self.0 {
            What::Report(report) => Some(*report),
            What::Encoded { decode, .. } => decode(),
        }
    }
}

impl From<Report> for Row<'_> {
    fn from(report: Report) -> Self {
        Self(What::Report(Box::new(report)))
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("id", &self.id())
            .field("kind", &self.kind())
            .field("shown", &self.shown())
            .finish_non_exhaustive()
    }
}
