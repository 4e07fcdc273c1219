//! Lifecycle events: the difference between what was announced and what is published.
//!
//! By upstream's table, with CREATED where upstream has unknown: Started, Died and Removed of an id once each, unless a
//! read has undone its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::constants::WAIT_FOR_CODE;
use crate::types::ids::Id;
use crate::types::lifecycle::LifecycleType;
use crate::types::report::ReportedState;
use crate::types::status::{KnownState, Text};
use crate::types::time::Instant;

/// What is published of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The last known state.
    pub(crate) state: Option<KnownState>,
    /// The runtime reports UNKNOWN now.
    pub(crate) unknown: bool,
    /// Its status has a start time.
    pub(crate) was_started: bool,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Text,
    /// It has ended, and a status read that may show its exit code is due.
    pub(crate) code_is_due: bool,
}

impl Published {
    /// What would be published of a row without a status.
    fn of_row(row: ReportedState) -> Self {
        Self {
            state: match row {
                ReportedState::Running => Some(KnownState::Running),
                ReportedState::Exited => Some(KnownState::Exited),
                ReportedState::Created => Some(KnownState::Created),
                ReportedState::Unknown => None,
            },
            unknown: row == ReportedState::Unknown,
            was_started: false,
            exit_code: None,
            reason: Text::default(),
            code_is_due: false,
        }
    }
}

/// What is to be announced, and whether it is initial.
pub(crate) type Events = Vec<(LifecycleType, bool)>;

/// What was announced of each published id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Announcements {
    ids: BTreeMap<Id, Announced>,
    /// What was published when the first complete relist had ended, and else its rows, until `Synced`. `None` before:
    /// nothing is announced yet.
    first: Option<BTreeMap<Id, ReportedState>>,
    /// Ids whose Died waits for the exit code, and since when.
    waiting: BTreeMap<Id, Instant>,
    waiting_since: BTreeSet<(Instant, Id)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Announced {
    changed: bool,
    started: bool,
    unknown: bool,
    /// Died was announced, with this exit code and reason.
    died: Option<(Option<i32>, Text)>,
}

impl Announcements {
    /// The first complete relist has ended.
    pub(crate) fn begin(&mut self, rows: BTreeMap<Id, ReportedState>) {
        self.first = Some(rows);
    }

    pub(crate) const fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// All pods of the first relist were read.
    pub(crate) fn synced(&mut self) {
        if let Some(first) = &mut self.first {
            first.retain(|id, _| self.waiting.contains_key(id));
        }
    }

    /// What is published of an id has changed. Returns what must be announced, in order.
    pub(crate) fn published(&mut self, id: &Id, now: &Published, at: Instant) -> Events {
        let announced = self.ids.get(id);
        let is_fresh = announced.is_none_or(|announced| {
            !announced.changed && !announced.started && announced.died.is_none()
        });
        let first = self.first.as_ref().filter(|_| is_fresh);
        let Some(&row) = first.and_then(|first| first.get(id)) else {
            return flagged(self.difference(id, now, false, at), false);
        };
        let shown = Published::of_row(row);
        if (shown.state, shown.unknown) == (now.state, now.unknown)
            || (row == ReportedState::Unknown && now.unknown)
        {
            return flagged(
                self.difference(id, now, row == ReportedState::Exited, at),
                true,
            );
        }
        // What the status shows beyond the row is a change.
        let mut events = Vec::new();
        if matches!(row, ReportedState::Created | ReportedState::Running) {
            events = flagged(self.difference(id, &shown, false, at), true);
        }
        events.extend(flagged(self.difference(id, now, false, at), false));
        events
    }

