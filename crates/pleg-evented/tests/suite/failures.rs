//! The failure catalogue for the stream reader: when it reconnects, how it ends. Each test says
//! what upstream Kubernetes does and what happens here; `docs/failures.md` has the whole table.
use pleg_runtime::core::{CallErrorKind, EventType, StreamChange, StreamEnd};

use pleg_runtime::fake::{Dial, Step};

use crate::scripted::{RunningReader, assert_on_time, burst, error, lives, sends, silence, wait};

const DOWN: CallErrorKind = CallErrorKind::Unavailable;

fn opens(steps: &[Step]) -> Dial {
    Dial::Open(steps.to_vec())
}

fn event() -> Step {
    sends("a", EventType::Started)
}

/// The stream ends that are reported until `attempts` attempts were made.
async fn ends(reader: &mut RunningReader, attempts: usize) -> Vec<StreamEnd> {
    let mut ends = Vec::new();
    while reader.dialed().len() < attempts {
        if let StreamChange::Ended { why, .. } = reader.change().await {
            ends.push(why);
        }
    }
    ends
}

/// Upstream: Five attempts without a pause, then no events until the kubelet restarts. A restart of
/// containerd takes longer than five attempts. The same in 1.37. (k#129827, k#129835)
///
/// Here: The pauses grow to 60 s and there is no last attempt. An event does not reset the backoff,
/// a minute of life does. Meanwhile the node is relisted every second; when the stream returns it
/// is used again. (invariant 10)
#[tokio::test(start_paused = true)]
async fn a7_reconnect_attempts_never_end() {
    // It lives for a second, is away for 0.4 s, refuses twice while it starts, and is back.
    let mut script = vec![opens(&[event(), wait(1_000), Step::Fail(DOWN)])];
    script.extend((0..8).map(|_| Dial::Fail(DOWN)));
    script.extend((0..2).map(|_| opens(&[Step::Fail(CallErrorKind::Failed)])));
    script.push(silence());
    let mut reader = RunningReader::new(script);
    let away = (0..8).map(|n| 1_000 + n * 50);
    let expected: Vec<_> = [0]
        .into_iter()
        .chain(away)
        .chain([1_400, 1_500, 1_700])
        .collect();
    assert_on_time(&reader.attempts(12).await, &expected);
    reader.idle(600_000).await;
    assert_eq!(reader.dialed().len(), 12, "it stands");
    reader.stop().await;

    // Streams that deliver an event and break at once: an event does not reset the backoff.
    let script = (0..40)
        .map(|_| opens(&[event(), Step::Fail(DOWN)]))
        .collect();
    let mut reader = RunningReader::new(script);
    let at = reader.attempts(40).await;
    let doubling = [0, 0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 25_500];
    assert_on_time(&at[..10], &doubling);
    // No eleventh within the minute; then 51.2 s, and 60 s for ever.
    let then = [60_000, 111_200, 171_200];
    assert_on_time(&at[..13], &[&doubling[..], &then].concat());
    assert!(
        at[12..]
            .windows(2)
            .all(|w| (60_000..=60_001).contains(&(w[1] - w[0])))
    );
    reader.stop().await;
}

/// Upstream: The consumer ends when the channel is closed, and the channel is closed when the
/// consumer has ended. Under load an event is sent after the close: panic. (k#132266, k#134549)
///
/// Here: One cancellation token ends the reader at any step, at once; no call, stream or task is
/// left.
#[tokio::test(start_paused = true)]
async fn a9_reader_can_be_stopped_at_every_step() {
    let script = || {
        vec![
            Dial::Fail(DOWN),
            opens(&[event(), wait(20), event(), wait(5), Step::Fail(DOWN)]),
            Dial::Fail(DOWN),
            Dial::Open([vec![wait(10)], burst(500), vec![wait(10)], burst(10)].concat()),
            opens(&[wait(30), Step::Fail(CallErrorKind::Failed)]),
            Dial::Hang,
        ]
    };
    for millis in 0..=500 {
        let reader = RunningReader::new(script());
        reader.idle(millis).await;
        reader.stop().await;
    }
    // The whole script was reached.
    let reader = RunningReader::new(script());
    reader.idle(500).await;
    assert_eq!(reader.dialed().len(), 6);
    // The writer is dropped first: the reader ends by itself.
    let RunningReader { out, task, .. } = reader;
    drop(out);
    task.await.unwrap();
}

