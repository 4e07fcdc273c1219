//! Plans of the calls that a pod needs now, from its status and its history.

mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pleg::core::{Health, SandboxState};
use pleg::{
    Consumer, ContainerState, Exit, Id, Instant, InvalidSetting, PodStatus, PodView, WaitError,
};

use crate::actions::{Actions, Decision, Desired, PodPhase, WaitReason};
use crate::backoff::BackOffSettings;
use crate::gc::{Removal, removals};
use crate::history::inspect_again;
use crate::lock;
use crate::probe::ProbeResults;
use crate::spec::{grace_period, spec_of};
use crate::worker::Run;

use memory::Memory;

/// Deadline of an inspection, which delays the plan.
const INSPECT_WITHIN: Duration = Duration::from_secs(2);

/// Returns the results of a pod's probes for a status.
type Probes<'a> = &'a (dyn Fn(&PodStatus) -> ProbeResults + Sync);

/// Plans what pods need. Create one for all pods of a node.
///
/// While the worker of a pod lives, the planner remembers its used attempt numbers, its exits and its back-off.
#[must_use]
#[derive(Debug)]
pub struct Planner {
    consumer: Option<Consumer>,
    memory: Mutex<Memory>,
}

impl Planner {
    /// A planner that remembers nothing, with the delays of `back_off` between restarts.
    ///
    /// # Errors
    /// If a setting of the back-off is invalid.
    pub fn new(back_off: BackOffSettings) -> Result<Self, InvalidSetting> {
        back_off.validate()?;
        let (consumer, pods) = (None, BTreeMap::new());
        let memory = Mutex::new(Memory { back_off, pods });
        Ok(Self { consumer, memory })
    }

    /// Makes the planner a consumer: exited containers are kept until a plan with their exits ([`Plan::exits`]) is
    /// begun. Register the consumer with the generator's builder, so that it misses no exit.
    ///
    /// Without a consumer, a container may be removed before its exit was reported.
    pub fn consumer(mut self, consumer: Consumer) -> Self {
        self.consumer = Some(consumer);
        self
    }

    /// Plans what the pod of this run needs. A run without a specification terminates its pod, whatever `desired` is.
    /// `probes` returns the probe results for a status; without it, running containers count as started and healthy.
    ///
    /// If an exit code or the effect of a change of resources is missing, the planner inspects the pod once before it
    /// makes the plan. If the inspection fails, it is repeated after 1 s, 2 s, up to 1 min; only decisions that need
    /// the exit code wait. That wait ends if the runtime lists the pod, but has not reported the code for a minute.
    ///
    /// # Errors
    /// If the generator has ended.
    ///
    /// # Cancel safety
    /// Dropping the future records nothing.
    pub async fn plan<'a, S>(
        &'a self,
        run: &'a Run<S>,
        desired: Desired<'_>,
        probes: Option<Probes<'_>>,
    ) -> Result<Plan<'a, S>, WaitError> {
        let plan_from = |view| self.plan_from(run, desired, view, probes);
        let mut plan = plan_from(run.view.clone());
        if let Some(after) = plan.missing_since() {
            let listed = run.pleg.get(&run.uid).as_of;
            match run.details_newer_than(after, INSPECT_WITHIN).await {
                Ok(view) => plan = plan_from(view),
                Err(WaitError::Closed) => return Err(WaitError::Closed),
                Err(error) => {
                    tracing::debug!(pod = %run.uid, %error, "an exit code is still missing");
                    let mut memory = lock(&self.memory);
                    let unanswered = &mut memory.update(run).history.unanswered;
                    *unanswered = (*unanswered).max(listed);
                    drop(memory);
                    plan = plan_from(plan.observed.view);
                    if let Some(since) = plan.missing_since() {
                        run.due_by(inspect_again(since, run.now()));
                    }
                }
            }
        }
        if let Some(due) = plan.actions.due {
            run.due_by(due);
        }
        Ok(plan)
    }

    fn plan_from<'a, S>(
        &'a self,
        run: &'a Run<S>,
        desired: Desired<'_>,
        view: PodView,
        probes: Option<Probes<'_>>,
    ) -> Plan<'a, S> {
        let probes = probes.map(|probes| probes(&view.status));
        let pod = desired.pod;
        let memory = &mut *lock(&self.memory);
        let memory = memory.update(run);
        let all_exits = run.pleg.exits(&run.uid);
        let mut exits = memory.unreported(&all_exits);
        let history = &mut memory.history;
        let is_own = |exit: &&Exit| !history.earlier.contains(&exit.id);
        let ended: Arc<[Exit]> = all_exits.iter().filter(is_own).cloned().collect();
        history.observe(&view.status, &ended, run.now());
        if run.failures > 0 {
            history.terminating.clear();
        }
        let unread = all_exits.iter().filter(|r| r.exit_code.is_none());
        let unread = unread.filter(|r| history.awaits_code(&view, &r.id, r.detected).is_some());
        let unread: BTreeSet<_> = unread.map(|r| r.id.clone()).collect();
        exits.retain(|exit| !unread.contains(&exit.id));
        let decision = Decision {
            spec: pod.map(spec_of),
            terminating: desired.terminating || run.spec.is_none(),
            grace: desired.grace.or(run.grace).or(pod.map(grace_period)),
            probes: probes.as_ref(),
            view: &view,
            history,
            now: run.now(),
            actions: Actions::default(),
        };
        let actions = decision.decide();
        Plan {
            observed: Observed {
                view,
                probes,
                ended,
                unread,
                waiting: actions.waiting.clone(),
                replaced: actions.replaced.clone(),
                phase: actions.phase,
                is_terminated: actions.terminated,
            },
            run,
            planner: self,
            exits,
            all_exits,
            actions,
        }
    }

    /// The exits that no begun plan contained. Report them in [`Reconcile::finish`](crate::worker::Reconcile::finish).
    /// Empty if the pod exists again: the plans of its next worker have these exits.
    #[must_use]
    pub fn last_exits<S>(&self, run: &Run<S>) -> Vec<Exit> {
        if run.view.status.exists() {
            return Vec::new();
        }
        let memory = &mut *lock(&self.memory);
        memory.update(run).unreported(&run.pleg.exits(&run.uid))
    }
}

