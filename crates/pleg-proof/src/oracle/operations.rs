//! The operations of a container runtime, as a kubelet calls them.

use pleg_core::{Id, Kind};

use super::{Happening, NAMES, News, State, Truth};
use crate::dice::Dice;
use pleg_core::EventType;

/// One call of a kubelet that changes something.
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

/// What an operation did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub happenings: Vec<Happening>,
    /// When it was over.
    pub end: u64,
    /// The sandbox or container that it made.
    pub made: Option<Id>,
}

/// Why a runtime does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such sandbox or container.
    NotFound,
    /// The sandbox is not ready.
    NotReady,
    /// The name and attempt are in use (containerd: "name is reserved").
    Reserved,
    /// A container that has run is not started again.
    Started,
}

impl Truth {
    /// Does it, at `t`.
    ///
    /// # Errors
    /// The runtime refuses.
    pub fn operate(
        &mut self,
        operation: &Operation,
        dice: &mut Dice,
        t: u64,
    ) -> Result<Done, Refused> {
        let mut news = News {
            at: t,
            happenings: Vec::new(),
        };
        let mut made = None;
        match operation {
            Operation::RunSandbox { pod, attempt } => {
                self.reserve(*pod, Kind::Sandbox, "", *attempt, t)?;
                let n = self.born((Kind::Sandbox, *pod, ""), None, Some(*attempt), t);
                news.tell(n, EventType::Created);
                news.tell(n, EventType::Started);
                made = Some(self.lives[n].id.clone());
            }
            Operation::Create {
                sandbox,
                name,
                attempt,
            } => {
                let pod = self.lives[self.ready(sandbox, t)?].pod;
                self.reserve(pod, Kind::Container, name, *attempt, t)?;
                let (what, sandbox) = ((Kind::Container, pod, *name), Some(sandbox.clone()));
                let n = self.born(what, sandbox, Some(*attempt), t);
                news.tell(n, EventType::Created);
                made = Some(self.lives[n].id.clone());
            }
            Operation::Start(id) => {
                let n = self.existing(id, t).ok_or(Refused::NotFound)?;
                if self.lives[n].at(t) != Some(State::Created) {
                    return Err(Refused::Started);
                }
                let sandbox = self.lives[n].sandbox.clone().ok_or(Refused::NotReady)?;
                self.ready(&sandbox, t)?;
                self.start(n, dice, &mut news);
                let (pod, name) = (self.lives[n].pod, self.lives[n].name);
                let next = self.lives[n].attempt + 1;
                if self.lives[n].started.is_some()
                    && let Some(log) = self.log(pod, name)
                {
                    *log = next.max(*log);
                }
            }
            // Stop and removal of what is gone succeed.
            Operation::Stop(id) => {
                if let Some(n) = self.existing(id, t)
                    && self.lives[n].at(t) == Some(State::Running)
                {
                    self.exit(n, dice.pick(&[0, 137]), &mut news);
                }
            }
            Operation::Remove(id) => {
                if let Some(n) = self.existing(id, t) {
                    if self.lives[n].at(t) == Some(State::Running) {
                        self.exit(n, 137, &mut news);
                    }
                    self.remove(n, false, &mut news);
                }
            }
            Operation::StopSandbox(id) => {
                if let Some(n) = self.existing(id, t)
                    && self.lives[n].at(t) == Some(State::Running)
                {
                    self.stop(n, dice, &mut news);
                }
            }
            Operation::RemoveSandbox(id) => {
                if let Some(n) = self.existing(id, t) {
                    if self.lives[n].at(t) == Some(State::Running) {
                        self.stop(n, dice, &mut news);
                    }
                    self.remove_sandbox(n, &mut news);
                }
            }
        }
        Ok(Done {
            happenings: news.happenings,
            end: news.at,
            made,
        })
    }

    /// The attempt that the pod's log directory gives to a container of which nothing else is
    /// known: one more than any that has been started.
    pub fn next_attempt(&self, pod: usize, name: &str) -> u32 {
        let number = NAMES.iter().position(|&other| other == name);
        let logs = self.pods.get(pod).map(|p| &p.logs);
        number.and_then(|n| Some(logs?[n])).unwrap_or(0)
    }

    /// The pod's log directory is removed, and attempts count from zero.
    pub fn forget(&mut self, pod: usize) {
        if let Some(of_pod) = self.pods.get_mut(pod) {
            of_pod.logs = Default::default();
        }
    }

    /// A ready sandbox of the pod ends by itself: its process is killed, and its containers go on.
    pub fn end_sandbox(&mut self, pod: usize, dice: &mut Dice, t: u64) -> Vec<Happening> {
        let mut ready = self.alive(pod, Kind::Sandbox, t);
        ready.retain(|&n| self.lives[n].at(t) == Some(State::Running));
        let mut news = News {
            at: t,
            happenings: Vec::new(),
        };
        if !ready.is_empty() {
            let n = dice.pick(&ready);
            self.lives[n].exited = Some(t);
            news.tell(n, EventType::Stopped);
        }
        news.happenings
    }

    fn log(&mut self, pod: usize, name: &str) -> Option<&mut u32> {
        let number = NAMES.iter().position(|&other| other == name)?;
        self.pods.get_mut(pod)?.logs.get_mut(number)
    }

    fn existing(&self, id: &Id, t: u64) -> Option<usize> {
        self.handle(id).filter(|&n| self.lives[n].exists(t))
    }

    fn ready(&self, sandbox: &Id, t: u64) -> Result<usize, Refused> {
        let n = self.existing(sandbox, t).ok_or(Refused::NotFound)?;
        if self.lives[n].at(t) == Some(State::Running) {
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
