//! Checks that the core makes no more calls than a budget allows, has no hot loop, and becomes ready.

use std::hash::{Hash, Hasher};

use pleg_core::{Counters, Health, Instant, PodUid};

use super::time;
use crate::world::{MS, SECOND};

/// Counts of the core's calls, and of the changes, failures and reads that allow more calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    began: Option<u64>,
    calls: u64,
    changes: u64,
    failures: u64,
    timers: (u64, u32),
    pod_reads: Vec<(u64, PodUid)>,
    relisted: Option<u64>,
    /// The numbers of relists and of pod reads at the start of the world's last 40 s.
    last: Option<(u64, u64)>,
    /// The calls of the whole world, in thousandths of the budget.
    pub(super) used: u64,
}

/// Adds nothing to the hash of a small world's state: small worlds make too few calls to exceed the budget.
impl Hash for Budget {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Budget {
    pub(super) fn changed(&mut self, _: u64) {
        self.changes += 1;
    }

    pub(super) fn call(&mut self, now: u64) -> Result<(), String> {
        let began = *self.began.get_or_insert(now);
        self.calls += 1;
        let seconds = (now - began) / SECOND;
        match self.calls > 2_000 + 200 * seconds {
            true => Err(format!("{} calls in {seconds} s", self.calls)),
            false => Ok(()),
        }
    }

    pub(super) const fn failed(&mut self) {
        self.failures += 1;
    }

    /// Compares the number of all calls with a budget that grows with changes, failures, waits and time: the core
    /// relists, reads one status every 15 s (a probe), and keeps reading ids with contradictory answers (`excused`).
    pub(super) fn total(&mut self, now: u64, waits: u64, excused: u64) -> Result<(), String> {
        let seconds = (now - self.began.unwrap_or(now)) / SECOND;
        let for_time = (2 + 2 * excused) * seconds;
        let budget = 100 + for_time + 3 * waits + 8 * self.changes + 6 * self.failures;
        self.used = self.calls * 1_000 / budget;
        match self.calls > budget {
            true => Err(format!(
                "{} calls: {} changes, {} failures, {waits} waits, {seconds} s, {excused} excused",
                self.calls, self.changes, self.failures
            )),
            false => Ok(()),
        }
    }

    pub(super) fn timer(&mut self, now: u64) -> Result<(), String> {
        if now - self.timers.0 > MS {
            self.timers = (now, 0);
        }
        self.timers.1 += 1;
        match self.timers.1 > 200 {
            true => Err(format!("hot loop of timers at {}", time(now))),
            false => Ok(()),
        }
    }

    pub(super) fn pod_read(&mut self, now: u64, uid: &PodUid, waits: u64) -> Result<(), String> {
        self.pod_reads.retain(|(at, _)| now - at < SECOND);
        self.pod_reads.push((now, uid.clone()));
        let reads = self.pod_reads.iter().filter(|(_, pod)| pod == uid).count() as u64;
        match reads > waits + 45 {
            true => Err(format!("{reads} reads of {uid} in a second, {waits} waits")),
            false => Ok(()),
        }
    }

    pub(super) const fn relisted(&mut self, now: u64) {
        self.relisted = Some(now);
    }

    /// Checks that the core is ready if a relist succeeded in the last two minutes and the runtime is not restarting.
    pub(super) fn ready(&self, now: u64, health: &Health, is_down: bool) -> Result<(), String> {
        let is_recent = self.relisted.is_some_and(|at| at + 120 * SECOND > now);
        match health.ready(Instant::from_nanos(now)) {
            Err(error) if is_recent && !is_down => {
                Err(format!("not ready at {}: {error}", time(now)))
            }
            _ => Ok(()),
        }
    }

    pub(super) const fn last(&mut self, _: u64, counters: &Counters) {
        self.last = Some((counters.lists, counters.pod_reads));
    }

    /// Limits the pod reads of the last 40 s. The core keeps reading ids with contradictory answers (`excused`).
    pub(super) fn end(
        &self,
        counters: &Counters,
        waits: u64,
        excused: u64,
        recent: bool,
    ) -> Result<(), String> {
        let (lists, pod_reads) = self.last.unwrap_or_default();
        let (lists, reads) = (counters.lists - lists, counters.pod_reads - pod_reads);
        let late = if recent { 12 } else { 0 };
        match reads > waits + 2 + 3 * excused + lists * excused + late {
            true => Err(format!("{reads} pod reads in the last 40 s, {waits} waits")),
            false => Ok(()),
        }
    }
}
