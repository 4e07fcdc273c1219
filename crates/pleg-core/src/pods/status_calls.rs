//! The status calls of one id: whether the last one failed, and when the next one is due.

use std::sync::Arc;

use crate::backoff::Backoff;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::time::Instant;

/// The status calls of one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatusCalls {
    /// When the last one was requested.
    last: Instant,
    /// When the one was requested that returned the present details. `None`: they are those of a row or an event.
    as_of: Option<Instant>,
    failure: Option<Failure>,
    /// The status is read again with this backoff: the call failed, or the state is UNKNOWN.
    retry: Option<Backoff>,
    /// The status was read since the id has ended, or its call has failed.
    read_since_end: bool,
}

/// The failure of the last call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Failure {
    /// NotFound, although a row shows the id.
    Missing,
    /// Another error.
    Error {
        error: Arc<CallError>,
        /// `Version` has answered since, so it is known if the failure counts.
        is_judged: bool,
    },
}

impl StatusCalls {
    pub(crate) const fn new() -> Self {
        Self {
            last: Instant::ORIGIN,
            as_of: None,
            failure: None,
            retry: None,
            read_since_end: false,
        }
    }

    /// A call is made.
    pub(crate) const fn requested(&mut self, now: Instant) {
        self.last = now;
    }

    /// The state has changed, so earlier failures mean nothing any more.
    pub(crate) fn state_changed(&mut self) {
        (self.retry, self.failure) = (None, None);
        self.read_since_end = false;
    }

    /// A call has returned a status. `unknown`: the state is UNKNOWN, so it is read again.
    pub(crate) fn succeeded(&mut self, unknown: bool, now: Instant) {
        self.failure = None;
        self.retry = unknown.then(|| Backoff::after(self.retry, now));
    }

    /// The details are those of the status that was requested at `as_of`.
    pub(crate) fn gave_details(&mut self, as_of: Instant, ended: bool) {
        self.as_of = self.as_of.max(Some(as_of));
        self.read_since_end |= ended;
    }

    /// The call has failed. An error counts only if `Version` shows that the runtime as a whole works.
    pub(crate) fn failed(&mut self, error: &CallError, ended: bool, now: Instant) {
        if error.kind == CallErrorKind::NotFound {
            self.failure = Some(Failure::Missing);
            self.retry = Some(Backoff::after(self.retry, now));
            self.read_since_end |= ended;
        } else {
            self.failure = Some(Failure::Error {
                error: Arc::new(error.clone()),
                is_judged: false,
            });
            self.retry = Some(Backoff::uncounted(self.retry, now));
        }
    }

    /// `Version` has answered. `counts`: the runtime as a whole works, so the failure counts.
    pub(crate) fn judge(&mut self, counts: bool, ended: bool, now: Instant) {
        let Some(Failure::Error { is_judged, .. }) = &mut self.failure else {
            return;
        };
        if !std::mem::replace(is_judged, true) && counts {
            self.retry = Some(Backoff::after(self.retry, now));
            self.read_since_end |= ended;
        }
    }

    /// The status is read again now.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        let retry = self.retry.get_or_insert_with(|| Backoff::after(None, now));
        retry.retry_at = now;
    }

    /// When the status must be read again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.retry_at)
    }

    /// Returns true if the last call failed and its retry is not due yet.
    pub(crate) fn is_in_backoff(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|at| at > now)
    }

    pub(crate) const fn read_since_end(&self) -> bool {
        self.read_since_end
    }

    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns true if a row shows the id, but the runtime says that it does not exist.
    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self.failure, Some(Failure::Missing))
    }

    /// Returns true if the call fails, other than once with NotFound: an id that was listed may be gone a moment later.
    pub(crate) fn is_failing(&self) -> bool {
        let failures = self.retry.map_or(0, |retry| retry.failures);
        self.error().is_some() || (self.is_missing() && failures > 1)
    }

    /// The error of the last call, if it failed otherwise than with NotFound.
    pub(crate) const fn error(&self) -> Option<&Arc<CallError>> {
        match &self.failure {
            Some(Failure::Error { error, .. }) => Some(error),
            _ => None,
        }
    }

    /// Returns true if the last call failed and `Version` has not answered since.
    pub(crate) const fn is_unjudged(&self) -> bool {
        let failure = &self.failure;
        matches!(
            failure,
            Some(Failure::Error {
                is_judged: false,
                ..
            })
        )
    }

    /// When the last call was requested.
    pub(crate) const fn last(&self) -> Instant {
        self.last
    }

    /// As of when the details are; `None` if they are those of a row or an event.
    pub(crate) const fn as_of(&self) -> Option<Instant> {
        self.as_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(std::time::Duration::from_secs(seconds))
    }

    fn failed(kind: CallErrorKind) -> StatusCalls {
        let mut calls = StatusCalls::new();
        calls.failed(&CallError::new("Status", kind, ""), true, at(0));
        calls
    }

    #[test]
    fn success_or_a_new_state_ends_the_backoff() {
        for ends in [
            |calls: &mut StatusCalls| calls.succeeded(false, at(1)),
            |calls: &mut StatusCalls| calls.state_changed(),
        ] {
            let mut calls = failed(CallErrorKind::Failed);
            assert!(calls.is_in_backoff(at(0)) && !calls.is_in_backoff(at(1)));
            ends(&mut calls);
            assert_eq!((calls.error(), calls.retry_at()), (None, None));
        }
    }

    #[test]
    fn missing_status_needs_no_version_to_count() {
        let calls = failed(CallErrorKind::NotFound);
        assert!(calls.read_since_end() && !calls.is_unjudged());
    }

    #[test]
    fn error_counts_after_version_has_answered() {
        for counts in [false, true] {
            let mut calls = failed(CallErrorKind::Failed);
            assert!(calls.is_unjudged() && !calls.read_since_end());
            calls.judge(counts, true, at(5));
            assert_eq!(calls.read_since_end(), counts);
            assert_eq!(calls.retry_at(), Some(at(if counts { 6 } else { 1 })));
            calls.judge(true, true, at(99));
            assert_eq!(calls.read_since_end(), counts, "judged once");
        }
    }
}
