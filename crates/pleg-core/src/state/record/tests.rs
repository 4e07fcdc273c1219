//! Tests of one record.

use super::*;
use crate::state::effect::DetailsChange;
use crate::types::ids::Id;
use crate::types::report::Report;
use crate::types::report::ReportedState;
use crate::types::status::ContainerDetails;
use crate::types::status::{ContainerState, KnownState};

const T0: WallTime = WallTime::from_nanos(1_700_000_000_000_000_000);

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

fn later(seconds: u64) -> Option<WallTime> {
    Some(T0.after(Duration::from_secs(seconds)))
}

/// A container's record, first learned of at 0.
fn record() -> Record {
    Record::new(Identity::new(Kind::Container), at(0))
}

fn said(details: ContainerDetails) -> Report {
    Report {
        id: "c".into(),
        shown: ReportedState::Exited,
        identity: Identity::new(Kind::Container),
        details: Details::from(details),
    }
}

fn message(text: &str) -> Report {
    said(ContainerDetails {
        message: text.into(),
        ..ContainerDetails::default()
    })
}

fn end() -> ContainerDetails {
    ContainerDetails {
        started_at: later(1),
        finished_at: later(2),
        exit_code: Some(3),
        reason: "Error".into(),
        message: "it broke".into(),
        image: "img".into(),
        ..ContainerDetails::default()
    }
}

fn known(record: &Record) -> &str {
    match &record.details {
        Details::Container(c) => &c.message,
        Details::Sandbox(_) => "",
    }
}

/// An inspection that began after an event arrived beats it. An event beats no inspection: if it
/// differs, the next inspection decides. Each beats older ones of its own kind.
#[test]
fn the_newest_details_win() {
    // (event arrived, read began, result if the event is applied first)
    for (event, read, stands) in [(10, 20, "read"), (20, 10, "event"), (10, 10, "event")] {
        let mut r = record();
        r.details_from_event(&message("event"), at(event));
        r.details_from_read(&message("read"), at(read));
        assert_eq!(known(&r), stands, "event {event}, then read {read}");
    }
    for (event, read) in [(10, 20), (20, 10), (10, 10)] {
        let mut r = record();
        r.join(Position::Exited, Source::Stream, at(1), at(1));
        r.details_from_read(&message("read"), at(read));
        assert!(r.details_from_event(&message("event"), at(event)).disputed);
        assert!(!r.details_from_event(&message("read"), at(event)).disputed);
        assert_eq!(known(&r), "read", "read {read}, then event {event}");
    }
    for (second, stands) in [(9, "first"), (10, "second"), (11, "second")] {
        let mut r = record();
        r.details_from_event(&message("first"), at(10));
        r.details_from_event(&message("second"), at(second));
        assert_eq!(known(&r), stands, "two events, the second at {second}");
        let mut r = record();
        r.details_from_read(&message("first"), at(10));
        r.details_from_read(&message("second"), at(second));
        assert_eq!(known(&r), stands, "two reads, the second at {second}");
    }
    // The newest of each kind is kept, not the last one applied.
    let mut r = record();
    r.details_from_event(&message("event"), at(20));
    r.details_from_event(&message("older"), at(5));
    r.details_from_read(&message("read"), at(10));
    assert_eq!(known(&r), "event");
}

#[test]
fn identity_is_the_first_that_was_said() {
    let mut r = record();
    let mut first = message("");
    (first.identity.attempt, first.identity.name) = (2, Some("app".into()));
    assert_eq!(r.details_from_row(&first).details, DetailsChange::Changed);
    let mut second = message("");
    (second.identity.attempt, second.identity.name) = (5, Some("other".into()));
    assert_eq!(r.details_from_row(&second).details, DetailsChange::None);
    assert_eq!(
        (r.identity.attempt, r.identity.name.as_deref()),
        (2, Some("app"))
    );
}

#[test]
fn each_event_has_the_runtimes_own_time() {
    use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
    let mut r = record();
    r.identity.created_at = later(0);
    r.join(Position::Created, Source::Stream, at(1), at(1));
    assert_eq!(r.happened_at(ContainerChanged), later(0));
    r.join(Position::Exited, Source::Stream, at(2), at(2));
    r.details_from_read(&said(end()), at(3));
    r.removed_at(None);
    r.removed_at(later(3));
    r.removed_at(later(9));
    let times = [
        ContainerChanged,
        ContainerStarted,
        ContainerDied,
        ContainerRemoved,
    ];
    let times = times.map(|what| r.happened_at(what));
    assert_eq!(times, [None, later(1), later(2), later(3)]);
    assert_eq!(r.finished_at(), later(2));
    let mut sandbox = Record::new(Identity::new(Kind::Sandbox), at(0));
    sandbox.identity.created_at = later(7);
    assert_eq!(sandbox.happened_at(ContainerStarted), later(7));
    assert_eq!(sandbox.happened_at(ContainerDied), None);
}

/// Of a removed id the exit details are kept, and late exit details are merged; nothing else.
#[test]
fn the_end_outlives_the_removal() {
    let mut r = record();
    r.join(Position::Running, Source::Stream, at(1), at(1));
    r.details_from_read(&said(end()), at(2));
    r.join(Position::Removed, Source::Stream, at(3), at(3));
    let kept = ContainerDetails {
        image: "".into(),
        ..end()
    };
    assert_eq!(r.details, Details::from(kept.clone()));

    let mut r = record();
    r.join(Position::Running, Source::Stream, at(1), at(1));
    r.join(Position::Removed, Source::Stream, at(3), at(3));
    r.announce().for_each(drop);
    let effect = r.details_from_read(&said(end()), at(4));
    assert_eq!(effect.details, DetailsChange::LateExitCode);
    assert_eq!(r.details, Details::from(kept));
    assert_eq!((r.exit_code(), &*r.reason()), (Some(3), "Error"));
    let again = r.details_from_read(&said(end()), at(5));
    assert_eq!(again.details, DetailsChange::None);

    let mut silent = Record::tombstone(Identity::new(Kind::Container), at(0));
    assert_eq!(
        silent.details_from_read(&said(end()), at(4)),
        Effect::default()
    );
    assert_eq!(silent.exit_code(), None);
}

