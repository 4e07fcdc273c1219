//! Callers that wait for a view that is newer than an instant.

use std::collections::BTreeMap;

use crate::types::ids::PodUid;
use crate::types::time::Instant;

/// The number of a waiter. The driver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

impl WaiterId {
    /// The waiter with that number. Numbers must not be reused.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    id: WaiterId,
    /// The rows must have been requested later than this.
    after: Instant,
    /// Every status must have been read, too.
    details: bool,
}

/// All waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waiters {
    of_pod: BTreeMap<PodUid, Vec<Waiter>>,
    pod_of: BTreeMap<WaiterId, PodUid>,
    /// Those that wait for a complete relist, and when they asked.
    of_relist: Vec<(WaiterId, Instant)>,
}

impl Waiters {
    pub(crate) fn wait(&mut self, uid: &PodUid, id: WaiterId, after: Instant, details: bool) {
        let waiter = Waiter { id, after, details };
        self.of_pod.entry(uid.clone()).or_default().push(waiter);
        self.pod_of.insert(id, uid.clone());
    }

    pub(crate) fn wait_for_relist(&mut self, id: WaiterId, asked: Instant) {
        self.of_relist.push((id, asked));
    }

    /// Forgets a waiter. Returns its pod.
    pub(crate) fn cancel(&mut self, id: WaiterId) -> Option<PodUid> {
        self.of_relist.retain(|(other, _)| *other != id);
        let uid = self.pod_of.remove(&id)?;
        self.take(&uid, |waiter| waiter.id == id);
        Some(uid)
    }

    /// The waiters that a read answers whose rows were requested at `as_of`. `details`: it has read every
    /// status.
    pub(crate) fn answered(
        &mut self,
        uid: &PodUid,
        as_of: Instant,
        details: bool,
    ) -> Vec<WaiterId> {
        self.take(uid, |waiter| {
            waiter.after < as_of && (details || !waiter.details)
        })
    }

    /// The waiters of a read that has failed which began then.
    pub(crate) fn failed(&mut self, uid: &PodUid, began: Instant) -> Vec<WaiterId> {
        self.take(uid, |waiter| waiter.after < began)
    }

    /// The waiters for a relist that one answers that began at `began`.
    pub(crate) fn relisted(&mut self, began: Instant) -> Vec<WaiterId> {
        let of_relist = std::mem::take(&mut self.of_relist);
        let (answered, left) = of_relist
            .into_iter()
            .partition(|(_, asked)| *asked <= began);
        self.of_relist = left;
        let answered: Vec<(WaiterId, Instant)> = answered;
        answered.into_iter().map(|(id, _)| id).collect()
    }

    /// The pods for which a caller waits.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.of_pod.keys()
    }

    /// When a read of the pod must begin for its waiters.
    pub(crate) fn due(&self, uid: &PodUid) -> Option<Instant> {
        let waiters = self.of_pod.get(uid)?;
        // The clock never gives an instant twice, so a read that begins then has later rows.
        waiters.iter().map(|waiter| waiter.after).min()
    }

    /// Returns true if a read of the pod that begins at `now` must read every status.
    pub(crate) fn want_details(&self, uid: &PodUid, now: Instant) -> bool {
        let waiters = self.of_pod.get(uid).into_iter().flatten();
        waiters
            .into_iter()
            .any(|waiter| waiter.details && waiter.after <= now)
    }

    /// The number of waiters.
    pub(crate) fn len(&self) -> usize {
        self.pod_of.len() + self.of_relist.len()
    }

    fn take(&mut self, uid: &PodUid, which: impl Fn(&Waiter) -> bool) -> Vec<WaiterId> {
        let Some(waiters) = self.of_pod.get_mut(uid) else {
            return Vec::new();
        };
        let (taken, left) = std::mem::take(waiters).into_iter().partition(|w| which(w));
        *waiters = left;
        if waiters.is_empty() {
            self.of_pod.remove(uid);
        }
        let taken: Vec<Waiter> = taken;
        for waiter in &taken {
            self.pod_of.remove(&waiter.id);
        }
        taken.into_iter().map(|waiter| waiter.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn only_rows_requested_later_answer() {
        let (mut waiters, p) = (Waiters::default(), PodUid::from("p"));
        let [one, two] = [1, 2].map(WaiterId::new);
        waiters.wait(&p, one, at(10), false);
        waiters.wait(&p, two, at(20), true);
        assert_eq!(waiters.due(&p), Some(at(10)));
        assert_eq!(waiters.answered(&p, at(10), true), []);
        assert_eq!(waiters.answered(&p, at(21), false), [one]);
        assert!(!waiters.want_details(&p, at(19)) && waiters.want_details(&p, at(20)));
        assert_eq!(waiters.answered(&p, at(21), true), [two]);
        assert_eq!(waiters, Waiters::default());
    }

    #[test]
    fn cancelled_waiter_leaves_nothing() {
        let (mut waiters, p) = (Waiters::default(), PodUid::from("p"));
        let [one, two] = [1, 2].map(WaiterId::new);
        waiters.wait(&p, one, at(10), false);
        waiters.wait_for_relist(two, at(1));
        assert_eq!(waiters.cancel(one), Some(p));
        assert_eq!(waiters.cancel(two), None);
        assert_eq!(waiters, Waiters::default());
    }
}
