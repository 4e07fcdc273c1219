//! The model of the node: the lifecycle of each object, and the events on the wire. It uses no merge or
//! freshness rules.

pub use pleg_proof::oracle::State;

use pleg_core::{EventType, Id, Kind, PodUid, Settings};
use pleg_proof::pod_actions::Step;

use super::ops::{FalseEventType, Name, Op, Pod};

/// The simulated runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// A sandbox's DELETED has no sandbox status; events carry the statuses of one sandbox.
    Containerd17,
    /// A sandbox's DELETED has its status, not ready.
    Containerd2,
    /// Sends no CREATED or DELETED of sandboxes, and no DELETED of containers removed with their sandbox;
    /// events carry the statuses of the pod.
    Crio,
}

/// The configuration of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub runtime: RuntimeKind,
    /// One inspection at a time, one retry, one overdue.
    pub tight: bool,
    /// Events may be false.
    pub false_events: bool,
    /// Pod workers operate the pods.
    pub kubelet: bool,
}

impl World {
    pub fn settings(self) -> Settings {
        let mut settings = Settings::default();
        if self.tight {
            (settings.inspections, settings.retries) = (1, 1);
            settings.overdue_max = 1;
        }
        settings
    }
}

/// A sandbox or container and its lifecycle. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Object {
    pub id: Id,
    pub kind: Kind,
    pub pod: Pod,
    /// Containers only.
    pub name: Option<Name>,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    pub attempt: u32,
    pub created: u64,
    pub started: Option<u64>,
    pub exited: Option<u64>,
    pub removed: Option<u64>,
    pub code: i32,
    pub failed_to_start: bool,
}

impl Object {
    /// The state at `t`; none before it was created.
    pub fn at(&self, t: u64) -> Option<State> {
        State::at(t, self.created, [self.started, self.exited, self.removed])
    }

    pub fn exists(&self, t: u64) -> bool {
        self.at(t).is_some_and(|s| s != State::Removed)
    }
}

/// A transition that the runtime reports as an event; on the wire until delivered or lost.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    pub at: u64,
    pub object: usize,
    pub event: EventType,
    /// The offset of the wall clock at that time, in milliseconds.
    pub wall_offset: i64,
}

/// The node and its wire.
#[derive(Clone, Debug)]
pub struct Node {
    pub world: World,
    pub now: u64,
    pub objects: Vec<Object>,
    pub wire: Vec<Transition>,
    /// All true events so far.
    pub emitted: Vec<Transition>,
    /// Since when there is a stream.
    pub stream: Option<u64>,
    /// While there is no stream, the runtime holds its events.
    pub held: bool,
    /// Status calls of the newest container of that name say NotFound.
    hidden: Option<(Pod, Name)>,
    pub wall_offset: i64,
}

impl Node {
    pub fn new(world: World) -> Self {
        let mut node = Self {
            world,
            now: 1_000,
            objects: Vec::new(),
            wire: Vec::new(),
            emitted: Vec::new(),
            stream: None,
            held: false,
            hidden: None,
            wall_offset: 0,
        };
        if world.kubelet {
            // An earlier kubelet left the first pod running.
            let left = [
                Op::Run(Pod::A),
                Op::Create(Pod::A, Name::App),
                Op::Start(Pod::A, Name::App),
                Op::Create(Pod::A, Name::Log),
                Op::Start(Pod::A, Name::Log),
            ];
            left.iter().for_each(|op| node.apply(op));
        }
        node
    }

    pub fn object(&self, id: &Id) -> Option<&Object> {
        self.objects.iter().find(|l| l.id == *id)
    }

    fn newest(&self, which: impl Fn(&Object) -> bool) -> Option<usize> {
        self.objects.iter().rposition(which)
    }

    pub fn ready_sandbox(&self, pod: Pod) -> Option<usize> {
        let t = self.now;
        self.newest(|l| l.kind == Kind::Sandbox && l.pod == pod && l.at(t) == Some(State::Running))
    }

