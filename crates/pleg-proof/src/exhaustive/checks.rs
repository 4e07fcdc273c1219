//! Checks the invariants after every output: a copy of what consumers see, compared with the true
//! state.

use pleg_core::{
    Id, Kind, LifecycleType, Output, PodLifecycleEvent, PodView, Report, ReportedState, WaiterId,
};

use std::collections::BTreeMap;

use super::scenario::{MOST, ObjectIndex, Snapshot, Stage, Step};
use super::world_model::WorldModel;
use crate::checks::states;
use crate::oracle::State;

/// The most pods in a world.
pub const PODS: usize = 2;

/// The input that caused an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// An event, or the begin or end of the stream.
    Stream,
    /// The end of a read.
    Read,
    /// A timer.
    Timer,
    /// A consumer request.
    Request,
}

/// What the cache shows of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cached {
    pub as_of: Option<u64>,
    inspected: Option<u64>,
    pub stages: Snapshot,
    /// Which exit codes are shown.
    pub codes: [bool; MOST],
    pub error: bool,
}

impl Cached {
    fn is_nothing(&self) -> bool {
        let gone = |stage: &Stage| matches!(stage, Stage::Absent | Stage::Removed);
        self.stages.iter().all(gone)
    }
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    waiter: WaiterId,
    pod: usize,
    at: u64,
    /// The true state at that instant.
    oracle: Snapshot,
}

/// What inputs and outputs showed of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdRecord {
    /// Whether an input has named it, and when last, if that still matters.
    known: bool,
    named: Option<u64>,
    /// The first report of it was its removal.
    first_seen_removed: bool,
    /// Something showed it running.
    seen_running: bool,
    /// The latest stage that an event has reported.
    pub reported: Stage,
    /// A false state of it was reported.
    pub misreported: bool,
    /// A status call said NotFound although a list of its read showed it, and none succeeded since.
    pub not_found: bool,
    /// The cache has shown it.
    pub published: bool,
    incarnation: u32,
    pub started: bool,
    pub died: bool,
    pub removed: bool,
}

/// What the consumers have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checks {
    pub cache: [Cached; PODS],
    /// The true state at the start of reads, as long as something refers to it.
    began: Vec<(u64, Snapshot)>,
    /// When each pod's last inspection with a result began.
    pub inspected: [Option<u64>; PODS],
    pub waiting: Vec<Waiter>,
    pub records: [IdRecord; MOST],
    /// The number of disconnects, and of other lost events.
    pub cuts: u8,
    pub drops: u8,
}

impl Checks {
    // --- inputs ---

    pub fn event_received(
        &mut self,
        model: &WorldModel,
        now: u64,
        Step(object, to): Step,
        reports: &[&Report],
    ) {
        let record = &mut self.records[object];
        let own = reports.iter().any(|r| r.id == model.ids[object]);
        record.first_seen_removed |= to == Stage::Removed && !record.known && !own;
        record.seen_running |= to == Stage::Running;
        record.reported = record.reported.max(to);
        (record.known, record.named) = (true, Some(now));
        for report in reports {
            self.shown(model, now, report);
            if let Some(object) = model.index_of(&report.id) {
                let reported = &mut self.records[object].reported;
                *reported = (*reported).max(stage_of(report.shown));
            }
        }
    }

    /// Statuses were read.
    pub fn statuses_read(&mut self, model: &WorldModel, reports: &[Report]) {
        for object in reports.iter().filter_map(|r| model.index_of(&r.id)) {
            self.records[object].not_found = false;
        }
    }

    pub fn read(&mut self, model: &WorldModel, now: u64, reports: &[Report]) {
        for report in reports {
            self.shown(model, now, report);
        }
    }

    fn shown(&mut self, model: &WorldModel, now: u64, report: &Report) {
        if let Some(object) = model.index_of(&report.id) {
            let record = &mut self.records[object];
            (record.known, record.named) = (true, Some(now));
            record.seen_running |= report.shown == ReportedState::Running;
        }
    }

    /// A read begins.
    pub fn read_began(&mut self, now: u64, oracle: &Snapshot) {
        if self.oracle_at(now).is_none() {
            self.began.push((now, *oracle));
        }
    }

    /// A waiter asks for a state newer than `at`, when the true state was `oracle`.
    pub fn asked(&mut self, waiter: WaiterId, pod: usize, at: u64, oracle: &Snapshot) {
        let oracle = *oracle;
        self.waiting.push(Waiter {
            waiter,
            pod,
            at,
            oracle,
        });
    }

    pub fn cancelled(&mut self, waiter: WaiterId) {
        self.waiting.retain(|w| w.waiter != waiter);
    }

