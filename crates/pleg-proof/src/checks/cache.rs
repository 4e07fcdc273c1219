//! Checks the cache: true, fresh, monotonic.

use std::sync::Arc;

use pleg_core::{
    Confirmed, ContainerState, Id, Instant, Kind, KnownState, PodStatus, PodUid, PodView,
    SandboxState, TerminalRecord,
};

use super::{Checks, states};
use crate::assertions::{self, CheckResult, Violation};
use crate::coverage::CoverPoint;
use crate::faults::Fault;
use crate::oracle::{Object, Oracle, State};
use crate::runtime::pod_of;

/// The earliest time after which a state, and a removal, may be overruled.
const OVERRULE_DELAY: u64 = 100_000_000;
pub(super) const OVERRULE_REMOVAL_DELAY: u64 = 10_000_000_000;

impl Checks {
    pub(super) fn publish(
        &mut self,
        oracle: &Oracle,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> CheckResult {
        let pod = pod_of(uid);
        let old = self.cache.remove(uid);
        if let Some(old) = old.as_ref().filter(|o| !o.status.is_nothing()) {
            let older = view.as_of < old.as_of || details_are_older(old, view);
            assertions::NEVER_OLDER.holds(!older, || {
                let (was, is) = (old.as_of, view.as_of);
                format!("{uid} was as of {was:?} and is as of {is:?}")
            })?;
        }
        let same = old
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(&old.status, &view.status));
        if !same {
            for (id, state) in states(&view.status) {
                self.shown(oracle, now, (uid, pod), id, state, view)?;
            }
            self.details(oracle, old.as_ref().map(|o| &*o.status), &view.status)?;
            if let Some(old) = &old {
                self.left_cache(oracle, now, &old.status, Some(&view.status));
            }
        }
        let known = old.as_ref().map(|old| (old.as_of, old.inspected));
        self.fresh(oracle, now, uid, view, known)?;
        self.cache.insert(uid, view.clone());
        Ok(())
    }

    /// One id in a published status.
    fn shown(
        &mut self,
        oracle: &Oracle,
        now: u64,
        (uid, pod): (&PodUid, Option<usize>),
        id: &Id,
        state: Option<State>,
        view: &PodView,
    ) -> CheckResult {
        let object = oracle.object(id);
        let Some((object, real)) = object.and_then(|l| Some((l, l.at(now)?))) else {
            return Err(assertions::NOTHING_INVENTED
                .violated(format!("{id} is published and never existed"))
                .in_pod(pod));
        };
        if object.label != Some(object.pod) {
            self.coverage.fault(Fault::WrongLabel);
        }
        // Until its sandbox is known, a container is one of the pod that its label names.
        let by_label = object.kind == Kind::Container && object.label == pod;
        let shown_in = pod.is_none_or(|pod| pod == object.pod) || by_label;
        assertions::OWN_POD.holds(shown_in, || format!("{id} is published as one of {uid}"))?;
        // The last known state under an UNKNOWN is published, too, and counts as published from then on.
        let position = state.or_else(|| last_known(&view.status, id));
        let true_state = self.false_events || position.is_none_or(|s| s <= real);
        let checked = assertions::STATE_REACHED
            .holds(true_state, || {
                format!("{id} is published {position:?} and is {real:?}")
            })
            .and_then(|()| {
                let in_own_pod = pod == Some(object.pod);
                let stays = self.shown_as_present(oracle, now, (uid, in_own_pod), id)?;
                if stays {
                    self.shown_forward(oracle, now, id, (state, position))?;
                }
                Ok(())
            });
        checked.map_err(|violation| violation.in_pod(Some(object.pod)))
    }

    /// An id that has left the cache is shown again only after a newer read. Returns whether it has not left.
    fn shown_as_present(
        &mut self,
        oracle: &Oracle,
        now: u64,
        (uid, in_own_pod): (&PodUid, bool),
        id: &Id,
    ) -> Result<bool, Violation> {
        let Some(record) = self.record_mut(oracle, id) else {
            return Ok(false);
        };
        record.shown_in = Some(uid.clone());
        if in_own_pod {
            record.in_own_pod_since.get_or_insert(now);
        }
        if let Some(deleted) = record.deleted.filter(|_| !record.published) {
            // First learned as removed.
            record.left_cache.get_or_insert((deleted, uid.clone()));
        }
        let Some((gone, from)) = &record.left_cache else {
            return Ok(true);
        };
        if *gone == now && from != uid {
            // The pod became known; until then the sandbox's id replaced its uid.
            record.left_cache = None;
            return Ok(true);
        }
        let newer = record.read > Some(Instant::from_nanos(*gone));
        assertions::REMOVED_STAYS.holds(newer, || {
            format!("{id} was removed and is published, and no newer read showed it")
        })?;
        Ok(false)
    }

