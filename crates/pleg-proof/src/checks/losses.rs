//! Lost events, and the polling that a lossy stream requires (invariant 10).

use std::collections::VecDeque;
use std::time::Duration;

use pleg_core::{Details, EventType, Id, Report, ReportedState, RuntimeEvent};

use crate::assertions::CheckResult;
use crate::assertions::workers as assertions;
use crate::fault_profile::SECOND;

/// A container's STARTED or STOPPED that the current stream lost.
#[derive(Debug)]
struct Lost {
    id: Id,
    event: EventType,
    /// When it was lost.
    at: u64,
    /// When a read that showed the state first ended, which made the event pending.
    pending_since: Option<u64>,
    /// Whether the exit code was read. Until then the container of a STOPPED may be one that never ran.
    is_read: bool,
}

impl Lost {
    fn note_exit_code(&mut self, reports: &[Report]) {
        let report = reports.iter().find(|r| r.id == self.id);
        let code = report.and_then(|r| match &r.details {
            Details::Container(details) => details.exit_code,
            Details::Sandbox(_) => None,
        });
        self.is_read |= code.is_some();
    }
}

/// The losses of one world: lower bounds of what the reconciler can know.
#[derive(Debug, Default)]
pub struct Losses {
    /// When the current stream was subscribed.
    subscribed: Option<u64>,
    /// When its baseline ended.
    baseline: Option<u64>,
    lost: Vec<Lost>,
    missed: Vec<u64>,
    arrived: VecDeque<u64>,
}

/// A pending event counts as missed after this time.
const SETTLES: u64 = 5 * SECOND;
/// A miss has certainly taken effect after this time.
const SLACK: u64 = 6 * SECOND;
const WINDOW: u64 = 600 * SECOND;
/// The stream is judged at each list. While nothing happens, events that came leave the window before misses do, and
/// the next list follows after up to a minute.
const UNTIL_JUDGED: u64 = 70 * SECOND;

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

    /// The current stream loses that event.
    pub fn lose(&mut self, event: &RuntimeEvent, now: u64) {
        let counts = matches!(event.event, EventType::Started | EventType::Stopped);
        if self.baseline.is_some() && counts && event.id.as_str().starts_with("ctr") {
            self.lost.push(Lost {
                id: event.id.clone(),
                event: event.event,
                at: now,
                pending_since: None,
                is_read: false,
            });
        }
    }

    /// An event reaches the writer. No read shows first what its statuses show.
    pub fn arrive(&mut self, event: &RuntimeEvent, now: u64) {
        if matches!(event.event, EventType::Started | EventType::Stopped) {
            self.arrived.push_back(now);
        }
        for report in &event.containers {
            let pending = |l: &Lost| l.pending_since.is_some();
            self.lost.retain(|l| {
                pending(l) || l.id != report.id || report.shown == ReportedState::Created
            });
        }
        for lost in &mut self.lost {
            lost.note_exit_code(&event.containers);
        }
        // Another event of the same id reports the state, or makes it pending at another instant.
        let pending = |l: &Lost| l.pending_since.is_some() && l.event != event.event;
        self.lost.retain(|l| pending(l) || l.id != event.id);
    }

    /// A complete list has been read.
    pub fn listed(&mut self, began: u64, now: u64, rows: &[Report]) {
        self.read(began, now, rows, true);
        if self.subscribed.is_some_and(|t| began > t) {
            self.baseline.get_or_insert(now);
        }
    }

    /// A read showed these states. A read that began before the baseline ended or is incomplete does
    /// not check the stream, so it makes nothing pending.
    pub fn read(&mut self, began: u64, now: u64, reports: &[Report], complete: bool) {
        let checks = complete && self.baseline.is_some_and(|t| began > t);
        self.lost.retain_mut(|lost| {
            lost.note_exit_code(reports);
            if lost.pending_since.is_some() {
                return true;
            }
            let report = reports.iter().find(|r| r.id == lost.id);
            let shown = match report.map(|r| r.shown) {
                Some(ReportedState::Running) => lost.event == EventType::Started,
                // No read will show first that it runs: one that began earlier shows nothing new.
                Some(ReportedState::Exited) if lost.event == EventType::Started => return false,
                Some(ReportedState::Exited) => lost.event == EventType::Stopped,
                _ => false,
            };
            lost.pending_since = (shown && checks).then_some(now);
            checks || !shown
        });
    }

    /// Counts expired pending events as missed if the id still exists: a removal may be why there was
    /// no event (CRI-O).
    pub fn settle(&mut self, now: u64, exists: impl Fn(&Id) -> bool) {
        self.lost.retain(|l| exists(&l.id));
        let due = |l: &Lost| {
            let is_decided = l.is_read || l.event == EventType::Started;
            let since = l.pending_since.filter(|_| is_decided);
            since.is_some_and(|since| since + SETTLES + SLACK <= now)
        };
        let missed = self.lost.iter().filter(|l| due(l));
        // The window starts when the miss may have been counted first: an event may have shown the loss earlier.
        self.missed.extend(missed.map(|l| l.at + SETTLES));
        self.lost.retain(|l| !due(l));
        self.missed.retain(|&at| at + WINDOW > now);
        let is_old = |at: &u64| at + WINDOW + UNTIL_JUDGED <= now;
        while self.arrived.pop_front_if(|at| is_old(at)).is_some() {}
    }

    /// Whether the stream lost so much that it must be polled.
    pub fn keeps_losing(&self) -> bool {
        let (missed, arrived) = (self.missed.len(), self.arrived.len());
        // One per cent suffices; two leave room for differences in counting.
        missed >= 2 && missed * 50 >= missed + arrived
    }

    /// # Errors
    /// The stream is lossy, and lists are more than a second apart.
    pub fn polled(&self, period: Duration) -> CheckResult {
        let polled = period <= Duration::from_secs(1);
        assertions::LOSSY_POLLED.holds(polled || !self.keeps_losing(), || {
            let (missed, arrived) = (self.missed.len(), self.arrived.len());
            format!("{missed} events were missed beside {arrived} that came, and lists are {period:?} apart")
        })
    }
}

