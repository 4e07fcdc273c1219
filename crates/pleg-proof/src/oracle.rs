//! The true state of the node: the lifecycle of each sandbox and container. It is simple enough to be
//! obviously correct and uses none of the core's rules.
//!
//! An id contains its index in the oracle and its pod (`ctr-17-3` is object 17, of pod 3), so lookups
//! need no search.

mod operations;

use pleg_core::{Details, EventType, Id, Identity, Kind, ReportedState, Text, WallTime};

use crate::fault_profile::SECOND;
use crate::rng::Rng;
use crate::runtime::WALL_ORIGIN;

pub use operations::{Done, Operation, Refused};

/// A state that a runtime shows; a sandbox is ready (`Running`) or not (`Exited`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Created,
    Running,
    Exited,
    Removed,
}

impl State {
    /// How a runtime reports it; none if it does not.
    pub const fn reported(self) -> Option<ReportedState> {
        match self {
            Self::Created => Some(ReportedState::Created),
            Self::Running => Some(ReportedState::Running),
            Self::Exited => Some(ReportedState::Exited),
            Self::Removed => None,
        }
    }

    /// The state that a runtime reports; none for UNKNOWN.
    pub const fn from_reported(shown: ReportedState) -> Option<Self> {
        match shown {
            ReportedState::Created => Some(Self::Created),
            ReportedState::Running => Some(Self::Running),
            ReportedState::Exited => Some(Self::Exited),
            ReportedState::Unknown => None,
        }
    }

    /// The state at `t` of an object with these times; none before it was created.
    pub fn at(t: u64, created: u64, [started, exited, removed]: [Option<u64>; 3]) -> Option<Self> {
        let since = |time: Option<u64>| time.is_some_and(|time| time <= t);
        if t < created {
            None
        } else if since(removed) {
            Some(Self::Removed)
        } else if since(exited) {
            Some(Self::Exited)
        } else if since(started) {
            Some(Self::Running)
        } else {
            Some(Self::Created)
        }
    }
}

/// A sandbox or container and its lifecycle. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Object {
    pub id: Id,
    pub kind: Kind,
    pub pod: usize,
    /// The pod that its label names: lists with a filter show it as one of this pod.
    pub label: Option<usize>,
    pub name: &'static str,
    pub sandbox: Option<Id>,
    pub attempt: u32,
    pub created: u64,
    pub started: Option<u64>,
    pub exited: Option<u64>,
    pub code: i32,
    pub reason: &'static str,
    pub removed: Option<u64>,
    /// How long lists still show it after its removal.
    pub listed_after_removal: u64,
    /// When its memory limit was raised. No event reports that.
    pub resized: Vec<u64>,
    /// The parts of a report that do not depend on the state.
    pub reported: Reported,
}

/// The constant parts of an object's reports; shared, so that reports are cheap.
#[derive(Clone, Debug)]
pub struct Reported {
    pub identity: Identity,
    pub details: Details,
    pub address: Text,
}

impl Object {
    /// The state at `t`; none before it was created.
    pub fn at(&self, t: u64) -> Option<State> {
        State::at(t, self.created, [self.started, self.exited, self.removed])
    }

    /// Its memory limit at `t`, as its statuses report it.
    pub fn memory_limit(&self, t: u64) -> Option<i64> {
        let raised = self.resized.iter().filter(|&&at| at <= t).count() as i64;
        (!self.resized.is_empty()).then_some(1 + raised)
    }

    /// Whether a runtime shows it at `t`.
    pub fn exists(&self, t: u64) -> bool {
        t >= self.created && self.removed.is_none_or(|removed| t < removed)
    }
}

/// A transition that a runtime may report as an event.
#[derive(Clone, Debug)]
pub struct Transition {
    pub at: u64,
    pub object: usize,
    pub event: EventType,
    /// It happened during the removal of the sandbox (CRI-O sends no events for that).
    pub inside_removal: bool,
}

/// The node.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub objects: Vec<Object>,
    /// Sandboxes are listed for a while after their removal (containerd 2).
    pub lists_removed_sandboxes: bool,
    /// A container that fails to start is removed (CRI-O).
    pub failed_start_removes: bool,
    /// How many containers failed to start.
    pub failed_starts: u64,
    /// Every started container starts, and none exits at once.
    pub reliable: bool,
    /// How many of 100 objects have no pod-uid label, or one that names another pod.
    pub wrong_labels: u64,
    pods: Vec<PodObjects>,
}

