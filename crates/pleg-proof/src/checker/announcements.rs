//! Compares announcements with the node model: the core must announce each change once, in order, after publishing it.

use pleg_core::{LifecycleType, PodLifecycleEvent};
use pleg_node_model::{Id, Kind, Label, Node, Object, State};

use super::{Checker, time};
use crate::faults::Fault;

/// The events that the core has announced about one id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Announced {
    started: u32,
    died: u32,
    removed: u32,
    removed_at: Option<u64>,
    code: Option<i32>,
}

impl Announced {
    pub(super) const fn removed_at(&self) -> Option<u64> {
        self.removed_at
    }
}

impl Checker {
    /// Checks an announcement. Returns true if it announces the exit of an id that no published view has contained.
    pub(crate) fn announced(&mut self, now: u64, event: &PodLifecycleEvent, node: &Node) -> bool {
        self.announced_since.get_or_insert(now);
        let Some(subject) = &event.subject else {
            return false;
        };
        let Some(o) = node.object(subject.id.as_str()) else {
            self.fail(format!("{} was never there", subject.id));
            return false;
        };
        let known = self.announced.entry(o.id.clone()).or_default();
        let before = known.clone();
        // An event may have the wrong type STARTED. The core may then announce a start that never happened.
        let claimed = self.faults.chance(Fault::EventWrongType) > 0;
        let is_wrong = known.add(now, event.event, subject.exit_code, o, claimed);
        let in_cache = self.cache.shown(o);
        let is_removal = event.event == LifecycleType::ContainerRemoved;
        let is_written = !is_removal || in_cache.is_none();
        let initial = self.is_initial_wrong(event, o, &before);
        if (is_wrong || !is_written || initial) && !self.is_excused(o) {
            let (now, what, truth) = (time(now), event.event, o.state());
            let initial = if event.initial { " initial" } else { "" };
            self.fail(format!(
                "at {now}: {what}{initial} of {}, before {before:?}, truth {truth:?}",
                o.id
            ));
        }
        let is_death = event.event == LifecycleType::ContainerDied;
        if is_death && subject.exit_code.is_none() && self.has_code(o) && !self.is_excused(o) {
            self.fail(format!("at {}: {} died without its code", time(now), o.id));
        }
        let is_sudden = is_death && !event.initial && before.started == 0;
        if is_sudden && self.cache.has_start(o) && !self.is_excused(o) {
            self.fail(format!("at {}: {} died without a start", time(now), o.id));
        }
        let is_unread = is_death && !self.cache.was_published(&o.id);
        if is_unread && !self.wall_stepped && !self.losses.has_young_event(&o.id) {
            let error = format!("at {}: an old life is announced: {}", time(now), o.id);
            self.fail(error);
        }
        is_unread
    }

    /// Returns true if every status since the container's exit must have shown the exit code, as no fault hid the code.
    fn has_code(&self, o: &Object) -> bool {
        let may_be_late = [Fault::LateCode, Fault::Lag, Fault::Unknown];
        o.kind == Kind::Container
            && o.exists()
            && o.state() == State::Exited
            && may_be_late
                .iter()
                .all(|&fault| self.faults.chance(fault) == 0)
            && self.freshness.is_untroubled(&o.pod.uid)
    }

