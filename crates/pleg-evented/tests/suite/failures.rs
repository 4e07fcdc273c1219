//! The failure catalogue at the stream's reader: when it asks again, how it ends. Each test says
//! what upstream Kubernetes does and what happens here; `docs/failures.md` is the whole table.
use std::time::Duration;

use pleg_evented::StreamObservation;
use pleg_runtime::core::{CallErrorKind, EventType, StreamChange, StreamEnd};

use crate::scripted::{Bench, Dial, Step, error, lives, silence};

const DOWN: CallErrorKind = CallErrorKind::Unavailable;

fn opens(steps: &[Step]) -> Dial {
    Dial::Opens(steps.to_vec())
}

fn event() -> Step {
    Step::Event("a", EventType::Started)
}

fn wait(millis: u64) -> Step {
    Step::Wait(Duration::from_millis(millis))
}

/// The ends that are told until so many attempts were made.
async fn ends(bench: &mut Bench, attempts: usize) -> Vec<StreamEnd> {
    let mut ends = Vec::new();
    while bench.dialed().len() < attempts {
        if let StreamObservation::Change(StreamChange::Ended { why, .. }) = bench.next().await {
            ends.push(why);
        }
    }
    ends
}

/// Upstream: five attempts without a pause, and events are off until the kubelet restarts; a
/// restart of containerd that takes 0.4 s uses them up (k#129827, k#129835).
/// Here: the attempts come at exact instants, with a growing pause and without a last one (law 10).
#[tokio::test(start_paused = true)]
async fn a7_reconnect_attempts_never_end() {
    // It lives for a second, is away for 0.4 s, refuses twice while it starts, and is back.
    let mut script = vec![opens(&[event(), wait(1_000), Step::Fails(DOWN)])];
    script.extend((0..8).map(|_| Dial::Fails(DOWN)));
    script.extend((0..2).map(|_| opens(&[Step::Fails(CallErrorKind::Failed)])));
    script.push(silence());
    let mut bench = Bench::new(script, 1);
    let away = (0..8).map(|n| 1_000 + n * 50);
    let expected: Vec<_> = [0]
        .into_iter()
        .chain(away)
        .chain([1_400, 1_500, 1_700])
        .collect();
    assert_eq!(bench.attempts(12).await, expected);
    bench.idle(600_000).await;
    assert_eq!(bench.dialed().len(), 12, "it stands");
    bench.stop().await;

    // Streams that deliver an event and break at once: an event resets nothing.
    let script = (0..40)
        .map(|_| opens(&[event(), Step::Fails(DOWN)]))
        .collect();
    let mut bench = Bench::new(script, 1);
    let at = bench.attempts(40).await;
    let doubling = [0, 0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 25_500];
    assert_eq!(at[..10], doubling);
    // Not an eleventh within the minute; then 51.2 s, and 60 s for ever.
    assert_eq!(at[10..13], [60_000, 111_200, 171_200]);
    assert!(at[12..].windows(2).all(|w| w[1] - w[0] == 60_000));
    bench.stop().await;
}

/// Upstream: the consumer ends when the channel is closed, and the channel is closed when the
/// consumer has ended; under pressure it is sent on after it was closed, and the kubelet panics
/// (k#132266).
/// Here: one token ends the reader wherever it is, at once, and nothing of it is left.
#[tokio::test(start_paused = true)]
async fn a9_reader_can_be_stopped_at_every_step() {
    let script = || {
        vec![
            Dial::Fails(DOWN),
            opens(&[event(), wait(20), event(), wait(5), Step::Fails(DOWN)]),
            Dial::Fails(DOWN),
            opens(&[wait(10), Step::Burst(500), wait(10), Step::Burst(10)]),
            opens(&[wait(30), Step::Fails(CallErrorKind::Failed)]),
            Dial::Hangs,
        ]
    };
    for millis in 0..=500 {
        // With room for all that is told, and with nobody who takes anything.
        for capacity in [10_000, 1] {
            let bench = Bench::new(script(), capacity);
            bench.idle(millis).await;
            bench.stop().await;
        }
    }
    // All of the script was reached.
    let bench = Bench::new(script(), 1);
    bench.idle(500).await;
    assert_eq!(bench.dialed().len(), 6);
    // Whoever listened goes away first: it ends by itself.
    let Bench { out, reader, .. } = bench;
    drop(out);
    reader.await.unwrap();
}

