//! Reads of single pods in progress, and rows of a relist that wait for a read of their pod.
//!
//! A read has two steps: rows, then the statuses that are due. Its rows are those of a list of the pod, or those of a
//! relist that found the pod changed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hints::Absence;
use crate::pods::{Answers, PodRows};
use crate::types::error::CallErrorKind;
use crate::types::ids::{Id, PodUid};
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// The read of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodRead {
    since: Instant,
    /// Every status is read, because a caller wants details.
    pub(crate) all: bool,
    /// `None` until they are answered.
    pub(crate) rows: Option<PodRows>,
    pub(crate) answers: Answers,
}

impl PodRead {
    pub(crate) const fn new(since: Instant, all: bool, rows: Option<PodRows>) -> Self {
        Self {
            since,
            all,
            rows,
            answers: BTreeMap::new(),
        }
    }
}

/// What a read shows of an id that it does not publish.
pub(crate) fn absence(rows: &PodRows, answers: &Answers, id: &Id) -> Absence {
    match answers.get(id) {
        _ if rows.rows.contains_key(id) => Absence::Listed,
        _ if rows.of_relist => Absence::Proven,
        Some(Ok(_)) => Absence::Exists,
        Some(Err(error)) if error.kind == CallErrorKind::NotFound => Absence::Proven,
        _ => Absence::Unlisted,
    }
}

/// Rows of the last relist of a pod that it found changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AtHand {
    pub(crate) rows: PodRows,
    /// They overlap the rows of a pod read, so they do not count.
    pub(crate) overlapped: bool,
}

/// The reads in progress, and the rows that wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodReads {
    /// The time for a read as a whole.
    deadline: Duration,
    in_progress: BTreeMap<PodUid, PodRead>,
    pods: BTreeMap<Ticket, PodUid>,
    /// Rows of pods that wait for a slot, and of those that are being read.
    at_hand: BTreeMap<PodUid, AtHand>,
    /// The number of pods with rows at hand that wait for a slot.
    waiting: usize,
}

impl PodReads {
    pub(crate) const fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            in_progress: BTreeMap::new(),
            pods: BTreeMap::new(),
            at_hand: BTreeMap::new(),
            waiting: 0,
        }
    }

    /// A relist has shown these rows. Later ones replace earlier ones.
    pub(crate) fn put_at_hand(&mut self, uid: PodUid, at_hand: AtHand) {
        let is_read = self.in_progress.contains_key(&uid);
        if self.at_hand.insert(uid, at_hand).is_none() && !is_read {
            self.waiting += 1;
        }
    }

    /// The rows that are at hand.
    pub(crate) fn at_hand(&self, uid: &PodUid) -> Option<&AtHand> {
        self.at_hand.get(uid)
    }

    /// Takes the rows that are at hand.
    pub(crate) fn take_at_hand(&mut self, uid: &PodUid) -> Option<AtHand> {
        let at_hand = self.at_hand.remove(uid)?;
        if !self.in_progress.contains_key(uid) {
            self.waiting -= 1;
        }
        Some(at_hand)
    }

    /// Returns true if pods of the last relist wait for a slot.
    pub(crate) const fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// A read begins.
    pub(crate) fn begin(&mut self, uid: &PodUid, ticket: Ticket, read: PodRead) {
        if self.at_hand.contains_key(uid) {
            self.waiting -= 1;
        }
        self.pods.insert(ticket, uid.clone());
        self.in_progress.insert(uid.clone(), read);
    }

    /// The read with that ticket, and its pod.
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<(&PodUid, &mut PodRead)> {
        let uid = self.pods.get(&ticket)?;
        Some((uid, self.in_progress.get_mut(uid)?))
    }

    /// The ticket of the read of the pod.
    pub(crate) fn ticket(&self, uid: &PodUid) -> Option<Ticket> {
        let mut pods = self.pods.iter();
        pods.find(|(_, pod)| *pod == uid).map(|(ticket, _)| *ticket)
    }

    /// The time that is left for the read with that ticket.
    pub(crate) fn time_left(&self, ticket: Ticket, now: Instant) -> Duration {
        let read = self
            .pods
            .get(&ticket)
            .and_then(|uid| self.in_progress.get(uid));
        read.map_or(self.deadline, |read| {
            read.since.after(self.deadline).since(now)
        })
    }

    /// The read with that ticket has ended.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Option<(PodUid, PodRead)> {
        let uid = self.pods.remove(&ticket)?;
        let read = self.in_progress.remove(&uid)?;
        if self.at_hand.contains_key(&uid) {
            self.waiting += 1;
        }
        Some((uid, read))
    }

    /// The time for a read as a whole.
    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The number of pods of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.in_progress.len() + self.at_hand.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn rows(ms: u64) -> AtHand {
        AtHand {
            rows: PodRows::new(at(ms), true),
            overlapped: false,
        }
    }

    #[test]
    fn rows_wait_unless_their_pod_is_being_read() {
        let mut reads = PodReads::new(Duration::from_secs(5));
        let (p, ticket) = (PodUid::from("p"), Ticket(1));
        for (do_it, waits) in [
            (
                (|reads, p, _| reads.put_at_hand(p, rows(1))) as fn(&mut PodReads, PodUid, Ticket),
                true,
            ),
            (
                |reads, p, ticket| reads.begin(&p, ticket, PodRead::new(at(0), false, None)),
                false,
            ),
            (|reads, p, _| reads.put_at_hand(p, rows(2)), false),
            (
                |reads, _, ticket| assert!(reads.end(ticket).is_some()),
                true,
            ),
            (
                |reads, p, _| assert_eq!(reads.take_at_hand(&p), Some(rows(2))),
                false,
            ),
        ] {
            do_it(&mut reads, p.clone(), ticket);
            assert_eq!(reads.any_waits(), waits);
        }
        assert_eq!(reads, PodReads::new(Duration::from_secs(5)));
    }

    #[test]
    fn deadline_is_for_the_read_as_a_whole() {
        let mut reads = PodReads::new(Duration::from_secs(5));
        reads.begin(&"p".into(), Ticket(1), PodRead::new(at(1_000), false, None));
        assert_eq!(
            reads.time_left(Ticket(1), at(3_000)),
            Duration::from_secs(3)
        );
        assert_eq!(reads.time_left(Ticket(1), at(7_000)), Duration::ZERO);
    }
}
