//! The decision of a run, with what is kept between runs: the histories of all pods and their crash
//! back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::{
    ContainerState, Id, Instant, InvalidSetting, PodStatus, PodUid, PodView, TerminalRecord,
    WaitError,
};

use crate::actions::{Desired, PodActions, pod_actions};
use crate::backoff::{BackOff, BackOffSettings};
use crate::gc::{GcPolicy, Removal, removals_of_pod};
use crate::history::{Call, PodHistory, inspect_again};
use crate::probe::ProbeResults;
use crate::worker::Run;

/// How long an inspection may take. What does not need it waits, too.
const INSPECT_WITHIN: Duration = Duration::from_secs(2);

/// For how long the generator keeps the records of a pod that is gone, and some more.
const RECORDS_KEPT: Duration = Duration::from_secs(11 * 60);

/// What a run decided, and from what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The status that it was decided from: that of the run, or a later one.
    pub view: PodView,
    /// What the probes say of it.
    pub probes: Option<ProbeResults>,
    /// How containers and sandboxes of the pod ended.
    pub records: Arc<[TerminalRecord]>,
    /// The same, and how those ended that an earlier pod of this uid left behind: these ends are to be reported and
    /// acknowledged.
    pub ends: Vec<TerminalRecord>,
    /// The containers among them whose exit code is not known, and may still become known.
    pub unread: BTreeSet<Id>,
    /// What the pod needs now.
    pub actions: PodActions,
}

/// Gives what the probes say of a status.
pub type Probes<'a> = &'a (dyn Fn(&PodStatus) -> ProbeResults + Sync);

/// Decides what pods need. One for all pods.
#[derive(Debug)]
pub struct Decider {
    memory: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    back_off: BackOff,
    histories: BTreeMap<PodUid, PodHistory>,
    /// Pods that were forgotten. Their ends do not count if they come back.
    forgotten: BTreeMap<PodUid, Forgotten>,
}

#[derive(Debug)]
struct Forgotten {
    at: Instant,
    /// What was left behind, and what has records. They are of the earlier pod, also if they end later.
    left: BTreeSet<Id>,
    /// See [`PodHistory::is_given_up`].
    unanswered: Option<Instant>,
}

impl Memory {
    fn history(&mut self, uid: &PodUid) -> &mut PodHistory {
        let forgotten = &self.forgotten;
        let history = self.histories.entry(uid.clone());
        history.or_insert_with(|| match forgotten.get(uid) {
            Some(earlier) => PodHistory::after(earlier.left.clone(), earlier.unanswered),
            None => PodHistory::default(),
        })
    }
}

impl Decider {
    /// A decider that remembers nothing.
    ///
    /// # Errors
    /// If a setting of the back-off is invalid.
    pub fn new(back_off: BackOffSettings) -> Result<Self, InvalidSetting> {
        let memory = Memory {
            back_off: BackOff::new(back_off)?,
            histories: BTreeMap::new(),
            forgotten: BTreeMap::new(),
        };
        Ok(Self {
            memory: Mutex::new(memory),
        })
    }

    /// Decides what the pod of this run needs. If an exit code or the effect of a change of resources
    /// is missing, the pod is inspected once before. If that inspection fails, only what needs the exit
    /// code waits. The inspection is repeated after 1 s, 2 s, and so on up to 1 min. A code that the runtime, which lists
    /// the pod, has not given for a minute is not waited for any more. `probes` gives the results for a status; without it, those of `desired` are used.
    ///
    /// The decision is not recorded: see [`record`](Self::record).
    ///
    /// # Errors
    /// If the generator has ended.
    ///
    /// # Cancel safety
    /// Dropping the future records nothing.
    pub async fn decide<S>(
        &self,
        run: &Run<S>,
        desired: Desired<'_>,
        probes: Option<Probes<'_>>,
    ) -> Result<Decision, WaitError> {
        let decision = self.decide_from(run, desired, run.view.clone(), probes);
        let Some(after) = decision.missing_since() else {
            return Ok(decision);
        };
        let listed = run.pleg().get(&run.uid).as_of;
        match run.details_newer_than(after, INSPECT_WITHIN).await {
            Ok(view) => Ok(self.decide_from(run, desired, view, probes)),
            // Only what needs the code waits for it.
            Err(WaitError::Closed) => Err(WaitError::Closed),
            Err(error) => {
                tracing::debug!(pod = %run.uid, %error, "an exit code is still missing");
                self.memory().history(&run.uid).unanswered(listed);
                let mut decision = self.decide_from(run, desired, decision.view, probes);
                let again = decision.missing_since();
                let again = again.map(|since| inspect_again(since, run.now()));
                decision.actions.due = decision.actions.due.into_iter().chain(again).min();
                Ok(decision)
            }
        }
    }

