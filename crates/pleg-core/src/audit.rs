//! When the next full list runs, how long it may take, and what it says of the stream (law 10).
//!
//! The period grows only while nothing is found that events should have told; one miss, one
//! failed list or one lost stream, and it is short again. There is no last retry.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::desk::doubled;
use crate::error::CallErrorKind;
use crate::ids::{Id, Kind};
use crate::observed::Ticket;
use crate::order::Position;
use crate::time::Instant;

/// Periods and deadlines of the full list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Periods {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    /// The cap until the stream has delivered its first event.
    pub(crate) unproven: Duration,
    pub(crate) deadline_least: Duration,
    pub(crate) deadline_most: Duration,
}

/// How long after a read's end an event may still explain what the read saw first.
const GRACE: Duration = Duration::from_secs(5);

/// How many ids are remembered of which events told and which were not believed in. Beyond that
/// a miss may be counted that was none.
const RUMOURS: usize = 10_000;

/// A state that a read saw first and that an event should tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    kind: Kind,
    /// The list whose verdict hangs on it; none for an inspection.
    list: Option<Ticket>,
    read_ended: Instant,
}

/// The kind of event that was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MissedKind {
    /// A container's STARTED.
    ContainerStarted,
    /// A container's STOPPED.
    ContainerStopped,
    /// A sandbox's CREATED or STARTED.
    SandboxStarted,
    /// A sandbox's STOPPED.
    SandboxStopped,
}

impl MissedKind {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [
        Self::ContainerStarted,
        Self::ContainerStopped,
        Self::SandboxStarted,
        Self::SandboxStopped,
    ];

    /// A short lower-case name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerStarted => "container_started",
            Self::ContainerStopped => "container_stopped",
            Self::SandboxStarted => "sandbox_started",
            Self::SandboxStopped => "sandbox_stopped",
        }
    }
}

/// A full list that is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) ticket: Ticket,
    pub(crate) deadline: Duration,
}

/// The schedule and its claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Audit {
    periods: Periods,
    period: Duration,
    deadline: Duration,
    in_flight: Option<(Ticket, Instant)>,
    /// Somebody asked for a list no later than this.
    asked: Option<Instant>,
    last_ended: Option<Instant>,
    last_failed: bool,
    /// A call has succeeded since the last list failed: a list runs at once.
    revived: Option<Instant>,
    /// The last list ran at once for that reason. If it fails as well, the next one is awaited:
    /// where every list fails and events go on, lists must not follow the events.
    eager: bool,
    /// The begin of the last complete list.
    complete: Option<Instant>,
    claims: BTreeMap<(Id, Position), Claim>,
    /// Lists whose verdict is open, with the number of their claims.
    open: BTreeMap<Ticket, usize>,
    /// The list that was under way when trust was lost: what it finds does not restore it.
    void: Option<Ticket>,
    /// What events told of ids that were not believed in: they settle claims beforehand. Until a
    /// complete list begun later, like everything that is kept aside.
    rumours: BTreeMap<Id, (Position, Instant)>,
}

impl Audit {
    pub(crate) fn new(periods: Periods, now: Instant) -> Self {
        Self {
            period: periods.shortest,
            deadline: periods.deadline_least,
            periods,
            in_flight: None,
            asked: Some(now),
            last_ended: None,
            last_failed: false,
            revived: None,
            eager: false,
            complete: None,
            claims: BTreeMap::new(),
            open: BTreeMap::new(),
            void: None,
            rumours: BTreeMap::new(),
        }
    }