/// The objects of one pod.
#[derive(Clone, Debug, Default)]
struct PodObjects {
    /// Objects that exist or were removed recently, oldest first.
    recent: Vec<usize>,
    /// The number of objects per name; sandboxes have no name.
    attempts: [u32; 1 + NAMES.len()],
    /// The next attempt per container name according to the log directory.
    logs: [u32; NAMES.len()],
}

/// Container names. Pods without a worker use the first two.
pub const NAMES: [&str; 3] = ["app", "log", "net"];
const STEP: u64 = 1_000_000;
/// No answer and no event shows objects removed longer ago than this: more than the longest
/// list.
const RETENTION: u64 = 150 * SECOND;

impl Oracle {
    /// An empty node.
    pub fn new(lists_removed_sandboxes: bool, failed_start_removes: bool) -> Self {
        Self {
            lists_removed_sandboxes,
            failed_start_removes,
            ..Self::default()
        }
    }

    pub fn object(&self, id: &Id) -> Option<&Object> {
        self.objects.get(Self::index(id)?).filter(|l| l.id == *id)
    }

    /// The index of an id in `objects`.
    pub fn index_of(&self, id: &Id) -> Option<usize> {
        Self::index(id).filter(|&n| self.objects.get(n).is_some_and(|l| l.id == *id))
    }

    fn index(id: &Id) -> Option<usize> {
        let digits = id.as_str().get(4..)?.bytes();
        digits
            .take_while(|&b| b != b'-')
            .try_fold(0, |n: usize, b| {
                let digit = usize::from(b.checked_sub(b'0')?);
                n.checked_mul(10)?.checked_add(digit)
            })
    }

    /// The number of pods that ever existed.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// A pod's objects that exist or were removed recently, oldest first.
    pub fn recent(&self, pod: usize) -> impl Iterator<Item = &Object> {
        let recent = self.pods.get(pod).map_or(&[][..], |p| &p.recent);
        recent.iter().map(|&n| &self.objects[n])
    }

    /// All objects that exist or were removed recently.
    pub fn all_recent(&self) -> impl Iterator<Item = &Object> {
        (0..self.pods.len()).flat_map(|pod| self.recent(pod))
    }

    /// A pod's objects that exist at `t`; `t` must be recent.
    pub fn of_pod(&self, pod: usize, t: u64) -> impl Iterator<Item = &Object> {
        self.recent(pod).filter(move |l| l.exists(t))
    }