    /// A state is not older than the published one, unless a read has overruled that after its delay.
    fn shown_forward(
        &mut self,
        oracle: &Oracle,
        now: u64,
        id: &Id,
        (state, position): (Option<State>, Option<State>),
    ) -> CheckResult {
        let false_events = self.false_events;
        let Some(record) = self.record_mut(oracle, id) else {
            return Ok(());
        };
        if let (Some(position), Some((before, since))) = (position, record.shown)
            && position < before
        {
            assertions::FORWARD.holds(false_events, || {
                format!("{id} was {before:?} and is {position:?}")
            })?;
            assertions::OVERRULE_DELAY.holds(now >= since + OVERRULE_DELAY, || {
                let after = now.saturating_sub(since) / 1_000_000;
                format!("{before:?} of {id} is overruled after {after} ms")
            })?;
        }
        record.published = true;
        let unknown_since = record.unknown_since.is_some();
        if let Some(position) = position
            && record.shown.is_none_or(|(before, _)| before != position)
        {
            record.shown = Some((position, now));
        }
        if state.is_some() {
            return Ok(());
        }
        self.coverage.hit(CoverPoint::ShownUnknown);
        assertions::UNKNOWN.holds(unknown_since || position.is_none(), || {
            format!("{id} is published as unknown, and no inspection said so")
        })
    }

    /// Exit codes are true and stay, and known details are not lost.
    fn details(
        &mut self,
        oracle: &Oracle,
        old: Option<&PodStatus>,
        new: &PodStatus,
    ) -> CheckResult {
        for c in &new.containers {
            let Some(object) = oracle.object(&c.id) else {
                continue;
            };
            let was = old.and_then(|o| o.containers.iter().find(|o| o.id == c.id));
            if was == Some(c) {
                continue;
            }
            let of = Some(object.pod);
            let runs = matches!(c.state, ContainerState::Created | ContainerState::Running);
            let code = c.details.exit_code;
            if code.is_some_and(|code| runs || code != object.code) {
                let (id, state) = (&c.id, c.state);
                let what = format!("{id} is {state:?} and is published with exit code {code:?}");
                return Err(assertions::TRUE_EXIT_CODE.violated(what).in_pod(of));
            }
            let Some(was) = was else { continue };
            let unknown = |s| matches!(s, ContainerState::Unknown { .. });
            if unknown(was.state) && !unknown(c.state) {
                self.coverage.hit(CoverPoint::UnknownCleared);
            }
            if &*was.details.reason == "Error" && &*c.details.reason == "OOMKilled" {
                self.coverage.hit(CoverPoint::ReasonCorrected);
            }
            let lost = [
                ("sandbox", was.sandbox.is_some() && c.sandbox != was.sandbox),
                ("name", !was.name.is_empty() && c.name != was.name),
                (
                    "creation",
                    was.created_at.is_some() && c.created_at != was.created_at,
                ),
                (
                    "exit code",
                    was.details.exit_code.is_some() && code.is_none() && !runs,
                ),
                (
                    "reason",
                    !was.details.reason.is_empty() && c.details.reason.is_empty() && !runs,
                ),
                (
                    "start",
                    was.details.started_at.is_some() && c.details.started_at.is_none(),
                ),
            ];
            if let Some((what, _)) = lost.iter().find(|(_, lost)| *lost) {
                let what = format!("the {what} of {} is lost: {was:?}, {c:?}", c.id);
                return Err(assertions::NOTHING_ERASED.violated(what).in_pod(of));
            }
        }
        Ok(())
    }

    /// Records the ids that the cache no longer shows.
    fn left_cache(&mut self, oracle: &Oracle, now: u64, old: &PodStatus, new: Option<&PodStatus>) {
        let ids = |status| states(status).map(|(id, _)| id);
        if new.is_some_and(|new| ids(new).eq(ids(old))) {
            return;
        }
        for (id, _) in states(old) {
            let stays = new.is_some_and(|new| states(new).any(|(other, _)| other == id));
            if !stays
                && let Some(record) = self.record_mut(oracle, id)
                && record.shown_in.as_ref() == Some(&old.uid)
            {
                // A removed id may have been shown by reads for a while.
                record.left_cache.get_or_insert((now, old.uid.clone()));
                record.shown = None;
            }
        }
    }