    fn decide_from<S>(
        &self,
        run: &Run<S>,
        desired: Desired<'_>,
        view: PodView,
        probes: Option<Probes<'_>>,
    ) -> Decision {
        let (records, ends) = (self.records(run), self.ends(run));
        let probes = probes.map(|probes| probes(&view.status));
        let desired = Desired {
            probes: probes.as_ref().or(desired.probes),
            ..desired
        };
        let memory = &mut *self.memory();
        let history = memory.history(&run.uid);
        history.observe(&view.status, &records, run.now());
        if run.failures > 0 {
            history.stops_have_failed();
        }
        let is_unread = |r: &&TerminalRecord| !history.is_final(&view, r);
        let unread = ends.iter().filter(is_unread).map(|r| r.id.clone());
        let unread = unread.collect();
        let (history, back_off) = (memory.histories.get(&run.uid), &memory.back_off);
        let actions = history.map(|h| pod_actions(&desired, &view, h, back_off, run.now()));
        let actions = actions.unwrap_or_default();
        Decision {
            view,
            probes,
            records,
            ends,
            unread,
            actions,
        }
    }

    /// Takes over a decision, without what is not going to be tried, before its first call. See
    /// [`PodHistory::record`].
    pub fn record<S>(&self, run: &Run<S>, actions: &PodActions) {
        let memory = &mut *self.memory();
        memory.history(&run.uid);
        if let Some(history) = memory.histories.get_mut(&run.uid) {
            history.record(&run.uid, actions, &mut memory.back_off, run.now());
        }
    }

    /// What to remove of the pod of this run now, after the actions of the decision: a replacement does
    /// not wait for it. A removal that has no effect is repeated after 10 s, 20 s, and so on up to 5 min;
    /// then the decision is due.
    ///
    /// What has ended waits for its acknowledgement: of each name the newest [`GcPolicy::max_unacknowledged`], and if the
    /// pod is deleted for 10 min at most ([`Health::ACKNOWLEDGED_WITHIN`](pleg::core::Health::ACKNOWLEDGED_WITHIN)). What is removed without it is logged and
    /// counted (`pleg_unacknowledged_removals_total`); its terminal record stays.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; a removal is planned again with the next decision.
    pub async fn removals<S>(
        &self,
        run: &Run<S>,
        decision: &mut Decision,
        policy: GcPolicy,
    ) -> Vec<Removal> {
        let (mut removals, unacknowledged) = removals_of_pod(run, decision, policy).await;
        let (mut memory, now) = (self.memory(), run.now());
        let history = memory.history(&run.uid);
        let view = decision.view.clone();
        removals.retain(|removal| {
            let (id, call, repeat_at) = match removal {
                Removal::StopContainer(id) => (id, Call::Stop, history.repeat_at(id, Call::Stop)),
                Removal::Sandbox(id) => (id, Call::Remove, history.repeat_garbage_at(id)),
                Removal::Container(id) => {
                    let unread = history.unread_since(id, view.details_as_of, now);
                    let unread = unread.filter(|_| is_startable(&view.status, id));
                    let again = unread.map(|since| since.max(inspect_again(since, now)));
                    (id, Call::Remove, again.max(history.repeat_garbage_at(id)))
                }
            };
            let repeat_at = repeat_at.filter(|at| *at > now);
            match repeat_at {
                Some(at) => decision.actions.due_by(at),
                None => {
                    if unacknowledged.contains(id) && call == Call::Remove {
                        unacknowledged_removal(&run.uid, id);
                    }
                    history.called(id, call, now);
                }
            }
            repeat_at.is_none()
        });
        removals
    }

