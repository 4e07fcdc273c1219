//! The node: its sandboxes and containers, and how they change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::event::{Due, EventType};
use crate::object::{Change, Id, Kind, Label, Object, Pod, State};
use crate::profile::{Profile, SandboxDeleted};

/// The exit code of a container that was killed.
const KILLED: i32 = 137;

/// The reason why the runtime refuses a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The sandbox or container with this id already has the name.
    NameTaken(Id),
    /// No sandbox or container has this id.
    NotFound(Id),
    /// The sandbox or container is in this state, in which the call is not possible.
    WrongState(State),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken(by) => write!(f, "the name is reserved for {by}"),
            Self::NotFound(id) => write!(f, "{id} is not found"),
            Self::WrongState(state) => write!(f, "the object is {state:?}"),
        }
    }
}

impl std::error::Error for Refused {}

/// A container to create.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewContainer {
    /// The container's id.
    pub id: Id,
    /// The container's sandbox.
    pub sandbox: Id,
    /// The container's name.
    pub name: Arc<str>,
    /// The number of earlier containers with the same name.
    pub attempt: u32,
    /// The container's label with the pod's uid.
    pub label: Label,
}

impl NewContainer {
    /// The first container with this name in the sandbox (attempt 0). Its label has the uid of the sandbox's pod.
    pub fn new(id: &str, sandbox: &str, name: &str) -> Self {
        Self {
            id: id.into(),
            sandbox: sandbox.into(),
            name: name.into(),
            attempt: 0,
            label: Label::Right,
        }
    }
}

/// One step of `RemovePodSandbox`. If the runtime is killed during the call, only the first steps have happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Kills a container.
    Stop(Id),
    /// Makes the sandbox not ready.
    StopSandbox(Id),
    /// Removes a container as part of the removal of its sandbox.
    Remove(Id),
    /// Sends DELETED of the sandbox, before the sandbox is removed (containerd 2).
    Announce(Id),
    /// Removes the sandbox.
    RemoveSandbox(Id),
}

/// The sandboxes and containers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    profile: Profile,
    objects: BTreeMap<Id, Object>,
    /// The instant at which a sandbox or container last changed. No two changes happen at the same instant.
    latest: u64,
    /// The wall-clock time minus the time of the monotonic clock.
    wall_offset: i64,
}

impl Node {
    /// An empty node.
    pub const fn new(profile: Profile) -> Self {
        Self {
            profile,
            objects: BTreeMap::new(),
            latest: 0,
            wall_offset: 0,
        }
    }

    /// The profile of the runtime.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// All sandboxes and containers, including removed ones that `forget` has not dropped.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// The sandbox or container with this id, which may have been removed.
    pub fn object(&self, id: &str) -> Option<&Object> {
        self.objects.get(id)
    }

    /// A mutable sandbox or container, to change its label, the report of its exit, or its wrong reports (`Overrides`).
    pub fn object_mut(&mut self, id: &str) -> Option<&mut Object> {
        self.objects.get_mut(id)
    }

    /// The present state of an object.
    pub fn state(&self, id: &str) -> Option<State> {
        self.object(id).map(Object::state)
    }

    /// The instant of the last change.
    pub const fn latest(&self) -> u64 {
        self.latest
    }

    /// The wall clock at an instant.
    pub const fn wall(&self, at: u64) -> i64 {
        at.cast_signed() + self.wall_offset
    }

    /// Sets the wall clock forwards or backwards.
    pub const fn step_wall(&mut self, by: i64) {
        self.wall_offset += by;
    }

    /// Drops a removed sandbox or container, with its history.
    pub fn forget(&mut self, id: &str) {
        if self.state(id) == Some(State::Removed) {
            self.objects.remove(id);
        }
    }

    // ------------------------------------------------------------------------------------------- calls

    /// `RunPodSandbox`: the sandbox is ready when the call returns.
    ///
    /// # Errors
    /// If a sandbox of the same pod and attempt exists.
    pub fn run_sandbox(
        &mut self,
        id: &str,
        pod: &Pod,
        attempt: u32,
        now: u64,
    ) -> Result<Vec<Due>, Refused> {
        let id: Id = id.into();
        let sandbox = Object {
            attempt,
            ..Object::new(id.clone(), Kind::Sandbox, pod.clone())
        };
        self.add(sandbox, State::Running, now)?;
        let mut events = self.due(EventType::Started, &id);
        if self.profile.sandbox_created {
            events.splice(0..0, self.due(EventType::Created, &id));
        }
        Ok(events)
    }

