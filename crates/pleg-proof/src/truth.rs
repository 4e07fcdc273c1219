//! The truth: what really happened on the node, as a timeline per id. Trivially correct, and it
//! shares nothing with the core but the names of ids.

use pleg_core::{EventType, Id, Kind};

use crate::dice::Dice;

/// A state that a runtime shows; a sandbox is ready (`Running`) or not (`Exited`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Created,
    Running,
    Exited,
    Gone,
}

/// The life of one id. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Life {
    pub id: Id,
    pub kind: Kind,
    pub pod: usize,
    pub name: String,
    pub sandbox: Option<Id>,
    pub attempt: u32,
    pub created: u64,
    pub started: Option<u64>,
    pub exited: Option<u64>,
    pub code: i32,
    pub reason: &'static str,
    pub removed: Option<u64>,
    /// How long lists still show it after that.
    pub lingers: u64,
}

impl Life {
    /// The state at `t`; none before it was created.
    pub fn at(&self, t: u64) -> Option<State> {
        let since = |moment: Option<u64>| moment.is_some_and(|m| m <= t);
        if t < self.created {
            None
        } else if since(self.removed) {
            Some(State::Gone)
        } else if since(self.exited) {
            Some(State::Exited)
        } else if since(self.started) {
            Some(State::Running)
        } else {
            Some(State::Created)
        }
    }

    /// Whether a runtime shows it at `t`.
    pub fn exists(&self, t: u64) -> bool {
        self.at(t).is_some_and(|s| s != State::Gone)
    }
}

/// Something that a runtime may tell as an event.
#[derive(Clone, Debug)]
pub struct Happening {
    pub at: u64,
    pub life: usize,
    pub event: EventType,
    /// It happened inside the removal of the sandbox (CRI-O tells none of that).
    pub inside_removal: bool,
}

/// The node.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub lives: Vec<Life>,
    /// Whether sandboxes are listed for a while after their removal (containerd 2).
    pub lingering: bool,
}

const NAMES: [&str; 2] = ["app", "log"];
const STEP: u64 = 1_000_000;

impl Truth {
    pub fn life(&self, id: &Id) -> Option<&Life> {
        self.lives.iter().find(|l| l.id == *id)
    }

    /// What exists of a pod at `t`.
    pub fn of_pod(&self, pod: usize, t: u64) -> impl Iterator<Item = &Life> {
        self.lives
            .iter()
            .filter(move |l| l.pod == pod && l.exists(t))
    }

    fn born(&mut self, kind: Kind, pod: usize, name: &str, sandbox: Option<Id>, t: u64) -> usize {
        let letter = if kind == Kind::Sandbox { "sbx" } else { "ctr" };
        let earlier = |l: &&Life| l.kind == kind && l.pod == pod && l.name == name;
        let attempt = self.lives.iter().filter(earlier).count() as u32;
        let ready = kind == Kind::Sandbox;
        self.lives.push(Life {
            id: format!("{letter}-{}-{pod}", self.lives.len()).into(),
            kind,
            pod,
            name: name.to_owned(),
            sandbox,
            attempt,
            created: t,
            started: ready.then_some(t),
            exited: None,
            code: 0,
            reason: "Completed",
            removed: None,
            lingers: 0,
        });
        self.lives.len() - 1
    }

    fn alive(&self, pod: usize, kind: Kind, t: u64) -> Vec<usize> {
        (0..self.lives.len())
            .filter(|&n| {
                let l = &self.lives[n];
                l.pod == pod && l.kind == kind && l.exists(t)
            })
            .collect()
    }

