//! The laws as assertions: a shadow of what the consumers see, compared with the truth after every
//! single output.

use pleg_core::{
    ContainerState, Id, Kind, LifecycleType, Output, PodLifecycleEvent, PodView, Report,
    ReportedState, SandboxState, WaiterId,
};

use super::cast::Cast;
use super::script::{MOST, Snapshot, Stage, Step, Who};

/// The most pods that a world has.
pub const PODS: usize = 2;

/// What the machine was given when it said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A message of the stream, or its end or its begin.
    Stream,
    /// A read that has ended.
    Read,
    /// Nothing but time.
    Time,
    /// A question.
    Question,
}

/// What the cache shows of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cached {
    pub as_of: Option<u64>,
    inspected: Option<u64>,
    pub stages: Snapshot,
    /// Whose exit code is shown.
    pub codes: [bool; MOST],
    pub error: bool,
}

impl Cached {
    fn is_nothing(&self) -> bool {
        let gone = |stage: &Stage| matches!(stage, Stage::Absent | Stage::Removed);
        self.stages.iter().all(gone)
    }
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    waiter: WaiterId,
    pod: usize,
    at: u64,
    /// What was true when it asked.
    truth: Snapshot,
}

/// What is noted of one being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Noted {
    /// Whether anything the machine was given has named it, and when last, if that still matters.
    known: bool,
    named: Option<u64>,
    /// The first that was told of it was its removal.
    silent: bool,
    /// Something showed it running.
    ran: bool,
    /// How far events have told that it came.
    pub heard: Stage,
    /// Something was said of it that was not so.
    pub lied: bool,
    /// The cache has shown it.
    pub published: bool,
    incarnation: u32,
    pub started: bool,
    pub died: bool,
    pub removed: bool,
}

/// What the consumers were told so far, and what they may rely on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Book {
    pub cache: [Cached; PODS],
    /// What was true when reads began, as far as anybody still refers to that.
    began: Vec<(u64, Snapshot)>,
    /// When each pod's last inspection began that told the machine something.
    pub inspected: [Option<u64>; PODS],
    pub waiting: Vec<Asked>,
    pub noted: [Noted; MOST],
    /// How often the stream was cut, and how many events were lost otherwise.
    pub cuts: u8,
    pub drops: u8,
}

impl Book {
    // --- what goes in ---

    pub fn told(&mut self, cast: &Cast, now: u64, Step(who, to): Step, reports: &[&Report]) {
        let noted = &mut self.noted[who];
        let own = reports.iter().any(|r| r.id == cast.ids[who]);
        noted.silent |= to == Stage::Removed && !noted.known && !own;
        noted.ran |= to == Stage::Running;
        noted.heard = noted.heard.max(to);
        (noted.known, noted.named) = (true, Some(now));
        for report in reports {
            self.shown(cast, now, report);
            if let Some(who) = cast.who(&report.id) {
                let heard = &mut self.noted[who].heard;
                *heard = (*heard).max(stage_of(report.shown));
            }
        }
    }

    pub fn read(&mut self, cast: &Cast, now: u64, reports: &[Report]) {
        for report in reports {
            self.shown(cast, now, report);
        }
    }

    fn shown(&mut self, cast: &Cast, now: u64, report: &Report) {
        if let Some(who) = cast.who(&report.id) {
            let noted = &mut self.noted[who];
            (noted.known, noted.named) = (true, Some(now));
            noted.ran |= report.shown == ReportedState::Running;
        }
    }

    /// A read begins.
    pub fn begins(&mut self, now: u64, truth: &Snapshot) {
        if self.truth_at(now).is_none() {
            self.began.push((now, *truth));
        }
    }

    pub fn asked(&mut self, waiter: WaiterId, pod: usize, now: u64, truth: &Snapshot) {
        let truth = *truth;
        self.waiting.push(Asked {
            waiter,
            pod,
            at: now,
            truth,
        });
    }

    /// Forgets what was true at instants to which nobody refers: neither the cache, nor a read
    /// that is under way, nor whoever gets `nothing` as of the last list.
    pub fn forget(&mut self, under_way: &[u64], listed: Option<u64>) {
        let (cache, inspected) = (self.cache, self.inspected);
        self.began.retain(|(at, _)| {
            under_way.contains(at)
                || listed == Some(*at)
                || inspected.contains(&Some(*at))
                || cache
                    .iter()
                    .any(|c| c.as_of == Some(*at) || c.inspected == Some(*at))
        });
        let oldest = self.began.iter().map(|(at, _)| *at).min();
        for noted in &mut self.noted {
            // Older than all it could be compared with: as good as never.
            noted.named = noted.named.filter(|&at| Some(at) >= oldest);
        }
    }

    fn truth_at(&self, at: u64) -> Option<&Snapshot> {
        self.began.iter().find(|(t, _)| *t == at).map(|(_, s)| s)
    }

    // --- what comes out ---

