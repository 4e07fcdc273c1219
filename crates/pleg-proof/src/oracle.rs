//! The truth: what really happened on the node, as a timeline per id. Trivially correct, and it
//! shares nothing with the core but the names of ids.
//!
//! An id carries its place in the truth and its pod (`ctr-17-3` is life 17, of pod 3), so that
//! nobody has to search for it.

mod operations;

use pleg_core::{Details, EventType, Id, Identity, Kind, Text, WallTime};

use crate::dice::Dice;
use crate::runtime::WALL;
use crate::weather::SECOND;

pub use operations::{Done, Operation, Refused};

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
    pub name: &'static str,
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
    /// What answers say of it, whatever its state.
    pub said: Said,
}

/// What a runtime says of an id in every answer; shared, so that answers are cheap.
#[derive(Clone, Debug)]
pub struct Said {
    pub identity: Identity,
    pub details: Details,
    pub address: Text,
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
        t >= self.created && self.removed.is_none_or(|removed| t < removed)
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
    /// Whether a container that cannot be started is removed (CRI-O).
    pub failed_start_removes: bool,
    /// How many containers could not be started.
    pub failed_starts: u64,
    /// Every container that is started starts, and none ends at once.
    pub reliable: bool,
    pods: Vec<OfPod>,
}

/// What there is of one pod.
#[derive(Clone, Debug, Default)]
struct OfPod {
    /// Its lives that exist or have ended lately, oldest first.
    recent: Vec<usize>,
    /// How many there were of each name; sandboxes have none.
    attempts: [u32; 1 + NAMES.len()],
    /// By name, the attempt that the log directory gives to the next container.
    logs: [u32; NAMES.len()],
}

/// The names of containers. Pods that nobody operates have the first two.
pub const NAMES: [&str; 3] = ["app", "log", "net"];
const STEP: u64 = 1_000_000;
/// No answer and no event shows what was removed longer ago than this: the longest a list may
/// take, and some more.
const LATELY: u64 = 150 * SECOND;

impl Truth {
    /// A node on which nothing has happened yet, of a runtime that does these things.
    pub fn new(lingering: bool, failed_start_removes: bool) -> Self {
        Self {
            lingering,
            failed_start_removes,
            ..Self::default()
        }
    }

    pub fn life(&self, id: &Id) -> Option<&Life> {
        self.lives.get(Self::place(id)?).filter(|l| l.id == *id)
    }

    /// The place of an id in `lives`, if it has one.
    pub fn handle(&self, id: &Id) -> Option<usize> {
        Self::place(id).filter(|&n| self.lives.get(n).is_some_and(|l| l.id == *id))
    }

    fn place(id: &Id) -> Option<usize> {
        let digits = id.as_str().get(4..)?.bytes();
        digits
            .take_while(|&b| b != b'-')
            .try_fold(0, |n: usize, b| {
                let digit = usize::from(b.checked_sub(b'0')?);
                n.checked_mul(10)?.checked_add(digit)
            })
    }

    /// The pods that ever were.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// The lives of a pod that exist or have ended lately, oldest first.
    pub fn recent(&self, pod: usize) -> impl Iterator<Item = &Life> {
        let recent = self.pods.get(pod).map_or(&[][..], |p| &p.recent);
        recent.iter().map(|&n| &self.lives[n])
    }

    /// The lives of the node that exist or have ended lately.
    pub fn all_recent(&self) -> impl Iterator<Item = &Life> {
        (0..self.pods.len()).flat_map(|pod| self.recent(pod))
    }

    /// What exists of a pod at `t`, which is not long ago.
    pub fn of_pod(&self, pod: usize, t: u64) -> impl Iterator<Item = &Life> {
        self.recent(pod).filter(move |l| l.exists(t))
    }

