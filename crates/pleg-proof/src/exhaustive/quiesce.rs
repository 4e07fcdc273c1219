//! The end of every run: no fault any more, what is under way ends in order, and after a while
//! the cache must be the truth and nothing may be owed.

use std::time::Duration;

use pleg_core::Kind;

use super::book;
use super::play::{Action, Phase, Play, State, TICK};
use super::script::{Stage, Step};

/// Long enough for what one run can leave behind: a few backoffs that began at a second, a miss
/// that is judged after five, the overruling of a removal after twelve.
const LONG: Duration = Duration::from_secs(40);
/// More steps than a run that comes to rest can need.
const MANY: usize = 1000;

impl Play<'_> {
    /// Lets time pass: whatever can be done is done at once, first what came first.
    pub fn run_fairly(&mut self, time: Duration) {
        let end = self.state.now + time.as_nanos() as u64;
        for _ in 0..MANY {
            if self.state.broken.is_some() {
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
                self.act(Action::Land {
                    read: 0,
                    first: last,
                    then: last,
                });
            } else {
                let due = self.state.machine.poll_timeout();
                if due.is_none_or(|t| t.as_nanos() > end) {
                    self.state.now = self.state.now.max(end);
                    return;
                }
                self.jump();
            }
        }
        self.broken("livelock: more steps than anything can justify");
    }

    pub fn settle(&mut self) {
        let asked = self.state.now;
        let late = self.state.late;
        self.run_fairly(LONG);
        self.state.phase = Phase::Settled;
        if self.state.broken.is_none()
            && let Err(broken) = self.at_rest(asked, late)
        {
            self.broken(broken);
        }
    }

    /// # Errors
    /// A law that is broken.
    fn at_rest(&mut self, since: u64, late: bool) -> Result<(), String> {
        let state = &self.state;
        if !state.book.waiting.is_empty() {
            return Err(format!("law 4: never answered: {:?}", state.book.waiting));
        }
        if !state.machine.is_idle() {
            return Err("law 11: something is under way for ever".into());
        }
        let now = pleg_core::Instant::from_nanos(state.now);
        let health = state.machine.health(now);
        if let Err(why) = health.ready(now) {
            return Err(format!("law 12: {why}"));
        }
        if !health.synced || !health.degraded(now).is_empty() {
            return Err(format!("law 12: not well again: {health:?}"));
        }
        for pod in 0..self.cast.pods.len() {
            self.pod_at_rest(pod, since)?;
        }
        self.misses_at_rest(late)
    }

    fn pod_at_rest(&self, pod: usize, since: u64) -> Result<(), String> {
        let (state, cached) = (&self.state, &self.state.book.cache[pod]);
        let mut exists = false;
        for who in self.cast.of_pod(pod) {
            let (id, is, shown) = (&self.cast.ids[who], state.truth[who], cached.stages[who]);
            let noted = &state.book.noted[who];
            exists |= is.exists();
            if is.exists() != shown.exists() || (is.exists() && is != shown) {
                return Err(format!(
                    "section 7: at rest {id} is {is:?} and shown {shown:?}"
                ));
            }
            if is == Stage::Exited && self.cast.kind(who) == Kind::Container && !cached.codes[who] {
                return Err(format!(
                    "section 2: at rest the exit code of {id} is not known"
                ));
            }
            let (started, died, removed) = match is {
                Stage::Running => (true, false, false),
                Stage::Exited => (noted.started, true, false),
                Stage::Removed if noted.published => (noted.started, true, true),
                _ => continue,
            };
            // Of who was lied about, what was said before may be of another incarnation.
            let said = (noted.started, noted.died, noted.removed);
            if said != (started, died, removed) && !noted.lied {
                return Err(format!(
                    "law 9: {id} is {is:?}, and said of it was {noted:?}"
                ));
            }
        }
        if exists && (cached.error || cached.as_of < Some(since)) {
            return Err(format!(
                "law 3: at rest the view of a pod is old: {cached:?}"
            ));
        }
        Ok(())
    }

    /// A loss is found, and none is made up (law 10).
    fn misses_at_rest(&self, late: bool) -> Result<(), String> {
        let state = &self.state;
        let missed: u64 = state.machine.counters().missed.iter().sum();
        let noted = &state.book.noted;
        if state.book.cuts > 0 || noted.iter().any(|n| n.lied) {
            return Ok(());
        }
        let unheard = (0..self.cast.ids.len())
            .find(|&w| book::unheard(self.cast, w, &noted[w], state.truth[w]));
        match unheard {
            Some(who) if missed == 0 => Err(format!(
                "law 10: no event told that {} is {:?}, and no audit counts it",
                self.cast.ids[who], state.truth[who]
            )),
            None if missed > 0 && state.book.drops == 0 && !late => {
                Err(format!("law 10: {missed} missed, and nothing was lost"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a run can come to rest: nothing is under way and nothing more is to happen.
pub fn may_rest(play: &State, scripts: &[&[Step]]) -> bool {
    let over = |n: usize| usize::from(play.done[n]) == scripts[n].len();
    (0..scripts.len()).all(over) && play.queue.is_empty() && play.reads.is_empty() && play.streaming
}
