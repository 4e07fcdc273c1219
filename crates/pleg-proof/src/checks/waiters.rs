//! Checks waiters: answered only by reads that began late enough, and in time.

use pleg_core::{CallError, Id, Instant, PodUid, PodView, WaiterId};

use super::{Checks, Input, Waiter, states};
use crate::assertions::{self, CheckResult};
use crate::coverage::CoverPoint;
use crate::oracle::Oracle;
use crate::runtime::pod_of;

/// The deadlines of a list and of an inspection.
const LIST_AND_INSPECTION: u64 = 15_000_000_000;

impl Checks {
    /// A new waiter. `urgent`: the pod and the runtime work.
    pub fn waiter_added(
        &mut self,
        waiter: WaiterId,
        pod: &PodUid,
        (after, asked): (Instant, Instant),
        urgent: bool,
    ) {
        let (pod, number) = (pod.clone(), self.last_inspection);
        let asked = Waiter {
            pod,
            after,
            asked,
            number,
            urgent,
        };
        self.waiting.insert(waiter, asked);
    }

    pub fn cancelled(&mut self, waiter: WaiterId) {
        self.waiting.remove(&waiter);
    }

    /// A fault may delay answers about these pods, or about all pods.
    pub fn no_longer_urgent(&mut self, pod: Option<&PodUid>) {
        for asked in self.waiting.values_mut() {
            asked.urgent &= pod.is_some_and(|pod| asked.pod != *pod);
        }
    }

    pub(super) fn answer(
        &mut self,
        oracle: &Oracle,
        now: u64,
        waiter: WaiterId,
        answer: &Result<PodView, CallError>,
    ) -> CheckResult {
        let Some(asked) = self.waiting.remove(&waiter) else {
            let what = format!("{waiter:?} is answered and does not wait");
            return Err(assertions::ANSWERED_ONCE.violated(what));
        };
        let of = pod_of(&asked.pod);
        match answer {
            Ok(view) => self
                .answered(oracle, now, &asked, view)
                .map_err(|violation| violation.in_pod(of)),
            Err(_) => {
                self.coverage.hit(CoverPoint::AnsweredWithError);
                // A pod that is read by a complete list gets the error of that list.
                if self.input == Some(Input::List) {
                    return Ok(());
                }
                let failed = self.failed.get(&asked.pod);
                assertions::OWN_ERROR
                    .holds(failed.is_some_and(|&t| t > asked.number), || {
                        format!("{waiter:?} gets an error of no read that it caused")
                    })
                    .map_err(|violation| violation.in_pod(of))
            }
        }
    }

    fn answered(
        &mut self,
        oracle: &Oracle,
        now: u64,
        asked: &Waiter,
        view: &PodView,
    ) -> CheckResult {
        let point = match self.input {
            Some(Input::Request) => Some(CoverPoint::AnsweredAtOnce),
            Some(Input::Inspection) => Some(CoverPoint::AnsweredByInspection),
            // A list may answer, but the inspection in flight usually answers first.
            Some(Input::List) => None,
            // The confirming read was cancelled, so the one before answers.
            Some(Input::Timer) if self.was_read(asked, view) => None,
            other => {
                let what = format!("{asked:?} is answered after {other:?}");
                return Err(assertions::ONLY_READS_ANSWER.violated(what));
            }
        };
        if let Some(point) = point {
            self.coverage.hit(point);
        }
        if asked.after > asked.asked {
            self.coverage.hit(CoverPoint::AnsweredFuture);
        }
        if view.status.is_nothing() {
            self.coverage.hit(CoverPoint::AnsweredNothing);
        }
        let Some(as_of) = view.as_of.filter(|&t| t >= asked.after) else {
            let as_of = view.as_of;
            let what = format!("{asked:?} is answered as of {as_of:?}");
            return Err(assertions::NEWER_THAN_ASKED.violated(what));
        };
        if as_of == asked.after && as_of < asked.asked {
            let what = format!("{asked:?} is answered by a read that did not begin after");
            return Err(assertions::NEWER_THAN_ASKED.violated(what));
        }
        // Until a contradiction is decided, an answer shows every id that its own read showed.
        if let (Some(Input::Inspection), Some((began, found))) = (self.input, &self.last_found)
            && *began == as_of
        {
            for id in found {
                // A read does not contradict a removal after its start.
                let removed = self.lookup(oracle, id).is_none_or(|record| {
                    let left_cache = record.left_cache.as_ref().map(|(gone, _)| *gone);
                    let reported_end = record.end_reported.map(Instant::as_nanos);
                    left_cache.max(reported_end) >= Some(began.as_nanos())
                });
                let shows = states(&view.status).any(|(other, _)| other == id);
                let excused = removed || !self.belongs_to(oracle, id, &asked.pod);
                assertions::ANSWER_SHOWS_READ.holds(shows || excused, || {
                    format!("{asked:?} is not shown {id}, which its own read showed")
                })?;
            }
        }
        self.answer_equals_cache(asked, view)?;
        let known = self.cache.get(&asked.pod);
        let known = known.map(|k| (k.as_of, k.inspected));
        self.fresh(oracle, now, &asked.pod, view, known)
    }

