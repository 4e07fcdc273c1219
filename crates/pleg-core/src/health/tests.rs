use super::*;
use crate::types::{CallErrorKind, StreamEnd};

const SECOND: Duration = Duration::from_secs(1);
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// A healthy state at `BEGIN`.
fn well() -> Health {
    Health {
        due: BEGIN,
        last_list: Some(BEGIN),
        list_in_flight: None,
        list_error: None,
        silent_since: None,
        period: SECOND,
        stream: StreamState::Off,
        behind_since: None,
        overdue: 0,
        oldest_overdue: None,
        overdue_pods: Vec::new(),
        failing: 0,
        failing_pods: Vec::new(),
        missed: 0,
        loss: StreamLoss::default(),
        splits_events_between_subscribers: false,
        synced: true,
        unready_after: 180 * SECOND,
        unacknowledged: Vec::new(),
    }
}

#[test]
fn generator_is_unready_if_reconciler_or_last_list_is_late() {
    let mut health = well();
    assert_eq!(health.ready(BEGIN.after(OVERDUE)), Ok(()));
    let late = BEGIN.after(OVERDUE).after(SECOND);
    let overdue = OVERDUE + SECOND;
    assert_eq!(health.ready(late), Err(NotReady::Stalled { overdue }));
    let threshold = health.unready_after;
    health.due = BEGIN.after(threshold);
    assert_eq!(health.ready(health.due), Ok(()));
    let elapsed = threshold + SECOND;
    let stale = NotReady::Stale { elapsed, threshold };
    assert_eq!(health.ready(BEGIN.after(elapsed)), Err(stale));
    health.last_list = None;
    assert_eq!(health.ready(health.due), Err(NotReady::NeverListed));
}

#[test]
fn health_comparison_ignores_only_the_instant_of_next_work() {
    let mut later = well();
    later.due = BEGIN.after(SECOND);
    assert!(well().says_the_same(&later));
    later.missed = 1;
    assert!(!well().says_the_same(&later));
}

#[test]
fn deliberate_polling_is_not_a_degraded_reason() {
    let mut health = well();
    health.stream = StreamState::Down {
        since: BEGIN,
        why: StreamEnd::Declined(CallError::new("Events", CallErrorKind::Unimplemented, "no")),
        retry_at: BEGIN,
    };
    assert_eq!(health.degraded(BEGIN.after(SECOND)), []);
}

/// Tests four degraded reasons just before and at the first instant of their report, then four reported at once.
#[test]
fn degraded_reason_appears_once_its_cause_has_lasted_long_enough() {
    let why = StreamEnd::NeverOffered;
    let error = CallError::new("ListContainers", CallErrorKind::Failed, "no");
    let since = BEGIN;
    type Spoil = fn(&mut Health);
    let causes: [(Spoil, Duration, &str); 4] = [
        (
            |h| h.stream = StreamState::Starting { since: BEGIN },
            POD_SLOW,
            "stream_down",
        ),
        (|h| h.behind_since = Some(BEGIN), POD_SLOW, "backlog"),
        (|h| h.list_in_flight = Some(BEGIN), RELIST_SLOW, "list_slow"),
        (
            |h| (h.overdue, h.oldest_overdue) = (1, Some(BEGIN)),
            POD_SLOW,
            "pods_hung",
        ),
    ];
    for (set, slow, name) in causes {
        let mut health = well();
        set(&mut health);
        let before = BEGIN.after(slow - Duration::from_millis(1));
        assert_eq!(health.degraded(before), [], "{name}");
        let named: Vec<_> = health.degraded(BEGIN.after(slow));
        let named: Vec<_> = named.iter().map(Degraded::as_str).collect();
        assert_eq!(named, [name]);
    }
    let mut health = well();
    assert_eq!(health.degraded(BEGIN), []);
    health.stream = StreamState::Down {
        since,
        why,
        retry_at: BEGIN,
    };
    health.list_error = Some(error);
    health.silent_since = Some(BEGIN);
    health.failing = 1;
    let named: Vec<_> = health.degraded(BEGIN);
    let named: Vec<_> = named.iter().map(Degraded::as_str).collect();
    let all = [
        "stream_down",
        "list_failed",
        "runtime_silent",
        "pods_failing",
    ];
    assert_eq!(named, all);
}

