//! The decision of a run, with what is kept between runs: the histories of all pods and their crash
//! back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::{ContainerState, Id, Instant, PodStatus, PodUid, PodView, TerminalRecord, WaitError};

use crate::actions::{Desired, PodActions, pod_actions};
use crate::backoff::{BackOff, BackOffSettings};
use crate::gc::{GcPolicy, Removal, removals_of_pod};
use crate::history::{Call, PodHistory};
use crate::probe::ProbeResults;
use crate::worker::Run;

/// How long an inspection may take. What does not need it waits, too.
const INSPECT_WITHIN: Duration = Duration::from_secs(2);
/// How long after an inspection that failed the pod is inspected again.
const INSPECT_AGAIN: Duration = Duration::from_secs(1);

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
}

impl Memory {
    fn history(&mut self, uid: &PodUid) -> &mut PodHistory {
        let left = || self.forgotten.get(uid).map(|f| f.left.clone());
        let history = self.histories.entry(uid.clone());
        history.or_insert_with(|| PodHistory::after(left().unwrap_or_default()))
    }
}

impl Decider {
    /// A decider that remembers nothing.
    #[must_use]
    pub fn new(back_off: BackOffSettings) -> Self {
        let memory = Memory {
            back_off: BackOff::new(back_off),
            histories: BTreeMap::new(),
            forgotten: BTreeMap::new(),
        };
        Self {
            memory: Mutex::new(memory),
        }
    }

    /// Decides what the pod of this run needs. If an exit code or the effect of a change of resources
    /// is missing, the pod is inspected once before. If that inspection fails, only what needs the exit
    /// code waits. `probes` gives the results for a status; without it, those of `desired` are used.
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
        match run.details_newer_than(after, INSPECT_WITHIN).await {
            Ok(view) => Ok(self.decide_from(run, desired, view, probes)),
            // Only what needs the code waits for it.
            Err(WaitError::Closed) => Err(WaitError::Closed),
            Err(error) => {
                tracing::debug!(pod = %run.uid, %error, "an exit code is still missing");
                let mut decision = decision;
                decision.actions.due_by(run.now().after(INSPECT_AGAIN));
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
        let (history, back_off) = (memory.histories.get(&run.uid), &memory.back_off);
        let actions = history.map(|h| pod_actions(&desired, &view, h, back_off, run.now()));
        let actions = actions.unwrap_or_default();
        Decision {
            view,
            probes,
            records,
            ends,
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
    /// # Cancel safety
    /// Dropping the future loses nothing; a removal is planned again with the next decision.
    pub async fn removals<S>(
        &self,
        run: &Run<S>,
        decision: &mut Decision,
        policy: GcPolicy,
    ) -> Vec<Removal> {
        let mut removals = removals_of_pod(run, decision, policy).await;
        let (mut memory, now) = (self.memory(), run.now());
        let history = memory.history(&run.uid);
        let view = decision.view.clone();
        removals.retain(|removal| {
            let (id, call, repeat_at) = match removal {
                Removal::StopContainer(id) => (id, Call::Stop, history.repeat_at(id, Call::Stop)),
                Removal::Sandbox(id) => (id, Call::Remove, history.repeat_garbage_at(id)),
                Removal::Container(id) => {
                    let unread = history.unread_since(id, view.inspected, now);
                    let unread = unread.filter(|_| is_startable(&view.status, id));
                    let again = unread.map(|since| since.max(now.after(INSPECT_AGAIN)));
                    (id, Call::Remove, again.max(history.repeat_garbage_at(id)))
                }
            };
            let repeat_at = repeat_at.filter(|at| *at > now);
            match repeat_at {
                Some(at) => decision.actions.due_by(at),
                None => history.called(id, call, now),
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
        memory.histories.remove(&run.uid);
        memory.back_off.forget(&run.uid);
        let status = &run.view.status;
        let mut left = BTreeSet::new();
        if !status.is_nothing() {
            left.extend(ids(status).cloned());
            let ends = ends(memory.forgotten.get(&run.uid), run);
            left.extend(ends.into_iter().map(|r| r.id));
        }
        let forgotten = Forgotten { at: now, left };
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
        let unread = unread.filter(|record| !is_final(&self.view, record));
        let unread = unread.map(|record| record.detected);
        self.actions.inspect_after.into_iter().chain(unread).max()
    }
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

/// Whether this record is not going to show more: its exit code is known, or it was asked for after the
/// end, or the container is gone.
#[must_use]
pub fn is_final(view: &PodView, record: &TerminalRecord) -> bool {
    let mut containers = view.status.containers.iter();
    record.exit_code.is_some()
        || view.inspected > Some(record.detected)
        || !containers.any(|c| c.id == record.id)
}