    /// Something happens to the pod at `t`: what, chance says. Returns what can be told of it and
    /// when it was over.
    pub fn act(&mut self, pod: usize, dice: &mut Dice, t: u64) -> (Vec<Happening>, u64) {
        let mut news = News {
            at: t,
            happenings: Vec::new(),
        };
        let sandboxes = self.alive(pod, Kind::Sandbox, t);
        let ready = sandboxes
            .iter()
            .copied()
            .find(|&n| self.lives[n].at(t) == Some(State::Running));
        let containers = self.alive(pod, Kind::Container, t);
        match (dice.below(12), ready) {
            (0..=5, None) => {
                let n = self.born(Kind::Sandbox, pod, "", None, t);
                news.tell(n, EventType::Created);
                news.tell(n, EventType::Started);
            }
            (0..=2, Some(s)) => {
                let sandbox = self.lives[s].id.clone();
                let name = dice.pick(&NAMES);
                let n = self.born(Kind::Container, pod, name, Some(sandbox), t);
                news.tell(n, EventType::Created);
                if dice.percent(50) {
                    self.start(n, dice, &mut news);
                }
            }
            (3..=7, _) if !containers.is_empty() => {
                let n = dice.pick(&containers);
                match self.lives[n].at(t) {
                    Some(State::Created) if ready.is_some() => self.start(n, dice, &mut news),
                    Some(State::Running) => self.exit(n, dice.pick(&[0, 1, 137]), &mut news),
                    Some(State::Exited | State::Created) => self.remove(n, false, &mut news),
                    _ => {}
                }
            }
            (8 | 9, Some(s)) => self.stop(s, dice, &mut news),
            (10, Some(s)) if dice.percent(20) => {
                // Its process is killed: the containers go on.
                self.lives[s].exited = Some(news.at);
                news.tell(s, EventType::Stopped);
            }
            (10 | 11, None) if !sandboxes.is_empty() => {
                let s = dice.pick(&sandboxes);
                self.remove_sandbox(s, &mut news);
            }
            _ => {}
        }
        (news.happenings, news.at)
    }

    /// Everything is stopped and removed.
    pub fn end(&mut self, pods: usize, dice: &mut Dice, t: u64) -> (Vec<Happening>, u64) {
        let mut news = News {
            at: t,
            happenings: Vec::new(),
        };
        for pod in 0..pods {
            for s in self.alive(pod, Kind::Sandbox, t) {
                if self.lives[s].at(t) == Some(State::Running) {
                    self.stop(s, dice, &mut news);
                }
                self.remove_sandbox(s, &mut news);
            }
        }
        (news.happenings, news.at)
    }

    fn start(&mut self, n: usize, dice: &mut Dice, news: &mut News) {
        if dice.percent(10) {
            // The runtime cannot start it, and tells nothing of it.
            let life = &mut self.lives[n];
            life.exited = Some(news.at);
            (life.code, life.reason) = (128, "StartError");
            news.at += STEP;
            return;
        }
        self.lives[n].started = Some(news.at);
        news.tell(n, EventType::Started);
        if dice.percent(15) {
            self.exit(n, 1, news);
        }
    }

    fn exit(&mut self, n: usize, code: i32, news: &mut News) {
        let life = &mut self.lives[n];
        life.exited = Some(news.at);
        life.code = code;
        life.reason = ["Error", "Completed"][usize::from(code == 0)];
        news.tell(n, EventType::Stopped);
    }

    fn containers_of(&self, s: usize, t: u64) -> Vec<usize> {
        let sandbox = &self.lives[s].id;
        (0..self.lives.len())
            .filter(|&n| {
                let l = &self.lives[n];
                l.sandbox.as_ref() == Some(sandbox) && l.exists(t)
            })
            .collect()
    }

    fn stop(&mut self, s: usize, dice: &mut Dice, news: &mut News) {
        for n in self.containers_of(s, news.at) {
            if self.lives[n].at(news.at) == Some(State::Running) {
                self.exit(n, dice.pick(&[0, 137]), news);
            }
        }
        self.lives[s].exited = Some(news.at);
        news.tell(s, EventType::Stopped);
    }

    fn remove(&mut self, n: usize, inside: bool, news: &mut News) {
        self.lives[n].removed = Some(news.at);
        news.tell(n, EventType::Deleted);
        if let Some(last) = news.happenings.last_mut() {
            last.inside_removal = inside;
        }
    }

    fn remove_sandbox(&mut self, s: usize, news: &mut News) {
        for n in self.containers_of(s, news.at) {
            if self.lives[n].at(news.at) == Some(State::Running) {
                self.exit(n, 137, news);
            }
            self.remove(n, true, news);
        }
        self.remove(s, true, news);
        if self.lingering {
            self.lives[s].lingers = self.lives[s].created % 6_000 * STEP;
        }
    }
}

/// What one operation of the runtime does, step by step.
struct News {
    at: u64,
    happenings: Vec<Happening>,
}

impl News {
    fn tell(&mut self, life: usize, event: EventType) {
        self.happenings.push(Happening {
            at: self.at,
            life,
            event,
            inside_removal: false,
        });
        self.at += STEP;
    }
}