/// The observations from which a plan was made, and conclusions for the pod's status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The run's view, or a newer view.
    pub view: PodView,
    /// The probe results for the view's status.
    pub probes: Option<ProbeResults>,
    /// The exits of the pod's containers and sandboxes, including removed ones.
    pub ended: Arc<[Exit]>,
    /// The containers whose exit code is unknown, and may still become known.
    pub unread: BTreeSet<Id>,
    /// The reasons why containers wait, by name. The entry of the sandbox has an empty name.
    pub waiting: BTreeMap<String, WaitReason>,
    /// The names of ended containers that run again whatever their exit code: the worker stopped them to replace them,
    /// or they belong to an earlier pod of this uid.
    pub replaced: BTreeSet<String>,
    /// The final phase of the pod, once no exit code can change any more.
    pub phase: Option<PodPhase>,
    /// No container of the pod runs, and none will run again.
    pub is_terminated: bool,
}

/// The calls that a pod needs now. The plan itself makes none.
///
/// [`Performer::perform`](crate::perform::Performer::perform) performs a plan. If you use a client of your own, call
/// [`begin`](Self::begin) and make the calls that it returns. Both record the calls before the first one is made: a
/// create that times out may still take effect, so its attempt must not be used again. There is no other way to get the
/// calls, and a plan is performed once:
///
/// ```compile_fail,E0616
/// # fn f(plan: pleg_kubelet::plan::Plan<'_, ()>) {
/// for start in &plan.actions.start {} // error: field `actions` is private
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # async fn f(plan: pleg_kubelet::plan::Plan<'_, ()>) {
/// let first = plan.begin().await;
/// let second = plan.begin().await; // error: use of moved value
/// # }
/// ```
#[must_use = "a plan makes no call: perform it, or begin it and make its calls"]
#[derive(Debug)]
pub struct Plan<'a, S> {
    /// The observations from which the plan was made.
    pub observed: Observed,
    pub(crate) run: &'a Run<S>,
    planner: &'a Planner,
    exits: Vec<Exit>,
    /// The exits of this pod, and of containers and sandboxes left over from an earlier pod of this uid.
    all_exits: Arc<[Exit]>,
    pub(crate) actions: Actions,
}

