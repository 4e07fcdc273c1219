//! Checks invariants 10, 11 and 12 at every step: the schedule of lists, the release of slots, and
//! health.

use std::collections::{BTreeMap, VecDeque};

use pleg_core::{Cause, Causes, Degraded, Health, PodUid};

use super::cache::seen;
use super::{Checks, hold};
use crate::harness::{Call, Violation, What};
use crate::node::Node;
use crate::reports::instant;

/// What is known of lists, the stream and inspections.
pub(super) struct Liveness {
    /// When the last list ended, whether it failed, when the last complete one began.
    ended: u64,
    failed: bool,
    complete: Option<u64>,
    /// When the last lists were requested.
    recent: VecDeque<u64>,
    /// How many lists consumers requested.
    wanted: usize,
    /// Since when there is a stream, and whether it has delivered an event.
    stream: Option<u64>,
    delivered: bool,
    down: u64,
    /// When pods were last inspected (requested or completed), and when only because of a failure.
    inspected: BTreeMap<PodUid, u64>,
    retried: BTreeMap<PodUid, Vec<u64>>,
    /// The number of timeouts at one instant.
    loop_turns: (u64, u32),
}

impl Liveness {
    pub(super) const fn new(now: u64) -> Self {
        Self {
            ended: now,
            failed: false,
            complete: None,
            recent: VecDeque::new(),
            wanted: 0,
            stream: None,
            delivered: false,
            down: now,
            inspected: BTreeMap::new(),
            retried: BTreeMap::new(),
            loop_turns: (0, 0),
        }
    }

    pub(super) fn list_asked(&mut self, now: u64) -> Result<(), Violation> {
        self.recent.push_back(now);
        self.recent.retain(|&t| t + 1_000 > now);
        // One a second, one at once after a failure, one for each request or subscribe, one for each of a
        // few contradictions.
        hold!(
            self.recent.len() <= 6 + self.wanted,
            "invariant-10-list-rate-limited",
            "lists at {:?}",
            self.recent
        );
        Ok(())
    }

    pub(super) const fn list_wanted(&mut self) {
        self.wanted += 1;
    }

    pub(super) const fn list_ended(&mut self, ended: u64, began: u64, complete: bool) {
        self.ended = ended;
        self.failed = !complete;
        if complete {
            self.complete = Some(began);
        }
    }

    pub(super) const fn subscribed(&mut self, now: u64) {
        self.stream = Some(now);
        self.delivered = false;
        self.wanted += 1;
    }

    pub(super) const fn cut(&mut self, now: u64) {
        self.stream = None;
        self.down = now;
    }

    pub(super) const fn event(&mut self) {
        self.delivered = true;
    }

    pub(super) fn inspection_asked(
        &mut self,
        now: u64,
        uid: &PodUid,
        causes: Causes,
    ) -> Result<(), Violation> {
        self.inspected.insert(uid.clone(), now);
        if causes.iter().eq([Cause::Retry]) {
            let recent = self.retried.entry(uid.clone()).or_default();
            recent.retain(|&t| t + 10_000 > now);
            recent.push(now);
            hold!(
                recent.len() <= 6,
                "invariant-11-backoff",
                "{uid} is retried at {recent:?}"
            );
        }
        Ok(())
    }

    pub(super) fn inspection_ended(&mut self, now: u64, uid: &PodUid) {
        self.inspected.insert(uid.clone(), now);
    }

    /// The longest allowed pause before the next list.
    const fn longest_pause(&self) -> u64 {
        match self.stream {
            Some(_) if self.failed => 1_000,
            Some(_) if self.delivered => 60_000,
            Some(_) => 10_000,
            None => 1_000,
        }
    }
}

impl Checks {
    /// Timers do not fire for ever at one instant.
    pub fn check_livelock(&mut self, now: u64) -> Result<(), Violation> {
        let (at, loop_turns) = self.liveness.loop_turns;
        self.liveness.loop_turns = (now, if at == now { loop_turns + 1 } else { 0 });
        hold!(
            loop_turns < 1_000,
            "invariant-11-no-livelock",
            "nothing but turns at {now}"
        );
        Ok(())
    }

