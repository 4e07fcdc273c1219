//! What happens on the node: pods come and go, the runtime goes away and comes back, and what can
//! be told of it is told.

use pleg_core::{EventType, Id, PodUid};

use super::{Todo, World};
use crate::faults::Fault;
use crate::laws::Lawful;
use crate::runtime;
use crate::truth::Happening;
use crate::weather::{Flavor, MS, SECOND};

/// How the node is. Every trouble is over at some instant.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) uids: Vec<PodUid>,
    /// What a pod does is done then.
    pub(super) busy: Vec<u64>,
    /// The pod's calls hang until then.
    hung: Vec<u64>,
    lists_out: u64,
    /// The runtime is down until then; it refuses, or is silent, until then.
    down: u64,
    starting: u64,
    silent_socket: bool,
    /// When it went down last.
    pub(super) restarted: u64,
    pub(super) silent: u64,
    pub(super) rival: u64,
    /// The status calls of these ids say NotFound until then.
    hidden: Vec<(Id, u64)>,
}

/// What a call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    Served,
    Refused,
    /// It is served then.
    Later(u64),
}

impl Node {
    pub(super) fn new(pods: usize) -> Self {
        Self {
            // One more, of which nothing is ever heard.
            uids: (0..=pods).map(runtime::uid).collect(),
            busy: vec![0; pods],
            hung: vec![0; pods],
            lists_out: 0,
            down: 0,
            starting: 0,
            silent_socket: false,
            restarted: 0,
            silent: 0,
            rival: 0,
            hidden: Vec::new(),
        }
    }

    pub(super) fn clear_up(&mut self, now: u64) {
        self.hung.fill(0);
        (self.lists_out, self.down) = (0, 0);
        self.starting = self.starting.min(now);
        (self.silent, self.rival) = (0, 0);
        self.hidden.clear();
    }

    pub(super) fn is_hidden(&self, now: u64, id: &Id) -> bool {
        let hidden = self.hidden.iter().find(|(other, _)| other == id);
        hidden.is_some_and(|(_, until)| now < *until)
    }

    pub(super) fn busy_until(&self) -> u64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn all_busy_until(&mut self, end: u64) {
        self.busy.fill(end);
    }

    pub(super) const fn is_up(&self, now: u64) -> bool {
        now >= self.down && now >= self.starting
    }

    /// When the runtime was last away, up to when it served again.
    pub(super) const fn up_since(&self) -> u64 {
        self.starting
    }

    pub(super) const fn met(&self, now: u64) -> Met {
        if now < self.down {
            Met::Refused
        } else if now < self.starting {
            if self.silent_socket {
                Met::Later(self.starting)
            } else {
                Met::Refused
            }
        } else {
            Met::Served
        }
    }

    pub(super) const fn lists_out(&self, now: u64) -> bool {
        now < self.lists_out
    }

    pub(super) fn is_hung(&self, now: u64, pod: Option<usize>) -> bool {
        let hung = pod.and_then(|pod| self.hung.get(pod));
        hung.is_some_and(|&until| now < until)
    }
}

impl World {
    pub(super) fn act(&mut self) -> Lawful {
        if !self.acting {
            return Ok(());
        }
        let pod = self.dice.node.below(self.plan.pods as u64) as usize;
        if self.kubelet.is_some() {
            self.disturb(pod)?;
        } else if self.node.is_up(self.now) {
            self.operate(pod);
        } else {
            // Nothing can be asked of a runtime that is away; processes end all the same.
            let untold = self.truth.exit_one(pod, &mut self.dice.node, self.now);
            if !untold.is_empty() {
                self.checks.tally.fault(Fault::Untold);
                self.note_happenings(&untold);
            }
        }
        if self.comes(Fault::Cut, |d| &mut d.stream) && self.stream.is_some() {
            self.cut("cut")?;
        }
        if self.comes(Fault::ClockStep, |d| &mut d.stream) {
            self.wall_offset += self.dice.stream.pick(&[-5, -2, 2, 90]) * SECOND as i64;
            let offset = self.wall_offset;
            self.checks
                .note(self.now, || format!("clock stepped, off by {offset}"));
        }
        if self.comes(Fault::Lie, |d| &mut d.stream) && !self.truth.lives.is_empty() {
            let life = self.dice.stream.below(self.truth.lives.len() as u64) as usize;
            let event = self
                .dice
                .stream
                .pick(&[EventType::Stopped, EventType::Deleted]);
            let lie = Happening {
                at: self.now,
                life,
                event,
                inside_removal: false,
            };
            self.tell_of(vec![lie]);
        }
        let next = self.now + self.plan.pause(&mut self.dice.node);
        self.at(next, Todo::Act);
        Ok(())
    }