    pub fn ended_sandbox(&self, pod: Pod) -> Option<usize> {
        let t = self.now;
        self.newest(|l| l.kind == Kind::Sandbox && l.pod == pod && l.at(t) == Some(State::Exited))
    }

    /// The newest container of that name in that state.
    pub fn container(&self, pod: Pod, name: Name, state: State) -> Option<usize> {
        let t = self.now;
        self.newest(|l| l.pod == pod && l.name == Some(name) && l.at(t) == Some(state))
    }

    /// Whether its status call says NotFound.
    pub fn is_hidden(&self, object: &Object) -> bool {
        self.hidden.is_some_and(|(pod, name)| {
            let newest = self.newest(|l| l.pod == pod && l.name == Some(name));
            newest.is_some_and(|n| self.objects[n].id == object.id)
        })
    }

    fn target(&self, pod: Pod, name: Option<Name>) -> Option<usize> {
        let t = self.now;
        self.newest(|l| l.pod == pod && l.name == name && l.exists(t))
    }

    /// Whether the operation is possible now.
    pub fn allows(&self, op: &Op) -> bool {
        let container = |pod, name, state| self.container(pod, name, state).is_some();
        match *op {
            Op::Run(pod) => self.ready_sandbox(pod).is_none(),
            Op::Create(pod, name) => {
                self.ready_sandbox(pod).is_some()
                    && !container(pod, name, State::Created)
                    && !container(pod, name, State::Running)
            }
            Op::Start(pod, name) | Op::FailToStart(pod, name) => {
                self.ready_sandbox(pod).is_some() && container(pod, name, State::Created)
            }
            Op::Exit(pod, name, _) => container(pod, name, State::Running),
            Op::Remove(pod, name) => {
                container(pod, name, State::Exited) || container(pod, name, State::Created)
            }
            Op::KillSandbox(pod) | Op::StopSandbox(pod) => self.ready_sandbox(pod).is_some(),
            Op::RemoveSandbox(pod) => self.ended_sandbox(pod).is_some(),
            Op::FalseEvent(pod, name, _) => {
                self.world.false_events && self.stream.is_some() && self.target(pod, name).is_some()
            }
            Op::Deliver { n, .. } => self.stream.is_some() && n < self.wire.len(),
            Op::DeliverAll => self.stream.is_some() && !self.wire.is_empty(),
            Op::Drop(n) => n < self.wire.len(),
            Op::Cut { .. } => self.stream.is_some(),
            Op::Subscribe => self.stream.is_none(),
            _ => true,
        }
    }

    /// Whether the operation may be possible. With workers only the run of the sequence knows.
    pub fn may_allow(&self, op: &Op) -> bool {
        self.world.kubelet || self.allows(op)
    }

    /// The operation about an event that is on the wire.
    pub fn clamped(&self, mut op: Op) -> Op {
        if let Op::Deliver { n, .. } | Op::Drop(n) = &mut op {
            *n = (*n).min(self.wire.len().saturating_sub(1));
        }
        op
    }

    /// Applies the operation.
    pub fn apply(&mut self, op: &Op) {
        if let Op::Advance(ms) = *op {
            self.now += ms;
            return;
        }
        if let Op::ClockStep(seconds) = *op {
            self.wall_offset += seconds * 1_000;
            return;
        }
        match *op {
            Op::HideStatus(pod, name) => self.hidden = Some((pod, name)),
            Op::ShowStatuses => self.hidden = None,
            _ => {}
        }
        if self.apply_to_stream(op) {
            return;
        }
        let before = self.now;
        // Every node operation has an instant of its own.
        self.now += 1;
        if !self.apply_to_node(op) {
            self.now = before;
        }
    }

    fn apply_to_stream(&mut self, op: &Op) -> bool {
        match *op {
            Op::Deliver { n, again, .. } => {
                if !again && n < self.wire.len() {
                    self.wire.remove(n);
                }
            }
            Op::DeliverAll => self.wire.clear(),
            Op::Drop(n) => {
                self.wire.remove(n);
            }
            Op::Cut { held } => {
                self.now += 1;
                self.stream = None;
                self.held = held;
                if !held {
                    self.wire.clear();
                }
            }
            Op::Subscribe => {
                self.now += 1;
                self.stream = Some(self.now);
            }
            _ => return false,
        }
        true
    }

