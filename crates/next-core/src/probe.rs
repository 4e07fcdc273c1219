//! Statuses that are read by themselves: probes of the runtime, and exit reasons that may become known late.
//!
//! Every 15 seconds one status is read. While events and unchanged relists make other reads rare, it shows that the
//! runtime hangs, or the status of one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::constants::LATE_REASON;
use crate::types::ids::Id;
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// Single status calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Probe {
    period: Duration,
    next: Instant,
    /// Those in flight.
    calls: BTreeMap<Ticket, (Id, Instant)>,
    /// Ids whose status did not come in time. `Version` shows whether the runtime hangs or only their pods.
    suspects: BTreeSet<Id>,
    /// Containers that exited with an error, by when their status is read once more.
    late_reasons: BTreeSet<(Instant, Id)>,
}

impl Probe {
    pub(crate) fn new(period: Duration, now: Instant) -> Self {
        Self {
            period,
            next: now.after(period),
            calls: BTreeMap::new(),
            suspects: BTreeSet::new(),
            late_reasons: BTreeSet::new(),
        }
    }

    /// A container exited with an error: its reason may change.
    pub(crate) fn exited_with_error(&mut self, id: &Id, now: Instant) {
        let read_at = now.after(LATE_REASON);
        self.late_reasons.insert((read_at, id.clone()));
    }

    /// If a probe is due, returns when the next one is.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        if self.next > now {
            return None;
        }
        // Counted from when this one was due: a timer that fires late must not move the later probes.
        let next = self.next.after(self.period);
        let is_later = next > now;
        self.next = if is_later {
            next
        } else {
            now.after(self.period)
        };
        Some(self.next)
    }

    /// The next container whose status must be read once more.
    pub(crate) fn take_late_reason(&mut self, now: Instant) -> Option<Id> {
        let (at, _) = self.late_reasons.first()?;
        let is_due = *at <= now;
        let first = is_due.then(|| self.late_reasons.pop_first()).flatten();
        first.map(|(_, id)| id)
    }

    /// When a status must be read next.
    pub(crate) fn due(&self) -> Instant {
        let late = self.late_reasons.first();
        late.map_or(self.next, |(at, _)| self.next.min(*at))
    }

    /// The status of the id is requested.
    pub(crate) fn began(&mut self, ticket: Ticket, id: Id, now: Instant) {
        self.calls.insert(ticket, (id, now));
    }

    /// If that call is one of these, returns its id: the call has ended.
    pub(crate) fn ended(&mut self, ticket: Ticket) -> Option<Id> {
        let (id, _) = self.calls.remove(&ticket)?;
        self.suspects.remove(&id);
        Some(id)
    }

    /// If that call is one of these: it is slow.
    pub(crate) fn is_slow(&mut self, ticket: Ticket) {
        if let Some((id, _)) = self.calls.get(&ticket) {
            self.suspects.insert(id.clone());
        }
    }

    /// The status of the id was not answered in time.
    pub(crate) fn suspect(&mut self, id: Id) {
        self.suspects.insert(id);
    }

    /// The ids whose status did not come in time.
    pub(crate) fn take_suspects(&mut self) -> BTreeSet<Id> {
        std::mem::take(&mut self.suspects)
    }

    /// Returns true if a call is in flight, so that one more would show nothing new.
    pub(crate) fn is_busy(&self) -> bool {
        !self.calls.is_empty()
    }

    /// When the calls in flight must have ended.
    pub(crate) fn deadline(&self, of_call: Duration) -> Option<Instant> {
        let (_, (_, since)) = self.calls.first_key_value()?;
        Some(since.after(of_call))
    }

    /// The number of calls and ids of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.suspects.len() + self.late_reasons.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn probe() -> Probe {
        Probe::new(Duration::from_secs(15), at(0))
    }

    #[test]
    fn late_reason_is_read_two_seconds_after_the_exit() {
        let mut probe = probe();
        probe.exited_with_error(&"c".into(), at(1_000));
        assert_eq!(probe.due(), at(3_000));
        assert_eq!(probe.take_late_reason(at(2_999)), None);
        assert_eq!(probe.take_late_reason(at(3_000)), Some("c".into()));
        assert_eq!(
            (probe.take_late_reason(at(3_000)), probe.due()),
            (None, at(15_000))
        );
    }

    #[test]
    fn probe_that_fires_late_does_not_move_the_next() {
        let mut probe = probe();
        assert_eq!(probe.take_due(at(14_999)), None);
        assert_eq!(probe.take_due(at(15_400)), Some(at(30_000)));
        assert_eq!(probe.take_due(at(99_000)), Some(at(114_000)));
    }

    #[test]
    fn slow_status_makes_its_id_a_suspect_until_it_is_answered() {
        let mut probe = probe();
        for (ticket, id) in [(1, "slow"), (2, "answered")] {
            probe.began(Ticket(ticket), id.into(), at(0));
            probe.is_slow(Ticket(ticket));
        }
        probe.is_slow(Ticket(3));
        assert_eq!(probe.deadline(Duration::from_secs(5)), Some(at(5_000)));
        assert_eq!(probe.ended(Ticket(2)), Some("answered".into()));
        assert_eq!(probe.ended(Ticket(3)), None);
        assert!(probe.is_busy());
        assert_eq!(probe.take_suspects(), BTreeSet::from(["slow".into()]));
        probe.suspect("timed-out".into());
        assert_eq!(probe.len(), 2);
    }
}
