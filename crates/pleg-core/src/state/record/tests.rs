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

/// A container's complete identity.
fn identity() -> Identity {
    Identity {
        pod: Some("p".into()),
        namespace: Some("ns".into()),
        pod_name: Some("pod".into()),
        sandbox: Some("s".into()),
        name: Some("app".into()),
        created_at: later(0),
        ..Identity::new(Kind::Container)
    }
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

#[test]
fn each_field_of_the_identity_that_becomes_known_is_a_change() {
    let (none, all) = (|| Identity::new(Kind::Container), identity());
    let fields = [
        Identity {
            pod: all.pod,
            ..none()
        },
        Identity {
            namespace: all.namespace,
            ..none()
        },
        Identity {
            pod_name: all.pod_name,
            ..none()
        },
        Identity {
            sandbox: all.sandbox,
            ..none()
        },
        Identity {
            name: all.name,
            ..none()
        },
        Identity {
            created_at: all.created_at,
            ..none()
        },
    ];
    for identity in fields {
        let (mut r, mut row) = (record(), message(""));
        row.identity = identity;
        let changes = [(); 2].map(|()| r.details_from_row(&row).details);
        let expected = [DetailsChange::Changed, DetailsChange::None];
        assert_eq!(changes, expected, "{:?}", row.identity);
    }
}

/// A list row repeats the record if it shows the recorded state, uncontradicted; a status, if it
/// also has no other pod and nothing new.
#[test]
fn report_with_a_difference_does_not_repeat_the_record() {
    let is_row_repeated =
        |r: &Record, by: &Report| r.is_recorded_as(&by.id, by.identity.kind, by.shown);
    let with_identity = |change: fn(&mut Identity)| {
        let mut report = message("");
        report.identity = identity();
        change(&mut report.identity);
        report
    };
    let same = with_identity(|_| ());
    let mut r = Record::new(identity(), at(0));
    r.join(Position::Exited, Source::Stream, at(1), at(1));
    assert!(is_row_repeated(&r, &same) && r.is_repeated_by(&same));

    let shown = |shown| Report {
        shown,
        ..same.clone()
    };
    let other_rows = [
        shown(ReportedState::Running),
        shown(ReportedState::Unknown),
        with_identity(|i| i.kind = Kind::Sandbox),
    ];
    for other in other_rows {
        assert!(!is_row_repeated(&r, &other), "{other:?}");
        assert!(!r.is_repeated_by(&other), "{other:?}");
    }
    let with_message = Report {
        identity: identity(),
        ..message("it broke")
    };
    let other_statuses = [
        with_identity(|i| i.pod = Some("q".into())),
        with_identity(|i| i.attempt = 1),
        with_message,
    ];
    for other in other_statuses {
        assert!(is_row_repeated(&r, &other), "{other:?}");
        assert!(!r.is_repeated_by(&other), "{other:?}");
    }

    let mut provisional = r.clone();
    provisional.provisional = true;
    assert!(is_row_repeated(&provisional, &same) && !provisional.is_repeated_by(&same));
    let mut unknown = r.clone();
    unknown.report_unknown();
    assert!(!is_row_repeated(&unknown, &same));
    r.read(Position::Running, Call::List, at(2), at(2));
    assert!(!is_row_repeated(&r, &same), "contradicted");
}

#[test]
fn details_are_disputed_only_if_a_read_and_an_event_of_the_same_state_differ() {
    let mut r = record();
    r.join(Position::Exited, Source::Stream, at(1), at(1));
    r.details_from_event(&message("first"), at(10));
    let older = r.details_from_event(&message("second"), at(9));
    assert!(!older.disputed, "two events");
    let read = r.details_from_read(&message("first"), at(9));
    assert!(!read.disputed, "an equal read");
    let running = Report {
        shown: ReportedState::Running,
        ..message("second")
    };
    let event = r.details_from_event(&running, at(11));
    assert!(!event.disputed, "an event of an earlier state");
    assert!(r.details_from_event(&message("second"), at(11)).disputed);
}

/// Without an exit code, the status of a container is owed until it was read after the end was
/// recorded.
#[test]
fn status_is_owed_until_it_was_read_since_the_end() {
    for (position, began, owed) in [
        (Position::Running, 9, false),
        (Position::Exited, 9, true),
        (Position::Exited, 10, true),
        (Position::Exited, 11, false),
    ] {
        let mut r = Record::new(identity(), at(0));
        r.join(position, Source::Relist, at(10), at(10));
        assert!(r.owes_status(), "{position:?}, not read");
        r.details_from_read(&message(""), at(began));
        assert_eq!(r.owes_status(), owed, "{position:?}, read at {began}");
    }
}

#[test]
fn announcement_waits_for_a_status_of_its_position_or_from_after_it() {
    let mut r = record();
    r.join(Position::Exited, Source::Relist, at(10), at(10));
    assert!(!r.is_awaited(at(11), Some(Position::Exited)), "not held");
    r.hold();
    for (began, shown, awaited) in [
        (9, Position::Exited, true),
        (9, Position::Running, false),
        (10, Position::Running, false),
        (11, Position::Running, true),
    ] {
        let is_awaited = r.is_awaited(at(began), Some(shown));
        assert_eq!(is_awaited, awaited, "{shown:?}, read at {began}");
    }
}

#[test]
fn change_is_initial_only_while_the_position_is_that_at_the_start() {
    let mut r = record();
    let is_initial = |r: &Record| r.is_initial(LifecycleType::ContainerChanged);
    assert!(!is_initial(&r), "no position");
    r.join(Position::Created, Source::Relist, at(1), at(1));
    assert!(!is_initial(&r), "not at the start");
    r.set_initial();
    assert!(is_initial(&r));
    r.join(Position::Running, Source::Relist, at(2), at(2));
    assert!(!is_initial(&r), "no longer at that position");
}

/// An inspection request names the id as UNKNOWN, so that its status is read.
#[test]
fn reported_unknown_is_the_shown_state_until_a_read_clears_it() {
    let mut r = record();
    r.join(Position::Running, Source::Stream, at(1), at(1));
    r.report_unknown();
    assert_eq!(r.shown(), ReportedState::Unknown);
    r.read(Position::Running, Call::Inspection, at(2), at(2));
    assert_eq!(r.shown(), ReportedState::Running);
}

#[test]
fn container_may_never_have_run_if_it_was_removed_before_its_status_was_read() {
    let mut r = record();
    r.join(Position::Created, Source::Stream, at(1), at(1));
    assert!(!r.may_never_have_run(), "it exists");
    r.join(Position::Removed, Source::Stream, at(2), at(2));
    assert!(r.may_never_have_run());
    let exit = ContainerDetails {
        exit_code: Some(0),
        ..ContainerDetails::default()
    };
    r.details_from_read(&said(exit), at(3));
    assert!(!r.may_never_have_run(), "its exit code is known");
}
