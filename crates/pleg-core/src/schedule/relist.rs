//! When the next relist runs, and how long it may take (invariant 10).
//!
//! The period grows only while reads find no missed event. A miss, a failed relist or a lost stream
//! sets it to the shortest.

use std::collections::VecDeque;
use std::time::Duration;

use crate::schedule::scheduler::doubled;
use crate::types::config::{Mode, Settings};
use crate::types::error::CallErrorKind;
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// The periods and deadlines of the relist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Periods {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    /// The longest period until the stream has delivered its first event.
    pub(crate) unproven: Duration,
    pub(crate) deadline_least: Duration,
    pub(crate) deadline_most: Duration,
    /// Without a complete list for this long the node is not ready.
    pub(crate) unready_after: Duration,
}

impl From<&Settings> for Periods {
    fn from(settings: &Settings) -> Self {
        let steady = settings.mode == Mode::Polling;
        let cap = |longest: Duration| match steady {
            true => settings.relist_period,
            false => longest,
        };
        Self {
            shortest: settings.relist_period,
            longest: cap(settings.relist_period_max),
            unproven: cap(settings
                .relist_period_unproven
                .min(settings.relist_period_max)),
            deadline_least: settings.list_deadline,
            deadline_most: settings.list_deadline_max,
            unready_after: settings.unready_after,
        }
    }
}

/// A relist that is to be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) ticket: Ticket,
    pub(crate) deadline: Duration,
}

/// The relist schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RelistSchedule {
    periods: Periods,
    period: Duration,
    deadline: Duration,
    in_flight: Option<(Ticket, Instant)>,
    /// A relist was requested no later than this instant.
    asked: Option<Instant>,
    last_ended: Option<Instant>,
    last_duration: Duration,
    last_failed: bool,
    /// A call has succeeded since the last relist failed, so one runs at once.
    revived: Option<Instant>,
    /// The last relist ran at once for that reason. If it fails as well, the next one waits for the
    /// period. Otherwise, while relists fail and events arrive, relists would run at the rate of
    /// the events.
    eager: bool,
    /// The begin of the last complete list.
    complete: Option<Instant>,
    complete_ticket: Ticket,
    /// Lists without a verdict, oldest first: for each the number of the last event that was
    /// pending at its end.
    open: VecDeque<u64>,
    /// The list that was in flight when the period was shortened: its verdict does not lengthen it.
    void: Option<Ticket>,
}

impl RelistSchedule {
    pub(crate) fn new(periods: Periods, now: Instant) -> Self {
        Self {
            period: periods.shortest,
            deadline: periods.deadline_least,
            periods,
            in_flight: None,
            asked: Some(now),
            last_ended: None,
            last_duration: Duration::ZERO,
            last_failed: false,
            revived: None,
            eager: false,
            complete: None,
            complete_ticket: Ticket(0),
            open: VecDeque::new(),
            void: None,
        }
    }