    /// When the next list is due; none while one is in flight.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let periodic = self.last_ended.map(|ended| ended.after(self.period));
        [self.asked, periodic, self.revived]
            .into_iter()
            .flatten()
            .min()
    }

    /// The list that is due, if it is.
    pub(crate) fn start(&mut self, ticket: Ticket, now: Instant) -> Option<Due> {
        self.due().filter(|&due| due <= now)?;
        self.in_flight = Some((ticket, now));
        self.eager = self.revived.take().is_some();
        // One that is wanted at a later instant is not served by this one.
        self.asked = self.asked.filter(|&at| at > now);
        Some(Due {
            ticket,
            deadline: self.deadline,
        })
    }

    /// A list is wanted no later than `at`; one in flight does not serve it.
    pub(crate) fn by(&mut self, at: Instant) {
        self.asked = Some(self.asked.map_or(at, |asked| asked.min(at)));
    }

    /// Some other call succeeded: after an outage a list runs at once.
    pub(crate) fn runtime_answers(&mut self, now: Instant) {
        if self.last_failed && !(self.eager && self.in_flight.is_none()) {
            self.revived.get_or_insert(now);
        }
    }

    /// A list succeeded.
    pub(crate) fn succeeded(&mut self, began: Instant, ended: Instant) {
        self.in_flight = None;
        self.last_ended = Some(ended);
        self.last_failed = false;
        self.revived = None;
        self.complete = self.complete.max(Some(began));
        self.rumours.retain(|_, (_, heard)| *heard >= began);
        let three_times = ended.since(began).saturating_mul(3);
        self.deadline = three_times.clamp(self.periods.deadline_least, self.periods.deadline_most);
    }

    /// A list failed: it says nothing at all, and the period is short again.
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

    /// The verdict on a list whose claims are settled: the period doubles, up to the cap.
    fn clean(&mut self, confirmed: bool, proven: bool) {
        let cap = if proven {
            self.periods.longest
        } else {
            self.periods.unproven
        };
        self.period = if confirmed {
            self.period
                .saturating_mul(2)
                .min(cap.max(self.periods.shortest))
        } else {
            self.periods.shortest
        };
    }

    /// Trust is lost: the period is the shortest again, and only a list that is asked for from
    /// now on can make it longer.
    pub(crate) fn shorten(&mut self) {
        self.period = self.periods.shortest;
        self.open.clear();
        self.void = self.in_flight.map(|(ticket, _)| ticket);
    }

    /// The stream is lost: what was to be heard of it will not be heard; nothing was missed that
    /// the loss does not explain.
    pub(crate) fn stream_lost(&mut self) {
        self.claims.clear();
        self.rumours.clear();
        self.shorten();
    }

    /// A read moved an id forward: an event should tell it too. Returns when it is judged, unless
    /// one has told it already.
    pub(crate) fn claim(
        &mut self,
        id: &Id,
        kind: Kind,
        position: Position,
        list: Option<Ticket>,
        read_ended: Instant,
    ) -> Option<Instant> {
        if self.rumours.get(id).is_some_and(|(p, _)| *p >= position) {
            return None;
        }
        let claim = Claim {
            kind,
            list,
            read_ended,
        };
        if self.claims.insert((id.clone(), position), claim).is_none()
            && let Some(list) = list.filter(|_| list != self.void)
        {
            *self.open.entry(list).or_default() += 1;
        }
        Some(read_ended.after(GRACE))
    }

    /// An event told of an id that is not believed in, at this position.
    pub(crate) fn rumoured(&mut self, id: &Id, position: Position, arrived: Instant) {
        if self.rumours.len() < RUMOURS {
            let rumour = self
                .rumours
                .entry(id.clone())
                .or_insert((position, arrived));
            *rumour = (rumour.0.max(position), arrived);
        }
    }

    /// An event that showed the id at this position arrived.
    pub(crate) fn heard(&mut self, id: &Id, position: Position, arrived: Instant, trust: Trust) {
        if self.claims.is_empty() {
            return;
        }
        for p in [Position::Running, Position::Exited] {
            let key = (id.clone(), p);
            let settles = p <= position
                && self
                    .claims
                    .get(&key)
                    .is_some_and(|c| arrived <= c.read_ended.after(GRACE));
            if settles {
                self.lapse(&key, trust);
            }
        }
    }

    /// The id was removed or overruled meanwhile: claims on it lapse.
    pub(crate) fn moot(&mut self, id: &Id, trust: Trust) {
        for p in [Position::Running, Position::Exited] {
            self.lapse(&(id.clone(), p), trust);
        }
    }

    /// Whether that is still claimed.
    pub(crate) fn claims(&self, id: &Id, position: Position) -> bool {
        self.claims.contains_key(&(id.clone(), position))
    }

    /// Judges the claim if its time is over: a miss, unless `excused`.
    pub(crate) fn judge(
        &mut self,
        id: &Id,
        position: Position,
        now: Instant,
        excused: bool,
        trust: Trust,
    ) -> Option<MissedKind> {
        let key = (id.clone(), position);
        let claim = self
            .claims
            .get(&key)
            .filter(|c| now >= c.read_ended.after(GRACE))?
            .clone();
        if excused {
            self.lapse(&key, trust);
            return None;
        }
        self.claims.remove(&key);
        if let Some(list) = claim.list {
            self.open.remove(&list);
        }
        self.shorten();
        Some(match (claim.kind, position) {
            (Kind::Container, Position::Created | Position::Running) => {
                MissedKind::ContainerStarted
            }
            (Kind::Container, _) => MissedKind::ContainerStopped,
            (Kind::Sandbox, Position::Created | Position::Running) => MissedKind::SandboxStarted,
            (Kind::Sandbox, _) => MissedKind::SandboxStopped,
        })
    }

    fn lapse(&mut self, key: &(Id, Position), trust: Trust) {
        let Some(claim) = self.claims.remove(key) else {
            return;
        };
        let Some(list) = claim.list else { return };
        let Some(left) = self.open.get_mut(&list) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.open.remove(&list);
            self.clean(trust.confirmed, trust.proven);
        }
    }

    /// A list that audits the stream opened no claim: it is clean.
    pub(crate) fn audited(&mut self, ticket: Ticket, trust: Trust) {
        if !self.open.contains_key(&ticket) && self.void != Some(ticket) {
            self.clean(trust.confirmed, trust.proven);
        }
    }

    /// The begin of the last complete list.
    pub(crate) const fn complete(&self) -> Option<Instant> {
        self.complete
    }

    /// When the last list was asked for, or the one before ended.
    pub(crate) fn last_began(&self) -> Option<Instant> {
        self.in_flight.map(|(_, since)| since).or(self.last_ended)
    }

    /// The list in flight and since when.
    pub(crate) const fn in_flight(&self) -> Option<(Ticket, Instant)> {
        self.in_flight
    }

    /// The present period.
    pub(crate) const fn period(&self) -> Duration {
        self.period
    }
}