    fn born(
        &mut self,
        (kind, pod, name): (Kind, usize, &'static str),
        sandbox: Option<Id>,
        attempt: Option<u32>,
        t: u64,
    ) -> usize {
        let n = self.lives.len();
        let letter = if kind == Kind::Sandbox { "sbx" } else { "ctr" };
        if self.pods.len() <= pod {
            self.pods.resize_with(pod + 1, OfPod::default);
        }
        self.tidy(pod, t);
        let of_pod = &mut self.pods[pod];
        of_pod.recent.push(n);
        let number = 1 + NAMES.iter().position(|&other| other == name).unwrap_or(0);
        let number = if kind == Kind::Sandbox { 0 } else { number };
        let attempt = attempt.unwrap_or(of_pod.attempts[number]);
        of_pod.attempts[number] += 1;
        let ready = kind == Kind::Sandbox;
        let said = Said::of(kind, pod, name, sandbox.clone(), attempt, t);
        self.lives.push(Life {
            id: format!("{letter}-{n}-{pod}").into(),
            kind,
            pod,
            name,
            sandbox,
            attempt,
            created: t,
            started: ready.then_some(t),
            exited: None,
            code: 0,
            reason: "Completed",
            removed: None,
            lingers: 0,
            said,
        });
        n
    }

    /// Forgets in every pod what ended long ago.
    pub fn tidy_all(&mut self, t: u64) {
        for pod in 0..self.pods.len() {
            self.tidy(pod, t);
        }
    }

    fn tidy(&mut self, pod: usize, t: u64) {
        let lives = &self.lives;
        let lately = |n: &usize| lives[*n].removed.is_none_or(|gone| gone + LATELY > t);
        self.pods[pod].recent.retain(lately);
    }

    fn alive(&self, pod: usize, kind: Kind, t: u64) -> Vec<usize> {
        let recent = self.pods.get(pod).map_or(&[][..], |p| &p.recent);
        let of_kind = |n: &usize| self.lives[*n].kind == kind && self.lives[*n].exists(t);
        recent.iter().copied().filter(of_kind).collect()
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
                let n = self.born((Kind::Sandbox, pod, ""), None, None, t);
                news.tell(n, EventType::Created);
                news.tell(n, EventType::Started);
            }
            (0..=2, Some(s)) => {
                let sandbox = self.lives[s].id.clone();
                let name = dice.pick(&NAMES[..2]);
                let n = self.born((Kind::Container, pod, name), Some(sandbox), None, t);
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
            // What is left of an earlier sandbox is cleared away.
            (11, Some(_)) if sandboxes.len() > 1 => {
                let ended = |n: &usize| self.lives[*n].at(t) == Some(State::Exited);
                let ended: Vec<usize> = sandboxes.into_iter().filter(ended).collect();
                if !ended.is_empty() {
                    self.remove_sandbox(dice.pick(&ended), &mut news);
                }
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

    /// A container of the pod ends by itself, if one runs.
    pub fn exit_one(&mut self, pod: usize, dice: &mut Dice, t: u64) -> Vec<Happening> {
        let mut news = News {
            at: t,
            happenings: Vec::new(),
        };
        let mut running = self.alive(pod, Kind::Container, t);
        running.retain(|&n| self.lives[n].at(t) == Some(State::Running));
        if !running.is_empty() {
            self.exit(dice.pick(&running), dice.pick(&[0, 1, 137]), &mut news);
        }
        news.happenings
    }

    /// A sandbox of the pod is gone with all that was in it, without a word. Whether there was one.
    pub fn vanish(&mut self, pod: usize, dice: &mut Dice, t: u64) -> bool {
        let sandboxes = self.alive(pod, Kind::Sandbox, t);
        if sandboxes.is_empty() {
            return false;
        }
        let sandbox = dice.pick(&sandboxes);
        for n in self.containers_of(sandbox, t) {
            self.lives[n].removed = Some(t);
        }
        self.lives[sandbox].removed = Some(t);
        true
    }

    fn start(&mut self, n: usize, dice: &mut Dice, news: &mut News) {
        if !self.reliable && dice.percent(10) {
            // The runtime cannot start it, and tells nothing of it.
            self.failed_starts += 1;
            let life = &mut self.lives[n];
            if self.failed_start_removes {
                life.removed = Some(news.at);
            } else {
                life.exited = Some(news.at);
                (life.code, life.reason) = (128, "StartError");
            }
            news.at += STEP;
            return;
        }
        self.lives[n].started = Some(news.at);
        news.tell(n, EventType::Started);
        if !self.reliable && dice.percent(15) {
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
        let sandbox = &self.lives[s];
        let mut inside = self.alive(sandbox.pod, Kind::Container, t);
        inside.retain(|&n| self.lives[n].sandbox.as_ref() == Some(&sandbox.id));
        inside
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

impl Said {
    fn of(
        kind: Kind,
        pod: usize,
        name: &'static str,
        sandbox: Option<Id>,
        attempt: u32,
        created: u64,
    ) -> Self {
        Self {
            identity: Identity {
                pod: Some(crate::runtime::uid(pod)),
                namespace: Some("ns".into()),
                pod_name: Some(format!("name-{pod}").into()),
                sandbox,
                name: (kind == Kind::Container).then(|| name.into()),
                attempt,
                created_at: WallTime::claimed(WALL + created as i64),
                ..Identity::unknown(kind)
            },
            details: Details::none(kind),
            address: format!("10.0.{pod}.{attempt}").into(),
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