#[test]
fn consumers_that_owe_acknowledgements_are_named_after_ten_minutes() {
    let mut health = well();
    let owes = |consumer: &str, since| Unacknowledged {
        consumer: consumer.into(),
        since,
    };
    let (first, later) = (BEGIN, BEGIN.after(SECOND));
    health.unacknowledged = vec![owes("a", later), owes("b", first), owes("c", later)];
    let named = |at: Instant| {
        let reasons = health.degraded(at.after(600 * SECOND));
        reasons.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(named(Instant::ORIGIN), [""; 0]);
    let text = "dead containers wait for 10 min to be acknowledged by the registered consumer";
    assert_eq!(named(first), [format!("{text} b")]);
    assert_eq!(named(later), [format!("{text} a and b and c")]);
}

/// One of each degraded reason.
fn reasons(pods: &[PodName], all: usize) -> [Degraded; 9] {
    let (since, pods) = (BEGIN, pods.to_vec());
    [
        Degraded::StreamDown { since },
        Degraded::StreamLossy {
            loss: StreamLoss::default(),
            splits_events_between_subscribers: true,
        },
        Degraded::Backlog { since },
        Degraded::ListSlow { since },
        Degraded::ListFailed {
            error: CallError::new("ListContainers", CallErrorKind::Failed, "no"),
        },
        Degraded::RuntimeSilent { since },
        Degraded::PodsHung {
            overdue: all,
            since,
            pods: pods.clone(),
        },
        Degraded::PodsFailing { failing: all, pods },
        Degraded::Unacknowledged {
            consumers: vec!["kubelet".into()],
            since,
        },
    ]
}

#[test]
fn degraded_reasons_have_stable_codes_and_their_start_if_known() {
    let reasons = reasons(&[], 0);
    assert_eq!(reasons.each_ref().map(Degraded::as_str), Degraded::CODES);
    let dated = [true, false, true, true, false, true, true, false, true];
    let since = dated.map(|dated| dated.then_some(BEGIN));
    assert_eq!(reasons.each_ref().map(Degraded::since), since);
    let not_ready = [
        NotReady::NeverListed,
        NotReady::Stale {
            elapsed: SECOND,
            threshold: SECOND,
        },
        NotReady::Stalled { overdue: SECOND },
        NotReady::Closed,
    ];
    assert_eq!(not_ready.map(|reason| reason.as_str()), NotReady::CODES);
}

#[test]
fn degraded_reason_counts_all_pods_and_names_the_first() {
    let pod = |uid: &str| PodName {
        uid: uid.into(),
        namespace: Text::default(),
        name: Text::default(),
    };
    let text = |pods: &[PodName], all| {
        let [.., hung, failing, _] = reasons(pods, all).map(|reason| reason.to_string());
        (hung, failing)
    };
    for (pods, all, hung, failing) in [
        (
            &[pod("p"), pod("q")][..],
            3,
            "3 pod reads do not answer: p, q, …",
            "3 pods cannot be read: p, q, …",
        ),
        (
            &[pod("p")],
            1,
            "1 pod read does not answer: p",
            "1 pod cannot be read: p",
        ),
        (&[], 2, "2 pod reads do not answer", "2 pods cannot be read"),
    ] {
        assert_eq!(text(pods, all), (hung.to_owned(), failing.to_owned()));
    }
}

#[test]
fn loss_message_suspects_other_subscriber_if_runtime_splits_events() {
    let lossy = |splits_events_between_subscribers| Degraded::StreamLossy {
        loss: StreamLoss {
            expected: 8,
            missed: 1,
        },
        splits_events_between_subscribers,
    };
    let text = "the event stream lost 1 of 8 events in 10 min (12.5 %); relisting every second";
    assert_eq!(lossy(false).to_string(), text);
    let split = lossy(true).to_string();
    assert!(split.starts_with(text) && split.contains("another subscriber"));
}
