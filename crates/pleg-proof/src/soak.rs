//! Runs many worlds on all cores, by number or for a given time.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::assertions::{self, Violation};
use crate::coverage::{CoverPoint, Coverage};
use crate::fault_profile::{RuntimeKind, SECOND};
use crate::faults::Fault;
use crate::plan::Plan;
use crate::simulation::simulate;
use crate::trace::Trace;

/// The results of many worlds. The results of several runs can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub coverage: Coverage,
    /// CPU time in nanoseconds.
    pub cpu: u64,
    /// The next seed to run.
    pub next: u64,
    /// How many worlds violated an invariant.
    pub violations: u64,
}

/// A run in progress.
pub struct Run {
    plan: Box<dyn Fn(u64) -> Plan + Send + Sync>,
    end: u64,
    next: AtomicU64,
    sum: Mutex<(Totals, Vec<(Plan, Violation)>)>,
}

/// A run stops after this many violations.
const ENOUGH: usize = 20;

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (end, next) = (self.end, &self.next);
        f.debug_struct("Run")
            .field("end", &end)
            .field("next", next)
            .finish_non_exhaustive()
    }
}

impl Run {
    /// Runs the worlds of `plan` from `totals.next` to the seed `end`.
    pub fn new(
        plan: impl Fn(u64) -> Plan + Send + Sync + 'static,
        totals: Totals,
        end: u64,
    ) -> Self {
        Self {
            plan: Box::new(plan),
            end,
            next: AtomicU64::new(totals.next),
            sum: Mutex::new((totals, Vec::new())),
        }
    }

    /// Runs worlds on this thread while `keep_running` returns true.
    pub fn work(&self, keep_running: impl Fn() -> bool) {
        while keep_running() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return;
            }
            let plan = (self.plan)(seed);
            let before = cpu();
            let simulated = catch_unwind(AssertUnwindSafe(|| simulate(&plan, Trace::Off)));
            let spent = cpu().saturating_sub(before);
            let Ok(mut sum) = self.sum.lock() else { return };
            let (totals, violations) = &mut *sum;
            totals.cpu += spent;
            match simulated {
                Ok(Ok(simulated)) => totals.coverage.add(&simulated.coverage),
                Ok(Err(failure)) => {
                    totals.coverage.add(&failure.coverage);
                    totals.violations += 1;
                    violations.push((plan, failure.violation));
                }
                Err(_) => {
                    totals.violations += 1;
                    violations.push((plan, assertions::NO_LIVELOCK.violated("a panic")));
                }
            }
            if violations.len() >= ENOUGH {
                return;
            }
        }
    }

    /// The totals so far and the violations. Worlds in progress are not included.
    pub fn totals(&self) -> (Totals, Vec<(Plan, Violation)>) {
        let Ok(sum) = self.sum.lock() else {
            return (Totals::default(), Vec::new());
        };
        let (totals, violations) = &*sum;
        let next = self.next.load(Ordering::Relaxed).min(self.end);
        let totals = Totals {
            next,
            ..totals.clone()
        };
        (totals, violations.clone())
    }

    /// Whether the run is finished.
    pub fn is_over(&self) -> bool {
        let enough = self.sum.lock().is_ok_and(|sum| sum.1.len() >= ENOUGH);
        enough || self.next.load(Ordering::Relaxed) >= self.end
    }
}

