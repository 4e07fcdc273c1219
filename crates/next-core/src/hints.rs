//! Which events still need a read.
//!
//! A hint waits until the cache shows what its events reported, or until a read that began after them has ended. What
//! the cache shows is an argument; nothing of it is stored here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::constants::{READ_AFTER, SUBJECTS};
use crate::pods::Shown;
use crate::types::event::EventType;
use crate::types::hint::{Hint, Types};
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::KnownState;
use crate::types::time::Instant;

/// The hints that wait for a read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hints {
    waiting: BTreeMap<Id, Waiting>,
    /// The subjects of each pod. Under `None`: those that only a relist shows.
    of_pod: BTreeMap<Option<PodUid>, BTreeSet<Id>>,
    /// The subjects by when a read of their pod must begin, and those by when a relist must.
    due: BTreeSet<(Instant, Id)>,
    due_by_relist: BTreeSet<(Instant, Id)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    hint: Hint,
    /// `None`: only a relist shows the subject.
    pod: Option<PodUid>,
    /// When its read must begin. `None`: a read showed less than the events, and the pod is looked at again.
    due: Option<Instant>,
}

/// What a read means for the hints of its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Satisfied {
    /// The read showed less than events had reported, so the pod must be looked at again.
    pub(crate) shows_less: bool,
    /// Ids that events showed, and that are gone without ever having been published.
    pub(crate) short_lives: Vec<(Id, Hint)>,
}

/// What a read shows of an id that it does not publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// No row shows it, and its status was not read.
    Unlisted,
    /// No row of its pod shows it, but its status says that it exists: it has no label.
    Exists,
    /// It does not exist: a relist does not list it, or its status is NotFound.
    Proven,
    /// A row shows it.
    Listed,
}

impl Hints {
    /// Events arrived about a subject of that pod; `None`: only a relist shows the subject. Returns false if there is no
    /// room for one more subject, so that a relist must replace them.
    pub(crate) fn add(&mut self, id: Id, hint: Hint, pod: Option<PodUid>) -> bool {
        let due = hint.first_arrival.after(pause(hint.types));
        let mut new = Waiting {
            hint,
            pod,
            due: Some(due),
        };
        if let Some(before) = self.forget(&id) {
            let mut hint = before.hint;
            hint.join(new.hint);
            new.hint = hint;
            new.due = before.due.map(|before| before.min(due)).or(new.due);
            let own = new.hint.own.as_ref();
            let is_unlabelled = own.is_some_and(|own| own.identity.unlabelled);
            new.pod = new.pod.or(before.pod).filter(|_| !is_unlabelled);
        } else if self.waiting.len() >= SUBJECTS {
            return false;
        }
        self.insert(id, new);
        true
    }

    /// The events about a subject that waits for a read.
    pub(crate) fn get(&self, id: &Id) -> Option<&Hint> {
        self.waiting.get(id).map(|waiting| &waiting.hint)
    }

    /// The subjects of the pod that wait.
    pub(crate) fn subjects(&self, pod: Option<&PodUid>) -> Vec<Id> {
        self.of(pod).map(|(id, _)| id.clone()).collect()
    }

    /// When the next read of the pod must begin.
    pub(crate) fn due(&self, pod: &PodUid) -> Option<Instant> {
        let waiting = self.of(Some(pod));
        waiting.filter_map(|(_, waiting)| waiting.due).min()
    }

    /// When the next relist must begin.
    pub(crate) fn relist_due(&self) -> Option<Instant> {
        self.due_by_relist.first().map(|(due, _)| *due)
    }

