//! The waiters, and which read answers which of them (invariants 3 and 4).

use std::collections::BTreeMap;

use crate::types::ids::PodUid;
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// The identifier of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

impl WaiterId {
    /// A number that the driver chooses and never uses twice.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A waiter for a status of a pod that is newer than an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    pub(crate) after: Instant,
    /// The last request number when it registered. Reads with a higher number were issued later.
    pub(crate) number: u64,
    /// Whether it waits for the details of every id, too.
    pub(crate) details: bool,
}

impl Waiter {
    /// Whether a read answers it: one that began strictly after its instant, or at it if it was
    /// issued after the waiter registered.
    pub(crate) fn is_served_by(&self, ticket: Ticket, began: Instant) -> bool {
        began > self.after || (began == self.after && ticket.get() > self.number)
    }

    /// Whether a failed read answers it: one that was issued after it registered and did not begin
    /// before its instant.
    pub(crate) fn is_failed_by(&self, ticket: Ticket, began: Instant) -> bool {
        ticket.get() > self.number && began >= self.after
    }
}

/// All waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waiters {
    pods: BTreeMap<PodUid, Vec<Waiter>>,
    /// The waiters for a full list, with the request number when they registered.
    lists: Vec<(WaiterId, u64)>,
}

impl Waiters {
    pub(crate) fn register(&mut self, uid: &PodUid, waiter: Waiter) {
        self.pods.entry(uid.clone()).or_default().push(waiter);
    }

    pub(crate) fn register_list(&mut self, id: WaiterId, number: u64) {
        self.lists.push((id, number));
    }

    /// Removes a waiter. Returns the pod and the instant for which it waited.
    pub(crate) fn cancel(&mut self, id: WaiterId) -> Option<(PodUid, Instant)> {
        self.lists.retain(|(w, _)| *w != id);
        let mut cancelled = None;
        self.pods.retain(|uid, waiters| {
            waiters.retain(|w| {
                if w.id == id {
                    cancelled = Some((uid.clone(), w.after));
                }
                w.id != id
            });
            !waiters.is_empty()
        });
        cancelled
    }

    /// Removes and returns the waiters of a pod for which `served` is true.
    pub(crate) fn take(&mut self, uid: &PodUid, served: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let Some(waiters) = self.pods.get_mut(uid) else {
            return Vec::new();
        };
        let (taken, left) = std::mem::take(waiters).into_iter().partition(|w| served(w));
        *waiters = left;
        if waiters.is_empty() {
            self.pods.remove(uid);
        }
        taken
    }

    /// Removes and returns the waiters for the list with this ticket.
    pub(crate) fn take_lists(&mut self, ticket: Ticket) -> Vec<WaiterId> {
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.lists)
            .into_iter()
            .partition(|(_, n)| ticket.get() > *n);
        self.lists = left;
        taken.into_iter().map(|(id, _)| id).collect()
    }

    /// The waiters of a pod.
    pub(crate) fn of(&self, uid: &PodUid) -> &[Waiter] {
        self.pods.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The pods that have waiters.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_serves_those_who_asked_before_it_was_asked_for() {
        let mut waiters = Waiters::default();
        waiters.register_list(WaiterId::new(1), 4);
        waiters.register_list(WaiterId::new(2), 5);
        assert_eq!(waiters.take_lists(Ticket(4)), []);
        assert_eq!(waiters.take_lists(Ticket(5)), [WaiterId::new(1)]);
        assert_eq!(waiters.take_lists(Ticket(7)), [WaiterId::new(2)]);
        assert_eq!(waiters.take_lists(Ticket(8)), []);
    }

    #[test]
    fn one_that_is_cancelled_is_forgotten_alone() {
        let (uid, after) = (PodUid::from("p"), Instant::ORIGIN);
        let mut waiters = Waiters::default();
        for n in [1, 2] {
            let id = WaiterId::new(n);
            waiters.register_list(id, 0);
            let waiter = Waiter {
                id,
                after,
                number: 0,
                details: false,
            };
            waiters.register(&uid, waiter);
        }
        waiters.cancel(WaiterId::new(1));
        assert_eq!(waiters.take_lists(Ticket(1)), [WaiterId::new(2)]);
        assert_eq!(waiters.of(&uid).len(), 1);
        assert_eq!(waiters.pods().count(), 1);
        waiters.cancel(WaiterId::new(2));
        assert_eq!(waiters.pods().count(), 0);
    }

    #[test]
    fn a_read_serves_those_who_asked_before_it_began() {
        let after = Instant::from_nanos(10);
        let waiter = Waiter {
            id: WaiterId::new(1),
            after,
            number: 5,
            details: false,
        };
        let began = |nanos| Instant::from_nanos(nanos);
        assert!(!waiter.is_served_by(Ticket(9), began(9)));
        assert!(
            !waiter.is_served_by(Ticket(5), began(10)),
            "issued before it asked"
        );
        assert!(waiter.is_served_by(Ticket(6), began(10)));
        assert!(waiter.is_served_by(Ticket(1), began(11)));
        assert!(!waiter.is_failed_by(Ticket(5), began(10)));
        assert!(waiter.is_failed_by(Ticket(6), began(10)));
        assert!(!waiter.is_failed_by(Ticket(6), began(9)));
    }
}
