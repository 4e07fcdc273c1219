//! Ids that have left the cache, so that late events about them are recognized.

use std::collections::{BTreeMap, VecDeque};

use crate::constants::{LATE_CODE, SUBJECTS};
use crate::pods::record::Record;
use crate::types::ids::{Id, PodUid};
use crate::types::report::Report;
use crate::types::time::Instant;

/// The last [`SUBJECTS`] ids that left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gone {
    /// The number under which each id left last.
    ids: BTreeMap<Id, u64>,
    order: VecDeque<(u64, Id)>,
    last_number: u64,
    /// The last state of the ids that left within the last minute: their exit code may still become known.
    recent: BTreeMap<Id, (Instant, Left)>,
    recent_order: VecDeque<(Instant, Id)>,
}

/// An id that left, as it was published last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) uid: PodUid,
    pub(crate) record: Record,
    /// Only events that may be replayed have shown its life, so nothing of it was announced.
    pub(crate) is_unannounced: bool,
}

impl Gone {
    /// The id has left.
    pub(crate) fn insert(&mut self, id: &Id, left: Left, now: Instant) {
        self.last_number += 1;
        self.ids.insert(id.clone(), self.last_number);
        self.order.push_back((self.last_number, id.clone()));
        while self.order.len() > SUBJECTS {
            if let Some((number, id)) = self.order.pop_front()
                && self.ids.get(&id) == Some(&number)
            {
                self.returns(&id);
            }
        }
        while let Some((at, _)) = self.recent_order.front()
            && at.after(LATE_CODE) <= now
            && let Some((at, id)) = self.recent_order.pop_front()
        {
            if self.recent.get(&id).is_some_and(|(left, _)| *left == at) {
                self.recent.remove(&id);
            }
        }
        self.recent_order.push_back((now, id.clone()));
        self.recent.insert(id.clone(), (now, left));
    }

    /// Forgets the last states: nothing of these ids was announced.
    pub(crate) fn forget_states(&mut self) {
        self.recent.clear();
        self.recent_order.clear();
    }

    /// The id is there again. Returns true if it had left.
    pub(crate) fn returns(&mut self, id: &Id) -> bool {
        self.recent.remove(id);
        self.ids.remove(id).is_some()
    }

    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.ids.contains_key(id)
    }

    /// An event shows the end of an id that has left. Returns its last state if that adds to what was announced.
    pub(crate) fn learn_end(&mut self, id: &Id, end: &Report, now: Instant) -> Option<&Left> {
        let left = self.recent_mut(id, now)?;
        let known = (left.record.exit_code(), left.record.reason());
        left.record.end(end, now);
        let is_more = known != (left.record.exit_code(), left.record.reason());
        (is_more && !left.is_unannounced).then_some(&*left)
    }

    /// An event that was not replayed is about an id that has left. Returns its last state if that must be announced now.
    pub(crate) fn is_new(&mut self, id: &Id, now: Instant) -> Option<&Left> {
        let left = self.recent_mut(id, now)?;
        let must = std::mem::replace(&mut left.is_unannounced, false);
        must.then_some(&*left)
    }

    fn recent_mut(&mut self, id: &Id, now: Instant) -> Option<&mut Left> {
        let (at, left) = self.recent.get_mut(id)?;
        (at.after(LATE_CODE) > now).then_some(left)
    }

    /// The number of ids of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.order.len().max(self.ids.len()) + self.recent_order.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::ids::Kind;
    use crate::types::report::{Identity, ReportedState};
    use crate::types::status::ContainerDetails;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn exited(code: Option<i32>) -> Report {
        let details = ContainerDetails {
            exit_code: code,
            ..Default::default()
        };
        let identity = Identity::new(Kind::Container);
        Report::new("c", ReportedState::Exited, identity, details)
    }

    fn left(is_unannounced: bool) -> Left {
        let mut record = Record::new(&exited(None), true);
        record.see(ReportedState::Exited, at(0), at(0));
        Left {
            uid: "p".into(),
            record,
            is_unannounced,
        }
    }

    #[test]
    fn oldest_ids_are_forgotten() {
        let mut gone = Gone::default();
        for n in 0..=SUBJECTS {
            gone.insert(&n.to_string().into(), left(false), at(0));
        }
        assert!(!gone.contains(&"0".into()) && gone.contains(&"1".into()));
        assert!(gone.returns(&"1".into()) && !gone.returns(&"1".into()));
        assert_eq!(gone.recent.len(), SUBJECTS - 1);
    }

    #[test]
    fn late_exit_code_is_learned_once_within_a_minute() {
        let (mut gone, c) = (Gone::default(), Id::from("c"));
        gone.insert(&c, left(false), at(0));
        assert!(gone.learn_end(&c, &exited(None), at(1)).is_none());
        assert!(gone.learn_end(&c, &exited(Some(3)), at(59)).is_some());
        assert!(gone.learn_end(&c, &exited(Some(4)), at(59)).is_none());
        gone.insert(&c, left(false), at(100));
        assert!(gone.learn_end(&c, &exited(Some(3)), at(160)).is_none());
    }

    #[test]
    fn replayed_life_is_announced_by_the_first_new_event() {
        let (mut gone, c) = (Gone::default(), Id::from("c"));
        gone.insert(&c, left(true), at(0));
        assert!(gone.learn_end(&c, &exited(Some(3)), at(1)).is_none());
        let announced = gone.is_new(&c, at(2)).map(|left| left.record.exit_code());
        assert_eq!(announced, Some(Some(3)));
        assert!(gone.is_new(&c, at(2)).is_none());
    }
}
