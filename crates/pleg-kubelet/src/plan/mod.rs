//! Plans of the calls that a pod needs now, from its status and its history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pleg::core::{Health, SandboxState};
use pleg::{
    Consumer, ContainerState, Exit, Id, Instant, InvalidSetting, PodStatus, PodUid, PodView,
    WaitError,
};

use crate::actions::{Actions, Decision, Desired, PodPhase, WaitReason};
use crate::backoff::BackOffSettings;
use crate::gc::{Removal, removals};
use crate::history::{PodHistory, inspect_again};
use crate::lock;
use crate::probe::ProbeResults;
use crate::spec::{grace_period, spec_of};
use crate::worker::Run;

/// The time limit of an inspection: a read of the pod's details, such as exit codes, that [`Planner::plan`] awaits.
const INSPECT_WITHIN: Duration = Duration::from_secs(2);

/// Plans what pods need. Create one planner for all pods of a node.
///
/// While the worker of a pod lives, the planner remembers the pod's used attempt numbers, exits and back-off.
#[must_use]
#[derive(Debug)]
pub struct Planner {
    consumer: Option<Consumer>,
    back_off: BackOffSettings,
    pods: Mutex<BTreeMap<PodUid, PodHistory>>,
}

impl Planner {
    /// A planner that knows no pod yet. `back_off` has the delays between restarts.
    ///
    /// # Errors
    /// If a setting of the back-off is invalid.
    pub fn new(back_off: BackOffSettings) -> Result<Self, InvalidSetting> {
        back_off.validate()?;
        Ok(Self {
            consumer: None,
            back_off,
            pods: Mutex::default(),
        })
    }

    /// Makes the planner a consumer of exits: an exited container is kept until a plan that has its exit
    /// ([`Plan::exits`]) is begun. Register `consumer` with the generator's builder, so that it misses no exit. Without
    /// a consumer, a container may be removed before its exit was reported.
    pub fn consumer(mut self, consumer: Consumer) -> Self {
        self.consumer = Some(consumer);
        self
    }

