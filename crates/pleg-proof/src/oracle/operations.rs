//! The operations of a container runtime, as a kubelet calls them.

use pleg_core::{Id, Kind};

use super::{NAMES, Oracle, State, Transition, TransitionLog};
use crate::rng::Rng;
use pleg_core::EventType;

/// An operation that a kubelet requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    RunSandbox {
        pod: usize,
        attempt: u32,
    },
    Create {
        sandbox: Id,
        name: &'static str,
        attempt: u32,
    },
    Start(Id),
    Stop(Id),
    Remove(Id),
    StopSandbox(Id),
    RemoveSandbox(Id),
}

/// The result of an operation.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub transitions: Vec<Transition>,
    /// The time of completion.
    pub end: u64,
    /// The id of the created sandbox or container.
    pub created_id: Option<Id>,
}

/// Why the runtime refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such sandbox or container.
    NotFound,
    /// The sandbox is not ready.
    NotReady,
    /// The name and attempt are in use (containerd: "name is reserved").
    Reserved,
    /// A container cannot be started twice.
    Started,
}

impl Oracle {
    /// Performs an operation at `t`.
    ///
    /// # Errors
    /// The runtime refuses.
    pub fn operate(
        &mut self,
        operation: &Operation,
        rng: &mut Rng,
        t: u64,
    ) -> Result<Done, Refused> {
        let mut log = TransitionLog {
            at: t,
            transitions: Vec::new(),
        };
        let mut created_id = None;
        match operation {
            Operation::RunSandbox { pod, attempt } => {
                self.reserve(*pod, Kind::Sandbox, "", *attempt, t)?;
                let n = self.create(
                    (Kind::Sandbox, *pod, ""),
                    Some(*pod),
                    None,
                    Some(*attempt),
                    t,
                );
                log.push(n, EventType::Created);
                log.push(n, EventType::Started);
                created_id = Some(self.objects[n].id.clone());
            }
            Operation::Create {
                sandbox,
                name,
                attempt,
            } => {
                let pod = self.objects[self.ready(sandbox, t)?].pod;
                self.reserve(pod, Kind::Container, name, *attempt, t)?;
                let (what, sandbox) = ((Kind::Container, pod, *name), Some(sandbox.clone()));
                let n = self.create(what, Some(pod), sandbox, Some(*attempt), t);
                log.push(n, EventType::Created);
                created_id = Some(self.objects[n].id.clone());
            }
            Operation::Start(id) => {
                let n = self.existing(id, t).ok_or(Refused::NotFound)?;
                if self.objects[n].at(t) != Some(State::Created) {
                    return Err(Refused::Started);
                }
                let sandbox = self.objects[n].sandbox.clone().ok_or(Refused::NotReady)?;
                self.ready(&sandbox, t)?;
                self.start(n, rng, &mut log);
                let (pod, name) = (self.objects[n].pod, self.objects[n].name);
                let next = self.objects[n].attempt + 1;
                if self.objects[n].started.is_some()
                    && let Some(log) = self.log(pod, name)
                {
                    *log = next.max(*log);
                }
            }
            // Stopping or removing something that does not exist succeeds.
            Operation::Stop(id) => {
                if let Some(n) = self.existing(id, t)
                    && self.objects[n].at(t) == Some(State::Running)
                {
                    self.exit(n, rng.pick(&[0, 137]), &mut log);
                }
            }
            Operation::Remove(id) => {
                if let Some(n) = self.existing(id, t) {
                    if self.objects[n].at(t) == Some(State::Running) {
                        self.exit(n, 137, &mut log);
                    }
                    self.remove(n, false, &mut log);
                }
            }
            Operation::StopSandbox(id) => {
                if let Some(n) = self.existing(id, t)
                    && self.objects[n].at(t) == Some(State::Running)
                {
                    self.stop(n, rng, &mut log);
                }
            }
            Operation::RemoveSandbox(id) => {
                if let Some(n) = self.existing(id, t) {
                    if self.objects[n].at(t) == Some(State::Running) {
                        self.stop(n, rng, &mut log);
                    }
                    self.remove_sandbox(n, &mut log);
                }
            }
        }
        Ok(Done {
            transitions: log.transitions,
            end: log.at,
            created_id,
        })
    }

    /// The attempt that the pod's log directory implies for a container without status: one more than
    /// the last started one.
    pub fn next_attempt(&self, pod: usize, name: &str) -> u32 {
        let number = NAMES.iter().position(|&other| other == name);
        let logs = self.pods.get(pod).map(|p| &p.logs);
        number.and_then(|n| Some(logs?[n])).unwrap_or(0)
    }

    /// Removes the pod's log directory, so attempts start at zero.
    pub fn forget(&mut self, pod: usize) {
        if let Some(of_pod) = self.pods.get_mut(pod) {
            of_pod.logs = Default::default();
        }
    }

    /// The process of a ready sandbox is killed; its containers keep running.
    pub fn end_sandbox(&mut self, pod: usize, rng: &mut Rng, t: u64) -> Vec<Transition> {
        let mut ready = self.existing_of_kind(pod, Kind::Sandbox, t);
        ready.retain(|&n| self.objects[n].at(t) == Some(State::Running));
        let mut log = TransitionLog {
            at: t,
            transitions: Vec::new(),
        };
        if !ready.is_empty() {
            let n = rng.pick(&ready);
            self.objects[n].exited = Some(t);
            log.push(n, EventType::Stopped);
        }
        log.transitions
    }

    fn log(&mut self, pod: usize, name: &str) -> Option<&mut u32> {
        let number = NAMES.iter().position(|&other| other == name)?;
        self.pods.get_mut(pod)?.logs.get_mut(number)
    }

    fn existing(&self, id: &Id, t: u64) -> Option<usize> {
        self.index_of(id).filter(|&n| self.objects[n].exists(t))
    }

    fn ready(&self, sandbox: &Id, t: u64) -> Result<usize, Refused> {
        let n = self.existing(sandbox, t).ok_or(Refused::NotFound)?;
        if self.objects[n].at(t) == Some(State::Running) {
            Ok(n)
        } else {
            Err(Refused::NotReady)
        }
    }

    fn reserve(
        &self,
        pod: usize,
        kind: Kind,
        name: &str,
        attempt: u32,
        t: u64,
    ) -> Result<(), Refused> {
        let mut existing = self.of_pod(pod, t);
        let taken = existing.any(|l| (l.kind, l.name, l.attempt) == (kind, name, attempt));
        if taken {
            Err(Refused::Reserved)
        } else {
            Ok(())
        }
    }
}