#[cfg(test)]
mod tests {
    use pleg_core::{ContainerDetails, Identity, Kind};

    use super::*;

    const MS: u64 = 1_000_000;

    fn report(shown: ReportedState) -> Report {
        let kind = Kind::Container;
        let mut details = ContainerDetails::default();
        details.exit_code = (shown == ReportedState::Exited).then_some(1);
        Report::new("ctr-0-0", shown, Identity::new(kind), details)
    }

    fn stopped(containers: Vec<Report>) -> RuntimeEvent {
        let mut event = RuntimeEvent::new("ctr-0-0", EventType::Stopped);
        event.containers = containers;
        event
    }

    /// A stream subscribed at 1 s, with its baseline at 2 s, that loses a STOPPED.
    fn lossy() -> Losses {
        let mut losses = Losses::default();
        losses.subscribed(SECOND);
        losses.listed(SECOND + MS, 2 * SECOND, &[]);
        losses.lose(&stopped(Vec::new()), 2 * SECOND);
        losses
    }

    fn missed(losses: &mut Losses, exists: bool) -> usize {
        losses.settle(60 * SECOND, |_| exists);
        losses.missed.len()
    }

    #[test]
    fn lost_event_that_a_list_finds_is_missed() {
        let mut losses = lossy();
        losses.listed(
            3 * SECOND,
            3 * SECOND + MS,
            &[report(ReportedState::Running)],
        );
        assert_eq!(missed(&mut losses, true), 0, "it shows nothing new");
        losses.listed(
            4 * SECOND,
            4 * SECOND + MS,
            &[report(ReportedState::Exited)],
        );
        losses.settle(4 * SECOND + SETTLES, |_| true);
        assert_eq!(losses.missed.len(), 0, "it may still come");
        assert_eq!(missed(&mut losses, true), 1);
    }