    /// When the next relist is due; none while one is in flight.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let periodic = self.last_ended.map(|ended| ended.after(self.period()));
        [self.asked, periodic, self.revived]
            .into_iter()
            .flatten()
            .min()
    }

    /// The relist that is due, if one is.
    pub(crate) fn start(&mut self, ticket: Ticket, now: Instant) -> Option<Due> {
        self.due().filter(|&due| due <= now)?;
        self.in_flight = Some((ticket, now));
        self.eager = self.revived.take().is_some();
        // A relist that was requested for a later instant is still due.
        self.asked = self.asked.filter(|&at| at > now);
        Some(Due {
            ticket,
            deadline: self.deadline,
        })
    }

    /// Requests a relist no later than `at`. One in flight does not count.
    pub(crate) fn by(&mut self, at: Instant) {
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
    }

    /// A probe runs now, and the next one at that instant. A relist that is due between them runs now, so
    /// that an idle node wakes up once for both. Only a period of at least four probes is shortened like
    /// that, by less than the time between two probes. A multiple of that time is shortened once: then
    /// both are due together.
    pub(crate) fn join_probe(&mut self, now: Instant, next: Instant) {
        let is_long = self.period() >= next.since(now).saturating_mul(4);
        if is_long && self.due().is_some_and(|due| due < next) {
            self.by(now);
        }
    }

    /// Another call succeeded: after an outage, a relist runs at once.
    pub(crate) fn runtime_answers(&mut self, now: Instant) {
        if self.last_failed && !(self.eager && self.in_flight.is_none()) {
            self.revived.get_or_insert(now);
        }
    }

    /// A relist succeeded.
    pub(crate) fn succeeded(&mut self, began: Instant, ended: Instant) {
        if let Some((ticket, _)) = self.in_flight.take() {
            self.complete_ticket = ticket;
        }
        self.last_ended = Some(ended);
        self.last_duration = ended.since(began);
        self.last_failed = false;
        self.revived = None;
        self.complete = self.complete.max(Some(began));
        let three_times = self.last_duration.saturating_mul(3);
        self.deadline = three_times.clamp(self.periods.deadline_least, self.periods.deadline_most);
    }

    /// A relist failed. It says nothing, and the period becomes the shortest.
    pub(crate) fn failed(&mut self, kind: CallErrorKind, ended: Instant) {
        self.in_flight = None;
        self.last_ended = Some(ended);
        self.last_failed = true;
        if self.eager {
            self.revived = None;
        }
        if kind == CallErrorKind::DeadlineExceeded {
            self.deadline = doubled(self.deadline, 1, self.periods.deadline_most);
        }
        self.shorten();
    }

    /// Sets the period to the shortest. Only a relist that is started from now on can lengthen it.
    pub(crate) fn shorten(&mut self) {
        self.period = self.periods.shortest;
        self.open.clear();
        self.void = self.in_flight.map(|(ticket, _)| ticket);
    }

    /// A list that checks the stream has ended. Its verdict waits for the events that are pending
    /// now; `last` is the number of the last one.
    pub(crate) fn await_verdict(&mut self, ticket: Ticket, last: u64) {
        if self.void != Some(ticket) {
            self.open.push_back(last);
        }
    }

    /// Decides the verdict of each list whose pending events have all ended; `oldest` is the oldest
    /// event that is still pending. None of them was missed, because a miss discards the waiting
    /// lists. The period doubles if the stream is confirmed and not lossy.
    pub(crate) fn decide_verdicts(&mut self, oldest: Option<u64>, trust: Trust) {
        while let Some(&last) = self.open.front()
            && oldest.is_none_or(|oldest| oldest > last)
        {
            self.open.pop_front();
            self.period = if trust.may_lengthen() {
                let longest = if trust.proven {
                    self.periods.longest
                } else {
                    self.periods.unproven
                };
                let longest = longest.max(self.periods.shortest);
                self.period.saturating_mul(2).min(longest)
            } else {
                self.periods.shortest
            };
        }
    }

    /// Whether the last relist failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.last_failed
    }

    /// The begin of the last complete list.
    pub(crate) const fn complete(&self) -> Option<Instant> {
        self.complete
    }

    /// The last complete list, and its begin.
    pub(crate) fn last_complete(&self) -> Option<(Ticket, Instant)> {
        Some((self.complete_ticket, self.complete?))
    }

    /// When the relist in flight was requested; otherwise when the last one ended.
    pub(crate) fn last_activity(&self) -> Option<Instant> {
        self.in_flight.map(|(_, since)| since).or(self.last_ended)
    }

    /// When the relist in flight must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (_, since) = self.in_flight?;
        Some(since.after(self.deadline))
    }

    /// The relist in flight and since when.
    pub(crate) const fn in_flight(&self) -> Option<(Ticket, Instant)> {
        self.in_flight
    }

    /// The present period. Slow lists shorten it, so that the node stays ready.
    pub(crate) fn period(&self) -> Duration {
        let lists = self.last_duration.saturating_mul(2);
        let ready = self.periods.unready_after.saturating_sub(lists);
        self.period.min(ready).max(self.periods.shortest)
    }
}

/// How far the stream has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The call has stood for a second and the baseline is complete.
    pub(crate) confirmed: bool,
    /// This stream has delivered an event.
    pub(crate) proven: bool,
    /// It loses too many events.
    pub(crate) lossy: bool,
}

