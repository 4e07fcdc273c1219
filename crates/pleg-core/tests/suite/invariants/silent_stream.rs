//! A stream that delivers nothing while events are missed is renewed (invariant 10).

use pleg_core::{EventProfile, EventType, ReportedState, StreamEnd};

use crate::script::{Script, sandbox};

/// The stream has delivered one event, of the sandbox "s".
fn proven() -> Script {
    let mut t = Script::confirmed();
    let s = sandbox("s", "p", ReportedState::Running);
    t.event(EventType::Created, "s", Some(s.clone()), &[]);
    t.node = vec![s];
    t.run(1_000);
    t
}

/// A list shows one more sandbox; no event reports it.
fn list_shows_unreported_sandbox(t: &mut Script) {
    let id = format!("s{}", t.node.len());
    t.node.push(sandbox(&id, &id, ReportedState::Running));
    t.relist();
    t.settle();
}

/// One event is missed, and nothing else arrives.
fn miss(t: &mut Script) {
    let missed = t.missed();
    list_shows_unreported_sandbox(t);
    t.run(5_100);
    assert_eq!(t.missed(), missed + 1);
}

#[test]
fn stream_is_renewed_after_three_misses_without_an_event() {
    let mut t = proven();
    for renewed in [0, 0, 1] {
        miss(&mut t);
        assert_eq!(t.machine.counters().streams_renewed, renewed);
        assert_eq!(t.resubscribes, renewed);
    }
}

/// It loses events, but it is not silent.
#[test]
fn stream_that_delivers_other_events_is_not_renewed() {
    let mut t = proven();
    for missed in 1..=6 {
        list_shows_unreported_sandbox(&mut t);
        let s = t.node[0].clone();
        t.event(EventType::Started, "s", Some(s), &[]);
        t.run(5_100);
        assert_eq!(t.missed(), missed);
    }
    assert_eq!(t.resubscribes, 0);
}

/// The pause between two renewals is 60 s, and doubles each time.
#[test]
fn second_renewal_is_a_minute_later_and_the_third_two_minutes() {
    let mut t = proven();
    let mut renewals = Vec::new();
    for _ in 0..50 {
        let before = t.resubscribes;
        miss(&mut t);
        if t.resubscribes > before {
            renewals.push(t.now());
            t.stream_ends(StreamEnd::Ended(None));
            t.subscribe();
            t.run(2_000);
        }
    }
    let pauses = renewals.windows(2).map(|two| two[1].since(two[0]));
    let pauses: Vec<_> = pauses.map(|pause| pause.as_secs()).collect();
    assert_eq!(pauses.len(), 2, "in about five minutes");
    assert!((60..66).contains(&pauses[0]), "{pauses:?}");
    assert!((120..126).contains(&pauses[1]), "{pauses:?}");
}

/// cri-o#9004
#[test]
fn stream_is_not_renewed_if_a_disconnect_may_crash_the_runtime() {
    let mut t = proven();
    let mut profile = EventProfile::UNKNOWN;
    profile.disconnect_may_crash = true;
    t.machine.handle_profile(t.now(), profile);
    for _ in 0..4 {
        miss(&mut t);
    }
    assert_eq!(t.resubscribes, 0);
}
