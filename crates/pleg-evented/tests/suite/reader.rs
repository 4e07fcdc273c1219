//! The reader on scripted runtimes: when it reconnects, what it hands over, how it stops.

use std::time::Duration;

use pleg_evented::ReconnectSettings;
use pleg_runtime::core::{
    CallErrorKind, EventType, RuntimeEvent, StreamChange, StreamEnd, StreamObservation,
};
use pleg_runtime::fake::{Dial, Step};

use crate::scripted::{RunningReader, burst, error, lives, sends, silence, wait};

const DOWN: CallErrorKind = CallErrorKind::Unavailable;

fn why(change: StreamChange) -> StreamEnd {
    match change {
        StreamChange::Ended { why, .. } => why,
        subscribed @ StreamChange::Subscribed { .. } => panic!("unexpected {subscribed:?}"),
    }
}

fn is_subscribed(observation: &StreamObservation) -> bool {
    matches!(
        observation,
        StreamObservation::Change(StreamChange::Subscribed { .. })
    )
}

#[tokio::test(start_paused = true)]
async fn reconnects_after_a_restart_follow_the_backoff() {
    // The daemon is down for 5.2 s, refuses while it starts, then is cut off twice.
    let mut script: Vec<_> = (0..103).map(|_| Dial::Fail(DOWN)).collect();
    script.push(Dial::Open(vec![Step::Fail(CallErrorKind::Failed)]));
    script.push(Dial::Open(vec![Step::Fail(CallErrorKind::Failed)]));
    script.push(lives(1500));
    let mut reader = RunningReader::new(script, 1);
    let at = reader.attempts(107).await;
    let often: Vec<_> = (0..=100).map(|n| n * 50).collect();
    assert_eq!(at[..101], often);
    // Two dials with backoff; then three calls: at once, after 100 ms, and after its life plus 200
    // ms.
    assert_eq!(at[101..], [5100, 5300, 5700, 5700, 5800, 5800 + 1500 + 200]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_lives_a_minute_resets_the_backoff() {
    let script = vec![
        lives(2000),
        lives(2000),
        lives(60_000),
        lives(2000),
        silence(),
    ];
    let mut reader = RunningReader::new(script, 1);
    // Pauses: none, 100 ms, none after the long life, 100 ms again.
    let at = [0, 2000, 4100, 64_100, 66_200];
    assert_eq!(reader.attempts(5).await, at);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn at_most_ten_subscribes_a_minute() {
    let cut = || Dial::Open(vec![sends("a", EventType::Started), Step::Fail(DOWN)]);
    let settings = ReconnectSettings {
        jitter_percent: 0,
        backoff_to: Duration::from_millis(100),
        ..ReconnectSettings::default()
    };
    let mut reader = RunningReader::with(settings, (0..40).map(|_| cut()).collect(), 1);
    let at = reader.attempts(22).await;
    assert_eq!(
        at[..12],
        [0, 0, 100, 200, 300, 400, 500, 600, 700, 800, 60_000, 60_100]
    );
    assert!(at.windows(11).all(|w| w[10] - w[0] >= 60_000));
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_not_offered_is_subscribed_every_minute() {
    let never = CallErrorKind::Unimplemented;
    let script = vec![
        Dial::Open(vec![Step::Fail(never)]),
        lives(20),
        Dial::Open(vec![wait(2000), Step::Fail(never)]),
        silence(),
    ];
    let mut reader = RunningReader::new(script, 8);
    for end in [
        StreamEnd::NeverOffered,
        StreamEnd::Disabled,
        StreamEnd::NeverOffered,
    ] {
        assert!(is_subscribed(&reader.next().await));
        assert_eq!(why(reader.change().await), end);
    }
    assert!(is_subscribed(&reader.next().await));
    assert_eq!(reader.dialed(), [0, 60_000, 120_020, 182_020]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_end_follows_its_events_and_gives_the_retry_time() {
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
    let mut reader = RunningReader::new(script, 1);
    let began = reader.began;
    let at = |ms| began.after(Duration::from_millis(ms));

    let StreamChange::Subscribed { at: issued, .. } = reader.change().await else {
        panic!()
    };
    assert_eq!(issued, at(0));
    for what in [EventType::Started, EventType::Stopped] {
        let StreamObservation::Event(arrival) = reader.next().await else {
            panic!()
        };
        assert_eq!(
            (arrival.event, arrival.arrived),
            (RuntimeEvent::new("a", what), at(10))
        );
    }
    let end = StreamEnd::Ended(Some(error(CallErrorKind::TooLarge)));
    let ended = StreamChange::Ended {
        at: at(2010),
        why: end,
        retry_at: at(2010),
    };
    assert_eq!(reader.change().await, ended);
    assert!(is_subscribed(&reader.next().await));
    let cut = StreamEnd::Cut(error(DOWN));
    let ended = StreamChange::Ended {
        at: at(5010),
        why: cut,
        retry_at: at(5110),
    };
    assert_eq!(reader.change().await, ended);
    let refused = StreamEnd::Refused(error(DOWN));
    let ended = StreamChange::Ended {
        at: at(5110),
        why: refused,
        retry_at: at(5160),
    };
    assert_eq!(reader.change().await, ended);
    assert!(is_subscribed(&reader.next().await));
    assert_eq!(reader.dialed(), [0, 2010, 5110, 5160]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn connection_that_hangs_ends_at_its_deadline() {
    let mut reader = RunningReader::new(vec![Dial::Hang], 1);
    let StreamEnd::Refused(error) = why(reader.change().await) else {
        panic!()
    };
    assert_eq!(error.kind, CallErrorKind::DeadlineExceeded);
    assert!(is_subscribed(&reader.next().await));
    assert_eq!(reader.dialed(), [0, 10_050]);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stalled_writer_does_not_block_the_stream_or_lose_events() {
    const LIVES: u64 = 20_000;
    let steps = [burst(LIVES), burst(LIVES), vec![wait(2000)]].concat();
    let script = vec![Dial::Open(steps)];
    let mut reader = RunningReader::new(script, 1);
    // The writer takes nothing, and yet the stream is drained to its end and the next one begins.
    while reader.dialed().len() < 2 {
        reader.idle(1).await;
    }
    assert_eq!(reader.dialed(), [0, 2000]);
    assert_eq!(reader.gauges.arrivals(), 2 * 3 * LIVES);
    assert_eq!(reader.gauges.waiting_since(), Some(reader.began));
    assert_eq!(reader.gauges.lost(), 0);
    assert!(reader.gauges.waiting() as u64 <= 3 * LIVES + 1024 + 3);

    let (mut taken, mut changes) = (Vec::new(), 0);
    while changes < 3 {
        match reader.next().await {
            StreamObservation::Event(arrival) => taken.push(arrival.event),
            StreamObservation::Change(change) => {
                changes += 1;
                let subscribed = is_subscribed(&StreamObservation::Change(change));
                assert_eq!(subscribed, changes != 2);
                assert_eq!(taken.is_empty(), changes == 1);
            }
        }
    }
    let (last, ids) = (taken.len() as u64, 0..LIVES);
    assert_eq!(last + reader.gauges.joined(), 2 * 3 * LIVES);
    let mut seen = vec![[false; 2]; LIVES as usize];
    for event in &taken {
        let n: usize = event
            .id
            .as_str()
            .trim_start_matches("burst")
            .parse()
            .unwrap();
        match event.event {
            EventType::Stopped => seen[n][0] = true,
            EventType::Deleted => {
                assert!(seen[n][0], "stopped before deleted");
                seen[n][1] = true;
            }
            _ => {}
        }
    }
    assert!(ids.into_iter().all(|n| seen[n as usize] == [true; 2]));
    // The last observation counts as handled when the next one is requested.
    assert!(reader.gauges.waiting_since().is_some());
    assert_eq!(reader.out.try_recv(), None);
    assert_eq!(
        (reader.gauges.waiting(), reader.gauges.waiting_since()),
        (0, None)
    );
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn overflowing_queue_ends_the_stream() {
    let steps = [vec![wait(1000)], burst(102_000), vec![Step::Live]].concat();
    let mut reader = RunningReader::new(vec![Dial::Open(steps)], 1);
    assert!(is_subscribed(&reader.next().await));
    while reader.dialed().len() < 2 {
        reader.idle(1).await;
    }
    assert!(reader.gauges.lost() > 0);
    let end = loop {
        if let StreamObservation::Change(change) = reader.next().await {
            break why(change);
        }
    };
    assert!(matches!(end, StreamEnd::Ended(Some(e)) if e.kind == CallErrorKind::Cancelled));
    assert!(is_subscribed(&reader.next().await));
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn outage_while_the_writer_is_stalled_stays_bounded() {
    let flap = |_| Dial::Open(vec![sends("a", EventType::Stopped), Step::Fail(DOWN)]);
    let mut script: Vec<_> = (0..300).map(flap).collect();
    script.extend((0..100).map(|_| Dial::Fail(DOWN)));
    let mut reader = RunningReader::new(script, 1);
    while reader.dialed().len() < 401 {
        reader.idle(1000).await;
    }
    let (mut changes, mut events) = (Vec::new(), 0);
    while reader.out.more_wait() || changes.is_empty() {
        match reader.next().await {
            StreamObservation::Change(change) => changes.push(change),
            StreamObservation::Event(_) => events += 1,
        }
    }
    assert_eq!((events, reader.gauges.lost()), (300, 0));
    assert!(changes.len() <= 12, "{changes:?}");
    assert!(matches!(
        changes.first(),
        Some(StreamChange::Subscribed { .. })
    ));
    assert!(matches!(
        changes.last(),
        Some(StreamChange::Subscribed { .. })
    ));
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_reader_wherever_it_waits() {
    let event = || sends("a", EventType::Created);
    for (script, capacity) in [
        (vec![Dial::Hang], 1),
        (vec![silence()], 8),
        (vec![Dial::Open(vec![event(), event(), Step::Live])], 1),
        (vec![lives(100)], 8),
        (vec![Dial::Fail(DOWN)], 8),
    ] {
        let reader = RunningReader::new(script, capacity);
        reader.idle(120).await;
        reader.stop().await;
        // Also before it has begun.
        RunningReader::new(Vec::new(), 1).stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reader_ends_when_the_writer_is_gone() {
    for step in [Step::Live, sends("a", EventType::Created)] {
        let RunningReader { out, task, .. } =
            RunningReader::new(vec![Dial::Open(vec![step, Step::Live])], 1);
        drop(out);
        task.await.unwrap();
    }
}

/// Finding A6.
#[tokio::test(start_paused = true)]
async fn panicking_stream_is_subscribed_again() {
    let script = vec![
        Dial::Open(vec![sends("a", EventType::Started), Step::Panic]),
        silence(),
    ];
    let mut reader = RunningReader::new(script, 1);
    assert!(is_subscribed(&reader.next().await));
    // An event that was not taken yet may be lost with the stream; the list that follows covers it.
    let ended = loop {
        if let StreamObservation::Change(change) = reader.next().await {
            break change;
        }
    };
    let StreamEnd::Ended(Some(error)) = why(ended) else {
        panic!("a panic ends the stream")
    };
    assert!(error.message.contains("a scripted panic"), "{error}");
    assert!(is_subscribed(&reader.next().await));
    assert_eq!(reader.gauges.panics(), 1);
    reader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_panics_at_once_is_backed_off() {
    let script = (0..5).map(|_| Dial::Open(vec![Step::Panic])).collect();
    let mut reader = RunningReader::new(script, 1);
    let at = reader.attempts(5).await;
    assert_eq!(at, [0, 0, 100, 300, 700]);
    reader.stop().await;
}

/// Finding A14: the writer ends a stream that reports no event while reads show changes.
#[tokio::test(start_paused = true)]
async fn notified_reader_ends_the_stream_and_subscribes_again() {
    let mut reader = RunningReader::new(vec![silence(), silence()], 1);
    assert!(is_subscribed(&reader.next().await));
    reader.idle(5_000).await;
    reader.renew.notify_one();
    let StreamEnd::Cut(error) = why(reader.change().await) else {
        panic!("nothing had arrived on it")
    };
    assert_eq!(error.kind, CallErrorKind::Cancelled);
    assert!(is_subscribed(&reader.next().await));
    reader.idle(5_000).await;
    assert_eq!(reader.dialed().len(), 2);
    reader.stop().await;
}
