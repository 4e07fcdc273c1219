//! The status calls of one id: the last failure, and the next retry.

use std::sync::Arc;

use crate::backoff::Backoff;
use crate::types::{CallError, CallErrorKind, Instant};

/// The status calls of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StatusCalls {
    /// The instant of the last request.
    last: Instant,
    /// The request time of the status from which the details come. `None`: the details come from a row or an event.
    as_of: Option<Instant>,
    failure: Option<Failure>,
    /// The back-off of the next call, if the last call failed or the state is UNKNOWN.
    retry: Option<Backoff>,
    /// A status was read after the end, or its call failed: the status is not read again for the exit code.
    read_since_end: bool,
}

/// The failure of the last call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Failure {
    /// NotFound, although a row shows the id.
    Missing,
    /// Another error.
    Error(Arc<CallError>),
}

impl StatusCalls {
    /// A call is made.
    pub(crate) const fn requested(&mut self, now: Instant) {
        self.last = now;
    }

    /// Forgets earlier failures, because the state has changed.
    pub(crate) fn state_changed(&mut self) {
        (self.retry, self.failure) = (None, None);
        self.read_since_end = false;
    }

    /// An event has shown the end: makes a failed call due now. Its failure stays recorded, because the id may be gone.
    pub(crate) fn ended(&mut self, now: Instant) {
        let failed = self.retry.filter(|_| self.failure.is_some());
        self.retry = failed.map(|retry| Backoff {
            retry_at: now,
            ..retry
        });
        self.read_since_end = false;
    }

    /// Returns true if the answer to a call made at `began` is late: a failure is recorded, and a newer call was made.
    pub(crate) fn is_late(&self, began: Instant) -> bool {
        self.has_failed() && began < self.last
    }

    /// A call has returned a status. `unknown`: the state is UNKNOWN, so the status is read again.
    pub(crate) fn succeeded(&mut self, unknown: bool, now: Instant) {
        self.failure = None;
        self.retry = unknown.then(|| Backoff::after(self.retry, true, now));
    }

    /// The current details come from the status that was requested at `as_of`. `ended`: this status shows the end.
    pub(crate) fn gave_details(&mut self, as_of: Instant, ended: bool) {
        self.as_of = self.as_of.max(Some(as_of));
        self.read_since_end |= ended;
    }

    /// A status call of the id has failed. Failures in an `outage` of the whole runtime and refused connections do not
    /// count against the id, because one id is never their cause. NotFound always counts.
    pub(crate) fn failed(&mut self, error: &CallError, ended: bool, outage: bool, now: Instant) {
        let is_missing = error.kind == CallErrorKind::NotFound;
        let counts = is_missing || !(outage || error.kind == CallErrorKind::Unavailable);
        self.failure = Some(match is_missing {
            true => Failure::Missing,
            false => Failure::Error(Arc::new(error.clone())),
        });
        self.retry = Some(Backoff::after(self.retry, counts, now));
        self.read_since_end |= ended && counts;
    }

    /// Makes the status due now.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        let none = Backoff::after(None, false, now);
        self.retry.get_or_insert(none).retry_at = now;
    }

    /// The instant of the retry.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.retry_at)
    }

    /// Returns true if the status must be read again, but the pause before this retry has not passed.
    pub(crate) fn is_in_backoff(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|at| at > now)
    }

    pub(crate) const fn read_since_end(&self) -> bool {
        self.read_since_end
    }

    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns true if a row shows the id, but its status call returned NotFound.
    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self.failure, Some(Failure::Missing))
    }

    /// Returns true if the status call fails. One NotFound does not count: a listed id may be gone a moment later.
    pub(crate) fn is_failing(&self) -> bool {
        let failures = self.retry.map_or(0, |retry| retry.failures);
        self.error().is_some() || (self.is_missing() && failures > 1)
    }

    /// The error of the last status call, if it failed with another error than NotFound.
    pub(crate) const fn error(&self) -> Option<&Arc<CallError>> {
        match &self.failure {
            Some(Failure::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The instant of the last request.
    pub(crate) const fn last(&self) -> Instant {
        self.last
    }

    /// The instant at which the current details were requested; `None` if they come from a row or an event.
    pub(crate) const fn as_of(&self) -> Option<Instant> {
        self.as_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::at_s as at;

    fn failed(kind: CallErrorKind, outage: bool) -> StatusCalls {
        let mut calls = StatusCalls::default();
        let error = CallError::new("Status", kind, "");
        calls.failed(&error, true, outage, at(0));
        calls
    }

    #[test]
    fn in_an_outage_only_not_found_counts_against_an_id() {
        for outage in [false, true] {
            let calls = failed(CallErrorKind::Failed, outage);
            assert_eq!(calls.read_since_end(), !outage);
            assert!(calls.error().is_some() && !calls.is_missing());
            let calls = failed(CallErrorKind::NotFound, outage);
            assert!(calls.is_missing() && calls.read_since_end());
            assert_eq!((calls.error(), calls.retry_at()), (None, Some(at(1))));
        }
    }

    #[test]
    fn one_not_found_is_no_failure_but_outdates_earlier_answers() {
        let mut calls = StatusCalls::default();
        calls.retry_now(at(0));
        let error = CallError::new("Status", CallErrorKind::NotFound, "");
        calls.failed(&error, false, false, at(1));
        assert!(!calls.is_failing());
        calls.requested(at(3));
        assert!(calls.is_late(at(2)) && !calls.is_late(at(3)));
    }

    #[test]
    fn successful_status_call_or_new_state_ends_the_backoff() {
        for ends in [
            |calls: &mut StatusCalls| calls.succeeded(false, at(1)),
            |calls: &mut StatusCalls| calls.state_changed(),
        ] {
            let mut calls = failed(CallErrorKind::Failed, false);
            assert!(calls.is_in_backoff(at(0)) && !calls.is_in_backoff(at(1)));
            ends(&mut calls);
            assert_eq!((calls.error(), calls.retry_at()), (None, None));
        }
    }
}