    pub fn check_now(
        &mut self,
        node: &Node,
        now: u64,
        health: &Health,
        calls: &[Call],
    ) -> Result<(), Violation> {
        self.check_nothing_lost(node, now)?;
        let list = calls.iter().find(|c| matches!(c.what, What::List { .. }));
        let pause = self.liveness.longest_pause();
        hold!(
            list.is_some() || now <= self.liveness.ended + pause,
            "invariant-10-list-in-time",
            "at {now} the last one ended at {}, pause {pause}",
            self.liveness.ended
        );
        self.check_waiters_cause_reads(now, list.is_some())?;
        self.check_health(now, health, list)
    }

    /// An existing id stays in the cache, unless an event reported its exit or removal.
    fn check_nothing_lost(&self, node: &Node, now: u64) -> Result<(), Violation> {
        for object in &node.objects {
            let id = &object.id;
            if self.ever_shown.contains(id)
                && object.exists(now)
                && !self.misreported_at.contains_key(id)
            {
                let held = self
                    .cache
                    .values()
                    .any(|v| seen(&v.status).contains_key(id));
                hold!(
                    held,
                    "invariant-5-existing-not-removed",
                    "{id} exists and is not held any more"
                );
            }
        }
        Ok(())
    }

    /// A waiter for a pod that is not being read gets a read, whatever else hangs: every slot is
    /// released after 250 ms.
    fn check_waiters_cause_reads(&self, now: u64, listing: bool) -> Result<(), Violation> {
        let hung = self.in_flight.values().any(|(_, since)| now > since + 250);
        for asked in self.waiting.values().filter(|a| a.after <= now) {
            let in_flight = self.in_flight.values().any(|(uid, _)| *uid == asked.uid);
            let last = self.liveness.inspected.get(&asked.uid).copied();
            // A pod with an unlabelled id is read by a complete list, and its statuses then.
            let listed = self.liveness.ended * u64::from(self.unlabelled);
            let read = last.unwrap_or_default().max(listed);
            let since = asked.asked.max(asked.after).max(read);
            let by_list = self.unlabelled && listing;
            let is_read = in_flight || by_list || now <= since + 3_000;
            hold!(
                is_read || hung,
                "invariant-4-waiter-causes-read",
                "at {now} nothing is read for {asked:?}"
            );
            hold!(
                is_read || !hung,
                "invariant-11-slots-released",
                "at {now} nothing is read for {asked:?}, {:?} hang",
                self.in_flight
            );
        }
        Ok(())
    }

    fn check_health(
        &self,
        now: u64,
        health: &Health,
        list: Option<&Call>,
    ) -> Result<(), Violation> {
        let recent = self.liveness.complete.is_some_and(|t| now - t <= 180_000);
        let ready = health.ready(instant(now));
        hold!(
            ready.is_ok() == recent,
            "invariant-12-ready",
            "at {now} it is {ready:?}, the last complete list began at {:?}",
            self.liveness.complete
        );
        // The next probe is due in 15 s, and may be 5 s late.
        let late = health.ready(instant(now + 20_001));
        hold!(
            late.is_err(),
            "invariant-12-stalled-is-not-ready",
            "{health:?}"
        );
        let degraded = health.degraded(instant(now));
        let named = |which: fn(&Degraded) -> bool| degraded.iter().any(which);
        if self.liveness.stream.is_none() && now >= self.liveness.down + 3_000 {
            let down = named(|d| matches!(d, Degraded::StreamDown { .. }));
            hold!(
                down,
                "invariant-12-degraded",
                "no stream at {now}: {degraded:?}"
            );
        }
        if self.liveness.failed {
            let failed = named(|d| matches!(d, Degraded::ListFailed { .. }));
            hold!(
                failed,
                "invariant-12-degraded",
                "the last list failed: {degraded:?}"
            );
        }
        if list.is_some_and(|c| now >= c.asked + 3_000) {
            let slow = named(|d| matches!(d, Degraded::ListSlow { .. }));
            hold!(
                slow,
                "invariant-12-degraded",
                "a list hangs at {now}: {degraded:?}"
            );
        }
        // 250 ms until it is overdue, and three seconds from then.
        if self
            .in_flight
            .values()
            .any(|(_, since)| now >= since + 3_250)
        {
            let hung = named(|d| matches!(d, Degraded::PodsHung { .. }));
            hold!(
                hung,
                "invariant-12-degraded",
                "an inspection hangs at {now}: {degraded:?}"
            );
        }
        Ok(())
    }
}