    fn apply_to_node(&mut self, op: &Op) -> bool {
        let now = self.now;
        match *op {
            Op::Run(pod) => {
                self.run_sandbox(pod);
            }
            Op::Create(pod, name) => return self.create_container(pod, name).is_some(),
            Op::Start(pod, name) => {
                let Some(n) = self.container(pod, name, State::Created) else {
                    return false;
                };
                self.objects[n].started = Some(now);
                self.emit(n, EventType::Started, false);
            }
            Op::FailToStart(pod, name) => {
                let Some(n) = self.container(pod, name, State::Created) else {
                    return false;
                };
                let object = &mut self.objects[n];
                (object.exited, object.code, object.failed_to_start) = (Some(now), 128, true);
            }
            Op::Exit(pod, name, code) => {
                let Some(n) = self.container(pod, name, State::Running) else {
                    return false;
                };
                self.exit(n, code);
            }
            Op::Remove(pod, name) => {
                let of = |state| self.container(pod, name, state);
                let Some(n) = of(State::Exited).or_else(|| of(State::Created)) else {
                    return false;
                };
                self.remove(n, false);
            }
            // The sandbox process is killed; its containers keep running.
            Op::KillSandbox(pod) => {
                let Some(s) = self.ready_sandbox(pod) else {
                    return false;
                };
                self.objects[s].exited = Some(now);
                self.emit(s, EventType::Stopped, false);
            }
            Op::StopSandbox(pod) => {
                let Some(s) = self.ready_sandbox(pod) else {
                    return false;
                };
                self.stop_sandbox(s);
            }
            Op::RemoveSandbox(pod) => {
                let Some(s) = self.ended_sandbox(pod) else {
                    return false;
                };
                self.remove_sandbox(s);
            }
            Op::FalseEvent(pod, name, false_event) => {
                let Some(n) = self.target(pod, name) else {
                    return false;
                };
                let event = match false_event {
                    FalseEventType::Stopped => EventType::Stopped,
                    FalseEventType::Deleted => EventType::Deleted,
                };
                let false_event = self.transition(n, event);
                self.wire.push(false_event);
            }
            _ => return false,
        }
        true
    }

    fn run_sandbox(&mut self, pod: Pod) -> usize {
        let n = self.create(Kind::Sandbox, pod, None, None);
        self.objects[n].started = Some(self.now);
        self.emit(n, EventType::Created, false);
        self.emit(n, EventType::Started, false);
        n
    }

    fn create_container(&mut self, pod: Pod, name: Name) -> Option<usize> {
        let s = self.ready_sandbox(pod)?;
        let sandbox = self.objects[s].id.clone();
        let n = self.create(Kind::Container, pod, Some(name), Some(sandbox));
        self.emit(n, EventType::Created, false);
        Some(n)
    }

    fn stop_sandbox(&mut self, s: usize) {
        for n in self.containers_of(s, Some(State::Running)) {
            self.exit(n, 137);
        }
        self.objects[s].exited = Some(self.now);
        self.emit(s, EventType::Stopped, false);
    }

    fn remove_sandbox(&mut self, s: usize) {
        for n in self.containers_of(s, Some(State::Running)) {
            self.exit(n, 137);
        }
        for n in self.containers_of(s, None) {
            self.remove(n, true);
        }
        self.remove(s, true);
    }

