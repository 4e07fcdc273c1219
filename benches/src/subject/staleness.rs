//! How long the cache of a subject differs from the runtime: compares the changes with what the consumer
//! read after each announcement. Polling and event-driven subjects are compared in the same way. A
//! container in the state Created counts as absent, because upstream does not announce it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Result;
use hdrhistogram::Histogram;
use pleg_core::PodUid;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::clock::wall;

use super::control::{record, values};
use super::generators::{Row, Subject};
use crate::node::ExpectedPod;
use crate::protocol::{PodChange, Stale};

/// A hash of the containers of a pod and their states, in any order; 0 without containers.
type Fingerprint = u64;

/// The fingerprint of a pod from a time on.
type Version = (i64, Fingerprint);

/// Returns the fingerprint of one container.
fn container_fingerprint(id: &str, state: i32) -> Fingerprint {
    if state == i32::from(State::ContainerCreated) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (id, state).hash(&mut hasher);
    hasher.finish()
}

/// Returns the fingerprint of a pod.
fn fingerprint(pod: &ExpectedPod) -> Fingerprint {
    let each = pod.containers.iter();
    each.fold(0, |all, (id, state)| {
        all ^ container_fingerprint(id, *state)
    })
}

/// What the cache showed of each pod, and from which time on.
#[derive(Debug, Default)]
pub(super) struct CacheHistory(HashMap<PodUid, Vec<Version>>);

