//! The state of one pod that its worker keeps from one run to the next.
//!
//! A view shows only what exists, and a call that timed out may still take effect later. So the history also has the
//! attempt numbers used in create calls, the exits of removed containers, and the stop calls that were made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::Resources;
use pleg::{ContainerState, ContainerStatus, Exit, Id, Instant, PodStatus, PodView};

use crate::actions::{Actions, PodPhase, StopReason};
use crate::backoff::BackOff;
use crate::names;
use crate::spec::policy;
use crate::worker::LastChange;

/// The delay after which a start, stop or removal of a container or sandbox is repeated if it had no effect.
const REPEAT_AFTER: Duration = Duration::from_secs(10);
/// Upper limit of the retry back-off for calls that may never succeed: a change of resources, which a runtime may
/// round, and the removal of garbage, which containerd 1.7 refuses if containerd was killed while it was starting the
/// container ("cannot delete running task").
const REPEAT_AFTER_AT_MOST: Duration = Duration::from_secs(5 * 60);

/// A created container that could not be removed for this time no longer holds up a new one of its name. The time is
/// twice the deadline of a start call: by then, even a start call of an earlier kubelet process has ended.
const STUCK_AFTER: Duration = Duration::from_secs(4 * 60);

/// The longest wait for a missing status of a pod that the runtime lists. A status call that fails for longer may never
/// succeed: without this limit, the pod could then be neither restarted nor deleted.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// The instant of the next inspection (a read of the pod's details) after a failed one. The delay doubles: it is the
/// time since `missing_since`, at least 1 s and at most 1 min.
pub(crate) fn inspect_again(missing_since: Instant, now: Instant) -> Instant {
    let (first, most) = (Duration::from_secs(1), Duration::from_secs(60));
    now.after(now.since(missing_since).clamp(first, most))
}

/// The name of sandboxes in a history, as in exit records.
pub(crate) const SANDBOX: &str = "";

/// The history of one pod. After the end of the pod's worker, only ids, reported exits and `unanswered` are kept.
#[derive(Debug, Default)]
pub(crate) struct PodHistory {
    /// The pod's worker: a dead reference once the worker has ended, and `None` after [`forget`](Self::forget).
    pub(crate) worker: Option<Weak<LastChange>>,
    /// The exits that were reported. After a wrong report of the runtime, an id may exit again at another instant.
    reported: BTreeSet<(Id, Instant)>,
    /// The instant of the last create call for a sandbox with an attempt number above 0.
    pub(crate) sandbox_replaced: Option<Instant>,
    /// By container name. The sandboxes have the name [`SANDBOX`].
    names: BTreeMap<String, Name>,
    /// The calls that were made for each container or sandbox that still exists.
    calls: BTreeMap<(Id, Call), Called>,
    /// The resources that were last set for each container that still exists.
    resized: BTreeMap<Id, Resources>,
    /// Containers that this worker stopped, with the reason. They run again whatever their exit code, with policy Never
    /// only after some reasons, as in upstream's `computePodActions`. `None`: removed as not started, to create another
    /// one. But if an exit code shows that the container was started after all, its restart policy decides.
    replaced: BTreeMap<Id, Option<StopReason>>,
    /// The instant of the last stop call for each container of a terminating pod. Cleared after a failed run: the
    /// runtime may have been down since the stop, and that time must not count as grace period.
    pub(crate) terminating: BTreeMap<Id, Instant>,
    /// The final phase, once it is decided. Then this worker never starts the pod again, even with a new specification.
    pub(crate) phase: Option<PodPhase>,
    /// The instant of the runtime's last list of the pod before the last failed inspection.
    pub(crate) unanswered: Option<Instant>,
    /// The instant since which status calls for the newest sandbox have failed and the pod's addresses are missing.
    pub(crate) addresses_missing: Option<Instant>,
    /// Ids of containers and sandboxes of an earlier pod with this uid: its manifest was removed and put back. They may
    /// be gone or still running. Only their attempt numbers and restart counts are used.
    pub(crate) earlier: BTreeSet<Id>,
    pub(crate) back_off: BackOff,
}

