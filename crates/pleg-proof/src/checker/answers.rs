//! Checks answers to waiters: no answer may show a state that had ended before the instant that the waiter named.

use std::collections::BTreeMap;

use pleg_core::{CallError, Instant, PodUid, PodView, WaiterId};
use pleg_node_model::{Label, Node, Object, Shown, Source, State};

use super::{Checker, cache, time};
use crate::world::SECOND;

/// The longest time that a waiter may wait while no new faults occur. One read may hang, and its retry answers.
const LONGEST: u64 = 12 * SECOND;

/// The waits that are not answered yet, and the instants at which all waits of the world began.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Waits {
    waiting: BTreeMap<WaiterId, (u64, PodUid, u64)>,
    began: Vec<u64>,
}

impl Waits {
    /// The number of waits that workers began after the instant `at`.
    pub(super) fn since(&self, at: u64) -> u64 {
        let began = self.began.iter().rev();
        began.take_while(|began| **began > at).count() as u64
    }

    pub(super) fn cancelled(&mut self, waiter: WaiterId) {
        self.waiting.remove(&waiter);
    }

    pub(super) fn end(&self, now: u64) -> Result<(), String> {
        let mut waiting = self.waiting.iter();
        let late = waiting.find(|(_, (at, _, after))| at.max(after) + LONGEST < now);
        late.map_or(Ok(()), |(waiter, (at, uid, _))| {
            Err(format!("{waiter:?} waits for {uid} since {}", time(*at)))
        })
    }
}

impl Checker {
    pub(crate) fn waits(&mut self, now: u64, waiter: WaiterId, uid: &PodUid, after: u64) {
        self.waits.began.push(now);
        self.waits.waiting.insert(waiter, (now, uid.clone(), after));
    }

    pub(crate) fn answered(
        &mut self,
        now: u64,
        waiter: WaiterId,
        answer: &Result<PodView, CallError>,
        node: &Node,
    ) {
        let Some((_, uid, after)) = self.waits.waiting.remove(&waiter) else {
            return self.fail(format!("{waiter:?} is answered and does not wait"));
        };
        let Ok(view) = answer else { return };
        if view.as_of <= Some(Instant::from_nanos(after)) {
            let as_of = view.as_of;
            self.fail(format!(
                "{waiter:?} is answered as of {as_of:?}, after {after}"
            ));
        }
        for o in node.objects().filter(|o| *o.pod.uid == *uid.as_str()) {
            if self.is_excused(o) {
                continue;
            }
            let shown = cache::shown(view, o).map(|(state, _)| state);
            if is_too_old(o, shown, after, cache::has_error(view, o)) {
                let (now, after) = (time(now), time(after));
                let error = format!(
                    "at {now}: {waiter:?} after {after} shows {} {shown:?}",
                    o.id
                );
                self.fail(error);
            }
        }
    }
}

/// Returns true if, at `after`, both the row and the status of the object show a later state than `shown`.
fn is_too_old(o: &Object, shown: Option<State>, after: u64, has_error: bool) -> bool {
    let row = o.shown(after, Source::List);
    let status = o.shown(after, Source::Status);
    let was_there = o.state_at(after).is_some();
    if row.is_none() && status.is_none() {
        // The object is gone, but the core keeps an id whose status call fails with an error other than NotFound.
        return was_there && shown.is_some() && !has_error;
    }
    let is_unknown = o.overrides.unknown_until > after;
    if is_unknown || o.label != Label::Right || !o.exists() {
        return false;
    }
    let rank = |shown: Shown| match shown {
        Shown::Created | Shown::Unknown => State::Created,
        Shown::Running => State::Running,
        Shown::Exited => State::Exited,
    };
    let least = row.into_iter().chain(status).map(rank).min();
    shown < least
}
