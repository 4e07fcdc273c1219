//! The checker. It compares the inputs and outputs of the core with the true state of the simulated node.
//!
//! The checker shares no code with the core. It records when the core requested and got each list, and which events
//! were lost. The node (`pleg_node_model::Node`) records when each container and sandbox entered each state.

mod announcements;
mod answers;
mod budget;
mod cache;
mod freshness;
mod losses;

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{Counters, Health, PodUid, RuntimeEvent, WaiterId};
use pleg_node_model::{Id, Kind, Node, Object, State};

use crate::faults::Faults;
use crate::world::{MS, SECOND};
use announcements::Announced;
use answers::Waits;
use budget::Budget;
use cache::Cache;
use freshness::Freshness;
use losses::Losses;

pub(crate) use losses::Fate;

/// The instants at which the core requested a list, the runtime read the rows, and the core got the list.
#[derive(Debug)]
pub(crate) struct ReadOfRows<'a> {
    /// The instant at which the core requested the list.
    pub(crate) began: u64,
    /// The instant at which the runtime read the first rows.
    pub(crate) taken: u64,
    /// The instant at which the core got the list.
    pub(crate) answered: u64,
    /// The uid of the listed pod. `None`: a list of the whole node.
    pub(crate) pod: Option<&'a str>,
}

/// Everything that the checker knows.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Checker {
    faults: Faults,
    error: Option<String>,
    /// Ids about which a fault makes the runtime give wrong answers for seconds or for good. Most checks skip them.
    excused: BTreeSet<Id>,
    /// Ids that a third party or a worker's timed-out call started. Workers may not see them yet and start duplicates.
    late_starts: BTreeSet<Id>,
    announced: BTreeMap<Id, Announced>,
    /// The instant at which the core announced its first event.
    announced_since: Option<u64>,
    /// The start and the end of the first successful relist.
    first_relist: Option<(u64, u64)>,
    /// By id: the state in the cache when the first successful relist ended.
    at_first: BTreeMap<Id, State>,
    cache: Cache,
    waits: Waits,
    losses: Losses,
    freshness: Freshness,
    budget: Budget,
    calm_since: Option<u64>,
    wall_stepped: bool,
    synced: u32,
}

impl Checker {
    pub(crate) fn new(faults: &Faults, without_events: bool) -> Self {
        Self {
            faults: faults.clone(),
            error: None,
            excused: BTreeSet::new(),
            late_starts: BTreeSet::new(),
            announced: BTreeMap::new(),
            announced_since: None,
            first_relist: None,
            at_first: BTreeMap::new(),
            cache: Cache::default(),
            waits: Waits::default(),
            losses: Losses::new(without_events),
            freshness: Freshness::default(),
            budget: Budget::default(),
            calm_since: None,
            wall_stepped: false,
            synced: 0,
        }
    }

    /// Returns the first violation, if the checker has found any.
    pub(crate) fn result(&self) -> Result<(), String> {
        self.error.clone().map_or(Ok(()), Err)
    }

