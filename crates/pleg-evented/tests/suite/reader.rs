//! Tests the stream reader on scripted runtimes: how it reconnects, what it reports and how it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use pleg_evented::ReconnectSettings;
use pleg_runtime::core::{CallErrorKind, EventType, HintMap, Id, Instant, StreamChange, StreamEnd};
use pleg_runtime::fake::{Dial, Op, Step};

use crate::scripted::{RunningReader, assert_on_time, burst, error, lives, quiet, sends, wait};

const DOWN: CallErrorKind = CallErrorKind::Unavailable;

fn why(change: StreamChange) -> StreamEnd {
    match change {
        StreamChange::Ended { why, .. } => why,
        subscribed @ StreamChange::Subscribed { .. } => panic!("unexpected {subscribed:?}"),
    }
}

fn is_subscribed(change: &StreamChange) -> bool {
    matches!(change, StreamChange::Subscribed { .. })
}

#[tokio::test(start_paused = true)]
async fn reconnects_after_a_restart_follow_the_backoff() {
    // The daemon is down for more than 5.2 s, refuses two subscribe calls as it starts, then ends a stream after 1.5 s.
    let mut script: Vec<_> = (0..102).map(|_| Dial::Fail(DOWN)).collect();
    script.push(Dial::Open(vec![Step::Fail(CallErrorKind::Failed)]));
    script.push(Dial::Open(vec![Step::Fail(CallErrorKind::Failed)]));
    script.push(lives(1500));
    let mut reader = RunningReader::new(script);
    let at = reader.attempts(106).await;
    let often: Vec<_> = (0..100).map(|n| n * 50).collect();
    assert_on_time(&at[..100], &often);
    // The dials at 5050 and 5250 ms also fail. The dial at 5650 ms succeeds, but the runtime refuses the call.
    // The next calls follow at once, after 100 ms, and 200 ms after the end of the stream that was open for 1.5 s.
    let then = [5050, 5250, 5650, 5650, 5750, 5750 + 1500 + 200];
    assert_on_time(&at, &[&often[..], &then].concat());
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_open_for_a_minute_resets_the_backoff() {
    let script = vec![
        lives(2000),
        lives(2000),
        lives(60_000),
        lives(2000),
        quiet(),
    ];
    let mut reader = RunningReader::new(script);
    // Pauses after the streams: none, 100 ms, none after the one that was open for a minute, 100 ms again.
    let at = [0, 2000, 4100, 64_100, 66_200];
    assert_on_time(&reader.attempts(5).await, &at);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reader_subscribes_at_most_ten_times_a_minute() {
    let cut = || Dial::Open(vec![sends("a", EventType::Started), Step::Fail(DOWN)]);
    let settings = ReconnectSettings {
        jitter_percent: 0,
        backoff_to: Duration::from_millis(100),
        ..ReconnectSettings::default()
    };
    let mut reader = RunningReader::with(settings, (0..40).map(|_| cut()).collect());
    let at = reader.attempts(22).await;
    assert_on_time(
        &at[..12],
        &[0, 0, 100, 200, 300, 400, 500, 600, 700, 800, 60_000, 60_100],
    );
    assert!(at.windows(11).all(|w| w[10] - w[0] >= 60_000));
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_end_is_reported_after_its_events_with_retry_time() {
    let script = vec![
        Dial::Open(vec![
            wait(10),
            sends("a", EventType::Started),
            sends("a", EventType::Stopped),
            wait(2000),
            Step::Fail(CallErrorKind::TooLarge),
        ]),
        Dial::Open(vec![wait(3000), Step::Fail(DOWN)]),
        Dial::Fail(DOWN),
    ];
    let mut reader = RunningReader::new(script);
    let began = reader.began;
    let millis = |at: Instant| at.since(began).as_millis();

    assert!(is_subscribed(&reader.change().await));
    reader.idle(11).await;
    reader.take();
    let ids: Vec<_> = reader.hints.keys().collect();
    assert_eq!((ids, reader.gauges.joined()), (vec![&Id::from("a")], 1));
    for (end, at, retry_at) in [
        (
            StreamEnd::Ended(Some(error(CallErrorKind::TooLarge))),
            2010,
            2010,
        ),
        (StreamEnd::Cut(error(DOWN)), 5010, 5110),
        (StreamEnd::Refused(error(DOWN)), 5110, 5160),
    ] {
        let mut change = reader.change().await;
        if is_subscribed(&change) {
            change = reader.change().await;
        }
        let StreamChange::Ended {
            at: ended,
            why,
            retry_at: retry,
        } = change
        else {
            panic!("unexpected {change:?}")
        };
        assert_eq!(why, end);
        assert!((at..at + 9).contains(&millis(ended)), "{ended:?}");
        assert!(
            (retry_at..retry_at + 9).contains(&millis(retry)),
            "{retry:?}"
        );
    }
    assert!(is_subscribed(&reader.change().await));
    assert_on_time(&reader.dialed(), &[0, 2010, 5110, 5160]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dial_that_hangs_ends_at_its_deadline() {
    let mut reader = RunningReader::new(vec![Dial::Hang]);
    let StreamEnd::Refused(error) = why(reader.change().await) else {
        panic!()
    };
    assert_eq!(error.kind, CallErrorKind::DeadlineExceeded);
    assert!(is_subscribed(&reader.change().await));
    assert_on_time(&reader.dialed(), &[0, 10_050]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stalled_receiver_neither_blocks_the_stream_nor_loses_events() {
    const LIVES: u64 = 20_000;
    let steps = [burst(LIVES), burst(LIVES), vec![wait(2000)]].concat();
    let script = vec![Dial::Open(steps)];
    let mut reader = RunningReader::new(script);
    // The receiver takes nothing, but the reader still drains the stream and begins the next one.
    while reader.dialed().len() < 2 {
        reader.idle(1).await;
    }
    assert_on_time(&reader.dialed(), &[0, 2000]);
    let events = reader.gauges.events();
    assert_eq!((events.total(), events.stopped), (6 * LIVES, 2 * LIVES));
    assert_eq!(reader.gauges.waiting() as u64, 6 * LIVES);
    let since = reader.gauges.waiting_since().expect("events wait");
    assert_eq!(since.since(reader.began).as_millis(), 0);

    assert_eq!(reader.take(), 0, "no event is lost");
    let lives = (0..LIVES).map(|n| format!("burst{n}"));
    let lives: BTreeSet<_> = lives.map(Id::from).collect();
    assert!(reader.hints.keys().eq(&lives));
    assert_eq!(reader.gauges.joined(), 5 * LIVES);
    let changes = reader.changes();
    let subscribed: Vec<_> = changes.iter().map(is_subscribed).collect();
    assert_eq!(subscribed, [true, false, true]);
    assert_eq!(
        (reader.gauges.waiting(), reader.gauges.waiting_since()),
        (0, None)
    );
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_beyond_100_000_waiting_ids_are_counted_as_lost() {
    let steps = [vec![wait(1000)], burst(102_000), vec![Step::Live]].concat();
    let mut reader = RunningReader::new(vec![Dial::Open(steps)]);
    assert!(is_subscribed(&reader.change().await));
    reader.idle(2000).await;
    assert_eq!(reader.take(), 3 * 2_000);
    assert_eq!(reader.hints.len(), HintMap::MOST);
    assert_eq!(reader.dialed().len(), 1, "the stream goes on");
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_in_an_outage_with_a_stalled_receiver() {
    let flap = |_| Dial::Open(vec![sends("a", EventType::Stopped), Step::Fail(DOWN)]);
    let mut script: Vec<_> = (0..300).map(flap).collect();
    script.extend((0..100).map(|_| Dial::Fail(DOWN)));
    let mut reader = RunningReader::new(script);
    while reader.dialed().len() < 401 {
        reader.idle(1000).await;
    }
    let changes = reader.changes();
    assert_eq!((reader.hints.len(), reader.gauges.joined()), (1, 299));
    assert!(changes.len() <= 16, "{changes:?}");
    assert!(changes.last().is_some_and(is_subscribed));
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_reader_wherever_it_waits() {
    let event = || sends("a", EventType::Created);
    for script in [
        vec![Dial::Hang],
        vec![quiet()],
        vec![Dial::Open(vec![event(), event(), Step::Live])],
        vec![lives(100)],
        vec![Dial::Fail(DOWN)],
    ] {
        let reader = RunningReader::new(script);
        reader.idle(120).await;
        reader.stop().await;
        // Here the reader is shut down before it has started.
        RunningReader::new(Vec::new()).stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reader_ends_when_the_receiver_of_its_events_is_dropped() {
    for step in [Step::Live, sends("a", EventType::Created)] {
        let RunningReader { out, task, .. } =
            RunningReader::new(vec![Dial::Open(vec![step, Step::Live])]);
        drop(out);
        task.await.unwrap();
    }
}

/// The reader handles a panic of the stream like the loss of the stream.
#[tokio::test(start_paused = true)]
async fn panicking_stream_is_subscribed_again() {
    let script = vec![
        Dial::Open(vec![sends("a", EventType::Started), Step::Panic]),
        quiet(),
    ];
    let mut reader = RunningReader::new(script);
    assert!(is_subscribed(&reader.change().await));
    let StreamEnd::Ended(Some(error)) = why(reader.change().await) else {
        panic!("a panic ends the stream")
    };
    assert!(error.message.contains("a scripted panic"), "{error}");
    assert!(is_subscribed(&reader.change().await));
    assert_eq!(reader.gauges.panics(), 1);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_panics_repeatedly_is_subscribed_again_after_growing_pauses() {
    let script = (0..5).map(|_| Dial::Open(vec![Step::Panic])).collect();
    let mut reader = RunningReader::new(script);
    let at = reader.attempts(5).await;
    assert_on_time(&at, &[0, 0, 100, 300, 700]);
    reader.stop().await;
}

/// The driver notifies the reader of a stream that delivers no events although reads show changes.
#[tokio::test(start_paused = true)]
async fn renew_notification_ends_the_stream_and_causes_a_new_subscribe() {
    let mut reader = RunningReader::new(vec![quiet(), quiet()]);
    assert!(is_subscribed(&reader.change().await));
    reader.idle(5_000).await;
    reader.renew.notify_one();
    let StreamEnd::Cut(error) = why(reader.change().await) else {
        panic!("nothing had arrived on it")
    };
    assert_eq!(error.kind, CallErrorKind::Cancelled);
    assert!(is_subscribed(&reader.change().await));
    reader.idle(5_000).await;
    assert_eq!(reader.dialed().len(), 2);
    reader.stop().await;
}

/// `stream_hazard` calls `Version` to know if a subscription may crash the runtime. Here, this call fails.
#[tokio::test(start_paused = true)]
async fn failed_version_call_is_reported_as_a_refused_subscribe() {
    let mut reader = RunningReader::new(vec![quiet()]);
    let unimplemented = CallErrorKind::Unimplemented;
    reader.runtime.fail(Op::Version, unimplemented);
    let why = why(reader.change().await);
    assert!(matches!(why, StreamEnd::Refused(_)), "{why:?}");
    reader.stop().await;
}

/// A kubelet may start while the stream is open. From then on, the stream takes events from this kubelet.
#[tokio::test(start_paused = true)]
async fn reader_unsubscribes_while_a_kubelet_would_lose_events_to_it() {
    let mut reader = RunningReader::new(vec![quiet(), quiet()]);
    assert!(is_subscribed(&reader.change().await));
    reader.runtime.set_hazard(Some("a kubelet started"));
    for is_open in [true, false] {
        match why(reader.change().await) {
            StreamEnd::Cut(error) if is_open => assert_eq!(&*error.message, "a kubelet started"),
            StreamEnd::Declined(error) => assert_eq!(&*error.message, "a kubelet started"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reader.dialed().len(), 1, "no call is made");
    reader.runtime.set_hazard(None);
    assert!(is_subscribed(&reader.change().await));
    reader.stop().await;
}