/// An exit code is late if Died was announced without it.
#[test]
fn an_exit_code_is_late_once_died_was_announced() {
    let mut r = record();
    r.join(Position::Exited, Source::Stream, at(1), at(1));
    assert_eq!(
        r.details_from_read(&said(end()), at(2)).details,
        DetailsChange::Changed
    );
    assert_eq!(
        r.details_from_read(&said(end()), at(3)).details,
        DetailsChange::None
    );
    let mut r = record();
    r.join(Position::Exited, Source::Stream, at(1), at(1));
    assert!(r.announce().eq([LifecycleType::ContainerDied]));
    assert_eq!(
        r.details_from_read(&message("x"), at(2)).details,
        DetailsChange::Changed
    );
    assert_eq!(
        r.details_from_read(&said(end()), at(3)).details,
        DetailsChange::LateExitCode
    );
}

/// UNKNOWN stands beside the position until newer evidence clears it.
#[test]
fn unknown_is_shown_until_something_newer_is() {
    let id = Id::from("c");
    let state = |r: &Record| r.container_status(&id, false).map(|s| s.state);
    let mut r = record();
    assert_eq!(state(&r), Some(ContainerState::Unknown { last: None }));
    r.join(Position::Running, Source::Stream, at(1), at(1));
    assert_eq!(state(&r), Some(ContainerState::Running));
    assert_eq!(r.set_unknown(at(10)).transition, Transition::BecameUnknown);
    assert_eq!(r.set_unknown(at(9)), Effect::default(), "once");
    let last = Some(KnownState::Running);
    for began in [9, 10] {
        let effect = r.read(Position::Running, Call::Inspection, at(began), at(11));
        assert_eq!(effect.details, DetailsChange::None);
        assert_eq!(state(&r), Some(ContainerState::Unknown { last }));
    }
    let effect = r.read(Position::Running, Call::Inspection, at(11), at(12));
    assert_eq!(effect.details, DetailsChange::Changed);
    assert_eq!(state(&r), Some(ContainerState::Running));
    for (position, shown) in [
        (Position::Exited, ContainerState::Exited),
        (Position::Created, ContainerState::Exited),
    ] {
        r.join(position, Source::Stream, at(13), at(13));
        assert_eq!(state(&r), Some(shown), "it only moves forward");
    }
    // A read that shows an earlier state clears it, too, unless it is older than the UNKNOWN.
    r.set_unknown(at(20));
    let stale = r.read(Position::Running, Call::Inspection, at(12), at(21));
    assert_eq!(stale, Effect::default());
    let contradicted = r.read(Position::Running, Call::Inspection, at(21), at(22));
    assert_eq!(contradicted.details, DetailsChange::Changed);
    assert!(r.is_contradicted());
    assert_eq!(state(&r), Some(ContainerState::Exited));
    // A read is also too old if it is newer than the UNKNOWN, but began before the state was
    // recorded.
    let mut r = record();
    r.set_unknown(at(10));
    r.join(Position::Exited, Source::Stream, at(5), at(20));
    let stale = r.read(Position::Running, Call::Inspection, at(15), at(21));
    assert_eq!(stale, Effect::default());
    let last = Some(KnownState::Exited);
    assert_eq!(state(&r), Some(ContainerState::Unknown { last }));
}

/// One kind of call cannot overrule what the other kind has shown, however often it contradicts it.
/// A state known only from an event can be overruled by either kind.
#[test]
fn what_a_call_has_shown_stands_until_that_call_denies_it() {
    for (source, stands) in [
        (Source::Stream, false),
        (Source::Inspection, false),
        (Source::Relist, true),
    ] {
        let mut r = record();
        r.join(Position::Exited, source, at(1), at(1));
        let contradicts = |r: &mut Record, call, ms| {
            let effect = r.read(Position::Running, call, at(ms), at(ms + 1));
            effect.transition == Transition::Overruled
        };
        assert!(!contradicts(&mut r, Call::Inspection, 1_000));
        let overruled = contradicts(&mut r, Call::Inspection, 2_000);
        assert_eq!(overruled, !stands, "shown by {source}");
        if stands {
            assert!(!contradicts(&mut r, Call::List, 3_000));
            assert!(
                contradicts(&mut r, Call::List, 4_000),
                "both have contradicted it"
            );
        }
    }
}

/// A new incarnation that runs has no exit details; one that has exited keeps them.
#[test]
fn an_overruling_forgets_an_end_that_did_not_happen() {
    for (to, code) in [(Position::Running, None), (Position::Exited, Some(3))] {
        let mut r = record();
        r.join(Position::Exited, Source::Stream, at(1), at(1));
        r.details_from_read(&said(end()), at(2));
        r.join(Position::Removed, Source::Stream, at(3), at(3));
        r.overrule(Kind::Container, to, Call::Inspection, at(20));
        assert_eq!((r.exit_code(), r.incarnation()), (code, 1));
        assert_eq!(r.position(), Some(to));
    }
    let mut guess = Record::tombstone(Identity::new(Kind::Container), at(0));
    guess.overrule(Kind::Sandbox, Position::Running, Call::List, at(20));
    assert_eq!(guess.kind(), Kind::Sandbox);
    assert!(guess.sandbox_status(&"c".into()).is_some());
}