    /// The reconciler waits for the code, and the end of the stream may come first.
    #[test]
    fn lost_stopped_is_not_missed_while_its_exit_code_is_unread() {
        let mut row = report(ReportedState::Exited);
        row.details = Details::none(Kind::Container);
        let mut losses = lossy();
        losses.listed(4 * SECOND, 4 * SECOND + MS, &[row]);
        assert_eq!(missed(&mut losses, true), 0);
        let status = [report(ReportedState::Exited)];
        losses.read(61 * SECOND, 61 * SECOND, &status, false);
        losses.settle(62 * SECOND, |_| true);
        assert_eq!(losses.missed.len(), 1);
    }

    #[test]
    fn started_that_was_lost_with_its_stopped_is_not_missed() {
        let mut losses = lossy();
        losses.lose(
            &RuntimeEvent::new("ctr-0-0", EventType::Started),
            2 * SECOND,
        );
        losses.listed(4 * SECOND, 4 * SECOND, &[report(ReportedState::Exited)]);
        // An inspection that began earlier and ends later.
        let late = [report(ReportedState::Running)];
        losses.read(3 * SECOND, 5 * SECOND, &late, true);
        assert_eq!(missed(&mut losses, true), 1, "the STOPPED");
    }

    #[test]
    fn status_in_another_event_settles_only_before_the_read() {
        let mut event = stopped(vec![report(ReportedState::Exited)]);
        event.id = "ctr-1-0".into();
        let list = [report(ReportedState::Exited)];
        let mut before = lossy();
        before.arrive(&event, 3 * SECOND);
        before.listed(4 * SECOND, 4 * SECOND + MS, &list);
        assert_eq!(missed(&mut before, true), 0);
        let mut after = lossy();
        after.listed(4 * SECOND, 4 * SECOND + MS, &list);
        after.arrive(&event, 5 * SECOND);
        assert_eq!(missed(&mut after, true), 1);
    }

    #[test]
    fn removal_and_the_end_of_the_stream_void_what_is_pending() {
        let list = [report(ReportedState::Exited)];
        let mut removed = lossy();
        removed.listed(4 * SECOND, 4 * SECOND + MS, &list);
        assert_eq!(missed(&mut removed, false), 0);
        let mut ended = lossy();
        ended.listed(4 * SECOND, 4 * SECOND + MS, &list);
        ended.ended();
        assert_eq!(missed(&mut ended, true), 0);
    }

    #[test]
    fn read_that_checks_no_stream_makes_nothing_pending() {
        let list = [report(ReportedState::Exited)];
        for (began, complete) in [(2 * SECOND, true), (3 * SECOND, false)] {
            let mut losses = lossy();
            losses.read(began, 4 * SECOND, &list, complete);
            losses.listed(5 * SECOND, 5 * SECOND + MS, &list);
            assert_eq!(missed(&mut losses, true), 0, "{began} {complete}");
        }
    }

    #[test]
    fn two_misses_of_few_events_keep_lists_frequent() {
        let mut losses = Losses {
            missed: [0, 0].into(),
            ..Losses::default()
        };
        assert!(losses.polled(Duration::from_secs(1)).is_ok());
        assert!(losses.polled(Duration::from_secs(2)).is_err());
        losses.arrived = vec![0; 200].into();
        assert!(losses.polled(Duration::from_secs(2)).is_ok(), "too few");
        losses.settle(WINDOW - 1, |_| true);
        assert!(losses.polled(Duration::from_secs(2)).is_ok(), "too few");
        losses.missed = [SECOND, SECOND].into();
        losses.settle(WINDOW, |_| true);
        assert!(
            losses.polled(Duration::from_secs(2)).is_ok(),
            "the next list judges the stream without those that came"
        );
        losses.arrived.clear();
        losses.settle(WINDOW + SECOND, |_| true);
        assert!(losses.polled(Duration::from_secs(2)).is_ok(), "too old");
    }
}
