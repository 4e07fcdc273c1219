//! The laws, as a consumer can check them: a shadow of the cache, and a book of what was told,
//! read, asked and announced.

mod quiet;

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{
    Cause, Causes, ContainerState, EventType, Id, Instant, Kind, LifecycleType, Output,
    PodLifecycleEvent, PodStatus, PodUid, PodView, Report, RuntimeEvent, SandboxState, Shown,
    Ticket,
};

use crate::truth::{State, Truth};
use crate::weather::SECOND;
use crate::world::PODS;

/// One who waits.
#[derive(Clone, Debug)]
struct Asked {
    pod: PodUid,
    after: Instant,
    asked: Instant,
    /// The last inspection of the pod that had been asked for by then.
    number: Ticket,
}

#[derive(Debug, Default)]
pub struct Checks {
    history: Option<Vec<String>>,
    /// Events may have told of what did not happen.
    lies: bool,
    cache: BTreeMap<PodUid, PodView>,
    /// Begins of the complete lists, and of the complete inspections per pod.
    lists: BTreeSet<Instant>,
    inspections: BTreeMap<PodUid, BTreeSet<Instant>>,
    /// Failed inspections: when the last one began that was asked for.
    failed: BTreeMap<PodUid, Ticket>,
    last_inspection: Ticket,
    under_way: BTreeMap<Ticket, PodUid>,
    waiting: BTreeMap<u64, Asked>,
    said: BTreeMap<(Id, u32), Vec<LifecycleType>>,
    /// Ids that anything has shown running.
    ran: BTreeSet<Id>,
    /// Ids that anything has named, and those of which a removal was the first that was told.
    named: BTreeSet<Id>,
    silent: BTreeSet<Id>,
    published: BTreeSet<Id>,
    /// When somebody was last told that an id ended or is removed though it is not so.
    lied: BTreeMap<Id, Instant>,
    /// When the last inspection began that showed an id as unknown. Law 2 lets an event that
    /// advances the id clear that, whatever it was in truth by then.
    unsure: BTreeMap<Id, Instant>,
    told_at: BTreeMap<Id, Instant>,
    /// When pods were inspected again for no other reason than that the last read had failed.
    retries: BTreeMap<PodUid, Vec<u64>>,
    /// Ids whose exit code was told.
    codes: BTreeSet<(Id, u32)>,
    pub waits: u64,
}

impl Checks {
    pub fn new(history: bool, lies: bool) -> Self {
        Self {
            history: history.then(Vec::new),
            lies,
            ..Self::default()
        }
    }