/// How far the stream has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The call has stood for a second and the baseline is complete.
    pub(crate) confirmed: bool,
    /// This stream has delivered an event.
    pub(crate) proven: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED: Trust = Trust {
        confirmed: true,
        proven: true,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// A schedule whose list `Ticket(1)` has run from 1000 to 1100 ms.
    fn listed() -> Audit {
        let periods = Periods {
            shortest: seconds(1),
            longest: seconds(60),
            unproven: seconds(10),
            deadline_least: seconds(10),
            deadline_most: seconds(60),
        };
        let mut audit = Audit::new(periods, at(0));
        assert!(audit.start(Ticket(1), at(1_000)).is_some());
        audit.succeeded(at(1_000), at(1_100));
        audit
    }

    fn claims(audit: &mut Audit, id: &str, position: Position) -> bool {
        let list = Some(Ticket(1));
        let judged = audit.claim(&id.into(), Kind::Container, position, list, at(1_100));
        judged.is_some_and(|judged| judged == at(6_100))
    }

    fn misses(audit: &mut Audit, id: &str, position: Position) -> bool {
        let judged = audit.judge(&id.into(), position, at(6_100), false, CHECKED);
        judged.is_some()
    }

    /// A list has found nothing that events should have told once each of its claims is settled,
    /// and not before.
    #[test]
    fn a_list_is_clean_when_the_last_of_its_claims_is_settled() {
        let mut audit = listed();
        for id in ["a", "b", "c"] {
            assert!(claims(&mut audit, id, Position::Running));
        }
        audit.audited(Ticket(1), CHECKED);
        for (id, period) in [("a", 1), ("b", 1), ("c", 2)] {
            audit.heard(&id.into(), Position::Running, at(2_000), CHECKED);
            assert_eq!(audit.period(), seconds(period), "{id} was heard of");
        }
    }

    /// An event explains what it shows and what comes before that, if it comes in time.
    #[test]
    fn only_an_event_that_shows_as_much_in_time_settles_a_claim() {
        use Position::{Exited, Running};
        for (position, arrived, missed) in [
            (Exited, 6_100, false),
            (Exited, 6_101, true),
            (Running, 2_000, true),
        ] {
            let mut audit = listed();
            assert!(claims(&mut audit, "a", Exited));
            audit.heard(&"a".into(), position, at(arrived), CHECKED);
            let judged = misses(&mut audit, "a", Exited);
            assert_eq!(judged, missed, "{position:?} at {arrived}");
        }
        let mut audit = listed();
        assert!(claims(&mut audit, "a", Running));
        audit.heard(&"a".into(), Exited, at(2_000), CHECKED);
        assert!(!misses(&mut audit, "a", Running), "it ran before it ended");
    }

    /// What was removed or overruled meanwhile has not been missed.
    #[test]
    fn claims_on_what_is_gone_are_no_misses() {
        let mut audit = listed();
        for position in [Position::Running, Position::Exited] {
            assert!(claims(&mut audit, "a", position));
        }
        audit.moot(&"a".into(), CHECKED);
        for position in [Position::Running, Position::Exited] {
            assert!(!misses(&mut audit, "a", position), "{position:?}");
        }
        assert_eq!(audit.period(), seconds(2), "the list is clean");
    }

    /// A flood of events about ids that nothing else shows is not held without bound.
    #[test]
    fn rumours_are_bounded() {
        let mut audit = listed();
        for n in 0..RUMOURS + 2 {
            audit.rumoured(&n.to_string().into(), Position::Running, at(2_000));
        }
        assert_eq!(audit.rumours.len(), RUMOURS);
        assert!(!claims(&mut audit, "0", Position::Running), "told before");
        assert!(claims(&mut audit, "0", Position::Exited), "that was not");
    }

    /// What is not to ask for lists more often than every second counts from here.
    #[test]
    fn lists_are_spaced_from_the_begin_of_the_one_in_flight_or_the_end_of_the_last() {
        let mut audit = listed();
        assert_eq!(audit.last_began(), Some(at(1_100)));
        assert!(audit.start(Ticket(2), at(2_100)).is_some());
        assert_eq!(audit.last_began(), Some(at(2_100)));
        audit.failed(CallErrorKind::Failed, at(2_300));
        assert_eq!(audit.last_began(), Some(at(2_300)));
    }
}