    /// Plans what the pod of this run needs. A run without a specification terminates its pod, whatever `desired` is.
    /// `probes` returns the probe results for a status. Without it, the performer refuses a pod that has probes.
    ///
    /// If an exit code or the effect of a change of resources is missing, the planner inspects the pod once before it
    /// makes the plan. If the inspection fails, later runs repeat it after 1 s, 2 s, up to 1 min; only decisions that
    /// need the code wait. Their wait ends if the runtime lists the pod, but has not reported the code for a minute.
    ///
    /// # Errors
    /// If the generator has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, no call is recorded.
    pub async fn plan<'a, S>(
        &'a self,
        run: &'a Run<S>,
        desired: Desired<'_>,
        probes: Option<&(dyn Fn(&PodStatus) -> ProbeResults + Sync)>,
    ) -> Result<Plan<'a, S>, WaitError> {
        let mut plan = self.plan_from(run, desired, probes, run.view.clone());
        if let Some(after) = plan.actions.inspect_after {
            let listed = run.pleg.get(&run.uid).as_of;
            let since = lock(&run.last_change).map_or(after, |own| own.max(after));
            let read = run.pleg.details_newer_than(&run.uid, since, INSPECT_WITHIN);
            let (view, has_failed) = match read.await {
                Ok(view) => (view, false),
                Err(WaitError::Closed) => return Err(WaitError::Closed),
                Err(error) => {
                    tracing::debug!(pod = %run.uid, %error, "details of the pod are still missing");
                    self.history(run, |history| {
                        history.unanswered = history.unanswered.max(listed);
                    });
                    (plan.observed.view, true)
                }
            };
            plan = self.plan_from(run, desired, probes, view);
            if let Some(since) = plan.actions.inspect_after.filter(|_| has_failed) {
                run.due_by(inspect_again(since, run.now()));
            }
        }
        plan.actions.due.into_iter().for_each(|at| run.due_by(at));
        Ok(plan)
    }

    fn plan_from<'a, S>(
        &'a self,
        run: &'a Run<S>,
        desired: Desired<'_>,
        probes: Option<&(dyn Fn(&PodStatus) -> ProbeResults + Sync)>,
        view: PodView,
    ) -> Plan<'a, S> {
        let probes = probes.map(|probes| probes(&view.status));
        self.history(run, |history| {
            let all_exits = run.pleg.exits(&run.uid);
            let mut exits = history.unreported(&all_exits);
            let is_own = |exit: &&Exit| !history.earlier.contains(&exit.id);
            let ended: Arc<[Exit]> = all_exits.iter().filter(is_own).cloned().collect();
            history.observe(&view.status, &ended, run.now());
            if run.failures > 0 {
                history.terminating.clear();
            }
            let unread = all_exits.iter();
            let unread = unread.filter(|exit| history.awaits_code(&view, exit));
            let unread_since = unread.clone().map(|exit| exit.detected).max();
            let unread: BTreeSet<_> = unread.map(|exit| exit.id.clone()).collect();
            exits.retain(|exit| !unread.contains(&exit.id));
            let pod = desired.pod;
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
            let mut actions = decision.decide();
            actions.inspect_after = actions.inspect_after.max(unread_since);
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
                actions,
                has_deadline: desired.has_deadline,
            }
        })
    }

    /// The exits that no begun plan contained. Report them in [`Reconcile::finish`](crate::worker::Reconcile::finish).
    /// Empty if containers or sandboxes of the pod exist: then the plans of the pod's next worker have these exits.
    #[must_use]
    pub fn last_exits<S>(&self, run: &Run<S>) -> Vec<Exit> {
        if run.view.status.exists() {
            return Vec::new();
        }
        self.history(run, |history| history.unreported(&run.pleg.exits(&run.uid)))
    }

    /// Calls `of` with the history of this run's pod. Forgets all pods whose worker has ended, even an earlier pod with
    /// this uid, except its ids, reported exits and `unanswered`: they stay until the generator forgets the pod.
    fn history<S, T>(&self, run: &Run<S>, of: impl FnOnce(&mut PodHistory) -> T) -> T {
        let (own, pleg) = (Arc::downgrade(&run.last_change), &run.pleg);
        let mut pods = lock(&self.pods);
        pods.retain(|uid, pod| {
            let has_ended = |worker: &Weak<_>| match *uid == run.uid {
                true => !worker.ptr_eq(&own),
                false => worker.strong_count() == 0,
            };
            if pod.worker.as_ref().is_some_and(has_ended) {
                pod.forget(&pleg.get(uid).status, &pleg.exits(uid));
            }
            pod.worker.is_some() || pleg.get(uid).status.exists() || !pleg.exits(uid).is_empty()
        });
        let history = pods.entry(run.uid.clone()).or_default();
        if history.worker.is_none() {
            history.worker = Some(own);
            history.back_off.settings = self.back_off;
        }
        of(history)
    }
}

/// The observations from which a plan was made, and the plan's conclusions that the pod's status shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The view of the run, or a newer view of the pod if the planner had to inspect it.
    pub view: PodView,
    /// The probe results for the view's status.
    pub probes: Option<ProbeResults>,
    /// The exits of the pod's containers and sandboxes, including removed ones.
    pub ended: Arc<[Exit]>,
    /// The ids of ended containers whose exit code is unknown, but may still become known.
    pub unread: BTreeSet<Id>,
    /// The reasons why containers wait, by container name. The reason why the sandbox is not ready has an empty name.
    pub waiting: BTreeMap<String, WaitReason>,
    /// The names of ended containers that run again whatever their exit code: the worker stopped these containers to
    /// replace them, or they belong to an earlier pod with this uid.
    pub replaced: BTreeSet<String>,
    /// The final phase of the pod, once the pod will not run again and no exit code can change the phase.
    pub phase: Option<PodPhase>,
    /// True if no container of the pod is running or will run again.
    pub is_terminated: bool,
}

