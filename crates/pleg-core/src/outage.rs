//! Distinguishes a runtime that fails as a whole from one bad pod.
//!
//! If calls for one pod hang or fail, that pod is bad. If the runtime's process is stopped, all calls hang, and no pod
//! is to blame. So if a call fails (not with NotFound) or hangs for a second, the reconciler calls `Version`, which
//! does no work in any runtime. If `Version` fails, the runtime as a whole counts as failing until a call succeeds.

use std::collections::BTreeMap;

use crate::constants::{CALL_IS_SLOW, VERSION_DEADLINE};
use crate::types::{CallError, CallErrorKind, Instant, Ticket};

/// The state of the runtime as a whole, judged by the results of calls to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outage {
    /// Calls unanswered for less than a second, each with its start.
    recent: BTreeMap<Ticket, Instant>,
    /// The `Version` call in flight, and its start.
    version: Option<(Ticket, Instant)>,
    /// A call is slow or has failed, and `Version` has not been called since.
    needs_version: bool,
    /// The last `Version` failed, and no call has succeeded since.
    fails: bool,
    /// The start of the first unanswered call, if the runtime has answered nothing since.
    unanswered_since: Option<Instant>,
    /// The value of `unanswered_since`, if a `Version` call was not answered either.
    silent_since: Option<Instant>,
}

impl Outage {
    /// A call was made.
    pub(crate) fn began(&mut self, ticket: Ticket, now: Instant) {
        self.unanswered_since.get_or_insert(now);
        self.recent.insert(ticket, now);
    }

    /// A call has ended, with this error or with success. Returns true if the success ends an outage of the runtime.
    pub(crate) fn ended(&mut self, ticket: Ticket, error: Option<&CallError>) -> bool {
        self.recent.remove(&ticket);
        let kind = error.map(|error| error.kind);
        self.heard(kind);
        match kind {
            None => return std::mem::take(&mut self.fails),
            Some(CallErrorKind::NotFound) => {}
            Some(_) => self.needs_version = true,
        }
        false
    }

    /// Notes that the runtime answered, unless `error` means that no answer came. An error sent by the runtime counts.
    fn heard(&mut self, error: Option<CallErrorKind>) {
        if !error.is_some_and(CallErrorKind::is_unanswered) {
            (self.unanswered_since, self.silent_since) = (None, None);
        }
    }

    /// Takes the calls that have been unanswered for [`CALL_IS_SLOW`].
    pub(crate) fn take_slow(&mut self, now: Instant) -> Vec<Ticket> {
        let is_slow = |_: &Ticket, since: &mut Instant| since.after(CALL_IS_SLOW) <= now;
        let slow: Vec<_> = self.recent.extract_if(.., is_slow).collect();
        self.needs_version |= !slow.is_empty();
        slow.into_iter().map(|(ticket, _)| ticket).collect()
    }

    /// Returns true if `Version` must be called.
    pub(crate) const fn is_version_due(&self) -> bool {
        self.needs_version && self.version.is_none()
    }

    pub(crate) fn version_began(&mut self, ticket: Ticket, now: Instant) {
        self.unanswered_since.get_or_insert(now);
        self.version = Some((ticket, now));
        self.needs_version = false;
    }

    /// Records the end of a `Version` call. Returns true if the runtime answers again after an outage, and `None` if
    /// `ticket` does not belong to the `Version` call in flight.
    pub(crate) fn version_ended(
        &mut self,
        ticket: Ticket,
        error: Option<CallErrorKind>,
    ) -> Option<bool> {
        self.version.take_if(|(own, _)| *own == ticket)?;
        self.silent_since = self.unanswered_since;
        self.heard(error);
        let failed = std::mem::replace(&mut self.fails, error.is_some());
        Some(failed && error.is_none())
    }

    /// Returns true if the runtime as a whole fails.
    pub(crate) const fn fails(&self) -> bool {
        self.fails
    }

    /// Returns true if a call that fails now is not the fault of its pod: the runtime as a whole fails, or `Version`
    /// is unanswered for a second. In a frozen runtime, calls made before `Version` may time out before `Version`.
    pub(crate) fn excuses(&self, now: Instant) -> bool {
        let is_slow = |(_, since): (Ticket, Instant)| since.after(CALL_IS_SLOW) <= now;
        self.fails || self.version.is_some_and(is_slow)
    }

    /// The start of the first unanswered call, if the runtime does not answer `Version` either.
    pub(crate) const fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// The instant at which the next unanswered call counts as slow.
    pub(crate) fn due(&self) -> Option<Instant> {
        let oldest = self.recent.values().min();
        oldest.map(|since| since.after(CALL_IS_SLOW))
    }

    /// The deadline of the `Version` call in flight.
    pub(crate) fn version_deadline(&self) -> Option<Instant> {
        self.version.map(|(_, since)| since.after(VERSION_DEADLINE))
    }

    /// The number of calls stored here.
    pub(crate) fn len(&self) -> usize {
        self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::at_ms as at;
    use CallErrorKind::{DeadlineExceeded, Failed, NotFound, Unavailable};

    fn error(kind: CallErrorKind) -> CallError {
        CallError::new("Call", kind, "")
    }

    #[test]
    fn slow_call_causes_one_version_call() {
        let mut outage = Outage::default();
        // Call 1 begins after call 2: a pod read's status calls reuse the request number (ticket) of the read's list.
        outage.began(Ticket(2), at(0));
        outage.began(Ticket(1), at(1));
        assert_eq!(outage.due(), Some(at(1_000)));
        assert_eq!(outage.take_slow(at(999)), []);
        assert!(!outage.is_version_due());
        assert_eq!(outage.take_slow(at(1_001)), [Ticket(1), Ticket(2)]);
        assert!(outage.is_version_due());
        outage.version_began(Ticket(3), at(1_001));
        assert!(!outage.is_version_due());
        assert_eq!(outage.take_slow(at(9_000)), []);
    }

    #[test]
    fn runtime_is_failing_from_failed_version_until_next_successful_call() {
        let mut outage = Outage::default();
        for (kind, causes_version) in [(NotFound, false), (Failed, true), (Unavailable, true)] {
            outage.ended(Ticket(1), Some(&error(kind)));
            assert_eq!(outage.is_version_due(), causes_version, "{kind:?}");
        }
        outage.version_began(Ticket(2), at(0));
        assert_eq!(outage.version_ended(Ticket(1), None), None);
        let is_back = outage.version_ended(Ticket(2), Some(Unavailable));
        assert_eq!((is_back, outage.fails()), (Some(false), true));
        outage.ended(Ticket(3), Some(&error(NotFound)));
        assert!(outage.fails(), "NotFound is no success");
        assert!(outage.ended(Ticket(4), None));
        assert!(!outage.ended(Ticket(5), None));
    }

    #[test]
    fn outage_start_is_first_unanswered_call_if_version_times_out() {
        for (answer, silent) in [
            (None, None),
            (Some(Failed), None),
            (Some(DeadlineExceeded), Some(at(15_000))),
        ] {
            let mut outage = Outage::default();
            outage.began(Ticket(1), at(15_000));
            outage.take_slow(at(16_000));
            outage.version_began(Ticket(2), at(16_000));
            outage.version_ended(Ticket(2), answer);
            assert_eq!(outage.silent_since(), silent, "{answer:?}");
            outage.ended(Ticket(1), None);
            assert_eq!(outage.silent_since(), None);
        }
    }
}