    fn create(
        &mut self,
        (kind, pod, name): (Kind, usize, &'static str),
        label: Option<usize>,
        sandbox: Option<Id>,
        attempt: Option<u32>,
        t: u64,
    ) -> usize {
        let n = self.objects.len();
        let prefix = if kind == Kind::Sandbox { "sbx" } else { "ctr" };
        if self.pods.len() <= pod {
            self.pods.resize_with(pod + 1, PodObjects::default);
        }
        self.prune(pod, t);
        let of_pod = &mut self.pods[pod];
        of_pod.recent.push(n);
        let number = 1 + NAMES.iter().position(|&other| other == name).unwrap_or(0);
        let number = if kind == Kind::Sandbox { 0 } else { number };
        let attempt = attempt.unwrap_or(of_pod.attempts[number]);
        of_pod.attempts[number] += 1;
        let ready = kind == Kind::Sandbox;
        let reported = Reported::new((kind, pod, label), name, sandbox.clone(), attempt, t);
        self.objects.push(Object {
            id: format!("{prefix}-{n}-{pod}").into(),
            kind,
            pod,
            label,
            name,
            sandbox,
            attempt,
            created: t,
            started: ready.then_some(t),
            exited: None,
            code: 0,
            reason: "Completed",
            removed: None,
            listed_after_removal: 0,
            resized: Vec::new(),
            reported,
        });
        n
    }

    /// The pod that the label of the next object names. A kubelet labels its own as it should.
    fn random_label(&self, pod: usize) -> Option<usize> {
        let mixed = (self.objects.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if mixed % 100 >= self.wrong_labels {
            return Some(pod);
        }
        mixed
            .is_multiple_of(2)
            .then_some((pod + 1) % self.pods.len().max(1))
    }

    /// The objects that lists show as those of a pod, by their labels.
    pub fn labelled(&self, pod: usize) -> Box<dyn Iterator<Item = &Object> + '_> {
        if self.wrong_labels == 0 {
            return Box::new(self.recent(pod));
        }
        Box::new(self.all_recent().filter(move |l| l.label == Some(pod)))
    }

    /// Raises the memory limit of a container of that pod, if it has one.
    pub fn resize(&mut self, pod: usize, rng: &mut Rng, t: u64) -> Option<&Id> {
        let containers = self.existing_of_kind(pod, Kind::Container, t);
        if containers.is_empty() {
            return None;
        }
        let object = &mut self.objects[rng.pick(&containers)];
        object.resized.push(t);
        Some(&object.id)
    }

    /// Drops objects removed long ago from every pod.
    pub fn prune_all(&mut self, t: u64) {
        for pod in 0..self.pods.len() {
            self.prune(pod, t);
        }
    }

    fn prune(&mut self, pod: usize, t: u64) {
        let objects = &self.objects;
        let lately = |n: &usize| objects[*n].removed.is_none_or(|gone| gone + RETENTION > t);
        self.pods[pod].recent.retain(lately);
    }

    fn existing_of_kind(&self, pod: usize, kind: Kind, t: u64) -> Vec<usize> {
        let recent = self.pods.get(pod).map_or(&[][..], |p| &p.recent);
        let of_kind = |n: &usize| self.objects[*n].kind == kind && self.objects[*n].exists(t);
        recent.iter().copied().filter(of_kind).collect()
    }

    /// Applies a random operation to the pod at `t`. Returns the transitions and the time of
    /// completion.
    pub fn random_step(&mut self, pod: usize, rng: &mut Rng, t: u64) -> (Vec<Transition>, u64) {
        let mut log = TransitionLog {
            at: t,
            transitions: Vec::new(),
        };
        let sandboxes = self.existing_of_kind(pod, Kind::Sandbox, t);
        let ready = sandboxes
            .iter()
            .copied()
            .find(|&n| self.objects[n].at(t) == Some(State::Running));
        let containers = self.existing_of_kind(pod, Kind::Container, t);
        match (rng.below(12), ready) {
            (0..=5, None) => {
                let label = self.random_label(pod);
                let n = self.create((Kind::Sandbox, pod, ""), label, None, None, t);
                log.push(n, EventType::Created);
                log.push(n, EventType::Started);
            }
            (0..=2, Some(s)) => {
                let sandbox = self.objects[s].id.clone();
                let name = rng.pick(&NAMES[..2]);
                let label = self.random_label(pod);
                let of = (Kind::Container, pod, name);
                let n = self.create(of, label, Some(sandbox), None, t);
                log.push(n, EventType::Created);
                if rng.percent(50) {
                    self.start(n, rng, &mut log);
                }
            }
            (3..=7, _) if !containers.is_empty() => {
                let n = rng.pick(&containers);
                match self.objects[n].at(t) {
                    Some(State::Created) if ready.is_some() => self.start(n, rng, &mut log),
                    Some(State::Running) => self.exit(n, rng.pick(&[0, 1, 137]), &mut log),
                    Some(State::Exited | State::Created) => self.remove(n, false, &mut log),
                    _ => {}
                }
            }
            (8 | 9, Some(s)) => self.stop(s, rng, &mut log),
            (10, Some(s)) if rng.percent(20) => {
                // The sandbox process is killed; its containers keep running.
                self.objects[s].exited = Some(log.at);
                log.push(s, EventType::Stopped);
            }
            // Removes an earlier sandbox.
            (11, Some(_)) if sandboxes.len() > 1 => {
                let ended = |n: &usize| self.objects[*n].at(t) == Some(State::Exited);
                let ended: Vec<usize> = sandboxes.into_iter().filter(ended).collect();
                if !ended.is_empty() {
                    self.remove_sandbox(rng.pick(&ended), &mut log);
                }
            }
            (10 | 11, None) if !sandboxes.is_empty() => {
                let s = rng.pick(&sandboxes);
                self.remove_sandbox(s, &mut log);
            }
            _ => {}
        }
        (log.transitions, log.at)
    }

    /// Stops and removes everything.
    pub fn remove_all(&mut self, pods: usize, rng: &mut Rng, t: u64) -> (Vec<Transition>, u64) {
        let mut log = TransitionLog {
            at: t,
            transitions: Vec::new(),
        };
        for pod in 0..pods {
            for s in self.existing_of_kind(pod, Kind::Sandbox, t) {
                if self.objects[s].at(t) == Some(State::Running) {
                    self.stop(s, rng, &mut log);
                }
                self.remove_sandbox(s, &mut log);
            }
        }
        (log.transitions, log.at)
    }

    /// A running container of the pod exits by itself.
    pub fn exit_one(&mut self, pod: usize, rng: &mut Rng, t: u64) -> Vec<Transition> {
        let mut log = TransitionLog {
            at: t,
            transitions: Vec::new(),
        };
        let mut running = self.existing_of_kind(pod, Kind::Container, t);
        running.retain(|&n| self.objects[n].at(t) == Some(State::Running));
        if !running.is_empty() {
            self.exit(rng.pick(&running), rng.pick(&[0, 1, 137]), &mut log);
        }
        log.transitions
    }

    /// A sandbox of the pod disappears with its containers and without events. Returns whether there was one.
    pub fn lose_sandbox(&mut self, pod: usize, rng: &mut Rng, t: u64) -> bool {
        let sandboxes = self.existing_of_kind(pod, Kind::Sandbox, t);
        if sandboxes.is_empty() {
            return false;
        }
        let sandbox = rng.pick(&sandboxes);
        for n in self.containers_of(sandbox, t) {
            self.objects[n].removed = Some(t);
        }
        self.objects[sandbox].removed = Some(t);
        true
    }

    fn start(&mut self, n: usize, rng: &mut Rng, log: &mut TransitionLog) {
        if !self.reliable && rng.percent(10) {
            // The runtime fails to start it and sends no event.
            self.failed_starts += 1;
            let object = &mut self.objects[n];
            if self.failed_start_removes {
                object.removed = Some(log.at);
            } else {
                object.exited = Some(log.at);
                (object.code, object.reason) = (128, "StartError");
            }
            log.at += STEP;
            return;
        }
        self.objects[n].started = Some(log.at);
        log.push(n, EventType::Started);
        if !self.reliable && rng.percent(15) {
            self.exit(n, 1, log);
        }
    }

    fn exit(&mut self, n: usize, code: i32, log: &mut TransitionLog) {
        let object = &mut self.objects[n];
        object.exited = Some(log.at);
        object.code = code;
        object.reason = ["Error", "Completed"][usize::from(code == 0)];
        log.push(n, EventType::Stopped);
    }

    fn containers_of(&self, s: usize, t: u64) -> Vec<usize> {
        let sandbox = &self.objects[s];
        let mut inside = self.existing_of_kind(sandbox.pod, Kind::Container, t);
        inside.retain(|&n| self.objects[n].sandbox.as_ref() == Some(&sandbox.id));
        inside
    }

    fn stop(&mut self, s: usize, rng: &mut Rng, log: &mut TransitionLog) {
        for n in self.containers_of(s, log.at) {
            if self.objects[n].at(log.at) == Some(State::Running) {
                self.exit(n, rng.pick(&[0, 137]), log);
            }
        }
        self.objects[s].exited = Some(log.at);
        log.push(s, EventType::Stopped);
    }

    fn remove(&mut self, n: usize, inside: bool, log: &mut TransitionLog) {
        self.objects[n].removed = Some(log.at);
        log.push(n, EventType::Deleted);
        if let Some(last) = log.transitions.last_mut() {
            last.inside_removal = inside;
        }
    }

    fn remove_sandbox(&mut self, s: usize, log: &mut TransitionLog) {
        for n in self.containers_of(s, log.at) {
            if self.objects[n].at(log.at) == Some(State::Running) {
                self.exit(n, 137, log);
            }
            self.remove(n, true, log);
        }
        self.remove(s, true, log);
        if self.lists_removed_sandboxes {
            self.objects[s].listed_after_removal = self.objects[s].created % 6_000 * STEP;
        }
    }
}

impl Reported {
    fn new(
        (kind, pod, label): (Kind, usize, Option<usize>),
        name: &'static str,
        sandbox: Option<Id>,
        attempt: u32,
        created: u64,
    ) -> Self {
        let mut identity = Identity::new(kind);
        // A sandbox names its pod in its metadata, too; a container only by its label.
        let named = match kind {
            Kind::Sandbox => Some(pod),
            Kind::Container => label,
        };
        identity.pod = named.map(crate::runtime::uid);
        identity.unlabelled = label.is_none() || label != named;
        identity.namespace = Some("ns".into());
        identity.pod_name = Some(format!("name-{pod}").into());
        identity.sandbox = sandbox;
        identity.name = (kind == Kind::Container).then(|| name.into());
        identity.attempt = attempt;
        identity.created_at = WallTime::claimed(WALL_ORIGIN + created as i64);
        Self {
            identity,
            details: Details::none(kind),
            address: format!("10.0.{pod}.{attempt}").into(),
        }
    }
}

/// The transitions of one runtime operation.
struct TransitionLog {
    at: u64,
    transitions: Vec<Transition>,
}

impl TransitionLog {
    fn push(&mut self, object: usize, event: EventType) {
        self.transitions.push(Transition {
            at: self.at,
            object,
            event,
            inside_removal: false,
        });
        self.at += STEP;
    }
}