    /// Returns true if the `initial` flag of an announcement is wrong. Only states that the first relist found have it.
    fn is_initial_wrong(&self, event: &PodLifecycleEvent, o: &Object, before: &Announced) -> bool {
        // If the first relist shows UNKNOWN, a later read shows the state, so `initial` may be true or false.
        if self.faults.chance(Fault::Unknown) > 0 {
            return false;
        }
        let state = match event.event {
            LifecycleType::ContainerStarted => State::Running,
            LifecycleType::ContainerDied => State::Exited,
            _ => return false,
        };
        // An exit after an announced start is a change, so it must not be initial.
        if state == State::Exited && before.started > 0 && !self.at_first.contains_key(&o.id) {
            return event.initial;
        }
        if let Some(first) = self.at_first.get(&o.id) {
            return event.initial != (*first == state);
        }
        let Some(at) = o.entered(state) else {
            return false;
        };
        let (began, ended) = self.first_relist.unwrap_or((u64::MAX, 0));
        // A pod read that started before the first relist and ends after it may show an earlier state than the relist.
        let as_of = self.cache.as_of(&o.pod.uid);
        if as_of.is_some_and(|as_of| as_of < began) {
            return false;
        }
        let lag = self.faults.longest_lag();
        // If an id changes while the first relist runs, the relist may show the state before or after the change.
        let changed = o
            .history
            .iter()
            .any(|c| c.at + lag >= began && c.at <= ended + lag);
        let was_gone = o
            .entered(State::Removed)
            .is_some_and(|gone| gone <= ended + lag);
        let is_old = at + lag < began && !changed && !was_gone;
        (event.initial && at > ended) || (!event.initial && is_old)
    }

    /// Compares the announcements of an id with the node model. Call this only for ids that have not changed for 70 s.
    pub(super) fn check_announcements(&self, o: &Object, probed: u64) -> Result<(), String> {
        let announced = self.announced.get(&o.id);
        let known = announced.cloned().unwrap_or_default();
        let (ended, removed) = (o.state() >= State::Exited, o.state() == State::Removed);
        let is_container = o.kind == Kind::Container;
        let wrong = |what: &str| {
            Err(format!(
                "{what}: {} is {:?}, announced {known:?}",
                o.id,
                o.state()
            ))
        };
        let matches = known.died == u32::from(ended) && known.removed == u32::from(removed);
        if (announced.is_some() || o.exists()) && !matches {
            return wrong("announcements differ from the truth");
        }
        if o.exists() && ended && is_container && o.since() < probed {
            let cached = self.cache.shown(o).and_then(|(_, code)| code);
            if cached != Some(o.exit.code) || known.code != Some(o.exit.code) {
                return wrong(&format!("code {}, cached {cached:?}", o.exit.code));
            }
        }
        // Ids that were gone before the first complete relist are not announced.
        let since = self.announced_since;
        let was_announced = since.is_some_and(|since| !removed || o.since() > since);
        if let Some(code) = self.losses.shown_end(&o.id)
            && ended
            && !self.wall_stepped
            && o.label == Label::Right
            && was_announced
            && (!matches || (code.is_some() && known.code.is_none()))
        {
            return wrong(&format!("an event showed its end with code {code:?}"));
        }
        Ok(())
    }
}

impl Announced {
    /// Records an announcement. Returns true if it contradicts the node model or an earlier announcement.
    fn add(
        &mut self,
        now: u64,
        what: LifecycleType,
        code: Option<i32>,
        o: &Object,
        claimed: bool,
    ) -> bool {
        let before = self.clone();
        if what != LifecycleType::ContainerStarted {
            self.code = code.or(self.code);
        }
        match what {
            LifecycleType::ContainerStarted => {
                self.started += 1;
                let ran = claimed || o.entered(State::Running).is_some();
                self.started > 1 || before.died > 0 || before.removed > 0 || !ran
            }
            LifecycleType::ContainerDied => {
                self.died += 1;
                // A container that is removed before its start is also announced as died.
                self.died > 1 || before.removed > 0 || o.state() < State::Exited
            }
            LifecycleType::ContainerRemoved => {
                self.removed += 1;
                self.removed_at = Some(now);
                self.removed > 1 || before.died == 0 || o.state() != State::Removed
            }
            // The core may announce an exit code after the removal, but only once.
            LifecycleType::ContainerChanged => before.removed > 0 && before.code.is_some(),
            _ => false,
        }
    }
}

/// A map by ids.
pub(super) type ById<T> = std::collections::BTreeMap<Id, T>;
