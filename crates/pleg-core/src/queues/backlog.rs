//! The queue between the reader of the event stream and the writer (invariant 8).
//!
//! The reader never waits, so the queue must be bounded. Up to a bound it is an ordinary queue.
//! Beyond that, arrivals are joined per subject and event type. Applying the joined arrivals gives
//! the same result as applying all arrivals: every event type of a subject comes out, in lifecycle
//! order, and so does every (id, state) that some status showed, with its exit details. Only ids
//! beyond a hard limit are lost, those without a STOPPED or DELETED first. Lost arrivals are
//! counted, because the caller must then list.
//!
//! Plain data in, plain data out; no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::state::details::{self, Weight};
use crate::types::ids::Id;
use crate::types::observed::{Arrival, EventType, Identity, Report, RuntimeEvent};
use crate::types::time::Instant;

/// A bounded queue of arrivals that joins what it cannot hold one by one.
#[derive(Clone, Debug)]
pub struct Backlog {
    plain: usize,
    ids: usize,
    /// Arrivals that come out next, unjoined.
    next: VecDeque<Arrival>,
    /// Joined arrivals, which come out after `plain`, ordered by the first arrival of their
    /// subject.
    joined: BTreeMap<u64, Life>,
    place_of: HashMap<Id, u64>,
    /// Places in `joined` without a STOPPED or DELETED.
    expendable: BTreeSet<u64>,
    next_place: u64,
    /// The number of arrivals in `joined`.
    in_joined: usize,
    lost: u64,
}

/// The arrivals of one subject: one per [`Slot`], in the order of the slots. Never empty.
type Life = Vec<Arrival>;

impl Backlog {
    /// An empty backlog. It queues `plain` arrivals before it joins any, and joins those of at most
    /// `ids` subjects before it loses any.
    #[must_use]
    pub fn new(plain: usize, ids: usize) -> Self {
        Self {
            plain,
            ids,
            next: VecDeque::new(),
            joined: BTreeMap::new(),
            place_of: HashMap::new(),
            expendable: BTreeSet::new(),
            next_place: 0,
            in_joined: 0,
            lost: 0,
        }
    }

    /// Adds an arrival. Arrivals must be added in the order in which they arrived.
    pub fn push(&mut self, arrival: Arrival) {
        if self.joined.is_empty() && self.next.len() < self.plain {
            self.next.push_back(arrival);
            return;
        }
        let slot = Slot::of(&arrival.event);
        let Some(place) = self.place(&arrival.event.id, slot) else {
            self.lost += 1;
            return;
        };
        if slot.is_terminal() {
            self.expendable.remove(&place);
        }
        let life = self.joined.entry(place).or_default();
        match life.binary_search_by_key(&slot, |a| Slot::of(&a.event)) {
            Ok(at) => self.lost += join(&mut life[at], arrival),
            Err(at) => {
                life.insert(at, arrival);
                self.in_joined += 1;
            }
        }
    }

    /// Removes the next arrival.
    pub fn pop(&mut self) -> Option<Arrival> {
        // All arrivals of a subject leave `joined` together, so that a subject with many events
        // cannot stay at the front for ever.
        if self.next.is_empty()
            && let Some((place, life)) = self.joined.pop_first()
        {
            self.forget(place, &life);
            self.next.extend(life);
        }
        self.next.pop_front()
    }

    /// The number of arrivals in the backlog.
    #[must_use]
    pub fn len(&self) -> usize {
        self.next.len() + self.in_joined
    }