    /// `CreateContainer`.
    ///
    /// # Errors
    /// If the sandbox is not ready, or a container of the same name and attempt exists.
    pub fn create_container(&mut self, new: NewContainer, now: u64) -> Result<Vec<Due>, Refused> {
        let sandbox = self.in_state(&new.sandbox, Kind::Sandbox, State::Running)?;
        let container = Object {
            sandbox: Some(new.sandbox),
            name: new.name,
            attempt: new.attempt,
            label: new.label,
            ..Object::new(new.id.clone(), Kind::Container, sandbox.pod.clone())
        };
        self.add(container, State::Created, now)?;
        Ok(self.due(EventType::Created, &new.id))
    }

    /// `StartContainer`.
    ///
    /// # Errors
    /// If the container was already started, or its sandbox is not ready.
    pub fn start(&mut self, id: &Id, now: u64) -> Result<Vec<Due>, Refused> {
        self.can_start(id)?;
        self.change(id, State::Running, now);
        Ok(self.due(EventType::Started, id))
    }

    /// `StartContainer` fails, without an event. containerd keeps the container as exited, CRI-O removes it.
    ///
    /// # Errors
    /// If the container was already started, or its sandbox is not ready.
    pub fn fail_start(&mut self, id: &Id, now: u64) -> Result<(), Refused> {
        self.can_start(id)?;
        if self.profile.removes_failed_starts {
            self.change(id, State::Removed, now);
        } else {
            self.end(id, 128, "StartError", now);
        }
        Ok(())
    }

    /// Ends the program of a container.
    pub fn exit(&mut self, id: &Id, code: i32, reason: &'static str, now: u64) -> Vec<Due> {
        if !self.is(id, Kind::Container, State::Running) {
            return Vec::new();
        }
        self.end(id, code, reason, now);
        self.due(EventType::Stopped, id)
    }

    /// Kills a container because it is out of memory. Statuses show the reason `OOMKilled` from the instant `known_at`
    /// on; at once if the runtime's STOPPED has this reason ([`Profile::oom_reason_in_event`]).
    pub fn oom_kill(&mut self, id: &Id, known_at: u64, now: u64) -> Vec<Due> {
        let events = self.exit(id, KILLED, "OOMKilled", now);
        let is_late = !self.profile.oom_reason_in_event && !events.is_empty();
        if let Some(object) = self.objects.get_mut(id).filter(|_| is_late) {
            object.exit.reason_known_at = known_at;
        }
        events
    }

    /// `StopContainer`. Causes no event if the container is not running.
    pub fn stop(&mut self, id: &Id, now: u64) -> Vec<Due> {
        let mut events = self.exit(id, KILLED, "Error", now);
        if self.profile.deleted_on_stop && !events.is_empty() {
            events.extend(self.due(EventType::Deleted, id));
        }
        events
    }

    /// Kills the pause process of a sandbox, and with it everything in its process namespace. CRI-O has a
    /// pause process only if the containers share its process namespace.
    pub fn kill_sandbox(&mut self, id: &Id, now: u64) -> Vec<Due> {
        let shares = self.object(id).is_some_and(|o| o.shares_processes);
        if self.profile.drops_infra_container && !shares {
            return Vec::new();
        }
        let mut events = self.step(&Step::StopSandbox(id.clone()), now);
        if shares && !events.is_empty() {
            for container in self.containers_of(id) {
                events.extend(self.exit(&container, KILLED, "Error", now));
            }
        }
        events
    }

    /// `StopPodSandbox`: kills the containers, then makes the sandbox not ready.
    pub fn stop_sandbox(&mut self, id: &Id, now: u64) -> Vec<Due> {
        let containers = self.containers_of(id).into_iter().map(Step::Stop);
        let steps: Vec<_> = containers.chain([Step::StopSandbox(id.clone())]).collect();
        self.steps(&steps, now)
    }

    /// `RemoveContainer`. A running container is killed first.
    pub fn remove_container(&mut self, id: &Id, now: u64) -> Vec<Due> {
        let mut events = self.exit(id, KILLED, "Error", now);
        let object = self.object(id);
        if object.is_some_and(|o| o.exists() && o.kind == Kind::Container) {
            self.change(id, State::Removed, now);
            events.extend(self.due(EventType::Deleted, id));
        }
        events
    }

    /// `RemovePodSandbox`: stops the containers and the sandbox, and then removes them, the sandbox last.
    pub fn remove_sandbox(&mut self, id: &Id, now: u64) -> Vec<Due> {
        let steps = self.removal(id);
        self.steps(&steps, now)
    }

    /// The steps of `RemovePodSandbox`.
    pub fn removal(&self, id: &Id) -> Vec<Step> {
        let containers = self.containers_of(id);
        let mut steps: Vec<_> = containers.iter().cloned().map(Step::Stop).collect();
        steps.push(Step::StopSandbox(id.clone()));
        steps.extend(containers.into_iter().map(Step::Remove));
        if self.profile.sandbox_deleted == SandboxDeleted::BeforeRemoval {
            steps.push(Step::Announce(id.clone()));
        }
        steps.push(Step::RemoveSandbox(id.clone()));
        steps
    }