impl<S> Plan<'_, S> {
    /// The exits that were not reported yet, except those whose code may still become known. Report them first:
    /// beginning or performing the plan acknowledges them. If the plan is dropped, a later plan returns them again.
    #[must_use]
    pub fn exits(&self) -> &[Exit] {
        &self.exits
    }

    /// The names of the containers that the plan creates.
    pub fn creates(&self) -> impl Iterator<Item = &str> {
        let created = self.actions.start.iter().filter(|s| s.existing.is_none());
        created.map(|start| &*start.name)
    }

    /// Returns true if the plan creates a sandbox.
    #[must_use]
    pub const fn creates_sandbox(&self) -> bool {
        self.actions.create_sandbox.is_some()
    }

    /// Postpones the start of a container because something that it needs is missing, such as its image. This uses up
    /// neither an attempt nor back-off. The pod is run again at `until`; if `None`, call a [`Run::waker`].
    pub fn postpone(&mut self, container: &str, until: Option<Instant>) {
        self.actions.start.retain(|start| start.name != container);
        until.into_iter().for_each(|at| self.run.due_by(at));
    }

    /// Postpones the creation of the sandbox, as [`postpone`](Self::postpone).
    pub fn postpone_sandbox(&mut self, until: Option<Instant>) {
        self.actions.create_sandbox = None;
        until.into_iter().for_each(|at| self.run.due_by(at));
    }

    /// Postpones the creation of the sandbox and the start of all containers.
    pub(crate) fn postpone_all(&mut self) {
        self.actions.start.clear();
        self.postpone_sandbox(None);
    }

    /// Acknowledges the [`exits`](Self::exits), records the plan's calls as tried, and returns them. Make all of them.
    ///
    /// Exited containers and sandboxes are removed after they are acknowledged. Until then, the newest three of each
    /// name stay; containers of a deleted pod, for 10 min at most ([`Health::ACKNOWLEDGED_WITHIN`]). A removal without
    /// acknowledgement is logged and counted (`pleg_unacknowledged_removals_total`); the exit record stays. A removal
    /// that has no effect is repeated after 10 s, 20 s, and so on up to 5 min.
    ///
    /// # Cancel safety
    /// Dropping the future records nothing; some exits may be acknowledged.
    pub async fn begin(self) -> Actions {
        let Self { run, planner, .. } = self;
        if let Some(consumer) = &planner.consumer {
            for exit in &self.exits {
                consumer.acknowledge(exit).await;
            }
        }
        let unacknowledged = self.unacknowledged().await;
        let is_deleted = run.spec.is_none() && self.actions.terminated;
        let is_old = |e: &&Exit| run.now().since(e.detected) >= Health::ACKNOWLEDGED_WITHIN;
        let old = self.all_exits.iter().filter(|e| is_deleted && is_old(e));
        let old: BTreeSet<_> = old.map(|exit| &exit.id).collect();
        let is_acknowledged = |id: &Id| !unacknowledged.contains(id) || old.contains(id);
        let garbage = removals(&self.observed.view.status, is_deleted, is_acknowledged);
        let mut actions = self.actions;
        let memory = &mut *lock(&planner.memory);
        let memory = memory.update(run);
        memory.reported(&self.exits);
        let history = &mut memory.history;
        history.record(&actions, run.now());
        for removal in garbage {
            let (Removal::Container(id) | Removal::Sandbox(id)) = &removal;
            if let Some(at) = history.begin_removal(id, &self.observed.view, run.now()) {
                run.due_by(at);
                continue;
            }
            if unacknowledged.contains(id) {
                metrics::counter!("pleg_unacknowledged_removals_total").increment(1);
                tracing::warn!(pod = %run.uid, %id, "removing before a registered consumer has acknowledged the exit");
            }
            actions.garbage.push(removal);
        }
        actions
    }

    /// The ended containers and sandboxes that a consumer has not acknowledged.
    async fn unacknowledged(&self) -> BTreeSet<Id> {
        let status = &self.observed.view.status;
        let (containers, sandboxes) = (status.containers.iter(), status.sandboxes.iter());
        let exited = containers.filter(|c| c.state == ContainerState::Exited);
        let ended = sandboxes.filter(|s| s.state == SandboxState::NotReady);
        let mut unacknowledged = BTreeSet::new();
        for id in exited.map(|c| &c.id).chain(ended.map(|s| &s.id)) {
            if !self.run.pleg.is_acknowledged(id).await {
                unacknowledged.insert(id.clone());
            }
        }
        unacknowledged
    }

    /// The instant after which details must be read to show what is missing.
    fn missing_since(&self) -> Option<Instant> {
        let unread = &self.observed.unread;
        let unread = self.all_exits.iter().filter(|e| unread.contains(&e.id));
        let unread = unread.map(|exit| exit.detected);
        self.actions.inspect_after.into_iter().chain(unread).max()
    }
}