    /// `had_ended`: it had ended before this generator started, so its start is not announced.
    fn difference(
        &mut self,
        id: &Id,
        now: &Published,
        had_ended: bool,
        at: Instant,
    ) -> Vec<LifecycleType> {
        use LifecycleType::{ContainerChanged, ContainerDied, ContainerStarted};
        let announced = self.ids.entry(id.clone()).or_default();
        let mut events = Vec::new();
        let ended = now.state == Some(KnownState::Exited);
        let ran =
            now.state == Some(KnownState::Running) || (ended && now.was_started && !had_ended);
        if ran && !announced.started && announced.died.is_none() {
            announced.started = true;
            events.push(ContainerStarted);
        }
        let since = self.waiting.get(id).copied().unwrap_or(at);
        let may_wait = ended && announced.died.is_none() && now.code_is_due;
        let waits = may_wait && since.after(WAIT_FOR_CODE) > at;
        if waits {
            self.waiting.insert(id.clone(), since);
            self.waiting_since.insert((since, id.clone()));
        } else if self.waiting.remove(id).is_some() {
            self.waiting_since.remove(&(since, id.clone()));
        }
        if ended && !waits {
            let end = (now.exit_code, now.reason.clone());
            match &announced.died {
                None => events.push(ContainerDied),
                Some(before) if *before != end => events.push(ContainerChanged),
                Some(_) => {}
            }
            announced.died = Some(end);
        }
        let created = !ended && !ran && !std::mem::replace(&mut announced.changed, true);
        let unknown = std::mem::replace(&mut announced.unknown, now.unknown) != now.unknown;
        if events.is_empty() && (created || unknown) {
            events.push(ContainerChanged);
        }
        events
    }

    /// The id is gone. Returns what must be announced, in order.
    pub(crate) fn removed(&mut self, id: &Id) -> Events {
        use LifecycleType::{ContainerDied, ContainerRemoved};
        if let Some(since) = self.waiting.remove(id) {
            self.waiting_since.remove(&(since, id.clone()));
        }
        let row = self.first.as_ref().and_then(|first| first.get(id));
        let had_ended = row == Some(&ReportedState::Exited);
        match self.ids.remove(id) {
            Some(Announced { died: Some(_), .. }) => vec![(ContainerRemoved, false)],
            announced => {
                let is_fresh =
                    announced.is_some_and(|announced| !announced.started && !announced.changed);
                let died = (ContainerDied, had_ended && is_fresh);
                vec![died, (ContainerRemoved, false)]
            }
        }
    }

    /// Reads have undone the end or the removal of the id: it lives again. If it does not run, it is announced as
    /// ContainerChanged.
    pub(crate) fn undone(&mut self, id: &Id, now: &Published, at: Instant) -> Events {
        if self
            .ids
            .get(id)
            .is_some_and(|announced| announced.died.is_none())
        {
            return self.published(id, now, at);
        }
        let ended = now.state == Some(KnownState::Exited);
        let announced = Announced {
            changed: true,
            unknown: now.unknown,
            died: ended.then(|| (now.exit_code, now.reason.clone())),
            ..Announced::default()
        };
        self.ids.insert(id.clone(), announced);
        match now.state {
            Some(KnownState::Running) => self.published(id, now, at),
            _ => vec![(LifecycleType::ContainerChanged, false)],
        }
    }

    /// Returns true if the Died of the id waits for its exit code.
    pub(crate) fn waits(&self, id: &Id) -> bool {
        self.waiting.contains_key(id)
    }

    /// The number of ids of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.ids.len() + self.waiting.len() + self.first.as_ref().map_or(0, BTreeMap::len)
    }

    /// When the next Died has waited long enough for its exit code.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (since, _) = self.waiting_since.first()?;
        Some(since.after(WAIT_FOR_CODE))
    }

    /// The ids whose Died has waited long enough.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Id> {
        let oldest = self.waiting_since.iter();
        let overdue = oldest.take_while(|(since, _)| since.after(WAIT_FOR_CODE) <= now);
        overdue.map(|(_, id)| id.clone()).collect()
    }
}

