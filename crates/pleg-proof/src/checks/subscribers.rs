//! Subscribers: one that keeps up and some that lag, each with the product's own [`Inbox`].

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

/// One who takes what waits now and then.
#[derive(Debug)]
struct Lagging {
    inbox: Inbox,
    capacity: usize,
    /// What was announced since it last took anything.
    since: Vec<PodLifecycleEvent>,
    coalesced: u64,
    /// The most that existed at a time since then: what has gone meanwhile is tidied up next time.
    present: u64,
}

impl Subscribers {
    /// One that keeps up, and a lagging subscriber for each bound.
    pub fn new(capacity: &[usize]) -> Self {
        Self {
            prompt: Inbox::new(1 << 16),
            lagging: capacity
                .iter()
                .map(|&capacity| Lagging::new(capacity))
                .collect(),
        }
    }

    pub const fn is_lagging(&self) -> bool {
        !self.lagging.is_empty()
    }

    /// Something is announced; `present` ids are announced and not removed, of so many pods with so
    /// many names each, one of them the sandbox's.
    ///
    /// # Errors
    /// The one that keeps up does not get it, or too much waits for a lagging subscriber.
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
            // An id that exists: its end, and what was said of it last; of each name the last
            // three ends, each Died and Removed; a PodSync for each pod. Twice that between
            // one time of tidying up and the next.
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

    /// One that lags takes all that waits.
    ///
    /// # Errors
    /// It has lost something and is not told.
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
        // What comes out is what went in, in order, with gaps. Looked at from the end: of two that
        // are alike it is the later one that came, for it has overtaken the other.
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
            // What a later state has overtaken may go; that one is looked at by itself.
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
                "a lagging subscriber misses {lost:?} and is told of {missed}: {announced:?}"
            );
            return Err(assertions::INBOX.violated(what));
        }
        Ok(())
    }
}
