//! When the next relist runs, and how long it may take.
//!
//! The period grows only while every event that reads expect arrives. A missed event, a failed relist or a lost stream sets
//! it to the shortest.

use std::collections::VecDeque;
use std::time::Duration;

use crate::constants::{HINT_RELIST_PERIOD, QUICK_RELIST};
use crate::types::config::{Mode, Settings};
use crate::types::error::CallError;
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// The result of the checks of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamQuality {
    /// The call has stood for a second, a relist that began after it is complete, and few events are missed.
    pub(crate) is_good: bool,
    /// This stream has delivered an event.
    pub(crate) is_proven: bool,
}

/// The relist schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relist {
    settings: Settings,
    period: Duration,
    in_flight: Option<(Ticket, Instant)>,
    /// A relist must begin no later than this.
    wanted: Option<Instant>,
    /// The end of the last relist, how long it took, and whether it failed.
    last: Option<(Instant, Duration, bool)>,
    /// How long the next relist may take.
    deadline: Duration,
    /// When the rows of the last complete relist were requested.
    complete: Option<Instant>,
    /// Relists whose effect on the period is not decided: for each the last event that was expected at its end.
    undecided: VecDeque<u64>,
    /// The period was shortened while the relist was in flight, so this relist does not lengthen it.
    is_void: bool,
    /// The error of the last relist, if it failed.
    error: Option<CallError>,
}

impl Relist {
    pub(crate) const fn new(settings: Settings, now: Instant) -> Self {
        Self {
            period: settings.relist_period,
            deadline: settings.list_deadline,
            settings,
            in_flight: None,
            wanted: Some(now),
            last: None,
            complete: None,
            undecided: VecDeque::new(),
            is_void: false,
            error: None,
        }
    }