    pub(super) fn pod_removed(&mut self, oracle: &Oracle, now: u64, uid: &PodUid) {
        let Some(mut view) = self.cache.remove(uid) else {
            return;
        };
        self.left_cache(oracle, now, &view.status, None);
        let nothing = PodStatus::nothing(uid.clone()).into();
        view = PodView::new(nothing, view.as_of, view.inspected);
        self.cache.insert(uid, view);
    }

    pub(super) fn list_applied(&mut self, as_of: Instant, gone: &[PodUid]) -> CheckResult {
        assertions::AS_OF_A_READ.holds(self.lists.contain(as_of), || {
            format!("swept as of {as_of:?}, when no list began")
        })?;
        for uid in gone {
            if self.cache.get(uid).is_some_and(|v| v.status.is_nothing()) {
                self.coverage.hit(CoverPoint::PodForgotten);
                self.cache.remove(uid);
            }
        }
        Ok(())
    }

    pub(super) fn refreshed(
        &mut self,
        oracle: &Oracle,
        now: u64,
        as_of: Instant,
        pods: &Confirmed,
    ) -> CheckResult {
        for uid in &pods.among(self.cache.iter().map(|(uid, _)| uid)) {
            let Some(view) = self.cache.get_mut(uid) else {
                let what = format!("{uid} is confirmed and not in the cache");
                return Err(assertions::AS_OF_A_READ.violated(what).in_pod(pod_of(uid)));
            };
            let known = Some((view.as_of, view.inspected));
            view.as_of = view.as_of.max(Some(as_of));
            let view = view.clone();
            self.fresh(oracle, now, uid, &view, known)?;
        }
        Ok(())
    }

    /// A view as of t shows the state at t or a later one. `known`: its as-of values, checked before.
    pub(super) fn fresh(
        &self,
        oracle: &Oracle,
        now: u64,
        uid: &PodUid,
        view: &PodView,
        known: Option<(Option<Instant>, Option<Instant>)>,
    ) -> CheckResult {
        let Some(as_of) = view.as_of else {
            return Ok(());
        };
        let pod = pod_of(uid);
        let checked = self
            .as_of_reads(uid, (as_of, view.inspected), known)
            .and_then(|()| {
                let objects = pod.map(|pod| oracle.of_pod(pod, as_of.as_nanos()));
                for object in objects.into_iter().flatten() {
                    self.shown_as_of(oracle, now, as_of, object, view)?;
                }
                Ok(())
            });
        checked.map_err(|violation| violation.in_pod(pod))
    }

    /// At each as-of a read began.
    fn as_of_reads(
        &self,
        uid: &PodUid,
        (as_of, inspected): (Instant, Option<Instant>),
        known: Option<(Option<Instant>, Option<Instant>)>,
    ) -> CheckResult {
        let inspections = self.inspections.get(uid);
        let by_inspection = |t| inspections.is_some_and(|b| b.contain(t));
        let as_before = known.is_some_and(|k| k.0 == Some(as_of));
        let began = as_before || self.lists.contain(as_of) || by_inspection(as_of);
        assertions::AS_OF_A_READ.holds(began, || {
            format!("{uid} is as of {as_of:?}, when no read began")
        })?;
        let as_before = known.is_some_and(|k| k.1 == inspected);
        let by_status = |t| by_inspection(t) || self.status_reads.contains(&t);
        let began = as_before || inspected.is_none_or(by_status);
        assertions::DETAILS_AS_OF.holds(began, || {
            format!("{uid} was inspected {inspected:?}, when no inspection began")
        })
    }