/// The runtime calls that a pod needs now. [`Performer::perform`](crate::perform::Performer::perform) makes them. With
/// a client of your own, call [`begin`](Self::begin) instead, and make the calls that it returns.
///
/// Both functions record all calls before the first one is made: a create call that times out may still take effect, so
/// its attempt number must not be used again. There is no other way to get the calls, and each plan works only once:
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
    pub(crate) actions: Actions,
    pub(crate) has_deadline: bool,
}

impl<S> Plan<'_, S> {
    /// The unreported exits of containers and sandboxes, except those whose exit code may still become known. Report
    /// them before you begin or perform the plan: that acknowledges them. If you drop the plan, a later one has them.
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

    /// Postpones the start of a container that lacks something, such as its image. Uses up no attempt number and no
    /// back-off. The worker runs again at `until`. If that is `None`, call a [`Run::waker`] once nothing is missing.
    pub fn postpone(&mut self, container: &str, until: Option<Instant>) {
        self.actions.start.retain(|start| start.name != container);
        until.into_iter().for_each(|at| self.run.due_by(at));
    }

    /// Postpones the creation of the sandbox, as [`postpone`](Self::postpone) does for a container.
    pub fn postpone_sandbox(&mut self, until: Option<Instant>) {
        self.actions.create_sandbox = None;
        until.into_iter().for_each(|at| self.run.due_by(at));
    }

    /// Postpones the creation of the sandbox and the start of all containers.
    pub(crate) fn postpone_all(&mut self) {
        self.actions.start.clear();
        self.postpone_sandbox(None);
    }

    /// Acknowledges the [`exits`](Self::exits), records the plan's calls as tried, and returns them: make all calls.
    ///
    /// Exited containers and sandboxes are removed after their exits are acknowledged. Until then, the newest three of
    /// each name stay, but those of a deleted pod for at most 10 min ([`Health::ACKNOWLEDGED_WITHIN`]). A removal
    /// without acknowledgement is logged and counted (`pleg_unacknowledged_removals_total`); the exit record stays. A
    /// removal that has no effect is repeated after 10 s, 20 s, and so on up to 5 min.
    ///
    /// # Cancel safety
    /// If the future is dropped, no call is recorded, but some exits may have been acknowledged.
    pub async fn begin(self) -> Actions {
        let Self { run, planner, .. } = self;
        if let Some(consumer) = &planner.consumer {
            for exit in &self.exits {
                consumer.acknowledge(exit).await;
            }
        }
        let unacknowledged = self.unacknowledged().await;
        let is_deleted = run.spec.is_none() && self.actions.terminated;
        let exits = run.pleg.exits(&run.uid);
        let is_old = |e: &Exit| run.now().since(e.detected) >= Health::ACKNOWLEDGED_WITHIN;
        let is_due = |id: &Id| is_deleted && exits.iter().any(|e| e.id == *id && is_old(e));
        let is_acknowledged = |id: &Id| !unacknowledged.contains(id) || is_due(id);
        let garbage = removals(&self.observed.view.status, is_deleted, is_acknowledged);
        let mut actions = self.actions;
        planner.history(run, |history| {
            history.reported(&self.exits);
            history.record(&actions, run.now());
            for removal in garbage {
                let (Removal::Container(id) | Removal::Sandbox(id)) = &removal;
                if let Some(at) = history.try_removal(id, &self.observed.view, run.now()) {
                    run.due_by(at);
                    continue;
                }
                if unacknowledged.contains(id) {
                    metrics::counter!("pleg_unacknowledged_removals_total").increment(1);
                    tracing::warn!(pod = %run.uid, %id, "removing before all registered consumers acknowledged the exit");
                }
                actions.garbage.push(removal);
            }
        });
        actions
    }

    /// The ids of ended containers and sandboxes whose exit a consumer has not acknowledged yet.
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
}