    pub(crate) const fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn set_faults(&mut self, faults: &Faults) {
        self.faults = faults.clone();
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    fn note(&mut self, outcome: Result<(), String>) {
        if let Err(error) = outcome {
            self.fail(error);
        }
    }

    fn is_excused(&self, o: &Object) -> bool {
        self.excused.contains(&o.id)
    }

    // ------------------------------------------------------------------------------------------- inputs

    /// Exempts an id from most checks, because a fault makes the runtime give wrong answers about it.
    pub(crate) fn excuse(&mut self, id: &Id) {
        self.excused.insert(id.clone());
    }

    /// Records that a third party or a worker's timed-out call started an id: workers may start a duplicate of it.
    pub(crate) fn excuse_start(&mut self, id: &Id) {
        self.late_starts.insert(id.clone());
    }

    pub(crate) const fn wall_stepped(&mut self) {
        self.wall_stepped = true;
    }

    pub(crate) const fn calm(&mut self, now: u64) {
        self.calm_since = Some(now);
    }

    pub(crate) fn subscribed(&mut self, now: u64) {
        self.losses.subscribed(now);
    }

    pub(crate) fn fate(&mut self, now: u64, id: &Id, what: pleg_node_model::EventType, fate: Fate) {
        self.losses.fate(now, id, what, fate);
    }

    pub(crate) fn lost_on_the_way(&mut self, now: u64, event: &RuntimeEvent) {
        self.losses.lost_on_the_way(now, event);
    }

    pub(crate) fn delivered(&mut self, now: u64, event: &RuntimeEvent, wall: i64, node: &Node) {
        let removed_at = self
            .announced
            .get(event.id.as_str())
            .and_then(Announced::removed_at);
        self.losses.delivered(now, event, wall, removed_at);
        self.freshness.delivered(now, event, node);
    }

    /// Records that a call of the core about a pod failed or hung. `pod` is `None`: a call about the whole node.
    pub(crate) fn failed(&mut self, now: u64, pod: Option<&str>) {
        self.freshness.failed(now, pod);
        self.budget.failed();
    }

    /// Records a successful list. Call this before the core receives the list.
    pub(crate) fn read_of_rows(&mut self, read: &ReadOfRows<'_>, node: &Node) {
        self.freshness.read_of_rows(read, node);
        if read.pod.is_some() {
            return;
        }
        self.budget.relisted(read.answered);
        if self.first_relist.is_none() {
            self.first_relist = Some((read.began, read.answered));
            for o in node.objects() {
                if let Some((state, _)) = self.cache.shown(o) {
                    self.at_first.insert(o.id.clone(), state);
                }
            }
        }
    }

    pub(crate) fn changed(&mut self, now: u64) {
        self.budget.changed(now);
    }

    pub(crate) fn call(&mut self, now: u64) {
        let outcome = self.budget.call(now);
        self.note(outcome);
    }

    pub(crate) fn timer(&mut self, now: u64) {
        let outcome = self.budget.timer(now);
        self.note(outcome);
    }

    pub(crate) fn pod_read(&mut self, now: u64, uid: &PodUid) {
        let waits = self.waits.since(now.saturating_sub(SECOND));
        let outcome = self.budget.pod_read(now, uid, waits);
        self.note(outcome);
    }

    // ------------------------------------------------------------------------------------------ workers

    pub(crate) fn cancelled(&mut self, waiter: WaiterId) {
        self.waits.cancelled(waiter);
    }

    /// Checks, after a start of the container `id`, that no other container of its pod with the same name runs.
    pub(crate) fn started(&mut self, now: u64, id: &Id, node: &Node) {
        let Some(own) = node.object(id) else { return };
        let is_other = |o: &&Object| {
            o.kind == Kind::Container
                && o.pod.uid == own.pod.uid
                && o.name == own.name
                && o.id != own.id
                && o.state() == State::Running
        };
        let mut others = node.objects().filter(is_other);
        let other = others.find(|o| !self.is_excused(o) && !self.late_starts.contains(&o.id));
        if let Some(other) = other
            && !self.late_starts.contains(id)
        {
            self.fail(format!(
                "{id} is started at {} while {} is running",
                time(now),
                other.id
            ));
        }
    }

    /// Checks, before a worker runs a sandbox of the pod `uid`, that no sandbox of this pod is ready.
    pub(crate) fn runs_sandbox(&mut self, now: u64, uid: &str, node: &Node) {
        let is_ready = |o: &&Object| {
            o.kind == Kind::Sandbox && *o.pod.uid == *uid && o.state() == State::Running
        };
        let mut ready = node.objects().filter(is_ready);
        let other = ready.find(|o| !self.is_excused(o) && !self.late_starts.contains(&o.id));
        if let Some(other) = other {
            self.fail(format!(
                "a sandbox is run at {} while {} is ready",
                time(now),
                other.id
            ));
        }
    }

    // ------------------------------------------------------------------------------------------ the end

    pub(crate) const fn synced(&mut self) {
        self.synced += 1;
    }

    /// Compares the published states with the true states, and checks that the core publishes changes in time.
    pub(crate) fn compare(&mut self, now: u64, node: &Node, health: &Health, is_down: bool) {
        let outcome = self.budget.ready(now, health, is_down);
        self.note(outcome);
        for o in node.objects().filter(|o| !self.excused.contains(&o.id)) {
            let start = self.freshness.start(o);
            let began = self.first_relist.map_or(u64::MAX, |(_, end)| end);
            let shown = self.cache.shown(o).map(|(state, _)| state);
            let truth = Some(o.state()).filter(|state| *state != State::Removed);
            if let Some((start, why)) = start
                && now > start.max(began).saturating_add(11 * SECOND)
                && shown != truth
            {
                let start = time(start);
                let error = format!(
                    "at {}: {} is {truth:?} since {}, cache {shown:?}, {why} {start}",
                    time(now),
                    o.id,
                    time(o.since())
                );
                return self.fail(error);
            }
        }
        let is_good = |o: &&Object| o.overrides.skew.is_none_or(|(_, until)| until <= now);
        for o in node.objects().filter(is_good) {
            let since = o
                .since()
                .max(self.calm_since.unwrap_or(u64::MAX - 200 * SECOND));
            let shown = self.cache.shown(o).map(|(state, _)| state);
            let truth = Some(o.state()).filter(|state| *state != State::Removed);
            if now > since + 66 * SECOND && shown != truth {
                let (now, since) = (time(now), time(since));
                let error = format!(
                    "at {now}: {} is {truth:?} since {since}, cache {shown:?}",
                    o.id
                );
                return self.fail(error);
            }
        }
    }

    /// The number of the core's calls in the whole world, in thousandths of the number that the checker allows.
    pub(crate) const fn budget_used(&self) -> u64 {
        self.budget.used
    }

    /// Stores the core's counters 40 s before the world's end. `end` limits the number of pod reads since then.
    pub(crate) fn last(&mut self, now: u64, counters: &Counters) {
        self.budget.last(now, counters);
    }

    /// Makes the checks that need a finished world.
    pub(crate) fn end(&mut self, now: u64, node: &Node, counters: &Counters, health: &Health) {
        // The core reads the status of one id every 15 s. Once it has read all of them, it must have all exit codes.
        let probed = now.saturating_sub(15 * SECOND * node.objects().count() as u64);
        for o in node.objects() {
            if !self.is_excused(o) && o.since() + 70 * SECOND < now {
                let outcome = self.check_announcements(o, probed);
                self.note(outcome);
            }
        }
        let excused: Vec<_> = node.objects().filter(|o| self.is_excused(o)).collect();
        let existing = excused.iter().filter(|o| o.exists()).count() as u64;
        let excused = excused.len() as u64;
        let missed = self.losses.check(counters.missed, excused);
        self.note(missed);
        let recent = node.objects().any(|o| o.since() + 110 * SECOND > now);
        let waits = self.waits.since(now - 40 * SECOND);
        let reads = self.budget.end(counters, waits, existing, recent);
        self.note(reads);
        let calls = self.budget.total(now, self.waits.since(0), excused);
        self.note(calls);
        let waiting = self.waits.end(now);
        self.note(waiting);
        if self.synced != 1 {
            self.fail(format!("synced {} times", self.synced));
        }
        if health.failing > 0 && existing == 0 {
            self.fail(format!("pods fail in the calm: {health:?}"));
        }
        let period = self.losses.check_period(counters, health);
        self.note(period);
    }

    /// Checks that the core stores at most `most` entries. After ten calm minutes, it keeps one per removed id.
    pub(crate) fn footprint(&mut self, entries: usize, most: usize) {
        if entries > most {
            self.fail(format!("{entries} entries are stored instead of {most}"));
        }
    }
}

/// Formats an instant for messages, in milliseconds since the start of the world.
fn time(at: u64) -> String {
    format!(
        "{:.3}",
        at.saturating_sub(crate::world::EPOCH) as f64 / MS as f64
    )
}