    /// The view shows this object of its pod, and no older state than it had then.
    fn shown_as_of(
        &self,
        oracle: &Oracle,
        now: u64,
        as_of: Instant,
        object: &Object,
        view: &PodView,
    ) -> CheckResult {
        let (id, uid) = (&object.id, &view.status.uid);
        let record = self.lookup(oracle, id);
        let end_reported = record.and_then(|b| b.end_reported);
        if !object.exists(now) || self.false_events && end_reported.is_some_and(|t| t >= as_of) {
            return Ok(());
        }
        // A list of one pod does not show it, and nothing had named its pod by then.
        let named_since = record.and_then(|b| b.in_own_pod_since);
        let unnamed = named_since.is_none_or(|since| since > as_of.as_nanos());
        if object.label != Some(object.pod) && unnamed {
            return Ok(());
        }
        if !object.resized.is_empty()
            && let Some(what) = resized_before(object, view, now)
        {
            return Err(assertions::DETAILS_FRESH.violated(what));
        }
        let shown = states(&view.status).find(|(other, _)| *other == id);
        let Some((_, state)) = shown else {
            let first_seen_removed = record.is_some_and(|b| b.first_seen_removed);
            let excused = self.false_events && end_reported.is_some() && first_seen_removed;
            return assertions::NO_UNPROVEN_ABSENCE
                .holds(excused, || format!("{uid} as of {as_of:?} lacks {id}"));
        };
        let unknown_since = record.is_some_and(|b| {
            b.unknown_since.is_some_and(|t| t >= as_of) && b.last_event.is_some_and(|t| t > as_of)
        });
        let is_older = state.is_some() && state < object.at(as_of.as_nanos());
        assertions::FRESH.holds(unknown_since || !is_older, || {
            format!("{uid} as of {as_of:?} shows {id} as {state:?}")
        })
    }

    /// Checks the terminal records.
    pub(super) fn terminal_records(
        &mut self,
        oracle: &Oracle,
        records: &[TerminalRecord],
    ) -> CheckResult {
        for end in records {
            let object = oracle.object(&end.id);
            let of = object.map(|l| l.pod);
            let of_name = |r: &&TerminalRecord| (r.kind, &r.name) == (end.kind, &end.name);
            let past = records
                .iter()
                .filter(of_name)
                .filter(|r| is_past(r, records))
                .count();
            let wrong = object.is_none_or(|l| end.exit_code.is_some_and(|c| c != l.code));
            if past > 3 || wrong {
                let what = format!("wrong or too many ends: {records:?}");
                return Err(assertions::TERMINAL_RECORDS.violated(what).in_pod(of));
            }
            if let Some(record) = self.record_mut(oracle, &end.id)
                && record.incarnation == end.incarnation
            {
                if end.exit_code.is_none() && record.code {
                    let what = format!("the exit code of {} is lost", end.id);
                    return Err(assertions::NOTHING_ERASED.violated(what).in_pod(of));
                }
                record.code |= end.exit_code.is_some();
            }
        }
        Ok(())
    }
}

/// Whether the id of that record was removed, or has ended again since.
fn is_past(record: &TerminalRecord, all: &[TerminalRecord]) -> bool {
    let is_later = |r: &TerminalRecord| r.id == record.id && r.incarnation > record.incarnation;
    record.removed || all.iter().any(is_later)
}

/// The last known state of an unknown id.
fn last_known(status: &PodStatus, id: &Id) -> Option<State> {
    let ready = status.sandboxes.iter().find(|s| s.id == *id);
    let ready = ready.and_then(|s| match s.state {
        SandboxState::Unknown { last_ready } => last_ready,
        _ => None,
    });
    let container = status.containers.iter().find(|c| c.id == *id);
    let last = container.and_then(|c| match c.state {
        ContainerState::Unknown { last } => last,
        _ => None,
    });
    match (ready, last) {
        (Some(true), _) | (_, Some(KnownState::Running)) => Some(State::Running),
        (Some(false), _) | (_, Some(KnownState::Exited)) => Some(State::Exited),
        (_, Some(KnownState::Created)) => Some(State::Created),
        (None, None) => None,
    }
}

/// Whether the details became older. A pod's details are as of its oldest id, so a new id may do
/// that.
fn details_are_older(old: &PodView, view: &PodView) -> bool {
    let had = |id: &Id| states(&old.status).any(|(other, _)| other == id);
    let no_new = states(&view.status).all(|(id, _)| had(id));
    no_new && !view.status.is_nothing() && view.inspected < old.inspected
}

/// How the details of a resized container are older than their as-of, or never were.
fn resized_before(object: &Object, view: &PodView, now: u64) -> Option<String> {
    let mut containers = view.status.containers.iter();
    let container = containers.find(|c| c.id == object.id)?;
    let inspected = view.inspected?;
    let limit = container.details.resources.as_ref().map(|r| r.memory_limit);
    let was = object.memory_limit(inspected.as_nanos());
    let resized = object.resized.iter().any(|&at| at <= inspected.as_nanos());
    let wrong = resized && limit < was || limit > object.memory_limit(now);
    wrong.then(|| {
        let id = &object.id;
        format!("{id} as of {inspected:?} has the limit {limit:?}, it had {was:?}")
    })
}
