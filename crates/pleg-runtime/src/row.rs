//! One row of a list, on its way from a runtime to whoever listed.

use std::fmt;

use pleg_core::{Fingerprint, Kind, Report, Shown};

/// One row of a list: what it is about and the state that it shows at once, all else on demand.
///
/// A runtime that is written by hand makes one [from](From) a [`Report`]. One that has encoded
/// rows makes [`encoded`](Self::encoded) ones: most rows of most lists say what they said before,
/// and those need not be decoded.
pub struct Row<'a> {
    fingerprint: Option<Fingerprint>,
    what: What<'a>,
}

enum What<'a> {
    Report(Box<Report>),
    Encoded {
        id: &'a str,
        kind: Kind,
        shown: Shown,
        decode: &'a dyn Fn() -> Option<Report>,
    },
}

impl<'a> Row<'a> {
    /// A row that `decode` makes a report of; none if it cannot, and then the list must fail.
    pub const fn encoded(
        id: &'a str,
        kind: Kind,
        shown: Shown,
        decode: &'a dyn Fn() -> Option<Report>,
    ) -> Self {
        Self {
            fingerprint: None,
            what: What::Encoded {
                id,
                kind,
                shown,
                decode,
            },
        }
    }

    /// The same, with the fingerprint of all that it says but its state, its id included: two rows
    /// that have the same must be of one id and say the same.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint: Some(fingerprint),
            ..self
        }
    }

    /// The id. Never empty.
    pub fn id(&self) -> &str {
        match &self.what {
            What::Report(report) => report.id.as_str(),
            What::Encoded { id, .. } => id,
        }
    }

    /// Sandbox or container.
    pub fn kind(&self) -> Kind {
        match &self.what {
            What::Report(report) => report.identity.kind,
            What::Encoded { kind, .. } => *kind,
        }
    }

    /// The state that it shows.
    pub fn shown(&self) -> Shown {
        match &self.what {
            What::Report(report) => report.shown,
            What::Encoded { shown, .. } => *shown,
        }
    }

    /// Of all that it says but its state; none if the runtime gives none.
    pub const fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// All that it says; none if that cannot be made out. Then the list it is from will fail.
    pub fn report(self) -> Option<Report> {
        match self.what {
            What::Report(report) => Some(*report),
            What::Encoded { decode, .. } => decode(),
        }
    }
}

impl From<Report> for Row<'_> {
    fn from(report: Report) -> Self {
        Self {
            fingerprint: None,
            what: What::Report(Box::new(report)),
        }
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("id", &self.id())
            .field("kind", &self.kind())
            .field("shown", &self.shown())
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}