/// Upstream: If events are disabled, the stream ends at once with OK, and the kubelet subscribes
/// again in a loop. (cri-o#7164, #7257)
///
/// Here: Never offered, disabled and lost are distinguished. After the first two, the reader
/// subscribes again once a minute. (invariant 10)
#[tokio::test(start_paused = true)]
async fn a13_never_offered_disabled_and_lost_are_distinguished() {
    let never = || opens(&[Step::Fail(CallErrorKind::Unimplemented)]);
    let mut reader = RunningReader::new((0..4).map(|_| never()).collect());
    assert_eq!(ends(&mut reader, 4).await, vec![StreamEnd::NeverOffered; 3]);
    assert_on_time(&reader.dialed(), &[0, 60_000, 120_000, 180_000]);
    reader.stop().await;

    let mut reader = RunningReader::new((0..4).map(|_| opens(&[])).collect());
    assert_eq!(ends(&mut reader, 4).await, vec![StreamEnd::Disabled; 3]);
    assert_on_time(&reader.dialed(), &[0, 60_000, 120_000, 180_000]);
    reader.stop().await;

    let breaks = || opens(&[event(), wait(2_000), Step::Fail(DOWN)]);
    let mut reader = RunningReader::new((0..4).map(|_| breaks()).collect());
    let lost = StreamEnd::Ended(Some(error(DOWN)));
    assert_eq!(ends(&mut reader, 4).await, vec![lost; 3]);
    assert_on_time(&reader.dialed(), &[0, 2_000, 4_100, 6_300]);
    reader.stop().await;
}

/// Upstream: After the last attempt the watcher goroutine stays for ever, or spins; a list inside
/// its loop blocks the stream. (found by reading)
///
/// Here: Ten minutes of any failure cause few attempts. The reader makes no call but the subscribe;
/// a hung list does not block it. (invariant 8)
#[tokio::test(start_paused = true)]
async fn b10_no_stream_end_causes_a_busy_loop() {
    for (dial, most) in [
        ((|| opens(&[])) as fn() -> Dial, 11),
        (|| opens(&[Step::Fail(CallErrorKind::Unimplemented)]), 11),
        (|| opens(&[Step::Fail(DOWN)]), 25),
        (
            || opens(&[event(), Step::Fail(CallErrorKind::TooLarge)]),
            25,
        ),
        // A hundred within five seconds, then fewer and fewer.
        (|| Dial::Fail(DOWN), 125),
    ] {
        let reader = RunningReader::new((0..10_000).map(|_| dial()).collect());
        reader.idle(600_000).await;
        let attempts = reader.dialed().len();
        assert!((10..=most).contains(&attempts), "{attempts} attempts");
        reader.stop().await;
    }
}

/// E4, upstream's RetryExhaustionClosesEventChannelAndLogsLastError (1.37): Two errors with a limit
/// of two end the watcher, with one log line.
///
/// Here: attempts are not limited; see A7. What applies: each stream end is reported with its own
/// error, and the reader goes on.
#[tokio::test(start_paused = true)]
async fn e4_every_error_is_reported_and_the_reader_goes_on() {
    let script = vec![
        opens(&[Step::Fail(CallErrorKind::Failed)]),
        opens(&[Step::Fail(DOWN)]),
        silence(),
    ];
    let mut reader = RunningReader::new(script);
    let told = [CallErrorKind::Failed, DOWN].map(|kind| StreamEnd::Refused(error(kind)));
    assert_eq!(ends(&mut reader, 3).await, told);
    assert!(!reader.task.is_finished());
    reader.stop().await;
}

/// E5, upstream's WatcherRetriesWhenStreamClosesWithoutError (1.37): An end without an error counts
/// as one more failed attempt.
///
/// Here: It is a stream end, but one of two kinds; see A13.
#[tokio::test(start_paused = true)]
async fn e5_end_without_an_error_is_a_stream_end() {
    let mut reader = RunningReader::new(vec![lives(3_000), lives(0), silence()]);
    assert_eq!(
        ends(&mut reader, 3).await,
        [StreamEnd::Ended(None), StreamEnd::Disabled]
    );
    assert_on_time(&reader.dialed(), &[0, 3_000, 63_000]);
    reader.stop().await;
}

/// E6, upstream's WatcherStopsWhenContextIsCanceled (1.37): A blocked stream is cancelled, and
/// nothing is logged.
///
/// Here: The same, at that instant.
#[tokio::test(start_paused = true)]
async fn e6_blocked_stream_is_cancelled_without_a_stream_end() {
    let mut reader = RunningReader::new(vec![silence()]);
    let subscribed = reader.change().await;
    assert!(matches!(subscribed, StreamChange::Subscribed { .. }));
    reader.idle(5_000).await;
    let at = reader.clock.now();
    reader.shutdown.cancel();
    (&mut reader.task).await.unwrap();
    assert_eq!(reader.clock.now().since(at).as_millis(), 0);
    assert_eq!(reader.changes(), [], "no end is reported");
}
