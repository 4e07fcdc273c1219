//! One row of a list, as a runtime passes it to the caller of the list.

use std::fmt;

use pleg_core::{Kind, Report, ReportedState};

/// One row of a list. Its id, kind and state are already decoded; everything else is decoded on demand.
///
/// A runtime implemented by a test makes rows [from](From) a [`Report`]. A runtime that receives encoded rows should
/// make [`encoded`](Self::encoded) rows: the generator remembers the pod and names of known ids, so from
/// lists of the node it decodes few rows in full.
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
    /// An encoded row. `decode` decodes it in full. If the row is invalid, `decode` returns `None`, and the runtime
    /// must return an error from the list.
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

    /// The reported state.
    pub fn shown(&self) -> ReportedState {
        match &self.0 {
            What::Report(report) => report.shown,
            What::Encoded { shown, .. } => *shown,
        }
    }

    /// The row decoded in full; `None` if it is invalid, in which case the runtime returns an error from the list.
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