    /// How containers and sandboxes of the pod ended. An earlier pod of the same uid has another history: a manifest
    /// may be removed and put back.
    fn records<S>(&self, run: &Run<S>) -> Arc<[TerminalRecord]> {
        let records = run.terminal_records();
        match self.memory().forgotten.get(&run.uid) {
            None => records,
            Some(earlier) => {
                let own =
                    |r: &&TerminalRecord| r.detected > earlier.at && !earlier.left.contains(&r.id);
                records.iter().filter(own).cloned().collect()
            }
        }
    }

    /// See [`Decision::ends`]. For the end of a worker, which makes no decision.
    #[must_use]
    pub fn ends<S>(&self, run: &Run<S>) -> Vec<TerminalRecord> {
        ends(self.memory().forgotten.get(&run.uid), run)
    }

    /// Drops what is kept of a pod whose worker has ended. If a pod of the same uid comes back, what ended before does
    /// not count, nor what is left of it.
    pub fn forget<S>(&self, run: &Run<S>) {
        let (mut memory, now) = (self.memory(), run.now());
        let memory = &mut *memory;
        let history = memory.histories.remove(&run.uid);
        memory.back_off.forget(&run.uid);
        let status = &run.view.status;
        let mut left = BTreeSet::new();
        if status.exists() {
            left.extend(ids(status).cloned());
            let ends = ends(memory.forgotten.get(&run.uid), run);
            left.extend(ends.into_iter().map(|r| r.id));
        }
        let forgotten = Forgotten {
            at: now,
            left,
            unanswered: history.and_then(|history| history.last_unanswered()),
        };
        memory.forgotten.insert(run.uid.clone(), forgotten);
        let histories = &memory.histories;
        memory
            .forgotten
            .retain(|uid, f| histories.contains_key(uid) || now.since(f.at) < RECORDS_KEPT);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decision {
    /// Since when something is missing that an inspection may show.
    fn missing_since(&self) -> Option<Instant> {
        let unread = self.ends.iter();
        let unread = unread.filter(|record| self.unread.contains(&record.id));
        let unread = unread.map(|record| record.detected);
        self.actions.inspect_after.into_iter().chain(unread).max()
    }
}

fn unacknowledged_removal(pod: &PodUid, id: &Id) {
    metrics::counter!("pleg_unacknowledged_removals_total").increment(1);
    tracing::warn!(%pod, %id, "removing what has ended before a registered consumer has acknowledged its end");
}

/// Whether the container was created, so that a start of it may take effect or have failed. If its status cannot be
/// read, that never becomes known.
fn is_startable(status: &PodStatus, id: &Id) -> bool {
    let mut containers = status.containers.iter();
    let container = containers.find(|c| c.id == *id);
    container.is_some_and(|c| c.state == ContainerState::Created && c.error.is_none())
}

/// The terminal records of what is of this pod, or was left behind by an earlier one of the same uid.
fn ends<S>(earlier: Option<&Forgotten>, run: &Run<S>) -> Vec<TerminalRecord> {
    let exists = |id: &Id| ids(&run.view.status).any(|other| other == id);
    let counts = |r: &&TerminalRecord| {
        earlier.is_none_or(|e| r.detected > e.at || e.left.contains(&r.id) || exists(&r.id))
    };
    run.terminal_records()
        .iter()
        .filter(counts)
        .cloned()
        .collect()
}

fn ids(status: &PodStatus) -> impl Iterator<Item = &Id> {
    let containers = status.containers.iter().map(|c| &c.id);
    containers.chain(status.sandboxes.iter().map(|s| &s.id))
}