impl Trust {
    const fn may_lengthen(self) -> bool {
        self.confirmed && !self.lossy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED: Trust = Trust {
        confirmed: true,
        proven: true,
        lossy: false,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn schedule() -> RelistSchedule {
        let periods = Periods {
            shortest: seconds(1),
            longest: seconds(60),
            unproven: seconds(10),
            deadline_least: seconds(10),
            deadline_most: seconds(60),
            unready_after: seconds(180),
        };
        RelistSchedule::new(periods, at(0))
    }

    /// A schedule in which the list `Ticket(1)` ran from 1000 to 1100 ms.
    fn listed() -> RelistSchedule {
        let mut relist = schedule();
        assert!(relist.start(Ticket(1), at(1_000)).is_some());
        relist.succeeded(at(1_000), at(1_100));
        relist
    }

    #[test]
    fn verdict_waits_for_all_events_pending_at_the_end_of_the_list() {
        let mut relist = listed();
        relist.await_verdict(Ticket(1), 3);
        for (oldest, period) in [(Some(1), 1), (Some(3), 1), (Some(4), 2)] {
            relist.decide_verdicts(oldest, CHECKED);
            assert_eq!(relist.period(), seconds(period), "{oldest:?}");
        }
        relist.decide_verdicts(None, CHECKED);
        assert_eq!(relist.period(), seconds(2), "once");
    }

    #[test]
    fn relist_that_is_due_before_the_next_probe_runs_with_this_one() {
        let mut relist = listed();
        relist.period = seconds(60);
        relist.join_probe(at(31_000), at(46_000));
        relist.join_probe(at(46_100), at(61_100));
        assert_eq!(relist.due(), Some(at(61_100)));
        relist.join_probe(at(46_200), at(61_200));
        assert_eq!(relist.due(), Some(at(46_200)));
    }

    #[test]
    fn short_period_is_not_shortened_by_a_probe() {
        let mut relist = listed();
        relist.period = seconds(10);
        relist.join_probe(at(5_000), at(20_000));
        assert_eq!(relist.due(), Some(at(11_100)));
    }

    #[test]
    fn miss_voids_lists_without_verdict() {
        let mut relist = listed();
        relist.await_verdict(Ticket(1), 3);
        relist.shorten();
        relist.decide_verdicts(None, CHECKED);
        assert_eq!(relist.period(), seconds(1));
    }

    #[test]
    fn list_in_flight_at_a_miss_does_not_lengthen_the_period() {
        let mut relist = schedule();
        assert!(relist.start(Ticket(1), at(1_000)).is_some());
        relist.shorten();
        relist.succeeded(at(1_000), at(1_100));
        relist.await_verdict(Ticket(1), 0);
        relist.decide_verdicts(None, CHECKED);
        assert_eq!(relist.period(), seconds(1));
    }

    #[test]
    fn period_doubles_up_to_what_the_stream_is_trusted_with() {
        for (trust, longest) in [
            (CHECKED, 60),
            (
                Trust {
                    proven: false,
                    ..CHECKED
                },
                10,
            ),
            (
                Trust {
                    lossy: true,
                    ..CHECKED
                },
                1,
            ),
            (
                Trust {
                    confirmed: false,
                    ..CHECKED
                },
                1,
            ),
        ] {
            let mut relist = listed();
            for _ in 0..8 {
                relist.await_verdict(Ticket(1), 0);
                relist.decide_verdicts(None, trust);
            }
            assert_eq!(relist.period(), seconds(longest), "{trust:?}");
        }
    }

    /// Finding A12: lists of 61 s made a node unready at a period of 60 s.
    #[test]
    fn slow_lists_leave_the_node_ready() {
        let mut relist = schedule();
        for n in 1..=9 {
            let began = at(n * 1_000_000);
            assert!(relist.start(Ticket(n), began).is_some());
            relist.succeeded(began, began.after(seconds(80)));
            relist.await_verdict(Ticket(n), 0);
            relist.decide_verdicts(None, CHECKED);
        }
        assert_eq!(relist.period(), seconds(20));
        assert_eq!(relist.period + seconds(0), seconds(60));
    }

    #[test]
    fn deadline_follows_the_last_duration_and_doubles_after_a_time_out() {
        let mut relist = schedule();
        let mut deadlines = Vec::new();
        for (n, kind) in [
            CallErrorKind::DeadlineExceeded,
            CallErrorKind::DeadlineExceeded,
            CallErrorKind::Failed,
        ]
        .into_iter()
        .enumerate()
        {
            let now = at(n as u64 * 100_000);
            deadlines.extend(relist.start(Ticket(n as u64), now).map(|due| due.deadline));
            relist.failed(kind, now);
        }
        assert_eq!(deadlines, [10, 20, 40].map(seconds));
        assert!(relist.start(Ticket(9), at(900_000)).is_some());
        relist.succeeded(at(900_000), at(905_000));
        let due = relist.start(Ticket(10), at(990_000));
        assert_eq!(due.map(|due| due.deadline), Some(seconds(15)));
    }

    /// After an outage the first successful call starts a relist at once, once per failed relist.
    #[test]
    fn relist_runs_at_once_after_an_outage() {
        let mut relist = listed();
        assert!(relist.start(Ticket(2), at(5_000)).is_some());
        relist.failed(CallErrorKind::Unavailable, at(5_010));
        relist.runtime_answers(at(5_100));
        assert!(relist.start(Ticket(3), at(5_100)).is_some());
        relist.failed(CallErrorKind::Failed, at(5_110));
        relist.runtime_answers(at(5_120));
        assert_eq!(relist.due(), Some(at(6_110)));
    }
}
