//! The end of every run: without faults everything in flight completes; then the cache must equal
//! the true state and nothing may be owed.

use std::time::Duration;

use pleg_core::Kind;

use super::checks;
use super::execution::{Execution, TICK};
use super::kubelet::Worker;
use super::scenario::{Stage, Step};
use super::state::{Action, Phase, State};

/// Longer than anything one run leaves behind: a few backoffs from a second, a miss that is counted
/// after five, a removal that is overruled after twelve.
const LONG: Duration = Duration::from_secs(40);
/// More steps than a run needs to become quiescent.
const MANY: usize = 1000;

impl Execution<'_> {
    /// Advances time without faults: everything possible happens at once, in order.
    pub fn run_without_faults(&mut self, time: Duration) {
        let end = self.state.now + time.as_nanos() as u64;
        for _ in 0..MANY {
            if self.state.violation.is_some() {
                return;
            }
            if !self.state.streaming {
                self.act(Action::Subscribe);
            } else if !self.state.queue.is_empty() {
                self.state.now += TICK;
                self.act(Action::Deliver {
                    second: false,
                    late: false,
                    again: false,
                });
            } else if !self.state.reads.is_empty() {
                self.state.now += TICK;
                let last = self.state.reads[0].seen.len() - 1;
                self.act(Action::Complete {
                    read: 0,
                    first: last,
                    then: last,
                });
            } else if let Some(pod) = self.state.workers.iter().position(|w| !w.is_idle()) {
                self.state.now += TICK;
                self.act(if self.state.workers[pod].is_acting() {
                    Action::Operate { pod }
                } else {
                    Action::RunWorker { pod }
                });
            } else {
                let due = self.state.reconciler.poll_timeout();
                if due.is_none_or(|t| t.as_nanos() > end) {
                    self.state.now = self.state.now.max(end);
                    return;
                }
                self.advance_time();
            }
        }
        self.violated("livelock: more steps than anything can justify");
    }

    pub fn quiesce(&mut self) {
        let asked = self.state.now;
        let late = self.state.late;
        self.run_without_faults(LONG);
        self.state.phase = Phase::Quiescent;
        if self.state.violation.is_none()
            && let Err(violation) = self.check_quiescent(asked, late)
        {
            self.violated(violation);
        }
    }

    /// # Errors
    /// An invariant is violated.
    fn check_quiescent(&mut self, since: u64, late: bool) -> Result<(), String> {
        let state = &self.state;
        if !state.checks.waiting.is_empty() {
            return Err(format!(
                "invariant 4: never answered: {:?}",
                state.checks.waiting
            ));
        }
        if !state.reconciler.is_idle() {
            return Err("invariant 11: something is in flight for ever".into());
        }
        let now = pleg_core::Instant::from_nanos(state.now);
        let health = state.reconciler.health(now);
        if let Err(why) = health.ready(now) {
            return Err(format!("invariant 12: {why}"));
        }
        if !health.synced || !health.degraded(now).is_empty() {
            return Err(format!("invariant 12: not well again: {health:?}"));
        }
        for pod in 0..self.model.pods.len() {
            self.check_pod_quiescent(pod, since)?;
        }
        self.check_workers()?;
        self.check_misses(late)
    }

    fn check_pod_quiescent(&self, pod: usize, since: u64) -> Result<(), String> {
        let (state, cached) = (&self.state, &self.state.checks.cache[pod]);
        let mut exists = false;
        for object in self.model.of_pod(pod) {
            let (id, is, shown) = (
                &self.model.ids[object],
                state.oracle[object],
                cached.stages[object],
            );
            let record = &state.checks.records[object];
            exists |= is.exists();
            if is.exists() != shown.exists() || (is.exists() && is != shown) {
                return Err(format!(
                    "section 7: at rest {id} is {is:?} and shown {shown:?}"
                ));
            }
            if is == Stage::Exited
                && self.model.kind(object) == Kind::Container
                && !cached.codes[object]
            {
                return Err(format!(
                    "section 2: at rest the exit code of {id} is not known"
                ));
            }
            let (started, died, removed) = match is {
                Stage::Running => (true, false, false),
                Stage::Exited => (record.started, true, false),
                Stage::Removed if record.published => (record.started, true, true),
                _ => continue,
            };
            // Announcements of a misreported object may belong to another incarnation.
            let said = (record.started, record.died, record.removed);
            if said != (started, died, removed) && !record.misreported {
                return Err(format!(
                    "invariant 9: {id} is {is:?}, and its record is {record:?}"
                ));
            }
        }
        if exists && (cached.error || cached.as_of < Some(since)) {
            return Err(format!(
                "invariant 3: at rest the view of a pod is old: {cached:?}"
            ));
        }
        Ok(())
    }

    /// A loss is counted as missed, and nothing else is (invariant 10).
    fn check_misses(&self, late: bool) -> Result<(), String> {
        let state = &self.state;
        let missed: u64 = state.reconciler.counters().missed.total();
        let records = &state.checks.records;
        if state.checks.cuts > 0 || records.iter().any(|n| n.misreported) {
            return Ok(());
        }
        let must_be_missed = (0..self.model.ids.len())
            .find(|&w| checks::must_be_missed(self.model, w, &records[w], state.oracle[w]));
        match must_be_missed {
            Some(object) if missed == 0 => Err(format!(
                "invariant 10: no event reported that {} is {:?}, and no relist counts it as missed",
                self.model.ids[object], state.oracle[object]
            )),
            None if missed > 0 && state.checks.drops == 0 && !late => Err(format!(
                "invariant 10: {missed} missed, and nothing was lost"
            )),
            _ => Ok(()),
        }
    }
}

/// The next step of a script, if it is possible: a worker may have to start the object first.
pub fn next_step(state: &State, script: usize, steps: &[Step]) -> Option<Step> {
    let step = steps.get(usize::from(state.done[script])).copied();
    step.filter(|&Step(object, to)| to != Stage::Exited || state.oracle[object] == Stage::Running)
}

/// Whether a run can end: the scripts can not go on and nothing is in flight.
pub fn may_stop(state: &State, scripts: &[&[Step]]) -> bool {
    let over = |n: usize| next_step(state, n, scripts[n]).is_none();
    (0..scripts.len()).all(over)
        && state.queue.is_empty()
        && state.reads.is_empty()
        && state.workers.iter().all(Worker::is_idle)
        && state.streaming
}