    /// Does one step of a removal.
    pub fn step(&mut self, step: &Step, now: u64) -> Vec<Due> {
        match step {
            Step::Stop(id) => self.exit(id, KILLED, "Error", now),
            Step::StopSandbox(id) => {
                if !self.is(id, Kind::Sandbox, State::Running) {
                    return Vec::new();
                }
                self.change(id, State::Exited, now);
                self.due(EventType::Stopped, id)
            }
            Step::Remove(id) => {
                let events = self.remove_container(id, now);
                match self.profile.deleted_with_sandbox {
                    true => events,
                    false => Vec::new(),
                }
            }
            Step::Announce(id) | Step::RemoveSandbox(id) if !self.exists(id) => Vec::new(),
            Step::Announce(id) => {
                self.latest = now.max(self.latest + 1);
                self.due(EventType::Deleted, id)
            }
            Step::RemoveSandbox(id) => {
                self.change(id, State::Removed, now);
                match self.profile.sandbox_deleted {
                    SandboxDeleted::AfterRemoval => self.due(EventType::Deleted, id),
                    SandboxDeleted::Never | SandboxDeleted::BeforeRemoval => Vec::new(),
                }
            }
        }
    }

    // ----------------------------------------------------------------------------------------- helpers

    fn steps(&mut self, steps: &[Step], now: u64) -> Vec<Due> {
        let events = steps.iter().flat_map(|step| self.step(step, now));
        events.collect()
    }

    /// The existing containers of a sandbox.
    pub fn containers_of(&self, sandbox: &str) -> Vec<Id> {
        let existing = self.objects().filter(|o| o.exists());
        let of_it = existing.filter(|o| o.sandbox.as_deref() == Some(sandbox));
        of_it.map(|o| o.id.clone()).collect()
    }

    /// Adds a sandbox or container, unless an existing one has the same name.
    fn add(&mut self, object: Object, state: State, now: u64) -> Result<(), Refused> {
        let of_name = self.objects.values().filter(|o| {
            (o.kind, o.attempt, &o.name) == (object.kind, object.attempt, &object.name)
                && o.pod.uid == object.pod.uid
        });
        if let Some(taken) = { of_name }.find(|o| o.exists()) {
            return Err(Refused::NameTaken(taken.id.clone()));
        }
        let id = object.id.clone();
        self.objects.insert(id.clone(), object);
        self.change(&id, state, now);
        Ok(())
    }

    fn exists(&self, id: &Id) -> bool {
        self.object(id).is_some_and(Object::exists)
    }

    fn is(&self, id: &Id, kind: Kind, state: State) -> bool {
        self.in_state(id, kind, state).is_ok()
    }

    /// The object `id`. Fails unless it has the kind `kind` and the state `state`.
    fn in_state(&self, id: &Id, kind: Kind, state: State) -> Result<&Object, Refused> {
        let found = self.object(id).filter(|o| o.kind == kind && o.exists());
        let found = found.ok_or_else(|| Refused::NotFound(id.clone()))?;
        match found.state() {
            current if current == state => Ok(found),
            current => Err(Refused::WrongState(current)),
        }
    }

    fn can_start(&self, id: &Id) -> Result<(), Refused> {
        let container = self.in_state(id, Kind::Container, State::Created)?;
        let sandbox = container.sandbox_id();
        self.in_state(sandbox, Kind::Sandbox, State::Running)?;
        Ok(())
    }

    fn end(&mut self, id: &Id, code: i32, reason: &'static str, now: u64) {
        if let Some(object) = self.objects.get_mut(id) {
            (object.exit.code, object.exit.reason) = (code, reason);
        }
        self.change(id, State::Exited, now);
    }

    /// Records the new state `state` of an object, at an instant that is later than every earlier change.
    fn change(&mut self, id: &Id, state: State, now: u64) {
        self.latest = now.max(self.latest + 1);
        let (at, wall) = (self.latest, self.wall(self.latest));
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        let last = object.history.last();
        let shown = last.map_or((0, 0), |c| (c.in_lists, c.in_statuses));
        object.history.push(Change {
            at,
            wall,
            state,
            in_lists: at.max(shown.0),
            in_statuses: at.max(shown.1),
        });
    }

    /// The event of type `what` about the last change, or an empty list if the runtime sends no events.
    pub fn due(&self, what: EventType, subject: &Id) -> Vec<Due> {
        let due = Due {
            what,
            subject: subject.clone(),
            at: self.latest,
        };
        let is_sent = self.profile.has_events();
        Vec::from_iter(is_sent.then_some(due))
    }
}