    /// Drops the true states of instants that nothing refers to: neither the cache, nor a read in
    /// flight, nor the last list.
    pub fn forget(&mut self, in_flight: &[u64], listed: Option<u64>) {
        let (cache, inspected) = (self.cache, self.inspected);
        self.began.retain(|(at, _)| {
            in_flight.contains(at)
                || listed == Some(*at)
                || inspected.contains(&Some(*at))
                || cache
                    .iter()
                    .any(|c| c.as_of == Some(*at) || c.inspected == Some(*at))
        });
        let oldest = self.began.iter().map(|(at, _)| *at).min();
        for record in &mut self.records {
            // Older than anything it could be compared with, so it equals never.
            record.named = record.named.filter(|&at| Some(at) >= oldest);
        }
    }

    fn oracle_at(&self, at: u64) -> Option<&Snapshot> {
        self.began.iter().find(|(t, _)| *t == at).map(|(_, s)| s)
    }

    // --- outputs ---

    /// # Errors
    /// An invariant is violated.
    pub fn output(
        &mut self,
        model: &WorldModel,
        oracle: &Snapshot,
        output: &Output,
        input: Input,
    ) -> Result<(), String> {
        match output {
            Output::Publish { uid, view } => {
                let pod = number(model, uid)?;
                let cached = cached(model, pod, view)?;
                self.publish(model, oracle, pod, cached)
            }
            Output::Remove { uid } => {
                let pod = number(model, uid)?;
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
            Output::ListApplied { as_of, .. } => match self.oracle_at(as_of.as_nanos()) {
                Some(_) => Ok(()),
                None => Err("invariant 3: swept as of when no read began".into()),
            },
            Output::Refresh { as_of, pods } => {
                let is_cached = |pod: &usize| !self.cache[*pod].is_nothing();
                let cached = (0..model.pods.len()).filter(is_cached);
                for uid in pods.among(cached.map(|pod| model.pods[pod].clone())) {
                    let pod = number(model, &uid)?;
                    self.cache[pod].as_of = self.cache[pod].as_of.max(Some(as_of.as_nanos()));
                    self.fresh(model, oracle, pod, &self.cache[pod])?;
                }
                Ok(())
            }
            Output::Announce(event) => self.announce(model, event),
            Output::Terminals { records, .. } => {
                for end in records.iter() {
                    code(model, &end.id, end.exit_code)?;
                }
                Ok(())
            }
            Output::Answer { waiter, answer } => {
                let found = self.waiting.iter().position(|a| a.waiter == *waiter);
                let asked = found.map(|n| self.waiting.remove(n));
                let asked = asked.ok_or("invariant 4: an answer without a waiter")?;
                if !matches!((input, answer), (Input::Read, _) | (Input::Request, Ok(_))) {
                    return Err("invariant 4: a waiter is answered without a read".into());
                }
                match answer {
                    Ok(view) => self.answered(model, oracle, &asked, view),
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn publish(
        &mut self,
        model: &WorldModel,
        oracle: &Snapshot,
        pod: usize,
        cached: Cached,
    ) -> Result<(), String> {
        let old = &self.cache[pod];
        let held = old.stages.iter().any(|s| s.exists());
        if held && cached.as_of < old.as_of {
            return Err("invariant 3: freshness goes backwards".into());
        }
        for object in model.of_pod(pod) {
            let (shown, id) = (cached.stages[object], &model.ids[object]);
            if shown > oracle[object] && !self.records[object].misreported {
                return Err(format!(
                    "invariant 2: {id} is shown {shown:?} and is {:?}",
                    oracle[object]
                ));
            }
            self.records[object].published |= shown.exists();
        }
        self.fresh(model, oracle, pod, &cached)?;
        self.cache[pod] = cached;
        Ok(())
    }

    /// A view as of t shows the state at t or a later one, and the exit codes of what had exited.
    fn fresh(
        &self,
        model: &WorldModel,
        oracle: &Snapshot,
        pod: usize,
        view: &Cached,
    ) -> Result<(), String> {
        if view.as_of.is_some_and(|t| self.oracle_at(t).is_none()) {
            return Err("invariant 3: a view is as of when no read began".into());
        }
        match view.as_of {
            Some(t) => match self.oracle_at(t) {
                Some(was) => self.shows_at_least(model, oracle, pod, view, (t, was)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Checks that a view shows at least the state of that instant.
    fn shows_at_least(
        &self,
        model: &WorldModel,
        oracle: &Snapshot,
        pod: usize,
        view: &Cached,
        (then, was): (u64, &Snapshot),
    ) -> Result<(), String> {
        for object in model.of_pod(pod).filter(|&w| !self.records[w].misreported) {
            let (id, shown) = (&model.ids[object], view.stages[object]);
            let named = self.records[object].named;
            match was[object] {
                Stage::Absent => {}
                // No read can show a removed object, and late events that name it are new to earlier
                // reads (invariant 5).
                _ if oracle[object] == Stage::Removed && named >= Some(then) => {}
                Stage::Removed if shown.exists() => {
                    return Err(format!(
                        "invariant 3: {id} is shown {shown:?} and was gone by then"
                    ));
                }
                Stage::Removed => {}
                _ if shown == Stage::Absent && oracle[object] == Stage::Removed => {}
                stage if shown < stage => {
                    let lacks = format!("{id} is shown {shown:?} and was {stage:?} by then");
                    return Err(format!("invariant 3: {lacks}"));
                }
                Stage::Exited
                    if model.kind(object) == Kind::Container
                        && !view.codes[object]
                        && !self.records[object].not_found =>
                {
                    return Err(format!(
                        "invariant 3: {id} had ended by then and lacks its exit code"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn answered(
        &self,
        model: &WorldModel,
        oracle: &Snapshot,
        asked: &Waiter,
        view: &PodView,
    ) -> Result<(), String> {
        let view = cached(model, asked.pod, view)?;
        if view.as_of <= Some(asked.at) {
            return Err("invariant 3: a waiter is answered by what began before it asked".into());
        }
        self.fresh(model, oracle, asked.pod, &view)?;
        self.shows_at_least(model, oracle, asked.pod, &view, (asked.at, &asked.oracle))
    }

    fn announce(&mut self, model: &WorldModel, event: &PodLifecycleEvent) -> Result<(), String> {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let object = model
            .index_of(&subject.id)
            .ok_or("an unknown id is announced")?;
        let (what, id) = (event.event, &subject.id);
        code(model, id, subject.exit_code)?;
        let shown = self.cache[model.pod_of(object)].stages[object];
        let record = &mut self.records[object];
        if record.first_seen_removed && subject.incarnation == 0 {
            return Err(format!(
                "invariant 6: {what} of {id} is announced although its removal was reported first"
            ));
        }
        if subject.incarnation != record.incarnation {
            if !record.misreported || subject.incarnation < record.incarnation {
                return Err(format!(
                    "invariant 2: {id} is overruled without false reports"
                ));
            }
            record.incarnation = subject.incarnation;
            (record.started, record.died, record.removed) = (false, false, false);
        }
        let (twice, early) = match what {
            ContainerStarted => (record.started, record.died || record.removed),
            ContainerDied => (record.died, record.removed),
            ContainerRemoved => (record.removed, false),
            _ => (false, false),
        };
        if twice || early {
            let how = if twice { "twice" } else { "after its end" };
            return Err(format!("invariant 9: {what} of {id} is announced {how}"));
        }
        let cache_behind = match what {
            ContainerStarted => !record.seen_running,
            ContainerDied => matches!(shown, Stage::Created | Stage::Running),
            ContainerRemoved => shown.exists(),
            _ => false,
        };
        if cache_behind {
            return Err(format!(
                "invariant 9: {what} of {id} is announced and the cache shows {shown:?}"
            ));
        }
        match what {
            ContainerStarted => record.started = true,
            ContainerDied => record.died = true,
            ContainerRemoved => record.removed = true,
            _ => {}
        }
        Ok(())
    }
}

fn number(model: &WorldModel, uid: &pleg_core::PodUid) -> Result<usize, String> {
    let known = model.pods.iter().position(|p| p == uid);
    known.ok_or_else(|| format!("{uid} is no pod of this world"))
}

fn code(model: &WorldModel, id: &Id, code: Option<i32>) -> Result<(), String> {
    let object = model.index_of(id).ok_or("the end of an unknown id")?;
    match code {
        Some(code) if code != model.world.scenario.objects[object].code => {
            Err(format!("section 2: {id} has the wrong exit code {code}"))
        }
        _ => Ok(()),
    }
}

fn cached(model: &WorldModel, pod: usize, view: &PodView) -> Result<Cached, String> {
    let mut out = Cached {
        as_of: view.as_of.map(pleg_core::Instant::as_nanos),
        inspected: view.inspected.map(pleg_core::Instant::as_nanos),
        error: view.status.error.is_some(),
        ..Cached::default()
    };
    let mut put = |id: &Id, stage: Option<Stage>, ended: bool| {
        let object = model.index_of(id).filter(|&w| model.pod_of(w) == pod);
        let object =
            object.ok_or_else(|| format!("{id} is shown as one of {}", model.pods[pod]))?;
        out.stages[object] =
            stage.ok_or_else(|| format!("invariant 2: {id} is shown as unknown"))?;
        out.codes[object] = ended;
        Ok::<(), String>(())
    };
    let codes: BTreeMap<&Id, i32> = (view.status.containers.iter())
        .filter_map(|c| Some((&c.id, c.details.exit_code?)))
        .collect();
    for (id, state) in states(&view.status) {
        let exit_code = codes.get(id).copied();
        code(model, id, exit_code)?;
        put(id, state.map(Stage::from), exit_code.is_some())?;
    }
    Ok(out)
}

pub fn stage_of(shown: ReportedState) -> Stage {
    State::from_reported(shown).map_or(Stage::Absent, Stage::from)
}

/// Whether a relist must have counted a miss: the object reached a stage that counts, and no event
/// reported it.
pub fn must_be_missed(
    model: &WorldModel,
    object: ObjectIndex,
    record: &IdRecord,
    is: Stage,
) -> bool {
    let tells = match is {
        Stage::Running => true,
        Stage::Exited => model.kind(object) == Kind::Container || record.seen_running,
        _ => false,
    };
    tells && record.reported < is
}