fn flagged(events: Vec<LifecycleType>, initial: bool) -> Events {
    events.into_iter().map(|event| (event, initial)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use KnownState::{Created, Exited, Running};
    use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};

    const AT: Instant = Instant::ORIGIN;

    fn published(all: &mut Announcements, c: &Id, now: &Published) -> Vec<LifecycleType> {
        all.published(c, now, AT)
            .into_iter()
            .map(|(event, _)| event)
            .collect()
    }

    fn shown(state: KnownState) -> Published {
        Published {
            state: Some(state),
            unknown: false,
            was_started: false,
            exit_code: None,
            reason: Text::default(),
            code_is_due: false,
        }
    }

    #[test]
    fn each_transition_is_announced_once() {
        let (mut all, c) = (Announcements::default(), Id::from("c"));
        for (state, events) in [
            (Created, vec![ContainerChanged]),
            (Running, vec![ContainerStarted]),
            (Exited, vec![ContainerDied]),
        ] {
            assert_eq!(published(&mut all, &c, &shown(state)), events);
            assert!(published(&mut all, &c, &shown(state)).is_empty());
        }
        assert_eq!(all.removed(&c), [(ContainerRemoved, false)]);
        assert_eq!(all, Announcements::default());
    }

    #[test]
    fn removal_of_a_running_container_announces_its_death() {
        let (mut all, c) = (Announcements::default(), Id::from("c"));
        published(&mut all, &c, &shown(Running));
        assert_eq!(
            all.removed(&c),
            [(ContainerDied, false), (ContainerRemoved, false)]
        );
    }

    #[test]
    fn end_with_a_start_time_announces_the_start() {
        let mut ended = shown(Exited);
        ended.was_started = true;
        for (rows, events) in [
            (
                vec![],
                vec![(ContainerStarted, false), (ContainerDied, false)],
            ),
            (vec![ReportedState::Exited], vec![(ContainerDied, true)]),
            (
                vec![ReportedState::Running],
                vec![(ContainerStarted, true), (ContainerDied, false)],
            ),
        ] {
            let (mut all, c) = (Announcements::default(), Id::from("c"));
            all.begin(rows.into_iter().map(|row| (c.clone(), row)).collect());
            assert_eq!(all.published(&c, &ended, AT), events);
        }
    }

    #[test]
    fn death_waits_for_its_exit_code() {
        let (mut all, c) = (Announcements::default(), Id::from("c"));
        published(&mut all, &c, &shown(Running));
        let mut ended = shown(Exited);
        ended.code_is_due = true;
        assert_eq!(published(&mut all, &c, &ended), []);
        assert!(all.waits(&c));
        (ended.code_is_due, ended.exit_code) = (false, Some(3));
        assert_eq!(published(&mut all, &c, &ended), [ContainerDied]);
        ended.reason = "OOMKilled".into();
        assert_eq!(published(&mut all, &c, &ended), [ContainerChanged]);
        assert!(!all.waits(&c));
    }

    #[test]
    fn unknown_is_announced_when_it_comes_and_when_it_goes() {
        let (mut all, c) = (Announcements::default(), Id::from("c"));
        published(&mut all, &c, &shown(Running));
        let unknown = Published {
            unknown: true,
            ..shown(Running)
        };
        assert_eq!(published(&mut all, &c, &unknown), [ContainerChanged]);
        assert_eq!(published(&mut all, &c, &unknown), []);
        assert_eq!(published(&mut all, &c, &shown(Running)), [ContainerChanged]);
        published(&mut all, &c, &unknown);
        assert_eq!(published(&mut all, &c, &shown(Exited)), [ContainerDied]);
    }

    #[test]
    fn undone_end_may_happen_again() {
        let c = Id::from("c");
        for (state, at_once, gone) in [
            (
                Running,
                ContainerStarted,
                vec![ContainerDied, ContainerRemoved],
            ),
            (
                Created,
                ContainerChanged,
                vec![ContainerDied, ContainerRemoved],
            ),
            (Exited, ContainerChanged, vec![ContainerRemoved]),
        ] {
            let mut all = Announcements::default();
            published(&mut all, &c, &shown(Exited));
            assert_eq!(all.undone(&c, &shown(state), AT), [(at_once, false)]);
            assert!(published(&mut all, &c, &shown(state)).is_empty());
            let removed: Vec<_> = all
                .removed(&c)
                .into_iter()
                .map(|(event, _)| event)
                .collect();
            assert_eq!(removed, gone);
        }
    }
}