    /// When the next relist is due; none while one is in flight.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let periodic = self.last.map(|(ended, ..)| ended.after(self.period));
        [self.wanted, periodic].into_iter().flatten().min()
    }

    /// A relist begins. Returns its deadline.
    pub(crate) fn start(&mut self, ticket: Ticket, now: Instant) -> Duration {
        self.in_flight = Some((ticket, now));
        self.wanted = self.wanted.filter(|&at| at > now);
        self.is_void = false;
        self.deadline
    }

    /// A relist must begin no later than `at`. One in flight does not count.
    pub(crate) fn by(&mut self, at: Instant) {
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// A relist must begin at `at` for hints: at most once a second, and not while relists fail, because the
    /// next periodic one serves as well.
    pub(crate) fn by_hint(&mut self, at: Instant) {
        if !self.is_failing() {
            let last = self.in_flight.map(|(_, since)| since);
            let last = last.or(self.last.map(|(ended, took, _)| ended.before(took)));
            let next = last.map_or(at, |last| last.after(HINT_RELIST_PERIOD));
            self.by(at.max(next));
        }
    }

    /// A probe runs now, and the next one at `next`. A relist that is due in between runs now, so that an idle
    /// node wakes up once for both.
    pub(crate) fn join_probe(&mut self, now: Instant, next: Instant) {
        let is_long = self.period() >= next.since(now).saturating_mul(4);
        if is_long && self.due().is_some_and(|due| due < next) {
            self.by(now);
        }
    }

    /// The runtime answers again after an outage: a relist runs at once, and one in flight is given up.
    pub(crate) fn after_outage(&mut self, now: Instant) {
        self.in_flight = None;
        self.by(now);
    }

    /// The relist succeeded whose rows were requested at `began`.
    pub(crate) fn succeeded(&mut self, began: Instant, ended: Instant) {
        let took = ended.since(began);
        self.in_flight = None;
        self.last = Some((ended, took, false));
        self.error = None;
        self.complete = self.complete.max(Some(began));
        if took < QUICK_RELIST {
            self.deadline = self.settings.list_deadline;
        }
    }

    pub(crate) fn failed(&mut self, error: CallError, ended: Instant) {
        let took = self.last.map_or(Duration::ZERO, |(_, took, _)| took);
        if let Some((_, since)) = self.in_flight.take()
            && since.after(self.deadline) <= ended
        {
            let most = self.settings.list_deadline_max;
            self.deadline = self.deadline.saturating_mul(2).min(most);
        }
        self.last = Some((ended, took, true));
        self.error = Some(error);
        self.shorten();
    }

    /// Sets the period to the shortest. Only a relist that begins after this can lengthen it.
    pub(crate) fn shorten(&mut self) {
        self.period = self.settings.relist_period;
        self.undecided.clear();
        self.is_void = true;
    }

    /// A relist that checks the stream has ended; `last` is the last event that is expected now.
    pub(crate) fn await_expected(&mut self, last: u64) {
        if !self.is_void {
            self.undecided.push_back(last);
        }
    }

    /// The period doubles for each relist of which all expected events have come; `first` is the first event
    /// that is still expected. A miss has discarded the relists that waited for it.
    pub(crate) fn decide(&mut self, first: Option<u64>, quality: StreamQuality) {
        while let Some(&last) = self.undecided.front()
            && first.is_none_or(|first| first > last)
        {
            self.undecided.pop_front();
            let settings = &self.settings;
            let longest = match settings.mode {
                Mode::Polling => settings.relist_period,
                _ if !quality.is_good => settings.relist_period,
                _ if quality.is_proven => settings.relist_period_max,
                _ => settings
                    .relist_period_unproven
                    .min(settings.relist_period_max),
            };
            // A quiet node stays ready.
            let longest = longest.min(settings.unready_after / 3);
            let longest = longest.max(settings.relist_period);
            self.period = self.period.saturating_mul(2).min(longest);
        }
    }

    /// The error of the last relist, if it failed.
    pub(crate) const fn error(&self) -> Option<&CallError> {
        self.error.as_ref()
    }

    /// The time without a complete relist after which the node is not ready.
    pub(crate) const fn unready_after(&self) -> Duration {
        self.settings.unready_after
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.last.is_some_and(|(.., failed)| failed)
    }

    /// When the rows of the last complete relist were requested.
    pub(crate) const fn complete(&self) -> Option<Instant> {
        self.complete
    }

    pub(crate) const fn in_flight(&self) -> Option<(Ticket, Instant)> {
        self.in_flight
    }

    /// When the relist in flight must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.in_flight.map(|(_, since)| since.after(self.deadline))
    }

    /// The present period.
    pub(crate) const fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::CallErrorKind;

    const GOOD: StreamQuality = StreamQuality {
        is_good: true,
        is_proven: true,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn error() -> CallError {
        CallError::new("ListContainers", CallErrorKind::Failed, "")
    }

    /// A relist ran from 1,000 to 1,100 ms.
    fn relisted() -> Relist {
        let mut relist = Relist::new(Settings::default(), at(0));
        relist.start(Ticket(1), at(1_000));
        relist.succeeded(at(1_000), at(1_100));
        relist
    }

    #[test]
    fn period_doubles_when_everything_expected_has_come() {
        let mut relist = relisted();
        relist.await_expected(3);
        for (first, period) in [(Some(1), 1), (Some(3), 1), (Some(4), 2), (None, 2)] {
            relist.decide(first, GOOD);
            assert_eq!(relist.period(), seconds(period), "{first:?}");
        }
    }

    #[test]
    fn period_is_bounded_by_how_far_the_stream_is_checked() {
        let unproven = StreamQuality {
            is_proven: false,
            ..GOOD
        };
        let bad = StreamQuality {
            is_good: false,
            ..GOOD
        };
        for (quality, longest) in [(GOOD, 60), (unproven, 10), (bad, 1)] {
            let mut relist = relisted();
            for _ in 0..8 {
                relist.await_expected(0);
                relist.decide(None, quality);
            }
            assert_eq!(relist.period(), seconds(longest), "{quality:?}");
        }
    }

    #[test]
    fn miss_voids_the_relists_before_it() {
        let mut relist = relisted();
        relist.await_expected(0);
        relist.shorten();
        relist.await_expected(0);
        relist.decide(None, GOOD);
        assert_eq!(relist.period(), seconds(1));
    }

    #[test]
    fn deadline_doubles_for_relists_that_exceed_it() {
        let mut relist = relisted();
        let mut now = 3_000;
        for deadline in [30, 60, 120, 120] {
            assert_eq!(relist.start(Ticket(2), at(now)), seconds(deadline));
            now += deadline * 1_000;
            relist.failed(error(), at(now));
        }
        relist.start(Ticket(3), at(now));
        relist.failed(error(), at(now + 1));
        assert_eq!(relist.start(Ticket(4), at(now)), seconds(120));
        relist.succeeded(at(now), at(now + 10_000));
        assert_eq!(relist.start(Ticket(5), at(now)), seconds(120));
        relist.succeeded(at(now), at(now + 9_999));
        assert_eq!(relist.start(Ticket(6), at(now)), seconds(30));
    }

    #[test]
    fn relist_that_was_sent_before_an_outage_ended_is_given_up() {
        let mut relist = relisted();
        relist.start(Ticket(2), at(3_000));
        relist.after_outage(at(3_100));
        assert!(relist.in_flight().is_none() && relist.due() <= Some(at(3_100)));
    }

    #[test]
    fn hints_cause_at_most_one_relist_a_second() {
        let mut relist = relisted();
        relist.by_hint(at(1_200));
        assert_eq!(relist.due(), Some(at(2_000)));
        relist.start(Ticket(2), at(2_000));
        relist.failed(error(), at(2_100));
        relist.by_hint(at(2_200));
        assert_eq!(relist.due(), Some(at(3_100)));
    }
}