    /// Whether the backlog is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the next arrival arrived, that is, since when the writer has let it wait.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let in_joined = || {
            self.joined
                .first_key_value()
                .and_then(|(_, life)| life.first())
        };
        self.next.front().or_else(in_joined).map(|a| a.arrived)
    }

    /// How many arrivals were lost since the last call. If any, the events are incomplete, and only
    /// a list begun later is complete.
    #[must_use]
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The place of that subject, existing or new; `None` if there is no room for it.
    fn place(&mut self, id: &Id, slot: Slot) -> Option<u64> {
        if let Some(&place) = self.place_of.get(id) {
            return Some(place);
        }
        let full = self.joined.len() >= self.ids;
        if full && !(slot.is_terminal() && self.lose_the_oldest_expendable()) {
            return None;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.place_of.insert(id.clone(), place);
        self.expendable.insert(place);
        Some(place)
    }

    fn lose_the_oldest_expendable(&mut self) -> bool {
        let Some(&place) = self.expendable.first() else {
            return false;
        };
        if let Some(life) = self.joined.remove(&place) {
            self.forget(place, &life);
            self.lost += life.len() as u64;
        }
        true
    }

    fn forget(&mut self, place: u64, life: &Life) {
        self.expendable.remove(&place);
        self.in_joined -= life.len();
        if let Some(first) = life.first() {
            self.place_of.remove(&first.event.id);
        }
    }
}

/// The key by which arrivals of one subject are joined, in the order in which they come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// An unknown type: a hint.
    Hint,
    Created,
    Started,
    Stopped,
    /// A DELETED whose own statuses still show its subject is only a hint (invariant 6). It is not
    /// joined with a true DELETED, which would then become a hint.
    DeletedButShown,
    Deleted,
}

impl Slot {
    fn of(event: &RuntimeEvent) -> Self {
        match event.event {
            EventType::Created => Self::Created,
            EventType::Started => Self::Started,
            EventType::Stopped => Self::Stopped,
            EventType::Deleted => {
                let mut shown = event.sandbox.iter().chain(&event.containers);
                if shown.any(|r| r.id == event.id) {
                    Self::DeletedButShown
                } else {
                    Self::Deleted
                }
            }
            EventType::Other(_) => Self::Hint,
        }
    }

    const fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::DeletedButShown | Self::Deleted)
    }
}

/// The maximum number of statuses in one joined arrival; far more than a pod has.
const STATUSES: usize = 1024;

/// Joins a later arrival of the same slot into the kept one, and returns whether something was
/// lost.
///
/// The stamps of the kept, earlier arrival stay: `arrived` and `wall` are one reading of two
/// clocks, which the writer compares to detect clock steps. Of `created_at` the older one stays,
/// which is the less plausible one, so that a replayed message does not become plausible by being
/// joined.
fn join(kept: &mut Arrival, later: Arrival) -> u64 {
    let event = &mut kept.event;
    event.created_at = event.created_at.min(later.event.created_at);
    let mut lost = 0;
    let rows = &mut event.containers;
    let mut add = |report: Report| match rows.iter().position(|r| same(r, &report)) {
        Some(at) => renew(&mut rows[at], report),
        None if rows.len() < STATUSES => rows.push(report),
        None => lost = 1,
    };
    if let Some(report) = later.event.sandbox {
        match &mut event.sandbox {
            Some(row) if same(row, &report) => renew(row, report),
            // An event has room for one sandbox status, so the other one is put among the
            // containers. Each status has its own kind.
            row => {
                if let Some(displaced) = row.replace(report) {
                    add(displaced);
                }
            }
        }
    }
    later.event.containers.into_iter().for_each(add);
    lost
}

/// Whether one report can stand for both: the same id in the same state. A report of another state
/// is kept, because the state must not be lost (invariant 8); so is UNKNOWN.
fn same(a: &Report, b: &Report) -> bool {
    a.id == b.id && a.shown == b.shown
}

/// Updates a report with a later one of the same id in the same state.
fn renew(kept: &mut Report, later: Report) {
    identify(&mut kept.identity, later.identity);
    details::merge(&mut kept.details, &later.details, Weight::NewestEvent);
}