    /// # Errors
    /// A law that is broken.
    pub fn output(
        &mut self,
        cast: &Cast,
        truth: &Snapshot,
        output: &Output,
        by: By,
    ) -> Result<(), String> {
        match output {
            Output::Publish { uid, view } => {
                let pod = number(cast, uid)?;
                let cached = cached(cast, pod, view)?;
                self.publish(cast, truth, pod, cached)
            }
            Output::Remove { uid } => {
                let pod = number(cast, uid)?;
                let Cached {
                    as_of, inspected, ..
                } = self.cache[pod];
                self.cache[pod] = Cached {
                    as_of,
                    inspected,
                    ..Cached::default()
                };
                Ok(())
            }
            Output::ListApplied { as_of, .. } => match self.truth_at(as_of.as_nanos()) {
                Some(_) => Ok(()),
                None => Err("law 3: swept as of when no read began".into()),
            },
            Output::Refresh { as_of, pods } => {
                let is_cached = |pod: &usize| !self.cache[*pod].is_nothing();
                let cached = (0..cast.pods.len()).filter(is_cached);
                for uid in pods.among(cached.map(|pod| cast.pods[pod].clone())) {
                    let pod = number(cast, &uid)?;
                    self.cache[pod].as_of = self.cache[pod].as_of.max(Some(as_of.as_nanos()));
                    self.fresh(cast, truth, pod, &self.cache[pod])?;
                }
                Ok(())
            }
            Output::Announce(event) => self.announce(cast, event),
            Output::Terminals { records, .. } => {
                for end in records.iter() {
                    code(cast, &end.id, end.exit_code)?;
                }
                Ok(())
            }
            Output::Answer { waiter, answer } => {
                let found = self.waiting.iter().position(|a| a.waiter == *waiter);
                let asked = found.map(|n| self.waiting.remove(n));
                let asked = asked.ok_or("law 4: somebody is answered who does not wait")?;
                if !matches!((by, answer), (By::Read, _) | (By::Question, Ok(_))) {
                    return Err("law 4: a waiter is answered by what is no read".into());
                }
                match answer {
                    Ok(view) => self.answered(cast, truth, &asked, view),
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn publish(
        &mut self,
        cast: &Cast,
        truth: &Snapshot,
        pod: usize,
        cached: Cached,
    ) -> Result<(), String> {
        let old = &self.cache[pod];
        let held = old.stages.iter().any(|s| s.exists());
        if held && cached.as_of < old.as_of {
            return Err("law 3: freshness goes backwards".into());
        }
        for who in cast.of_pod(pod) {
            let (shown, id) = (cached.stages[who], &cast.ids[who]);
            if shown > truth[who] && !self.noted[who].lied {
                return Err(format!(
                    "law 2: {id} is shown {shown:?} and is {:?}",
                    truth[who]
                ));
            }
            self.noted[who].published |= shown.exists();
        }
        self.fresh(cast, truth, pod, &cached)?;
        self.cache[pod] = cached;
        Ok(())
    }

    /// A view as of t shows what was true at t, or later, and how ended what had ended by then.
    fn fresh(
        &self,
        cast: &Cast,
        truth: &Snapshot,
        pod: usize,
        view: &Cached,
    ) -> Result<(), String> {
        if view.as_of.is_some_and(|t| self.truth_at(t).is_none()) {
            return Err("law 3: a view is as of when no read began".into());
        }
        match view.as_of {
            Some(t) => match self.truth_at(t) {
                Some(was) => self.shows(cast, truth, pod, view, (t, was)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Whether a view shows at least what was true then.
    fn shows(
        &self,
        cast: &Cast,
        truth: &Snapshot,
        pod: usize,
        view: &Cached,
        (then, was): (u64, &Snapshot),
    ) -> Result<(), String> {
        for who in cast.of_pod(pod).filter(|&w| !self.noted[w].lied) {
            let (id, shown) = (&cast.ids[who], view.stages[who]);
            let named = self.noted[who].named;
            match was[who] {
                Stage::Absent => {}
                // No read can show who is gone, and late events that name it since are news to
                // whoever had looked before (law 5).
                _ if truth[who] == Stage::Removed && named >= Some(then) => {}
                Stage::Removed if shown.exists() => {
                    return Err(format!(
                        "law 3: {id} is shown {shown:?} and was gone by then"
                    ));
                }
                Stage::Removed => {}
                _ if shown == Stage::Absent && truth[who] == Stage::Removed => {}
                stage if shown < stage => {
                    let lacks = format!("{id} is shown {shown:?} and was {stage:?} by then");
                    return Err(format!("law 3: {lacks}"));
                }
                Stage::Exited if cast.kind(who) == Kind::Container && !view.codes[who] => {
                    return Err(format!(
                        "law 3: {id} had ended by then and lacks its exit code"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn answered(
        &self,
        cast: &Cast,
        truth: &Snapshot,
        asked: &Asked,
        view: &PodView,
    ) -> Result<(), String> {
        let view = cached(cast, asked.pod, view)?;
        if view.as_of <= Some(asked.at) {
            return Err("law 3: a waiter is answered by what began before it asked".into());
        }
        self.fresh(cast, truth, asked.pod, &view)?;
        self.shows(cast, truth, asked.pod, &view, (asked.at, &asked.truth))
    }

    fn announce(&mut self, cast: &Cast, event: &PodLifecycleEvent) -> Result<(), String> {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let who = cast
            .who(&subject.id)
            .ok_or("somebody is announced who never was")?;
        let (what, id) = (event.event, &subject.id);
        code(cast, id, subject.exit_code)?;
        let shown = self.cache[cast.pod_of(who)].stages[who];
        let noted = &mut self.noted[who];
        if noted.silent && subject.incarnation == 0 {
            return Err(format!(
                "law 6: {what} of {id} is announced, of which its removal was the first word"
            ));
        }
        if subject.incarnation != noted.incarnation {
            if !noted.lied || subject.incarnation < noted.incarnation {
                return Err(format!("law 2: {id} is overruled and nobody lied"));
            }
            noted.incarnation = subject.incarnation;
            (noted.started, noted.died, noted.removed) = (false, false, false);
        }
        let (twice, early) = match what {
            ContainerStarted => (noted.started, noted.died || noted.removed),
            ContainerDied => (noted.died, noted.removed),
            ContainerRemoved => (noted.removed, false),
            _ => (false, false),
        };
        if twice || early {
            let how = if twice { "twice" } else { "after its end" };
            return Err(format!("law 9: {what} of {id} is announced {how}"));
        }
        let cache_behind = match what {
            ContainerStarted => !noted.ran,
            ContainerDied => matches!(shown, Stage::Created | Stage::Running),
            ContainerRemoved => shown.exists(),
            _ => false,
        };
        if cache_behind {
            return Err(format!(
                "law 9: {what} of {id} is announced and the cache shows {shown:?}"
            ));
        }
        match what {
            ContainerStarted => noted.started = true,
            ContainerDied => noted.died = true,
            ContainerRemoved => noted.removed = true,
            _ => {}
        }
        Ok(())
    }
}

fn number(cast: &Cast, uid: &pleg_core::PodUid) -> Result<usize, String> {
    let known = cast.pods.iter().position(|p| p == uid);
    known.ok_or_else(|| format!("{uid} is no pod of this world"))
}

fn code(cast: &Cast, id: &Id, code: Option<i32>) -> Result<(), String> {
    let who = cast.who(id).ok_or("the end of somebody who never was")?;
    match code {
        Some(code) if code != cast.world.tale.beings[who].code => {
            Err(format!("section 2: {id} has the wrong exit code {code}"))
        }
        _ => Ok(()),
    }
}

fn cached(cast: &Cast, pod: usize, view: &PodView) -> Result<Cached, String> {
    let mut out = Cached {
        as_of: view.as_of.map(pleg_core::Instant::as_nanos),
        inspected: view.inspected.map(pleg_core::Instant::as_nanos),
        error: view.status.error.is_some(),
        ..Cached::default()
    };
    let mut put = |id: &Id, stage: Option<Stage>, ended: bool| {
        let who = cast.who(id).filter(|&w| cast.pod_of(w) == pod);
        let who = who.ok_or_else(|| format!("{id} is shown as one of {}", cast.pods[pod]))?;
        out.stages[who] = stage.ok_or_else(|| format!("law 2: {id} is shown as unknown"))?;
        out.codes[who] = ended;
        Ok::<(), String>(())
    };
    for s in &view.status.sandboxes {
        let stage = match s.state {
            SandboxState::Ready => Some(Stage::Running),
            SandboxState::NotReady => Some(Stage::Exited),
            _ => None,
        };
        put(&s.id, stage, false)?;
    }
    for c in &view.status.containers {
        let stage = match c.state {
            ContainerState::Created => Some(Stage::Created),
            ContainerState::Running => Some(Stage::Running),
            ContainerState::Exited => Some(Stage::Exited),
            _ => None,
        };
        code(cast, &c.id, c.details.exit_code)?;
        put(&c.id, stage, c.details.exit_code.is_some())?;
    }
    Ok(out)
}

const fn stage_of(shown: ReportedState) -> Stage {
    match shown {
        ReportedState::Created => Stage::Created,
        ReportedState::Running => Stage::Running,
        ReportedState::Exited => Stage::Exited,
        ReportedState::Unknown => Stage::Absent,
    }
}

/// Whether an audit must have found that something was not told: somebody came so far, by the
/// rules of what counts as a miss, and no event ever said so.
pub fn unheard(cast: &Cast, who: Who, noted: &Noted, is: Stage) -> bool {
    let tells = match is {
        Stage::Running => true,
        Stage::Exited => cast.kind(who) == Kind::Container || noted.ran,
        _ => false,
    };
    tells && noted.heard < is
}
