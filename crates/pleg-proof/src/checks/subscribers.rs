//! Subscribers that keep up and subscribers that lag, each with the product's own [`Inbox`].

use pleg_core::{Id, Inbox, LifecycleType, PodLifecycleEvent};

use crate::assertions::{self, CheckResult};
use crate::coverage::{CoverPoint, Coverage};
use crate::runtime::pod_of;

/// All subscribers of a world.
#[derive(Debug)]
pub struct Subscribers {
    prompt: Inbox,
    lagging: Vec<Lagging>,
}

/// A subscriber that takes its events only now and then.
#[derive(Debug)]
struct Lagging {
    inbox: Inbox,
    capacity: usize,
    /// The announcements since its last take.
    since: Vec<PodLifecycleEvent>,
    coalesced: u64,
    /// The most ids that existed since then: removed ones are cleaned up at the next take.
    present: u64,
}

impl Subscribers {
    /// One subscriber that keeps up, and a lagging one for each capacity.
    pub fn new(capacity: &[usize]) -> Self {
        Self {
            prompt: Inbox::new(1 << 16),
            lagging: capacity
                .iter()
                .map(|&capacity| Lagging::new(capacity))
                .collect(),
        }
    }

    /// An announcement; `present` ids exist, in `pods` pods with `names` names each, one of them the
    /// sandbox's.
    ///
    /// # Errors
    /// The subscriber that keeps up misses it, or the inbox of a lagging one is too large.
    pub fn announce(
        &mut self,
        event: &PodLifecycleEvent,
        present: u64,
        (pods, names): (usize, usize),
    ) -> CheckResult {
        self.prompt.push(event.clone());
        let got = self.prompt.pop();
        let (missed, more) = (self.prompt.take_missed(), self.prompt.pop());
        assertions::INBOX.holds(
            got.as_ref() == Some(event) && missed.is_none() && more.is_none(),
            || format!("a subscriber that keeps up gets {got:?} and not {event:?}"),
        )?;
        for one in &mut self.lagging {
            one.inbox.push(event.clone());
            one.since.push(event.clone());
            // For an existing id its terminal record and its last announcement; for each name the last three
            // terminal records, each with Died and Removed; for each pod a PodSync. Twice that between two
            // cleanups.
            let names = (names * pods) as u64;
            one.present = one.present.max(present);
            let recording = 3 * one.present + 3 * 2 * names + pods as u64 + 8;
            let bound = (one.capacity as u64).max(2 * recording) + 1;
            let waits = one.inbox.len() as u64;
            assertions::INBOX_BOUNDED.holds(waits <= bound, || {
                format!("{waits} wait for a lagging subscriber, {present} exist in {pods} pods")
            })?;
        }
        Ok(())
    }

    /// A lagging subscriber takes all its events.
    ///
    /// # Errors
    /// It lost an event without being told.
    pub fn take(&mut self, which: usize, coverage: &mut Coverage) -> CheckResult {
        let most = self.lagging.len().max(1);
        match self.lagging.get_mut(which % most) {
            Some(one) => one.take(coverage),
            None => Ok(()),
        }
    }
}

impl Lagging {
    const fn new(capacity: usize) -> Self {
        Self {
            inbox: Inbox::new(capacity),
            capacity,
            since: Vec::new(),
            coalesced: 0,
            present: 0,
        }
    }

    fn take(&mut self, coverage: &mut Coverage) -> CheckResult {
        let missed = self.inbox.take_missed().unwrap_or(0);
        coverage.hit_times(CoverPoint::LaggedReported, u64::from(missed > 0));
        let got: Vec<PodLifecycleEvent> = std::iter::from_fn(|| self.inbox.pop()).collect();
        let coalesced = self.inbox.coalesced() - self.coalesced;
        self.coalesced = self.inbox.coalesced();
        coverage.hit_times(CoverPoint::Coalesced, coalesced);
        let since = std::mem::take(&mut self.since);
        self.present = 0;
        // The output is a subsequence of the input. Compared from the end, because of two equal events the
        // later one replaces the earlier.
        let mut all = since.iter().enumerate().rev();
        let mut came = vec![false; since.len()];
        for event in got.iter().rev() {
            let Some((n, _)) = all.find(|(_, e)| *e == event) else {
                let what =
                    format!("a lagging subscriber gets {event:?} twice, late or out of nothing");
                return Err(assertions::INBOX.violated(what).in_pod(pod_of(&event.uid)));
            };
            came[n] = true;
        }
        let mut lost: Vec<(&Id, u32)> = Vec::new();
        for (n, event) in since.iter().enumerate() {
            let Some(s) = event.subject.as_ref().filter(|_| !came[n]) else {
                continue;
            };
            let matters = matches!(
                event.event,
                LifecycleType::ContainerDied | LifecycleType::ContainerRemoved
            );
            // An event that a later one of the same id replaced may be missing.
            let later = since[n + 1..]
                .iter()
                .any(|e| e.subject.as_ref().is_some_and(|other| other.id == s.id));
            if matters || !later {
                lost.push((&s.id, s.incarnation));
            }
        }
        lost.sort_unstable();
        lost.dedup();
        if lost.len() as u64 > missed {
            let announced = since.iter().zip(&came).filter_map(|(event, came)| {
                let s = event.subject.as_ref()?;
                let lost = lost.iter().any(|(id, _)| **id == s.id);
                let (id, n) = (&s.id, s.incarnation);
                lost.then(|| {
                    format!(
                        "{} {id} {n} {}",
                        event.event,
                        ["lost", "came"][usize::from(*came)]
                    )
                })
            });
            let announced: Vec<String> = announced.collect();
            let what = format!(
                "a lagging subscriber misses {lost:?} and gets Lagged({missed}): {announced:?}"
            );
            return Err(assertions::INBOX.violated(what));
        }
        Ok(())
    }
}
