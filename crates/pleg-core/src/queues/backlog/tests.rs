use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::types::ids::Kind;
use crate::types::report::Identity;
use crate::types::report::{Details, ReportedState};
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
    let identity = Identity::new(kind);
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
fn identity_of_a_joined_report_is_that_of_the_first_report_that_has_it() {
    let reported = [
        (None, 0, true),
        (Some("first"), 2, false),
        (Some("second"), 5, true),
    ];
    for kind in [Kind::Sandbox, Kind::Container] {
        let mut backlog = Backlog::new(0, 9);
        for (pod_name, attempt, unlabelled) in reported {
            let mut row = report(kind, "x", ReportedState::Running);
            row.identity.pod_name = pod_name.map(Into::into);
            row.identity.attempt = attempt;
            row.identity.unlabelled = unlabelled;
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
        let identity = |r: &Report| {
            let of = &r.identity;
            (of.pod_name.clone(), of.attempt, of.unlabelled)
        };
        let identities: Vec<_> = rows.map(identity).collect();
        assert_eq!(identities, [(Some("first".into()), 2, false)], "{kind:?}");
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
