//! How long a cache shows of a pod what is not so any more: what happened, against what the
//! consumer saw whenever it was told of the pod. The same for those who poll and those who listen.
//!
//! A container that is only created counts as not there: upstream tells nobody of it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Result;
use pleg_core::PodUid;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::clock::wall;

use super::generators::{Row, Subject};
use super::lags::Lags;
use crate::node::Truth;
use crate::protocol::{Happened, Stale};

/// What a pod shows, as one number, whatever the order of its containers; 0 if it shows nothing.
type Print = u64;

/// What something was like from that moment on.
type Since = (i64, Print);

fn print_of(id: &str, state: i32) -> Print {
    if state == i32::from(State::ContainerCreated) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (id, state).hash(&mut hasher);
    hasher.finish()
}

fn print(truth: &Truth) -> Print {
    let each = truth.containers.iter();
    each.fold(0, |all, (id, state)| all ^ print_of(id, *state))
}

/// What the cache showed of each pod, and since when.
#[derive(Debug, Default)]
pub(super) struct Looks(HashMap<PodUid, Vec<Since>>);

impl Looks {
    /// Looks at a pod; `each` sees what is there to be seen. When that was.
    pub(super) fn at<P: Subject>(
        &mut self,
        subject: &P,
        uid: &PodUid,
        each: &mut dyn FnMut(&Row<'_>),
    ) -> i64 {
        let mut print = 0;
        subject.shows(uid, &mut |row| {
            print ^= print_of(row.id.as_str(), row.state);
            each(&row);
        });
        let now = wall().as_nanos();
        self.saw(uid, (now, print));
        now
    }

    fn saw(&mut self, uid: &PodUid, look: Since) {
        match self.0.get_mut(uid) {
            Some(looks) if looks.last().is_some_and(|(_, print)| *print == look.1) => {}
            Some(looks) => looks.push(look),
            None => {
                self.0.insert(uid.clone(), vec![look]);
            }
        }
    }

    /// How stale all that was, until that moment. `before`: what those pods were like at first.
    pub(super) fn stale(
        &self,
        before: &[Truth],
        changes: &[Happened],
        until: i64,
    ) -> Result<Stale> {
        let mut versions: HashMap<&str, Vec<Since>> = before
            .iter()
            .map(|truth| (truth.uid.as_str(), vec![(i64::MIN, print(truth))]))
            .collect();
        for Happened { at, pod } in changes {
            let of_pod = versions
                .entry(&pod.uid)
                .or_insert_with(|| vec![(i64::MIN, 0)]);
            let print = print(pod);
            if of_pod.last().is_none_or(|(_, last)| *last != print) {
                of_pod.push((*at, print));
            }
        }
        let mut lags = Lags::default();
        let (mut wrong, mut unseen) = (0, 0);
        for (uid, versions) in versions {
            let looks = self.0.get(&PodUid::from(uid));
            let looks = looks.map_or(&[][..], Vec::as_slice);
            wrong += wrong_for(&versions, looks, until);
            unseen += seen(&versions, looks, until, &mut |since, at| {
                lags.note(since, at);
            });
        }
        Ok(Stale {
            wrong,
            unseen,
            lag: lags.all()?,
            halves: lags.halves()?,
        })
    }
}

/// For how long what was shown was not what was so, from the first change on.
fn wrong_for(versions: &[Since], looks: &[Since], until: i64) -> i64 {
    let Some(&(_, mut so)) = versions.first() else {
        return 0;
    };
    let mut shown = 0;
    let mut since = versions.get(1).map_or(until, |(at, _)| *at);
    let changes = versions
        .iter()
        .skip(1)
        .map(|&(at, print)| (at, true, print));
    let looked = looks.iter().map(|&(at, print)| (at, false, print));
    let mut turns: Vec<(i64, bool, Print)> = changes.chain(looked).collect();
    // What happened at the same moment stays in its order.
    turns.sort_by_key(|(at, is_change, _)| (*at, *is_change));
    let mut wrong = 0;
    for (at, is_change, print) in turns {
        if so != shown {
            wrong += (at - since).max(0);
        }
        since = since.max(at);
        if is_change {
            so = print;
        } else {
            shown = print;
        }
    }
    if so != shown {
        wrong += (until - since).max(0);
    }
    wrong
}

/// Tells of each change when it was and when it, or one after it, was shown; of those that never
/// were, until when anybody looked. How many those are.
fn seen(versions: &[Since], looks: &[Since], until: i64, lag: &mut dyn FnMut(i64, i64)) -> u64 {
    let changes = versions.get(1..).unwrap_or_default();
    let mut next = 0;
    for (at, print) in looks {
        let ahead = changes.iter().enumerate().skip(next);
        let newest = ahead
            .take_while(|(_, (since, _))| since <= at)
            .filter(|(_, (_, so))| so == print)
            .last();
        if let Some((newest, _)) = newest {
            for (since, _) in changes.get(next..=newest).unwrap_or_default() {
                lag(*since, *at);
            }
            next = newest + 1;
        }
    }
    let rest = changes.get(next..).unwrap_or_default();
    rest.iter().for_each(|(since, _)| lag(*since, until));
    rest.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Since = (i64::MIN, 1);

    fn lags(versions: &[Since], looks: &[Since], until: i64) -> (Vec<i64>, u64) {
        let mut lags = Vec::new();
        let unseen = seen(versions, looks, until, &mut |since, at| {
            lags.push(at - since);
        });
        (lags, unseen)
    }

    #[test]
    fn what_is_shown_late_is_wrong_for_as_long() {
        let versions = [START, (100, 2), (200, 3)];
        let looks = [(0, 1), (110, 2), (250, 3)];
        assert_eq!(wrong_for(&versions, &looks, 1000), 10 + 50);
        assert_eq!(lags(&versions, &looks, 1000), (vec![10, 50], 0));
    }

    #[test]
    fn a_change_that_another_one_overtook_was_unseen_until_that_one_was_seen() {
        let versions = [START, (100, 2), (200, 3)];
        let looks = [(0, 1), (250, 3)];
        assert_eq!(wrong_for(&versions, &looks, 1000), 150);
        assert_eq!(lags(&versions, &looks, 1000), (vec![150, 50], 0));
    }

    #[test]
    fn of_what_happened_at_once_the_last_is_so() {
        for (first, then) in [(2, 3), (3, 2)] {
            let versions = [START, (100, first), (100, then)];
            assert_eq!(wrong_for(&versions, &[(0, 1), (110, then)], 1000), 10);
        }
    }

    #[test]
    fn what_is_never_shown_counts_to_the_end() {
        let versions = [START, (100, 2)];
        assert_eq!(wrong_for(&versions, &[(0, 1)], 1000), 900);
        assert_eq!(lags(&versions, &[(0, 1)], 1000), (vec![900], 1));
    }

    #[test]
    fn going_back_is_wrong_again() {
        let versions = [START, (100, 2)];
        let looks = [(0, 1), (110, 2), (300, 1), (400, 2)];
        assert_eq!(wrong_for(&versions, &looks, 1000), 10 + 100);
        assert_eq!(lags(&versions, &looks, 1000), (vec![10], 0));
    }

    #[test]
    fn one_that_is_only_created_is_not_there() {
        let created = State::ContainerCreated.into();
        let of = |state| Truth {
            uid: "u".to_owned(),
            containers: [("a".to_owned(), state)].into(),
        };
        assert_eq!(print(&of(created)), 0);
        assert_ne!(print(&of(State::ContainerRunning.into())), 0);
    }
}