    /// Performs the operation of a worker. Returns the id of what it created; none: it is refused.
    pub fn operate(&mut self, pod: Pod, step: &Step) -> Option<Option<Id>> {
        self.now += 1;
        let now = self.now;
        let created = match step {
            Step::RunSandbox { .. } => Some(self.run_sandbox(pod)),
            Step::Create { name, .. } => Some(self.create_container(pod, Name::named(name)?)?),
            Step::Start(id) => {
                let n = self.existing(id)?;
                self.running(self.objects[n].sandbox.as_ref()?)?;
                if self.objects[n].at(now) != Some(State::Created) {
                    return None;
                }
                self.objects[n].started = Some(now);
                self.emit(n, EventType::Started, false);
                None
            }
            // Stopping or removing something that does not run or exist succeeds.
            Step::Stop(id) => {
                if let Some(n) = self.running(id) {
                    self.exit(n, 137);
                }
                None
            }
            Step::StopSandbox(id) => {
                if let Some(s) = self.running(id) {
                    self.stop_sandbox(s);
                }
                None
            }
            Step::Remove(id) => {
                if let Some(n) = self.existing(id) {
                    if self.running(id).is_some() {
                        self.exit(n, 137);
                    }
                    self.remove(n, false);
                }
                None
            }
            Step::RemoveSandbox(id) => {
                if let Some(s) = self.existing(id) {
                    if self.running(id).is_some() {
                        self.stop_sandbox(s);
                    }
                    self.remove_sandbox(s);
                }
                None
            }
        };
        Some(created.map(|n| self.objects[n].id.clone()))
    }

    fn existing(&self, id: &Id) -> Option<usize> {
        let mut all = 0..self.objects.len();
        all.find(|&n| self.objects[n].id == *id && self.objects[n].exists(self.now))
    }

    fn running(&self, id: &Id) -> Option<usize> {
        let runs = |n: &usize| self.objects[*n].at(self.now) == Some(State::Running);
        self.existing(id).filter(runs)
    }

    fn create(&mut self, kind: Kind, pod: Pod, name: Option<Name>, sandbox: Option<Id>) -> usize {
        let earlier = |l: &&Object| l.kind == kind && l.pod == pod && l.name == name;
        let attempt = self.objects.iter().filter(earlier).count() as u32;
        let what = name.map_or("sandbox", Name::as_str);
        self.objects.push(Object {
            id: format!("{}/{what}#{attempt}", pod.uid()).into(),
            kind,
            pod,
            name,
            sandbox,
            attempt,
            created: self.now,
            started: None,
            exited: None,
            removed: None,
            code: 0,
            failed_to_start: false,
        });
        self.objects.len() - 1
    }

    fn containers_of(&self, s: usize, state: Option<State>) -> Vec<usize> {
        let is_of =
            |l: &Object| l.sandbox.as_ref() == Some(&self.objects[s].id) && l.exists(self.now);
        (0..self.objects.len())
            .filter(|&n| is_of(&self.objects[n]))
            .filter(|&n| state.is_none() || self.objects[n].at(self.now) == state)
            .collect()
    }

    fn exit(&mut self, n: usize, code: i32) {
        self.objects[n].exited = Some(self.now);
        self.objects[n].code = code;
        self.emit(n, EventType::Stopped, false);
    }

    fn remove(&mut self, n: usize, with_its_sandbox: bool) {
        self.objects[n].removed = Some(self.now);
        self.emit(n, EventType::Deleted, with_its_sandbox);
    }

    fn emit(&mut self, n: usize, event: EventType, with_its_sandbox: bool) {
        let sandbox = self.objects[n].kind == Kind::Sandbox;
        let first_seen_removed = self.world.runtime == RuntimeKind::Crio
            && match event {
                EventType::Created => sandbox,
                EventType::Deleted => sandbox || with_its_sandbox,
                _ => false,
            };
        if !first_seen_removed {
            self.push_transition(n, event);
        }
    }

    const fn transition(&self, object: usize, event: EventType) -> Transition {
        Transition {
            at: self.now,
            object,
            event,
            wall_offset: self.wall_offset,
        }
    }

    fn push_transition(&mut self, object: usize, event: EventType) {
        let transition = self.transition(object, event);
        self.emitted.push(transition);
        if self.stream.is_some() || self.held {
            self.wire.push(transition);
        }
    }
}

/// A pod that never exists.
pub fn unknown_pod() -> PodUid {
    "unknown".into()
}
