//! Which events never came, as the proof knows it, and what the generator owes a stream that keeps
//! losing them (invariant 10).

use std::collections::VecDeque;
use std::time::Duration;

use pleg_core::{EventType, Id, Report, RuntimeEvent, Shown};

use crate::laws::Lawful;
use crate::laws::acting as laws;
use crate::weather::SECOND;

/// A container's STARTED or STOPPED that the present stream has lost.
#[derive(Debug)]
struct Lost {
    id: Id,
    event: EventType,
    /// A read has shown the state first, and ended then: the event is pending.
    pending_since: Option<u64>,
}

/// The account of one world. Its numbers are lower bounds of what a generator can know.
#[derive(Debug, Default)]
pub struct Losses {
    /// When the present stream was subscribed to.
    subscribed: Option<u64>,
    /// When its baseline ended.
    baseline: Option<u64>,
    lost: Vec<Lost>,
    missed: VecDeque<u64>,
    arrived: VecDeque<u64>,
}

/// Until a pending event counts as missed.
const SETTLES: u64 = 5 * SECOND;
/// Until a miss has taken effect for certain.
const SLACK: u64 = 6 * SECOND;
const WINDOW: u64 = 600 * SECOND;

impl Losses {
    pub fn subscribed(&mut self, now: u64) {
        *self = Self {
            subscribed: Some(now),
            missed: std::mem::take(&mut self.missed),
            arrived: std::mem::take(&mut self.arrived),
            ..Self::default()
        };
    }

    /// The end of a stream voids what is pending.
    pub fn ended(&mut self) {
        (self.subscribed, self.baseline) = (None, None);
        self.lost.clear();
    }

    /// The present stream loses that event.
    pub fn lose(&mut self, event: &RuntimeEvent) {
        let counts = matches!(event.event, EventType::Started | EventType::Stopped);
        if self.baseline.is_some() && counts && event.id.as_str().starts_with("ctr") {
            self.lost.push(Lost {
                id: event.id.clone(),
                event: event.event,
                pending_since: None,
            });
        }
    }

    /// An event reaches the writer. A state that its statuses show is shown by no read first.
    pub fn arrive(&mut self, event: &RuntimeEvent, now: u64) {
        if matches!(event.event, EventType::Started | EventType::Stopped) {
            self.arrived.push_back(now);
        }
        for report in &event.containers {
            let pending = |l: &Lost| l.pending_since.is_some();
            self.lost
                .retain(|l| pending(l) || l.id != report.id || report.shown == Shown::Created);
        }
        // An event that contradicts what was lost makes it pending at another moment.
        let pending = |l: &Lost| l.pending_since.is_some();
        self.lost.retain(|l| pending(l) || l.id != event.id);
    }

    /// A complete list has been read.
    pub fn listed(&mut self, began: u64, now: u64, rows: &[Report]) {
        self.read(began, now, rows, true);
        if self.subscribed.is_some_and(|t| began > t) {
            self.baseline.get_or_insert(now);
        }
    }

    /// A read has shown these. One that began before the baseline ended, or is not complete, does
    /// not check the stream: what it shows first is not pending.
    pub fn read(&mut self, began: u64, now: u64, reports: &[Report], complete: bool) {
        let checks = complete && self.baseline.is_some_and(|t| began > t);
        self.lost.retain_mut(|lost| {
            if lost.pending_since.is_some() {
                return true;
            }
            let report = reports.iter().find(|r| r.id == lost.id);
            let shown = match report.map(|r| r.shown) {
                Some(Shown::Running) => lost.event == EventType::Started,
                Some(Shown::Exited) => lost.event == EventType::Stopped,
                _ => false,
            };
            lost.pending_since = (shown && checks).then_some(now);
            checks || !shown
        });
    }

    /// What is pending for too long is missed, if the id still exists; that it is gone may be why
    /// nobody tells of it (CRI-O).
    pub fn settle(&mut self, now: u64, exists: impl Fn(&Id) -> bool) {
        self.lost.retain(|l| exists(&l.id));
        let due = |since: &u64| since + SETTLES + SLACK <= now;
        let missed = self.lost.iter().filter_map(|l| l.pending_since.filter(due));
        // The window begins when the miss may have been counted first.
        self.missed.extend(missed.map(|since| since + SETTLES));
        self.lost
            .retain(|l| !l.pending_since.as_ref().is_some_and(due));
        for window in [&mut self.missed, &mut self.arrived] {
            while window.front().is_some_and(|&t| t + WINDOW <= now) {
                window.pop_front();
            }
        }
    }

    /// Whether the stream has lost so much that it has to be polled.
    pub fn keeps_losing(&self) -> bool {
        let (missed, arrived) = (self.missed.len(), self.arrived.len());
        // One per cent is enough; two leave room for what is counted elsewhere.
        missed >= 2 && missed * 50 >= missed + arrived
    }

    /// # Errors
    /// It keeps losing, and lists are rarer than one a second.
    pub fn polled(&self, period: Duration) -> Lawful {
        let polled = period <= Duration::from_secs(1);
        laws::LOSSY_POLLED.holds(polled || !self.keeps_losing(), || {
            let (missed, arrived) = (self.missed.len(), self.arrived.len());
            format!("{missed} events were missed beside {arrived} that came, and lists are {period:?} apart")
        })
    }
}