    /// One operation of one pod.
    fn operate(&mut self, pod: usize) {
        let start = self.now.max(self.node.busy[pod]);
        let (happenings, end) = self.truth.act(pod, &mut self.dice.node, start);
        self.node.busy[pod] = end;
        self.tell_of(happenings);
    }

    pub(super) fn note_happenings(&mut self, happenings: &[Happening]) {
        for happening in happenings {
            let id = &self.truth.lives[happening.life].id;
            self.checks.history.note(happening.at, || {
                format!("   truth: {:?} {id}", happening.event)
            });
        }
    }

    pub(super) fn tell_of(&mut self, happenings: Vec<Happening>) {
        self.note_happenings(&happenings);
        for happening in happenings {
            let life = &self.truth.lives[happening.life];
            if happening.event == EventType::Stopped && life.code == 137 {
                self.checks.tally.fault(Fault::LateOom);
            }
            if runtime::tells(self.plan.flavor, &self.truth, &happening) {
                // The statuses are read when it has happened, or a little later.
                let at = happening.at + self.dice.node.between(0, MS / 2);
                self.at(at, Todo::Tell(happening));
            }
        }
        let failed = std::mem::take(&mut self.truth.failed_starts);
        self.checks.tally.faults[Fault::StartError as usize] += failed;
    }

    /// The runtime reads the statuses for an event and sends it.
    pub(super) fn tell(&mut self, happening: &Happening) -> Lawful {
        if !self.node.is_up(self.now) {
            self.checks.tally.fault(Fault::Untold);
            return Ok(());
        }
        let stale = self.comes(Fault::Stale, |d| &mut d.stream);
        let (mut snapshot, mut pause) = (self.now, 0);
        if stale {
            snapshot = self
                .now
                .saturating_sub(self.dice.stream.between(0, 20) * MS);
            pause = self.dice.stream.between(0, 300) * MS;
        }
        let stamped = self.wall() + pause as i64;
        let subject = &self.truth.lives[happening.life];
        let what = (subject, happening.event);
        let mut event = runtime::event(&self.truth, self.plan.flavor, what, snapshot, stamped);
        let (dice, tally) = (&mut self.dice.stream, &mut self.checks.tally);
        runtime::spoil(&mut event, dice, &self.weather, tally);
        self.send(event, pause);
        Ok(())
    }

    /// Troubles that come by the second.
    pub(super) fn trouble(&mut self) -> Lawful {
        let now = self.now;
        let until = |dice: &mut crate::dice::Dice, low, high| now + dice.between(low, high) * MS;
        if self.comes(Fault::Restart, |d| &mut d.node) {
            self.restart((100, 6000))?;
        }
        if self.node.is_up(now) && self.comes(Fault::Outage, |d| &mut d.node) {
            self.restart((10_000, 60_000))?;
        }
        if self.comes(Fault::SilentStream, |d| &mut d.node) {
            self.node.silent = until(&mut self.dice.node, 2000, 15_000);
            self.checks
                .note(now, || "the stream falls silent".to_owned());
        }
        if self.comes(Fault::Rival, |d| &mut d.node) {
            self.node.rival = until(&mut self.dice.node, 1000, 10_000);
            self.checks.note(now, || "a rival subscribes".to_owned());
        }
        if self.comes(Fault::HungPod, |d| &mut d.node) {
            let pod = self.dice.node.below(self.plan.pods as u64) as usize;
            self.node.hung[pod] = until(&mut self.dice.node, 1000, 12_000);
            for pod in self.pods_of(pod) {
                let uid = self.uid(pod);
                self.checks.no_longer_urgent(Some(&uid));
                self.checks.note(now, || format!("{uid} hangs"));
            }
        }
        if self.comes(Fault::HungPods, |d| &mut d.node) {
            let over = until(&mut self.dice.node, 1000, 8000);
            self.node.hung.fill(over);
            self.checks.no_longer_urgent(None);
            self.checks.note(now, || "all pods hang".to_owned());
        }
        if self.comes(Fault::ListOutage, |d| &mut d.node) {
            self.node.lists_out = until(&mut self.dice.node, 3000, 20_000);
            self.checks.note(now, || "no list answers".to_owned());
        }
        if self.comes(Fault::StatusHidden, |d| &mut d.node) {
            self.hide();
        }
        if self.comes(Fault::Storm, |d| &mut d.node) && self.node.is_up(now) {
            self.checks.note(now, || "a storm".to_owned());
            for pod in 0..self.plan.pods {
                for _ in 0..self.dice.node.between(1, 6) {
                    if self.kubelet.is_some() {
                        self.disturb(pod)?;
                    } else {
                        self.operate(pod);
                    }
                }
            }
            let busy = until(&mut self.dice.node, 0, 4000);
            self.busy_until = self.busy_until.max(busy);
            self.checks.no_longer_urgent(None);
        }
        Ok(())
    }