/// The containers of one name, or the sandboxes of the pod, including removed ones.
#[derive(Clone, Debug, Default)]
struct Name {
    /// The next attempt number: higher than the numbers of all known containers and create calls.
    next_attempt: u32,
    /// The highest restart count in the annotations of the containers of this name.
    restart_count: Option<u32>,
    /// The exit of the last container of this name. It stays after the container's removal.
    end: Option<Exit>,
    /// The sandbox of the container that ended, if a status of the container ever named one.
    sandbox_of_end: Option<Id>,
}

/// The kind of a call that changes a container or sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Start,
    Stop,
    Remove,
    Resize,
}

/// The calls of one kind for one container or sandbox, with the instants of the first (`since`) and last call (`at`).
/// Only a resize or a removal of garbage, which may never succeed, waits for `delay`. Each call doubles the delay.
#[derive(Clone, Copy, Debug)]
struct Called {
    since: Instant,
    at: Instant,
    delay: Duration,
}

impl PodHistory {
    /// Records the pod's view and exit records. Call `observe` before each decision.
    pub(crate) fn observe(&mut self, status: &PodStatus, records: &[Exit], now: Instant) {
        for sandbox in &status.sandboxes {
            self.tried(SANDBOX, sandbox.attempt);
        }
        let sandbox = status.sandboxes.first();
        let is_missing = status.ips.is_empty() && sandbox.is_some_and(|s| s.error.is_some());
        self.addresses_missing = is_missing.then(|| self.addresses_missing.unwrap_or(now));
        for record in records {
            let name = self.tried(&record.name, record.attempt);
            name.ended(record.clone(), None);
        }
        for container in &*status.containers {
            let has_ended = container.state == ContainerState::Exited;
            let counts = has_ended && !self.earlier.contains(&container.id);
            let name = self.tried(&container.name, container.attempt);
            name.restart_count = name.restart_count.max(Some(restart_count(container)));
            if counts {
                let mut end = Exit::new(container.id.clone(), container.name.clone(), now);
                (end.attempt, end.exit_code) = (container.attempt, container.details.exit_code);
                name.ended(end, container.sandbox.clone());
            }
        }
        let mut known: BTreeSet<&Id> = ids(status).collect();
        self.calls.retain(|(id, _), _| known.contains(id));
        self.resized.retain(|id, _| known.contains(id));
        let ends = self.names.values().filter_map(|name| name.end.as_ref());
        known.extend(ends.map(|end| &end.id));
        self.replaced.retain(|id, _| known.contains(id));
    }

    /// Records the decided calls before they are made, so that no attempt number is used twice. Counts restarts.
    pub(crate) fn record(&mut self, actions: &Actions, now: Instant) {
        if let Some(attempt) = actions.create_sandbox {
            self.sandbox_replaced = (attempt > 0).then_some(now);
            self.tried(SANDBOX, attempt);
        }
        for start in &actions.start {
            let end = self.tried(&start.name, start.attempt).end.as_ref();
            let ended = end.map(|end| end.detected);
            if let Some(id) = &start.existing {
                self.called(id, Call::Start, now);
            } else if let Some(ended) = ended {
                self.back_off.restarted(&start.back_off_key, ended, now);
            }
        }
        for resize in &actions.resize {
            let before = self.resized.insert(resize.id.clone(), resize.to.clone());
            if before.as_ref() != Some(&resize.to) {
                self.calls.remove(&(resize.id.clone(), Call::Resize));
            }
            self.called(&resize.id, Call::Resize, now);
        }
        for id in &actions.keep {
            self.replaced.remove(id);
        }
        for stop in &actions.stop {
            self.called(&stop.id, Call::Stop, now);
            if actions.terminating {
                self.terminating.insert(stop.id.clone(), now);
            } else {
                self.replaced.insert(stop.id.clone(), Some(stop.reason));
            }
        }
        for id in &actions.stop_sandboxes {
            self.called(id, Call::Stop, now);
        }
        for id in &actions.remove {
            self.called(id, Call::Remove, now);
            self.replaced.insert(id.clone(), None);
        }
        self.phase = self.phase.or(actions.phase);
    }

    pub(crate) fn next_attempt(&self, name: &str) -> u32 {
        self.names.get(name).map_or(0, |name| name.next_attempt)
    }