    /// When the read or relist for the oldest hint was due.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let first = self.due.first().into_iter();
        let first = first.chain(self.due_by_relist.first());
        first.map(|(due, _)| *due).min()
    }

    /// Returns true if a subject waits for a relist.
    pub(crate) fn wait_for_relist(&self) -> bool {
        !self.due_by_relist.is_empty()
    }

    /// Returns true if the cache shows everything that these events reported, so that no read is needed.
    pub(crate) fn is_shown(hint: &Hint, cache: Shown) -> bool {
        unshown(hint.types, cache).is_empty()
    }

    /// The kind of a subject that no row of a pod list shows and whose status must be read although it is not published:
    /// NotFound proves that it is gone. The rows were requested at `as_of`.
    pub(crate) fn status_due(&self, id: &Id, as_of: Instant) -> Option<Kind> {
        let hint = self.get(id)?;
        let is_due = hint.last_arrival < as_of && !hint.types.contains(EventType::Deleted);
        is_due.then(|| hint.kind().unwrap_or(Kind::Container))
    }

    /// Returns true if no read is needed for the subject: the cache shows all that the events reported. `may_come`: a read
    /// that began at that instant or before is in flight, and may bring the subject into the cache.
    pub(crate) fn is_satisfied(
        &self,
        id: &Id,
        cache: Shown,
        may_come: impl Fn(Instant) -> bool,
    ) -> bool {
        // The cache does not show how an id ended that was never in it.
        let needs_read =
            |hint: &Hint| cache == Shown::Never && (hint.ran() || may_come(hint.last_arrival));
        let hint = self.get(id);
        hint.is_some_and(|hint| Self::is_shown(hint, cache) && !needs_read(hint))
    }

    /// The pod of a subject that waits; `None` if only a relist shows the subject.
    pub(crate) fn pod_of(&self, id: &Id) -> Option<&PodUid> {
        self.waiting.get(id)?.pod.as_ref()
    }

    /// A read of the pod has ended whose rows were requested at `as_of`. `absence`: what it shows of an id that it has
    /// not published.
    pub(crate) fn read(
        &mut self,
        pod: Option<&PodUid>,
        as_of: Instant,
        cache: impl Fn(&Id) -> Shown,
        absence: impl Fn(&Id) -> Absence,
    ) -> Satisfied {
        let mut satisfied = Satisfied::default();
        for id in self.subjects(pod) {
            let Some(hint) = self.get(&id).filter(|hint| hint.last_arrival < as_of) else {
                continue;
            };
            let (types, shown) = (hint.types, cache(&id));
            let absence = (shown == Shown::Never).then(|| absence(&id));
            let is_less = match absence {
                None => shows_less(types, shown),
                Some(Absence::Unlisted) => !types.contains(EventType::Deleted),
                Some(Absence::Exists | Absence::Listed) => true,
                Some(Absence::Proven) => false,
            };
            if absence == Some(Absence::Exists) && pod.is_some() {
                self.needs_relist(id, as_of);
            } else if is_less {
                satisfied.shows_less = true;
                self.look_again(&id);
            } else if let Some(waiting) = self.forget(&id)
                && absence.is_some()
                && waiting.hint.ran()
            {
                satisfied.short_lives.push((id, waiting.hint));
            }
        }
        satisfied
    }

    /// The pod was looked at often enough: relists decide.
    pub(crate) fn give_up(&mut self, pod: Option<&PodUid>) {
        for id in self.subjects(pod) {
            let waiting = self.waiting.get(&id);
            if waiting.is_some_and(|waiting| waiting.due.is_none()) {
                self.forget(&id);
            }
        }
    }

    /// Only a relist shows the subject.
    fn needs_relist(&mut self, id: Id, due: Instant) {
        if let Some(mut waiting) = self.forget(&id) {
            (waiting.pod, waiting.due) = (None, Some(due));
            self.insert(id, waiting);
        }
    }

    /// The schedule of looks decides when the subject is read.
    fn look_again(&mut self, id: &Id) {
        if let Some(waiting) = self.waiting.get_mut(id)
            && let Some(due) = waiting.due.take()
        {
            self.not_due(due, id);
        }
    }

    fn not_due(&mut self, due: Instant, id: &Id) {
        let entry = (due, id.clone());
        self.due.remove(&entry);
        self.due_by_relist.remove(&entry);
    }

    fn insert(&mut self, id: Id, waiting: Waiting) {
        let due = match waiting.pod {
            Some(_) => &mut self.due,
            None => &mut self.due_by_relist,
        };
        due.extend(waiting.due.map(|due| (due, id.clone())));
        let of_pod = self.of_pod.entry(waiting.pod.clone()).or_default();
        of_pod.insert(id.clone());
        self.waiting.insert(id, waiting);
    }

    fn of(&self, pod: Option<&PodUid>) -> impl Iterator<Item = (&Id, &Waiting)> {
        let ids = match self.of_pod.is_empty() {
            true => None,
            false => self.of_pod.get(&pod.cloned()),
        };
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| Some((id, self.waiting.get(id)?)))
    }

    /// Forgets a subject: no read is needed any more.
    pub(crate) fn forget(&mut self, id: &Id) -> Option<Waiting> {
        let waiting = self.waiting.remove(id)?;
        if let Some(due) = waiting.due {
            self.not_due(due, id);
        }
        if let Some(ids) = self.of_pod.get_mut(&waiting.pod) {
            ids.remove(id);
            if ids.is_empty() {
                self.of_pod.remove(&waiting.pod);
            }
        }
        Some(waiting)
    }

    /// The number of subjects.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// The time for which the read for these events may wait.
fn pause(types: Types) -> Duration {
    match types.contains(EventType::Stopped) {
        true => Duration::ZERO,
        false => READ_AFTER,
    }
}