    /// The status calls of an id that exists begin to say NotFound.
    fn hide(&mut self) {
        let now = self.now;
        let exist = self.truth.all_recent().filter(|l| l.exists(now));
        let exist: Vec<&Id> = exist.map(|l| &l.id).collect();
        if exist.is_empty() {
            return;
        }
        let id = self.dice.node.pick(&exist).clone();
        let until = now + self.dice.node.between(50, 12_000) * MS;
        self.checks.note(now, || {
            format!("the status of {id} is not found for a while")
        });
        self.node.hidden.retain(|(_, until)| now < *until);
        self.node.hidden.push((id, until));
    }

    /// The runtime goes away and comes back after so many milliseconds, or more while it starts.
    fn restart(&mut self, (least, most): (u64, u64)) -> Lawful {
        let dice = &mut self.dice.node;
        let down = self.now + dice.between(least, most) * MS;
        let starting = down + dice.between(0, 3000) * MS;
        self.node.silent_socket = self.plan.flavor.is_crio() || dice.percent(20);
        (self.node.down, self.node.starting) = (down, starting);
        self.node.restarted = self.now;
        self.checks.no_longer_urgent(None);
        self.checks.note(self.now, || {
            format!("the runtime restarts, up at {:.6}", starting as f64 / 1e9)
        });
        self.channel.restarted();
        if self.stream.is_some() {
            self.cut("the runtime is gone")?;
        }
        let dice = &mut self.dice.node;
        if dice.percent(30) {
            let place = dice.below(self.plan.pods as u64) as usize;
            // Soon enough to be over before the weather clears up.
            let gone = down.min(self.now + 6 * SECOND);
            let at = gone.max(self.node.busy[place]);
            let pod = self.pod_at(place);
            let dice = &mut self.dice.node;
            if self.truth.vanish(pod, dice, at) {
                self.node.busy[place] = at + MS;
                self.checks.tally.fault(Fault::Vanished);
                let uid = self.uid(pod);
                self.checks
                    .note(self.now, || format!("a sandbox of {uid} will vanish"));
            }
        }
        Ok(())
    }

    /// A container ends, and no event is sent. Which, if one runs.
    pub fn exit_untold(&mut self) -> Option<usize> {
        let now = self.now;
        let untold = (0..self.plan.pods).find_map(|place| {
            let pod = self.pod_at(place);
            let untold = self.truth.exit_one(pod, &mut self.dice.node, now);
            untold.into_iter().next()
        })?;
        // Of what its worker does now every event arrives: none is taken by the reader of a stream
        // that has ended since it became calm (containerd 1.x).
        self.channel.clear_up();
        self.note_happenings(std::slice::from_ref(&untold));
        Some(untold.life)
    }

    /// How often the reader was too far behind.
    pub fn overflows(&self) -> u64 {
        self.checks.tally.paths[crate::tally::Path::BacklogOverflowed as usize]
    }

    /// Whether this world's runtime is one that never streams.
    pub(super) const fn never_streams(&self) -> bool {
        matches!(
            self.plan.flavor,
            Flavor::CrioDisabled | Flavor::Unimplemented | Flavor::Polled
        )
    }
}