    /// The restart count for the next container of the name `name`. Failed create calls do not count as restarts.
    pub(crate) fn next_restart_count(&self, name: &str) -> u32 {
        let of_end = || Some(self.end(name)?.attempt);
        let last = self.names.get(name).and_then(|name| name.restart_count);
        last.or_else(of_end).map_or(0, |n| n.saturating_add(1))
    }

    /// The exit of the last container of the name `name`.
    pub(crate) fn end(&self, name: &str) -> Option<&Exit> {
        self.names.get(name)?.end.as_ref()
    }

    /// The exit of the last container of the name `name`, if that container was in the sandbox.
    pub(crate) fn end_in(&self, sandbox: &Id, name: &str, status: &PodStatus) -> Option<&Exit> {
        let name = self.names.get(name)?;
        let is_here = |end: &&Exit| match &name.sandbox_of_end {
            Some(id) => id == sandbox,
            None => {
                let mut containers = status.containers.iter();
                containers.any(|c| c.id == end.id && c.state == ContainerState::Exited)
            }
        };
        name.end.as_ref().filter(is_here)
    }

    /// Returns true if this worker ended the container to replace it: the container then runs again with any exit code.
    pub(crate) fn is_replaced(&self, end: &Exit, container: &Container, spec: &PodSpec) -> bool {
        match self.replaced.get(&end.id) {
            Some(Some(StopReason::Changed | StopReason::Unknown)) => true,
            Some(Some(_)) => policy(container, spec) != "Never",
            Some(None) => end.exit_code.is_none(),
            None => false,
        }
    }

    /// The instant from which the call may be repeated if it had no effect. `None` if no such call was made.
    pub(crate) fn repeat_at(&self, id: &Id, call: Call) -> Option<Instant> {
        Some(self.calls.get(&(id.clone(), call))?.at.after(REPEAT_AFTER))
    }

    /// Like [`repeat_at`](Self::repeat_at), for garbage. No container waits for it, so each call doubles the delay.
    fn repeat_garbage_at(&self, id: &Id) -> Option<Instant> {
        let called = self.calls.get(&(id.clone(), Call::Remove))?;
        Some(called.at.after(called.delay))
    }

    /// The instant at which the resources `to` were last set, and the instant from which they may be set again.
    pub(crate) fn resized(&self, id: &Id, to: &Resources) -> Option<(Instant, Instant)> {
        let called = self.calls.get(&(id.clone(), Call::Resize))?;
        (self.resized.get(id)? == to).then(|| (called.at, called.at.after(called.delay)))
    }

    /// Returns true if no status newer than `since` can be expected: an inspection failed, although the runtime had
    /// listed the pod more than a minute after `since`. While the runtime is down, it lists no pod.
    pub(crate) fn is_given_up(&self, since: Instant) -> bool {
        self.unanswered >= Some(since.after(GIVEN_UP_AFTER))
    }

    /// Returns true if the exit code is missing, but a read of the container's status may still show it.
    pub(crate) fn awaits_code(&self, view: &PodView, end: &Exit) -> bool {
        let is_lost = view.details_as_of > Some(end.detected) || self.is_given_up(end.detected);
        let mut containers = view.status.containers.iter();
        end.exit_code.is_none() && !is_lost && containers.any(|c| c.id == end.id)
    }

    /// The instant until which earlier calls for a created container may take effect. A removal waits for a later read:
    /// a start may fail late, containerd sends no event then, and the exit code would be lost. `None`: there was no
    /// call, there was a later read, or reads have failed for too long.
    pub(crate) fn unread_since(&self, id: &Id, view: &PodView, now: Instant) -> Option<Instant> {
        let started = self.repeat_at(id, Call::Start);
        let removed = [self.repeat_at(id, Call::Remove), self.repeat_garbage_at(id)];
        // An earlier removal call requires a read only when it may be repeated: before that, no removal is made.
        let removed = removed.into_iter().flatten().filter(|at| *at <= now).max();
        let since = started.max(removed)?;
        (view.details_as_of < Some(since) && !self.is_given_up(since)).then_some(since)
    }