/// The CPU time of this thread in nanoseconds; 0 if unknown.
fn cpu() -> u64 {
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = reported.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

impl Totals {
    /// A short summary.
    pub fn summary(&self) -> String {
        let t = &self.coverage;
        let (cpu, simulated) = (self.cpu as f64 / 1e9, t.nanos as f64 / 1e9);
        let per = |n: u64| if cpu > 0.0 { n as f64 / cpu } else { 0.0 };
        let mut out = String::new();
        let seeds = t.seeds();
        let _ = writeln!(out, "worlds           {seeds} (next seed {})", self.next);
        let _ = writeln!(
            out,
            "CRI events       {} ({:.0}/s per core)",
            t.events,
            per(t.events)
        );
        let _ = writeln!(
            out,
            "simulated events {} ({:.0}/s per core)",
            t.steps,
            per(t.steps)
        );
        let (lists, inspections) = (t.lists, t.inspections);
        let status_reads = t.status_reads;
        let _ = writeln!(
            out,
            "calls            {lists} lists, {inspections} inspections, {status_reads} status reads"
        );
        let of = |point: CoverPoint| t.points[point as usize];
        let started = of(CoverPoint::ContainerStarted);
        let restarted = of(CoverPoint::ContainerRestarted);
        let removed = of(CoverPoint::ContainerRemoved) + of(CoverPoint::SandboxRemoved);
        let waits = of(CoverPoint::WorkerWaits);
        let _ = writeln!(
            out,
            "workers          {waits} waits, {started} starts, {restarted} restarts, {removed} removals"
        );
        let _ = writeln!(
            out,
            "checked          {} views, announcements and answers",
            t.checked
        );
        let busy = t.busy_nanos / SECOND;
        let _ = writeln!(
            out,
            "simulated time   {simulated:.0} s, {busy} s of them with workload"
        );
        let times = if cpu > 0.0 { simulated / cpu } else { 0.0 };
        let _ = writeln!(out, "core time        {cpu:.1} s ({times:.0} x real time)");
        let _ = writeln!(out, "violations       {}", self.violations);
        out
    }

    /// Formats the totals as a file from which another run can continue.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for (name, n) in self.numbers() {
            let _ = writeln!(out, "{n}\t{name}");
        }
        out
    }

    /// Parses such a file.
    ///
    /// # Errors
    /// The line that cannot be parsed.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut totals = Self::default();
        for line in text.lines() {
            let wrong = || format!("invalid line of totals: {line}");
            let (n, name) = line.split_once('\t').ok_or_else(wrong)?;
            let n = n.parse().map_err(|_| wrong())?;
            // Unknown counters are ignored.
            totals.set(name, n);
        }
        Ok(totals)
    }

    fn numbers(&self) -> Vec<(String, u64)> {
        let t = &self.coverage;
        let mut out: Vec<(String, u64)> = [
            ("next seed", self.next),
            ("core nanoseconds", self.cpu),
            ("violations", self.violations),
            ("steps", t.steps),
            ("events", t.events),
            ("lists", t.lists),
            ("inspections", t.inspections),
            ("status reads", t.status_reads),
            ("nanoseconds", t.nanos),
            ("workload nanoseconds", t.busy_nanos),
            ("checked", t.checked),
        ]
        .map(|(name, n)| (name.to_owned(), n))
        .into();
        let mut add = |kind: &str, name: &str, n: u64| out.push((format!("{kind}: {name}"), n));
        for (n, runtime) in RuntimeKind::ALL.iter().enumerate() {
            add("runtime", runtime.name(), t.worlds[n]);
        }
        for (n, fault) in Fault::ALL.iter().enumerate() {
            add("fault", fault.name(), t.faults[n]);
        }
        for (n, point) in CoverPoint::ALL.iter().enumerate() {
            add("transition", point.name(), t.points[n]);
        }
        out
    }

    fn set(&mut self, name: &str, n: u64) {
        let t = &mut self.coverage;
        let place = match name.split_once(": ") {
            Some(("runtime", name)) => RuntimeKind::named(name).map(|f| &mut t.worlds[f as usize]),
            Some(("fault", name)) => Fault::named(name).map(|f| &mut t.faults[f as usize]),
            Some(("transition", name)) => {
                CoverPoint::named(name).map(|p| &mut t.points[p as usize])
            }
            _ => match name {
                "next seed" => Some(&mut self.next),
                "core nanoseconds" => Some(&mut self.cpu),
                "violations" => Some(&mut self.violations),
                "steps" => Some(&mut t.steps),
                "events" => Some(&mut t.events),
                "lists" => Some(&mut t.lists),
                "inspections" => Some(&mut t.inspections),
                "status reads" => Some(&mut t.status_reads),
                "nanoseconds" => Some(&mut t.nanos),
                "workload nanoseconds" => Some(&mut t.busy_nanos),
                "checked" => Some(&mut t.checked),
                _ => None,
            },
        };
        if let Some(place) = place {
            *place = n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_roundtrip_through_text() {
        let run = Run::new(Plan::from_seed, Totals::default(), 3);
        run.work(|| true);
        let (totals, violations) = run.totals();
        assert_eq!(violations, []);
        assert_eq!((totals.next, totals.coverage.seeds()), (3, 3));
        assert_eq!(Totals::from_text(&totals.to_text()), Ok(totals));
        assert!(Totals::from_text("x").is_err());
    }
}