/// Identity is recorded from the first answer that has it.
fn identify(kept: &mut Identity, later: Identity) {
    let Identity {
        kind: _,
        pod,
        unlabelled,
        namespace,
        pod_name,
        sandbox,
        name,
        attempt,
        created_at,
    } = later;
    kept.pod = kept.pod.take().or(pod);
    kept.unlabelled &= unlabelled;
    kept.namespace = kept.namespace.take().or(namespace);
    kept.pod_name = kept.pod_name.take().or(pod_name);
    kept.sandbox = kept.sandbox.take().or(sandbox);
    kept.name = kept.name.take().or(name);
    kept.created_at = kept.created_at.or(created_at);
    if kept.attempt == 0 {
        kept.attempt = attempt;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::types::ids::Kind;
    use crate::types::observed::{Details, ReportedState};
    use crate::types::status::ContainerDetails;
    use crate::types::time::WallTime;

    fn arrival(at: u64, id: &str, event: EventType, containers: Vec<Report>) -> Arrival {
        let (created_at, sandbox) = (at as i64 + 1_000_000, None);
        let event = RuntimeEvent {
            id: id.into(),
            event,
            created_at,
            sandbox,
            containers,
        };
        let wall = WallTime::from_nanos(at as i64 + 2_000_000);
        Arrival {
            event,
            arrived: Instant::from_nanos(at),
            wall,
        }
    }

    fn report(kind: Kind, id: &str, shown: ReportedState) -> Report {
        let identity = Identity::unknown(kind);
        Report {
            id: id.into(),
            shown,
            identity,
            details: Details::none(kind),
        }
    }

    fn exited(id: &str, exit_code: Option<i32>, reason: &str) -> Report {
        let reason = reason.into();
        let details = ContainerDetails {
            exit_code,
            reason,
            ..ContainerDetails::default()
        };
        let details = Details::from(details);
        Report {
            details,
            ..report(Kind::Container, id, ReportedState::Exited)
        }
    }

    fn drain(backlog: &mut Backlog) -> Vec<Arrival> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    fn told(arrivals: &[Arrival]) -> Vec<(&str, EventType)> {
        arrivals
            .iter()
            .map(|a| (a.event.id.as_str(), a.event.event))
            .collect()
    }

    #[test]
    fn below_the_bound_it_is_a_queue() {
        let mut backlog = Backlog::new(4, 4);
        assert!(backlog.is_empty());
        let all: Vec<_> = (0..4)
            .map(|n| arrival(n, "a", EventType::Stopped, Vec::new()))
            .collect();
        all.iter().for_each(|a| backlog.push(a.clone()));
        assert!(!backlog.is_empty());
        assert_eq!(drain(&mut backlog), all);
        assert!(backlog.is_empty());
    }

    /// The age of the backlog is that of the next arrival, joined or not.
    #[test]
    fn the_oldest_is_what_comes_out_next() {
        let mut backlog = Backlog::new(1, 9);
        assert_eq!(backlog.oldest(), None);
        for (at, id) in [(3, "a"), (5, "b"), (7, "c")] {
            backlog.push(arrival(at, id, EventType::Stopped, Vec::new()));
        }
        for at in [3, 5, 7] {
            assert_eq!(backlog.oldest(), Some(Instant::from_nanos(at)));
            backlog.pop();
        }
        assert_eq!(backlog.oldest(), None);
    }

    #[test]
    fn beyond_it_ids_keep_their_order_and_lives_theirs() {
        let mut backlog = Backlog::new(1, 9);
        for (n, (id, event)) in [
            ("z", EventType::Other(7)),
            ("b", EventType::Deleted),
            ("a", EventType::Started),
            ("b", EventType::Stopped),
            ("a", EventType::Started),
            ("b", EventType::Created),
        ]
        .into_iter()
        .enumerate()
        {
            backlog.push(arrival(n as u64, id, event, Vec::new()));
        }
        assert_eq!(backlog.len(), 5);
        let out = drain(&mut backlog);
        let b = [EventType::Created, EventType::Stopped, EventType::Deleted].map(|e| ("b", e));
        assert_eq!(told(&out[1..4]), b);
        assert_eq!(told(&out[4..]), [("a", EventType::Started)]);
        // All stamps are those of the first message.
        assert_eq!(out[4], arrival(2, "a", EventType::Started, Vec::new()));
        assert_eq!(backlog.take_lost(), 0);
    }

    #[test]
    fn a_true_deleted_is_not_made_a_hint_by_a_false_one() {
        let mut backlog = Backlog::new(0, 9);
        backlog.push(arrival(0, "a", EventType::Deleted, Vec::new()));
        backlog.push(arrival(
            1,
            "a",
            EventType::Deleted,
            vec![exited("a", Some(3), "")],
        ));
        let out = drain(&mut backlog);
        assert_eq!(
            out.iter()
                .map(|a| a.event.containers.len())
                .collect::<Vec<_>>(),
            [1, 0]
        );
    }

    #[test]
    fn details_that_come_one_by_one_come_out_together() {
        let mut backlog = Backlog::new(0, 9);
        let rows = [
            exited("a", None, ""),
            exited("a", Some(137), "OOMKilled"),
            exited("a", None, "Error"),
        ];
        for row in rows {
            backlog.push(arrival(0, "a", EventType::Stopped, vec![row]));
        }
        let out = drain(&mut backlog);
        let together = [exited("a", Some(137), "OOMKilled")];
        assert_eq!(out[0].event.containers, together);
    }

    /// One status for each id and state, however often it arrived, also of a sandbox.
    #[test]
    fn who_a_report_is_about_is_believed_from_the_first_that_says_it() {
        let said = [(None, 0), (Some("first"), 2), (Some("second"), 5)];
        for kind in [Kind::Sandbox, Kind::Container] {
            let mut backlog = Backlog::new(0, 9);
            for (pod_name, attempt) in said {
                let mut row = report(kind, "x", ReportedState::Running);
                row.identity.pod_name = pod_name.map(Into::into);
                row.identity.attempt = attempt;
                let mut arrival = arrival(0, "a", EventType::Started, Vec::new());
                match kind {
                    Kind::Sandbox => arrival.event.sandbox = Some(row),
                    Kind::Container => arrival.event.containers.push(row),
                }
                backlog.push(arrival);
            }
            let out = drain(&mut backlog);
            let rows = out
                .iter()
                .flat_map(|a| a.event.sandbox.iter().chain(&a.event.containers));
            let who: Vec<_> = rows
                .map(|r| (r.identity.pod_name.clone(), r.identity.attempt))
                .collect();
            assert_eq!(who, [(Some("first".into()), 2)], "{kind:?}");
        }
    }

    /// A runtime that names ever more ids in the events of one subject does not grow the backlog
    /// without bound. Lost statuses are counted, so that a list follows.
    #[test]
    fn statuses_beyond_the_bound_are_counted_as_lost() {
        let mut backlog = Backlog::new(0, 9);
        let mut push = |ids: std::ops::Range<usize>| {
            let rows = ids.map(|n| exited(&n.to_string(), None, "")).collect();
            backlog.push(arrival(0, "a", EventType::Stopped, rows));
            backlog.take_lost()
        };
        assert_eq!(push(0..STATUSES - 1), 0);
        assert_eq!(push(STATUSES - 1..STATUSES), 0, "the last that has room");
        assert_eq!(push(0..STATUSES), 0, "they are there already");
        assert_eq!(
            push(STATUSES..STATUSES + 2),
            1,
            "one arrival lost something"
        );
        let out = drain(&mut backlog);
        let kept: Vec<_> = out.iter().map(|a| a.event.containers.len()).collect();
        assert_eq!(kept, [STATUSES]);
    }

    #[test]
    fn at_the_cap_what_ended_is_kept_and_the_rest_is_counted() {
        let mut backlog = Backlog::new(0, 2);
        let mut push = |id, event| {
            backlog.push(arrival(0, id, event, Vec::new()));
            backlog.take_lost()
        };
        assert_eq!(push("a", EventType::Created), 0);
        assert_eq!(push("b", EventType::Started), 0);
        assert_eq!(
            push("c", EventType::Created),
            1,
            "no room for what has not ended"
        );
        assert_eq!(push("d", EventType::Stopped), 1, "a makes room");
        assert_eq!(push("b", EventType::Deleted), 0, "b has a place");
        assert_eq!(push("e", EventType::Deleted), 1, "nobody can make room");
        let kept = [
            ("b", EventType::Started),
            ("b", EventType::Deleted),
            ("d", EventType::Stopped),
        ];
        assert_eq!(told(&drain(&mut backlog)), kept);
    }

    /// A trivial consumer: which positions of an id were shown (the last is its state), whether it
    /// was shown as unknown, its exit code, and whether it was OOM-killed.
    type Model = BTreeMap<Id, (BTreeSet<u8>, bool, Option<i32>, bool)>;

    fn apply(arrivals: &[Arrival]) -> Model {
        let mut model = Model::new();
        for Arrival { event, .. } in arrivals {
            let subject = model.entry(event.id.clone()).or_default();
            subject.0.extend(match event.event {
                EventType::Created => Some(1),
                EventType::Started => Some(2),
                EventType::Stopped => Some(3),
                EventType::Deleted if event.containers.iter().all(|r| r.id != event.id) => Some(4),
                EventType::Deleted | EventType::Other(_) => None,
            });
            for report in event.sandbox.iter().chain(&event.containers) {
                let known = model.entry(report.id.clone()).or_default();
                match report.shown {
                    ReportedState::Unknown => known.1 = true,
                    shown => known.0.extend([shown as u8 + 1]),
                }
                if let Details::Container(details) = &report.details {
                    known.2 = known.2.or(details.exit_code);
                    known.3 |= &*details.reason == "OOMKilled";
                }
            }
        }
        model
    }

    fn ids() -> impl Strategy<Value = u8> {
        0..6_u8
    }

    /// Details are rare, so that a lost one is noticed.
    fn container() -> impl Strategy<Value = Report> {
        (ids(), 0..4_usize, 0..40_u8).prop_map(|(n, shown, rarity)| {
            use ReportedState::{Created, Exited, Running, Unknown};
            let row = match rarity {
                0 => exited(&format!("c{n}"), Some(i32::from(n)), "Error"),
                1 => exited(&format!("c{n}"), None, "OOMKilled"),
                _ => exited(
                    &format!("c{n}"),
                    None,
                    ["", "Error"][usize::from(rarity % 2)],
                ),
            };
            let shown = [Created, Running, Exited, Unknown][shown];
            Report { shown, ..row }
        })
    }

    fn event() -> impl Strategy<Value = Arrival> {
        let sandbox = proptest::option::of((0..2_u8, any::<bool>()));
        let rows = proptest::collection::vec(container(), 0..4);
        (ids(), 0..5_usize, sandbox, rows).prop_map(|(n, event, sandbox, rows)| {
            use EventType::{Created, Deleted, Other, Started, Stopped};
            let event = [Created, Started, Stopped, Deleted, Other(9)][event];
            let mut arrival = arrival(0, &format!("c{n}"), event, rows);
            arrival.event.sandbox = sandbox.map(|(n, ready)| {
                let shown = if ready {
                    ReportedState::Running
                } else {
                    ReportedState::Exited
                };
                report(Kind::Sandbox, &format!("s{n}"), shown)
            });
            arrival
        })
    }

    proptest! {
        #[test]
        fn what_comes_out_says_what_went_in(
            events in proptest::collection::vec((event(), 0..3_usize), 0..80),
            plain in 0..9_usize,
        ) {
            let mut backlog = Backlog::new(plain, 6);
            let (mut went_in, mut out) = (Vec::new(), Vec::new());
            for (n, (mut arrival, pops)) in events.into_iter().enumerate() {
                arrival.arrived = Instant::from_nanos(n as u64);
                went_in.push(arrival.clone());
                backlog.push(arrival);
                // The writer takes an arrival now and then, mostly fewer than arrive.
                out.extend((1..pops).filter_map(|_| backlog.pop()));
                prop_assert!(backlog.len() <= plain.max(6) + 6 * 6);
            }
            let waiting = backlog.len();
            let rest = drain(&mut backlog);
            prop_assert_eq!(waiting, rest.len());
            out.extend(rest);
            prop_assert_eq!(apply(&out), apply(&went_in));
            prop_assert_eq!(backlog.take_lost(), 0);
            // For each id, the first arrival comes out first.
            for (i, arrival) in out.iter().enumerate() {
                prop_assert!(went_in.iter().any(|a| a.arrived == arrival.arrived));
                let later = out[i + 1..].iter().find(|a| a.event.id == arrival.event.id);
                let same_slot = |a: &&Arrival| Slot::of(&a.event) == Slot::of(&arrival.event);
                prop_assert!(later.filter(same_slot).is_none_or(|a| a.arrived > arrival.arrived));
            }
        }
    }
}