    /// Records that garbage is about to be removed. If that is too early, returns the instant of the next try instead.
    pub(crate) fn try_removal(&mut self, id: &Id, view: &PodView, now: Instant) -> Option<Instant> {
        let mut containers = view.status.containers.iter();
        // An earlier start call may still start this container or may have failed. Only a newer status shows which.
        let is_startable = containers
            .any(|c| c.id == *id && c.state == ContainerState::Created && c.error.is_none());
        let unread = self.unread_since(id, view, now).filter(|_| is_startable);
        let again = unread.map(|since| since.max(inspect_again(since, now)));
        let later = again.max(self.repeat_garbage_at(id)).filter(|at| *at > now);
        if later.is_none() {
            self.called(id, Call::Remove, now);
        }
        later
    }

    /// Records that a call is about to be made.
    fn called(&mut self, id: &Id, call: Call, now: Instant) {
        let (since, at, delay) = (now, now, Duration::ZERO);
        let called = self.calls.entry((id.clone(), call));
        let called = called.or_insert(Called { since, at, delay });
        called.at = now;
        called.delay = (called.delay * 2).clamp(REPEAT_AFTER, REPEAT_AFTER_AT_MOST);
    }

    /// Returns true if the removal of a created container has failed for four minutes.
    pub(crate) fn is_stuck(&self, id: &Id, now: Instant) -> bool {
        let removed = self.calls.get(&(id.clone(), Call::Remove));
        removed.is_some_and(|removed| now >= removed.since.after(STUCK_AFTER))
    }

    /// Records that an attempt number is used: its container or sandbox exists, existed, or is about to be created.
    fn tried(&mut self, name: &str, attempt: u32) -> &mut Name {
        let name = self.names.entry(name.to_owned()).or_default();
        name.next_attempt = name.next_attempt.max(attempt.saturating_add(1));
        name
    }

    /// Forgets the worker, which has ended, and its decisions. Keeps the pod's ids, reported exits and `unanswered`.
    pub(crate) fn forget(&mut self, status: &PodStatus, exits: &[Exit]) {
        if !status.exists() {
            self.reported(exits);
        }
        let earlier = exits.iter().map(|exit| &exit.id).chain(ids(status));
        *self = Self {
            earlier: earlier.cloned().collect(),
            reported: std::mem::take(&mut self.reported),
            unanswered: self.unanswered,
            ..Self::default()
        };
    }

    /// Returns those of `exits` that were not reported yet.
    pub(crate) fn unreported(&mut self, exits: &[Exit]) -> Vec<Exit> {
        let keys: BTreeSet<_> = exits.iter().map(key_of).collect();
        self.reported.retain(|key| keys.contains(key));
        let is_new = |exit: &&Exit| !self.reported.contains(&key_of(exit));
        exits.iter().filter(is_new).cloned().collect()
    }

    pub(crate) fn reported(&mut self, exits: &[Exit]) {
        self.reported.extend(exits.iter().map(key_of));
    }
}

fn key_of(exit: &Exit) -> (Id, Instant) {
    (exit.id.clone(), exit.detected)
}

impl Name {
    /// Keeps the exit of the container with the highest attempt. Fills in missing fields of the exit already stored.
    fn ended(&mut self, end: Exit, sandbox: Option<Id>) {
        match &mut self.end {
            Some(known) if known.id == end.id => {
                known.exit_code = end.exit_code.or(known.exit_code);
                self.sandbox_of_end = sandbox.or(self.sandbox_of_end.take());
            }
            Some(known) if (end.attempt, end.detected) <= (known.attempt, known.detected) => {}
            _ => (self.end, self.sandbox_of_end) = (Some(end), sandbox),
        }
    }
}

/// The ids of the pod's containers and sandboxes.
pub(crate) fn ids(status: &PodStatus) -> impl Iterator<Item = &Id> {
    let containers = status.containers.iter().map(|c| &c.id);
    containers.chain(status.sandboxes.iter().map(|s| &s.id))
}

/// The restart count from the container's annotation, set at creation.
pub(crate) fn restart_count(container: &ContainerStatus) -> u32 {
    let noted = container.details.annotations.get(names::RESTART_COUNT);
    let noted = noted.and_then(|count| count.parse().ok());
    noted.unwrap_or(container.attempt)
}