    /// Whether a complete inspection of the pod, or a complete list, began at the as-of of the view.
    fn was_read(&self, asked: &Waiter, view: &PodView) -> bool {
        let begins = self.inspections.get(&asked.pod);
        view.as_of.is_some_and(|as_of| {
            begins.is_some_and(|begins| begins.contain(as_of)) || self.lists.contain(as_of)
        })
    }

    /// An answer shows what the cache shows.
    fn answer_equals_cache(&self, asked: &Waiter, view: &PodView) -> CheckResult {
        let cached = self.cache.get(&asked.pod).map(|v| &*v.status);
        let cached: Vec<_> = cached.into_iter().flat_map(states).collect();
        let answered: Vec<_> = states(&view.status).collect();
        assertions::ANSWER_EQUALS_CACHE.holds(answered == cached, || {
            format!("{asked:?} is answered {answered:?}, the cache shows {cached:?}")
        })
    }

    fn belongs_to(&self, oracle: &Oracle, id: &Id, uid: &PodUid) -> bool {
        oracle.object(id).map(|l| l.pod) == pod_of(uid)
    }

    /// # Errors
    /// A waiter is older than `nanos`, or than 5 s if it is urgent.
    pub fn wait_deadlines(&self, now: u64, nanos: u64) -> CheckResult {
        for asked in self.waiting.values() {
            let since = asked.after.max(asked.asked).as_nanos();
            let (assertion, most) = if asked.urgent {
                // A read that began before a future instant neither serves nor fails its waiter, and ends within
                // 5 s; another read follows.
                let reads = 1 + u64::from(asked.after > asked.asked);
                (assertions::HEALTHY_SERVED, reads * 5_000_000_000)
            } else {
                (assertions::ALL_ANSWERED, nanos)
            };
            if now > since + most && !self.waits_for_list(now, since) {
                let what = format!("kept waiting: {asked:?}");
                return Err(assertion.violated(what).in_pod(pod_of(&asked.pod)));
            }
        }
        Ok(())
    }

    /// Whether a waiter since then may wait for a complete list, or for the inspection that follows
    /// a complete list which shows changes.
    pub fn waits_for_list(&self, now: u64, since: u64) -> bool {
        let list = self.lists.first_after(Instant::from_nanos(since));
        let is_recent = |began: Instant| now < began.as_nanos() + LIST_AND_INSPECTION;
        self.missing_labels && list.is_none_or(is_recent)
    }

    /// # Errors
    /// A waiter is not answered in time.
    pub fn all_answered(&self, now: u64) -> CheckResult {
        let late = |a: &&Waiter| a.after.as_nanos() < now;
        match self.waiting.values().find(late) {
            Some(asked) => Err(assertions::ALL_ANSWERED
                .violated(format!("not answered: {asked:?}"))
                .in_pod(pod_of(&asked.pod))),
            None => Ok(()),
        }
    }
}