/// Upstream: a stream that ends with OK at once, because events are switched off, is asked for
/// again without a pause (cri-o#7164); it is the same as one that broke.
/// Here: never offered, switched off and lost are told apart; the first two are asked for every
/// minute, the third at once (law 10).
#[tokio::test(start_paused = true)]
async fn a13_never_offered_disabled_and_lost_are_distinguished() {
    let never = || opens(&[Step::Fails(CallErrorKind::Unimplemented)]);
    let mut bench = Bench::new((0..4).map(|_| never()).collect(), 8);
    assert_eq!(ends(&mut bench, 4).await, vec![StreamEnd::NeverOffered; 3]);
    assert_eq!(bench.dialed(), [0, 60_000, 120_000, 180_000]);
    bench.stop().await;

    let mut bench = Bench::new((0..4).map(|_| opens(&[])).collect(), 8);
    assert_eq!(ends(&mut bench, 4).await, vec![StreamEnd::Disabled; 3]);
    assert_eq!(bench.dialed(), [0, 60_000, 120_000, 180_000]);
    bench.stop().await;

    let breaks = || opens(&[event(), wait(2_000), Step::Fails(DOWN)]);
    let mut bench = Bench::new((0..4).map(|_| breaks()).collect(), 8);
    let lost = StreamEnd::Ended(Some(error(DOWN)));
    assert_eq!(ends(&mut bench, 4).await, vec![lost; 3]);
    assert_eq!(bench.dialed(), [0, 2_000, 4_100, 6_300]);
    bench.stop().await;
}

/// Upstream: after the last attempt the watching goroutine stays for ever, or spins where generic
/// polling is in use already; a relist inside its loop stalls the reading.
/// Here: however a stream ends, the attempts of ten minutes are few; the reader makes no call but
/// the subscribe (the scripted runtime panics at any other), and ends when it is told to (law 8).
#[tokio::test(start_paused = true)]
async fn b10_no_stream_end_causes_a_busy_loop() {
    for (dial, most) in [
        ((|| opens(&[])) as fn() -> Dial, 11),
        (|| opens(&[Step::Fails(CallErrorKind::Unimplemented)]), 11),
        (|| opens(&[Step::Fails(DOWN)]), 25),
        (
            || opens(&[event(), Step::Fails(CallErrorKind::TooLarge)]),
            25,
        ),
        // A hundred within five seconds, then ever fewer.
        (|| Dial::Fails(DOWN), 125),
    ] {
        let bench = Bench::new((0..10_000).map(|_| dial()).collect(), 1);
        bench.idle(600_000).await;
        let attempts = bench.dialed().len();
        assert!((10..=most).contains(&attempts), "{attempts} attempts");
        bench.stop().await;
    }
}

/// E4, upstream's RetryExhaustionClosesEventChannelAndLogsLastError: two errors and a limit of two
/// end the watcher with one log line.
/// Here: there is no limit. Each end is told with its own error, and the reader goes on.
#[tokio::test(start_paused = true)]
async fn e4_every_error_is_reported_and_the_reader_goes_on() {
    let script = vec![
        opens(&[Step::Fails(CallErrorKind::Failed)]),
        opens(&[Step::Fails(DOWN)]),
        silence(),
    ];
    let mut bench = Bench::new(script, 8);
    let told = [CallErrorKind::Failed, DOWN].map(|kind| StreamEnd::Refused(error(kind)));
    assert_eq!(ends(&mut bench, 3).await, told);
    assert!(!bench.reader.is_finished());
    bench.stop().await;
}

/// E5, upstream's WatcherRetriesWhenStreamClosesWithoutError: an end without an error is one more
/// failed attempt.
/// Here too it is an end: at once, events are switched off; later, the stream is lost.
#[tokio::test(start_paused = true)]
async fn e5_end_without_an_error_is_a_stream_end() {
    let mut bench = Bench::new(vec![lives(3_000), lives(0), silence()], 8);
    assert_eq!(
        ends(&mut bench, 3).await,
        [StreamEnd::Ended(None), StreamEnd::Disabled]
    );
    assert_eq!(bench.dialed(), [0, 3_000, 63_000]);
    bench.stop().await;
}

/// E6, upstream's WatcherStopsWhenContextIsCanceled: a blocked stream is cancelled; the watcher
/// returns and logs no exhaustion.
/// Here too: it ends at that instant, and tells of no end of the stream, because it was its own.
#[tokio::test(start_paused = true)]
async fn e6_blocked_stream_is_cancelled_without_a_stream_end() {
    let mut bench = Bench::new(vec![silence()], 8);
    let subscribed = bench.change().await;
    assert!(matches!(subscribed, StreamChange::Subscribed { .. }));
    bench.idle(5_000).await;
    let at = bench.clock.now();
    bench.shutdown.cancel();
    (&mut bench.reader).await.unwrap();
    assert_eq!(bench.clock.now(), at);
    assert_eq!(bench.out.try_recv(), None, "nothing was told");
}
