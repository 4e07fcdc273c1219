//! Laws 10, 11 and 12, watched from step to step: when lists run, whether slots come back,
//! whether health tells the truth.

use std::collections::{BTreeMap, VecDeque};

use pleg_core::{Cause, Causes, Degraded, Health, PodUid};

use super::cached::seen;
use super::{Laws, hold};
use crate::node::Node;
use crate::stand::{Broken, Call, What};
use crate::told::instant;

/// What is known of lists, the stream and inspections.
pub(super) struct Watch {
    /// When the last list ended, whether it failed, when the last complete one began.
    ended: u64,
    failed: bool,
    complete: Option<u64>,
    /// When the last lists were asked for.
    recent: VecDeque<u64>,
    /// How many lists consumers asked for.
    wanted: usize,
    /// Since when a stream stands, and whether it has delivered.
    stream: Option<u64>,
    delivered: bool,
    down: u64,
    /// When pods were last inspected (it was asked for, or it ended), and when they were so for no
    /// reason but a failure.
    inspected: BTreeMap<PodUid, u64>,
    retried: BTreeMap<PodUid, Vec<u64>>,
    /// Turns of the loop at one moment.
    turns: (u64, u32),
}

impl Watch {
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
            turns: (0, 0),
        }
    }

    pub(super) fn list_asked(&mut self, now: u64) -> Result<(), Broken> {
        self.recent.push_back(now);
        self.recent.retain(|&t| t + 1_000 > now);
        // One a second, one at once after a failure, one for those who ask or subscribe, one
        // against each of a few contradictions.
        hold!(
            self.recent.len() <= 6 + self.wanted,
            "law10-lists-are-rare",
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
    ) -> Result<(), Broken> {
        self.inspected.insert(uid.clone(), now);
        if causes.iter().eq([Cause::Retry]) {
            let recent = self.retried.entry(uid.clone()).or_default();
            recent.retain(|&t| t + 10_000 > now);
            recent.push(now);
            hold!(
                recent.len() <= 6,
                "law11-backoff",
                "{uid} is retried at {recent:?}"
            );
        }
        Ok(())
    }

    pub(super) fn inspection_ended(&mut self, now: u64, uid: &PodUid) {
        self.inspected.insert(uid.clone(), now);
    }

    /// How long after the last one the next list may begin at the latest.
    const fn longest_pause(&self) -> u64 {
        match self.stream {
            Some(_) if self.failed => 1_000,
            Some(_) if self.delivered => 60_000,
            Some(_) => 10_000,
            None => 1_000,
        }
    }
}

impl Laws {
    /// Things do not happen for ever at one moment.
    pub fn busy_loop(&mut self, now: u64) -> Result<(), Broken> {
        let (at, turns) = self.watch.turns;
        self.watch.turns = (now, if at == now { turns + 1 } else { 0 });
        hold!(
            turns < 1_000,
            "law11-no-livelock",
            "nothing but turns at {now}"
        );
        Ok(())
    }

    pub fn look(
        &mut self,
        node: &Node,
        now: u64,
        health: &Health,
        calls: &[Call],
    ) -> Result<(), Broken> {
        self.nothing_lost(node, now)?;
        let list = calls.iter().find(|c| matches!(c.what, What::List { .. }));
        let pause = self.watch.longest_pause();
        hold!(
            list.is_some() || now <= self.watch.ended + pause,
            "law10-there-is-a-next-list",
            "at {now} the last one ended at {}, pause {pause}",
            self.watch.ended
        );
        self.waiting_causes_reads(now, list.is_some())?;
        self.health_is_true(now, health, list)
    }

    /// What was in the cache and exists is in the cache, unless an event told of its end.
    fn nothing_lost(&self, node: &Node, now: u64) -> Result<(), Broken> {
        for life in &node.lives {
            let id = &life.id;
            if self.ever_shown.contains(id) && life.exists(now) && !self.lied.contains_key(id) {
                let held = self
                    .cache
                    .values()
                    .any(|v| seen(&v.status).contains_key(id));
                hold!(
                    held,
                    "law5-absence-is-evidence",
                    "{id} exists and is not held any more"
                );
            }
        }
        Ok(())
    }

    /// One who waits for a pod that is not being read gets a read, whatever else hangs: every
    /// slot comes back after 250 ms.
    fn waiting_causes_reads(&self, now: u64, listing: bool) -> Result<(), Broken> {
        let hung = self.flights.values().any(|(_, since)| now > since + 250);
        for asked in self.waiting.values().filter(|a| a.after <= now) {
            let in_flight = self.flights.values().any(|(uid, _)| *uid == asked.uid);
            let last = self.watch.inspected.get(&asked.uid).copied();
            // A pod with an id that has no label is read by a complete list, and its statuses then.
            let listed = self.watch.ended * u64::from(self.unlabelled);
            let read = last.unwrap_or_default().max(listed);
            let since = asked.asked.max(asked.after).max(read);
            let by_list = self.unlabelled && listing;
            let is_read = in_flight || by_list || now <= since + 3_000;
            hold!(
                is_read || hung,
                "law4-a-read-is-caused",
                "at {now} nothing is read for {asked:?}"
            );
            hold!(
                is_read || !hung,
                "law11-slots-come-back",
                "at {now} nothing is read for {asked:?}, {:?} hang",
                self.flights
            );
        }
        Ok(())
    }

    fn health_is_true(&self, now: u64, health: &Health, list: Option<&Call>) -> Result<(), Broken> {
        let recent = self.watch.complete.is_some_and(|t| now - t <= 180_000);
        let ready = health.ready(instant(now));
        hold!(
            ready.is_ok() == recent,
            "law12-ready",
            "at {now} it is {ready:?}, the last complete list began at {:?}",
            self.watch.complete
        );
        // The next probe is due in 15 s, and may be 5 s late.
        let late = health.ready(instant(now + 20_001));
        hold!(
            late.is_err(),
            "law12-a-dead-writer-is-not-ready",
            "{health:?}"
        );
        let degraded = health.degraded(instant(now));
        let named = |which: fn(&Degraded) -> bool| degraded.iter().any(which);
        if self.watch.stream.is_none() && now >= self.watch.down + 3_000 {
            let down = named(|d| matches!(d, Degraded::StreamDown { .. }));
            hold!(down, "law12-cause", "no stream at {now}: {degraded:?}");
        }
        if self.watch.failed {
            let failed = named(|d| matches!(d, Degraded::ListFailed { .. }));
            hold!(failed, "law12-cause", "the last list failed: {degraded:?}");
        }
        if list.is_some_and(|c| now >= c.asked + 3_000) {
            let slow = named(|d| matches!(d, Degraded::ListSlow { .. }));
            hold!(slow, "law12-cause", "a list hangs at {now}: {degraded:?}");
        }
        // 250 ms to be late, and three seconds from then.
        if self.flights.values().any(|(_, since)| now >= since + 3_250) {
            let hung = named(|d| matches!(d, Degraded::PodsHung { .. }));
            hold!(
                hung,
                "law12-cause",
                "an inspection hangs at {now}: {degraded:?}"
            );
        }
        Ok(())
    }
}