    pub fn note(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>14.6} {}", now as f64 / 1e9, line()));
        }
    }

    /// The last lines of the history.
    pub fn history(&self) -> String {
        let lines = self.history.as_deref().unwrap_or_default();
        lines.join("\n")
    }

    // --- what goes in ---

    pub fn told(&mut self, now: Instant, event: &RuntimeEvent) {
        let shown = event.sandbox.iter().chain(&event.containers);
        let own = shown.clone().find(|r| r.id == event.id);
        let deleted = event.event == EventType::Deleted;
        if deleted
            && !self.named.contains(&event.id)
            && own.is_none_or(|r| r.identity.kind == Kind::Sandbox && r.shown != Shown::Running)
        {
            self.silent.insert(event.id.clone());
        }
        let sandbox = own.is_some_and(|r| r.identity.kind == Kind::Sandbox);
        if event.event == EventType::Started
            || (event.event == EventType::Created
                && (sandbox || event.id.as_str().starts_with("sbx")))
        {
            self.ran.insert(event.id.clone());
        }
        if matches!(event.event, EventType::Stopped | EventType::Deleted) {
            self.lied.insert(event.id.clone(), now);
        }
        for id in shown.clone().map(|r| &r.id).chain([&event.id]) {
            self.told_at.insert(id.clone(), now);
        }
        self.named.insert(event.id.clone());
        for report in shown {
            self.status_read(report);
        }
    }

    pub fn status_read(&mut self, report: &Report) {
        self.named.insert(report.id.clone());
        if report.shown == Shown::Running {
            self.ran.insert(report.id.clone());
        }
    }

    pub fn list_read(&mut self, began: Instant, rows: &[Report]) {
        self.lists.insert(began);
        for row in rows {
            self.status_read(row);
        }
    }

    pub fn inspection_asked(&mut self, uid: &PodUid, ticket: Ticket) {
        self.under_way.insert(ticket, uid.clone());
        self.last_inspection = self.last_inspection.max(ticket);
    }

    /// A backoff is kept, however many reads fail in between.
    pub fn retried(&mut self, now: u64, uid: &PodUid, causes: Causes) -> Result<(), String> {
        if causes.iter().ne([Cause::Retry]) {
            return Ok(());
        }
        let recent = self.retries.entry(uid.clone()).or_default();
        recent.retain(|&t| t + 10 * SECOND > now);
        recent.push(now);
        if recent.len() > 6 {
            return Err(format!("{uid} is retried without a backoff: {recent:?}"));
        }
        Ok(())
    }

    /// A read that was given up is a failed one, whatever it answers.
    pub fn given_up(&mut self, ticket: Ticket) {
        if let Some(uid) = self.under_way.remove(&ticket) {
            self.failed.insert(uid, ticket);
        }
    }

    pub fn inspected(
        &mut self,
        uid: &PodUid,
        ticket: Ticket,
        began: Instant,
        found: &[Report],
        failed: bool,
    ) {
        for report in found {
            self.status_read(report);
            if report.shown == Shown::Unknown {
                self.unsure.insert(report.id.clone(), began);
            }
        }
        if self.under_way.remove(&ticket).is_none() {
            return;
        }
        if failed {
            self.failed.insert(uid.clone(), ticket);
        } else {
            self.inspections
                .entry(uid.clone())
                .or_default()
                .insert(began);
        }
    }

    pub fn asked(&mut self, waiter: u64, pod: &PodUid, after: Instant, asked: Instant) {
        let (pod, number) = (pod.clone(), self.last_inspection);
        self.waiting.insert(
            waiter,
            Asked {
                pod,
                after,
                asked,
                number,
            },
        );
    }

    pub fn cancelled(&mut self, waiter: u64) {
        self.waiting.remove(&waiter);
    }

    // --- what comes out ---

    pub fn output(
        &mut self,
        truth: &Truth,
        now: u64,
        output: &Output,
        answers: bool,
    ) -> Result<(), String> {
        match output {
            Output::Publish { uid, view } => self.publish(truth, now, uid, view)?,
            Output::Withdraw { uid } => {
                let nothing = PodStatus::nothing(uid.clone()).into();
                if let Some(view) = self.cache.get_mut(uid) {
                    *view = PodView::new(nothing, view.as_of, view.inspected);
                }
            }
            Output::Swept { as_of, gone } => {
                if !self.lists.contains(as_of) {
                    return Err(format!("swept as of {as_of:?}, when no list began"));
                }
                for uid in gone {
                    if self.cache.get(uid).is_some_and(|v| v.status.is_nothing()) {
                        self.cache.remove(uid);
                    }
                }
            }
            Output::Confirm { as_of, pods } => {
                for uid in pods {
                    let Some(view) = self.cache.get_mut(uid) else {
                        return Err(format!("{uid} is confirmed and not in the cache"));
                    };
                    view.as_of = view.as_of.max(Some(*as_of));
                    let view = view.clone();
                    self.fresh(truth, now, uid, &view)?;
                }
            }
            Output::Terminals { records, .. } => {
                for end in records.iter() {
                    let key = (end.id.clone(), end.incarnation);
                    if end.exit_code.is_none() && self.codes.contains(&key) {
                        return Err(format!("the exit code of {} is lost", end.id));
                    }
                    if end.exit_code.is_some() {
                        self.codes.insert(key);
                    }
                    let same = records
                        .iter()
                        .filter(|r| (r.kind, &r.name) == (end.kind, &end.name));
                    let life = truth.life(&end.id);
                    if same.count() > 3
                        || life.is_none_or(|l| end.exit_code.is_some_and(|c| c != l.code))
                    {
                        return Err(format!("wrong or too many ends: {records:?}"));
                    }
                }
            }
            Output::Announce(event) => self.announce(truth, event)?,
            Output::Answer { waiter, answer } => {
                // WaiterId shows its number in its Debug form only.
                let number: String = format!("{waiter:?}")
                    .chars()
                    .filter(char::is_ascii_digit)
                    .collect();
                let Some(asked) = number
                    .parse()
                    .ok()
                    .and_then(|n: u64| self.waiting.remove(&n))
                else {
                    return Err(format!("{waiter:?} is answered and does not wait"));
                };
                // A read that is given up answers with its error, by a timer.
                if !answers && answer.is_ok() {
                    return Err(format!("{waiter:?} is answered by what is no read (law 4)"));
                }
                self.waits += 1;
                match answer {
                    Ok(view) => self.answered(truth, now, &asked, view)?,
                    Err(_) => {
                        if self
                            .failed
                            .get(&asked.pod)
                            .is_none_or(|&t| t <= asked.number)
                        {
                            return Err(format!(
                                "{waiter:?} gets an error of no read that it caused"
                            ));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn publish(
        &mut self,
        truth: &Truth,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> Result<(), String> {
        if let Some(old) = self.cache.get(uid)
            && !old.status.is_nothing()
            && (view.as_of < old.as_of || view.inspected < old.inspected)
        {
            return Err(format!(
                "{uid} was as of {:?} and is as of {:?}",
                old.as_of, view.as_of
            ));
        }
        for (id, state) in states(&view.status) {
            self.published.insert(id.clone());
            let real = truth.life(&id).and_then(|l| l.at(now));
            let Some(real) = real else {
                return Err(format!("{id} is published and never existed"));
            };
            if truth
                .life(&id)
                .is_some_and(|l| crate::runtime::uid(l.pod) != *uid)
                && !uid.as_str().starts_with("sbx")
                && !uid.as_str().starts_with("ctr")
            {
                return Err(format!("{id} is published as one of {uid}"));
            }
            if !self.lies && state.is_some_and(|s| s > real) {
                return Err(format!("{id} is published {state:?} and is {real:?}"));
            }
        }
        for c in &view.status.containers {
            let life = truth.life(&c.id);
            if let Some(code) = c.details.exit_code
                && life.is_some_and(|l| l.code != code)
            {
                return Err(format!(
                    "{} is published with the wrong exit code {code}",
                    c.id
                ));
            }
            if c.details.exit_code.is_some()
                && matches!(c.state, ContainerState::Created | ContainerState::Running)
            {
                return Err(format!("{} runs and has an exit code", c.id));
            }
        }
        self.fresh(truth, now, uid, view)?;
        self.cache.insert(uid.clone(), view.clone());
        Ok(())
    }

    /// A view as of t shows what was true at t, or later.
    fn fresh(&self, truth: &Truth, now: u64, uid: &PodUid, view: &PodView) -> Result<(), String> {
        let Some(as_of) = view.as_of else {
            return Ok(());
        };
        let inspected = self.inspections.get(uid);
        let by_inspection = |t: &Instant| inspected.is_some_and(|b| b.contains(t));
        if !(self.lists.contains(&as_of) || by_inspection(&as_of)) {
            return Err(format!(
                "{uid} is as of {as_of:?}, when no read began (law 3)"
            ));
        }
        if view.inspected.is_some_and(|t| !by_inspection(&t)) {
            return Err(format!(
                "{uid} was inspected {:?}, when no inspection began",
                view.inspected
            ));
        }
        let shown: BTreeMap<Id, Option<State>> = states(&view.status).collect();
        for pod in (0..PODS).filter(|&p| crate::runtime::uid(p) == *uid) {
            for life in truth.of_pod(pod, as_of.as_nanos()) {
                if !life.exists(now)
                    || self.lies && self.lied.get(&life.id).is_some_and(|&t| t >= as_of)
                {
                    continue;
                }
                match shown.get(&life.id) {
                    None if self.lies
                        && self.lied.contains_key(&life.id)
                        && self.silent.contains(&life.id) => {}
                    None => return Err(format!("{uid} as of {as_of:?} lacks {}", life.id)),
                    _ if self.unsure.get(&life.id).is_some_and(|&t| t >= as_of)
                        && self.told_at.get(&life.id).is_some_and(|&t| t > as_of) => {}
                    Some(Some(state)) if Some(*state) < life.at(as_of.as_nanos()) => {
                        return Err(format!(
                            "{uid} as of {as_of:?} shows {} as {state:?}",
                            life.id
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn answered(
        &self,
        truth: &Truth,
        now: u64,
        asked: &Asked,
        view: &PodView,
    ) -> Result<(), String> {
        let Some(as_of) = view.as_of.filter(|&t| t >= asked.after) else {
            return Err(format!(
                "{asked:?} is answered as of {:?} (law 3)",
                view.as_of
            ));
        };
        if as_of == asked.after && as_of < asked.asked {
            return Err(format!(
                "{asked:?} is answered by a read that did not begin after"
            ));
        }
        self.fresh(truth, now, &asked.pod, view)
    }

    fn announce(&mut self, truth: &Truth, event: &PodLifecycleEvent) -> Result<(), String> {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let id = &subject.id;
        let Some(life) = truth.life(id) else {
            return Err(format!("{id} is announced and never existed"));
        };
        if self.silent.contains(id) && subject.incarnation == 0 {
            return Err(format!(
                "{id} was first learned as removed; nothing is to be said of it"
            ));
        }
        if subject.incarnation > 0 && !self.lies {
            return Err(format!("{id} is overruled and nobody lied"));
        }
        let said = self
            .said
            .entry((id.clone(), subject.incarnation))
            .or_default();
        if event.event != LifecycleType::ContainerChanged {
            if said.contains(&event.event) {
                return Err(format!("{} of {id} is announced twice", event.event));
            }
            let later = |e: &LifecycleType| {
                let rank = |e| match e {
                    ContainerStarted => 1,
                    ContainerDied => 2,
                    ContainerRemoved => 3,
                    _ => 0,
                };
                rank(*e) > rank(event.event)
            };
            if said.iter().any(later) {
                return Err(format!("{} of {id} comes after {said:?}", event.event));
            }
        }
        said.push(event.event);
        let cached = self
            .cache
            .get(&event.uid)
            .map(|v| states(&v.status).collect::<BTreeMap<_, _>>());
        let cached = cached.and_then(|c| c.get(id).copied());
        let wrong = match event.event {
            ContainerStarted => !self.ran.contains(id),
            ContainerDied => cached.is_some_and(|s| s.is_some_and(|s| s < State::Exited)),
            ContainerRemoved => cached.is_some(),
            _ => false,
        };
        if wrong {
            return Err(format!(
                "{} of {id} is announced and the cache shows {cached:?}",
                event.event
            ));
        }
        if subject.exit_code.is_some_and(|c| c != life.code) {
            return Err(format!(
                "{id} is announced with exit code {:?}, it is {}",
                subject.exit_code, life.code
            ));
        }
        Ok(())
    }
}

/// What a status shows, by id; no state where it is unknown.
fn states(status: &PodStatus) -> impl Iterator<Item = (Id, Option<State>)> {
    let sandboxes = status.sandboxes.iter().map(|s| {
        let state = match s.state {
            SandboxState::Ready => Some(State::Running),
            SandboxState::NotReady => Some(State::Exited),
            _ => None,
        };
        (s.id.clone(), state)
    });
    let containers = status.containers.iter().map(|c| {
        let state = match c.state {
            ContainerState::Created => Some(State::Created),
            ContainerState::Running => Some(State::Running),
            ContainerState::Exited => Some(State::Exited),
            _ => None,
        };
        (c.id.clone(), state)
    });
    sandboxes.chain(containers)
}