impl CacheHistory {
    /// Reads a pod from the cache, calls `each` for every container, and records the result. Returns the
    /// time of the read.
    pub(super) fn read_pod<P: Subject>(
        &mut self,
        subject: &P,
        uid: &PodUid,
        each: &mut dyn FnMut(&Row<'_>),
    ) -> i64 {
        let mut fingerprint = 0;
        subject.visit_containers(uid, &mut |row| {
            fingerprint ^= container_fingerprint(row.id.as_str(), row.state);
            each(&row);
        });
        let now = wall().as_nanos();
        self.record(uid, (now, fingerprint));
        now
    }

    /// Adds a version of a pod if it differs from the last one.
    fn record(&mut self, uid: &PodUid, version: Version) {
        match self.0.get_mut(uid) {
            Some(shown) if shown.last().is_some_and(|(_, last)| *last == version.1) => {}
            Some(shown) => shown.push(version),
            None => {
                self.0.insert(uid.clone(), vec![version]);
            }
        }
    }

    /// Returns how stale the cache was until `until`. `before` contains the changed pods before the first
    /// change.
    pub(super) fn stale(
        &self,
        before: &[ExpectedPod],
        changes: &[PodChange],
        until: i64,
    ) -> Result<Stale> {
        let mut versions: HashMap<&str, Vec<Version>> = before
            .iter()
            .map(|pod| (pod.uid.as_str(), vec![(i64::MIN, fingerprint(pod))]))
            .collect();
        for PodChange { at, pod } in changes {
            let of_pod = versions
                .entry(&pod.uid)
                .or_insert_with(|| vec![(i64::MIN, 0)]);
            let changed = fingerprint(pod);
            if of_pod.last().is_none_or(|(_, last)| *last != changed) {
                of_pod.push((*at, changed));
            }
        }
        let mut lag = Histogram::new(3)?;
        let (mut wrong, mut unseen) = (0, 0);
        for (uid, versions) in versions {
            let shown = self.0.get(&PodUid::from(uid));
            let shown = shown.map_or(&[][..], Vec::as_slice);
            wrong += wrong_duration(&versions, shown, until);
            unseen += visit_lags(&versions, shown, until, &mut |since, at| {
                record(&mut lag, u64::try_from(at - since).unwrap_or(0).max(1));
            });
        }
        Ok(Stale {
            wrong,
            unseen,
            lag: values(&lag),
        })
    }
}

/// Returns how long the shown versions differ from the actual ones, from the first change on.
fn wrong_duration(versions: &[Version], cache: &[Version], until: i64) -> i64 {
    let Some(&(_, mut actual)) = versions.first() else {
        return 0;
    };
    let mut shown = 0;
    let mut since = versions.get(1).map_or(until, |(at, _)| *at);
    let changes = versions
        .iter()
        .skip(1)
        .map(|&(at, fingerprint)| (at, true, fingerprint));
    let reads = cache
        .iter()
        .map(|&(at, fingerprint)| (at, false, fingerprint));
    let mut steps: Vec<(i64, bool, Fingerprint)> = changes.chain(reads).collect();
    // The sort is stable: changes at the same time keep their order.
    steps.sort_by_key(|(at, is_change, _)| (*at, *is_change));
    let mut wrong = 0;
    for (at, is_change, fingerprint) in steps {
        if actual != shown {
            wrong += (at - since).max(0);
        }
        since = since.max(at);
        if is_change {
            actual = fingerprint;
        } else {
            shown = fingerprint;
        }
    }
    if actual != shown {
        wrong += (until - since).max(0);
    }
    wrong
}

/// Calls `lag` for each change with its time and the time at which it, or a later change, was visible.
/// For a change that was not visible, the second time is `until`. Returns the number of those changes.
fn visit_lags(
    versions: &[Version],
    cache: &[Version],
    until: i64,
    lag: &mut dyn FnMut(i64, i64),
) -> u64 {
    let changes = versions.get(1..).unwrap_or_default();
    let mut next = 0;
    for (at, shown) in cache {
        let ahead = changes.iter().enumerate().skip(next);
        let newest = ahead
            .take_while(|(_, (since, _))| since <= at)
            .filter(|(_, (_, actual))| actual == shown)
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

    const START: Version = (i64::MIN, 1);

    fn lags(versions: &[Version], cache: &[Version], until: i64) -> (Vec<i64>, u64) {
        let mut lags = Vec::new();
        let unseen = visit_lags(versions, cache, until, &mut |since, at| {
            lags.push(at - since);
        });
        (lags, unseen)
    }

    #[test]
    fn late_change_counts_as_wrong_until_visible() {
        let versions = [START, (100, 2), (200, 3)];
        let cache = [(0, 1), (110, 2), (250, 3)];
        assert_eq!(wrong_duration(&versions, &cache, 1000), 10 + 50);
        assert_eq!(lags(&versions, &cache, 1000), (vec![10, 50], 0));
    }

    #[test]
    fn replaced_change_is_visible_with_the_later_change() {
        let versions = [START, (100, 2), (200, 3)];
        let cache = [(0, 1), (250, 3)];
        assert_eq!(wrong_duration(&versions, &cache, 1000), 150);
        assert_eq!(lags(&versions, &cache, 1000), (vec![150, 50], 0));
    }

    #[test]
    fn last_of_simultaneous_changes_is_the_actual_version() {
        for (first, then) in [(2, 3), (3, 2)] {
            let versions = [START, (100, first), (100, then)];
            assert_eq!(wrong_duration(&versions, &[(0, 1), (110, then)], 1000), 10);
        }
    }

    #[test]
    fn invisible_change_counts_as_wrong_until_the_end() {
        let versions = [START, (100, 2)];
        assert_eq!(wrong_duration(&versions, &[(0, 1)], 1000), 900);
        assert_eq!(lags(&versions, &[(0, 1)], 1000), (vec![900], 1));
    }

    #[test]
    fn return_to_an_old_version_counts_as_wrong() {
        let versions = [START, (100, 2)];
        let cache = [(0, 1), (110, 2), (300, 1), (400, 2)];
        assert_eq!(wrong_duration(&versions, &cache, 1000), 10 + 100);
        assert_eq!(lags(&versions, &cache, 1000), (vec![10], 0));
    }

    #[test]
    fn created_container_counts_as_absent() {
        let created = State::ContainerCreated.into();
        let of = |state| ExpectedPod {
            uid: "u".to_owned(),
            containers: [("a".to_owned(), state)].into(),
        };
        assert_eq!(fingerprint(&of(created)), 0);
        assert_ne!(fingerprint(&of(State::ContainerRunning.into())), 0);
    }
}