/// The types whose message the cache does not show.
fn unshown(types: Types, cache: Shown) -> Types {
    use EventType::{Created, Deleted, Other, Started, Stopped};
    types.without(|event| match (event, cache) {
        (Other(_), _) => false,
        (Deleted, Shown::Here { .. }) => false,
        (Deleted, Shown::Gone | Shown::Never) => true,
        (_, Shown::Never) => false,
        (_, Shown::Gone) => true,
        (Created, Shown::Here { .. }) => true,
        (Started, Shown::Here { state, .. }) => state >= Some(KnownState::Running),
        (Stopped, Shown::Here { state, has_code }) => state == Some(KnownState::Exited) && has_code,
    })
}

/// Returns true if a read after these events showed less than they had reported: the id runs after STOPPED, or is there
/// after DELETED.
fn shows_less(types: Types, cache: Shown) -> bool {
    let Shown::Here { state, .. } = cache else {
        return false;
    };
    let runs = state != Some(KnownState::Exited);
    types.contains(EventType::Deleted) || (types.contains(EventType::Stopped) && runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::event::{Arrival, RuntimeEvent};
    use crate::types::time::WallTime;

    const RUNS: Shown = Shown::Here {
        state: Some(KnownState::Running),
        has_code: false,
    };
    const ENDED: Shown = Shown::Here {
        state: Some(KnownState::Exited),
        has_code: true,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    /// An event about the container "c" without any status, at 10 ms.
    fn hint(event: EventType) -> Hint {
        let arrival = Arrival {
            event: RuntimeEvent::new("c", event),
            arrived: at(10),
            wall: WallTime::from_nanos(0),
        };
        Hint::new(arrival, None).1
    }

    fn waiting(event: EventType) -> (Hints, Id, PodUid) {
        let (mut hints, pod) = (Hints::default(), PodUid::from("p"));
        assert!(hints.add("c".into(), hint(event), Some(pod.clone())));
        (hints, "c".into(), pod)
    }

    #[test]
    fn cache_satisfies_what_it_shows() {
        use EventType::{Created, Deleted, Other, Started, Stopped};
        for (event, cache, shows) in [
            (Created, RUNS, true),
            (Created, Shown::Never, false),
            (Started, RUNS, true),
            (Started, ENDED, true),
            (Stopped, RUNS, false),
            (Stopped, ENDED, true),
            (Deleted, ENDED, false),
            (Deleted, Shown::Gone, true),
            (Stopped, Shown::Gone, true),
            (Other(9), ENDED, false),
        ] {
            let is_shown = Hints::is_shown(&hint(event), cache);
            assert_eq!(is_shown, shows, "{event:?} {cache:?}");
        }
    }

    #[test]
    fn read_for_stopped_begins_at_once_and_others_may_wait() {
        for (event, due) in [(EventType::Stopped, 10), (EventType::Started, 260)] {
            let (hints, _, pod) = waiting(event);
            assert_eq!(hints.due(&pod), Some(at(due)));
            assert_eq!(hints.oldest(), Some(at(due)));
        }
    }

    #[test]
    fn removal_of_an_unknown_id_waits_for_a_read_in_flight() {
        for may_come in [true, false] {
            let (hints, c, _) = waiting(EventType::Deleted);
            let is_satisfied = hints.is_satisfied(&c, Shown::Never, |_| may_come);
            assert_eq!(is_satisfied, !may_come);
        }
    }

    #[test]
    fn read_that_shows_less_is_repeated_until_given_up() {
        let (mut hints, _, pod) = waiting(EventType::Stopped);
        let runs = |_: &Id| RUNS;
        let before = hints.read(Some(&pod), at(10), runs, |_| Absence::Listed);
        assert_eq!(before, Satisfied::default(), "it began before the event");
        let after = hints.read(Some(&pod), at(11), runs, |_| Absence::Listed);
        assert!(after.shows_less);
        assert_eq!(
            (hints.due(&pod), hints.oldest(), hints.len()),
            (None, None, 1)
        );
        hints.give_up(Some(&pod));
        assert_eq!(hints, Hints::default());
    }

    #[test]
    fn id_that_its_pod_list_cannot_show_waits_for_a_relist() {
        let (mut hints, _, pod) = waiting(EventType::Started);
        let read = hints.read(Some(&pod), at(11), |_| Shown::Never, |_| Absence::Exists);
        assert!(!read.shows_less && hints.wait_for_relist());
        assert_eq!((hints.due(&pod), hints.relist_due()), (None, Some(at(11))));
        let relist = hints.read(None, at(12), |_| Shown::Never, |_| Absence::Proven);
        assert_eq!((relist.shows_less, hints.len()), (false, 0));
    }

    #[test]
    fn subject_beyond_the_bound_is_not_stored() {
        let (mut hints, c, pod) = waiting(EventType::Started);
        for n in 1..SUBJECTS {
            assert!(hints.add(n.to_string().into(), hint(EventType::Created), None));
        }
        assert!(!hints.add("more".into(), hint(EventType::Created), None));
        assert!(hints.add(c, hint(EventType::Stopped), Some(pod)));
    }
}
