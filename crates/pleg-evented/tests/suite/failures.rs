//! Tests the entries of the failure catalogue, `docs/failures.md`, about the stream reader. The comment of a test
//! describes the failure in upstream Kubernetes; the catalogue has the issues and the reasons.

use pleg_runtime::core::{CallErrorKind, EventType, StreamChange, StreamEnd};
use pleg_runtime::fake::{Dial, Step};

use crate::scripted::{RunningReader, assert_on_time, burst, error, lives, quiet, sends, wait};

const DOWN: CallErrorKind = CallErrorKind::Unavailable;

fn opens(steps: &[Step]) -> Dial {
    Dial::Open(steps.to_vec())
}

fn event() -> Step {
    sends("a", EventType::Started)
}

/// Waits until the reader has tried `attempts` times to subscribe. Returns the stream ends that it has reported.
async fn ends(reader: &mut RunningReader, attempts: usize) -> Vec<StreamEnd> {
    let mut ends = Vec::new();
    while reader.dialed().len() < attempts {
        if let StreamChange::Ended { why, .. } = reader.change().await {
            ends.push(why);
        }
    }
    ends
}

/// Upstream: the kubelet makes five attempts to reconnect without a pause. Then it gets no events until it restarts. A
/// restart of containerd takes longer than five attempts.
#[tokio::test(start_paused = true)]
async fn reconnect_attempts_never_end() {
    // The runtime runs for a second, is down for 0.4 s, refuses two subscribe calls as it starts, and works again.
    let mut script = vec![opens(&[event(), wait(1_000), Step::Fail(DOWN)])];
    script.extend((0..8).map(|_| Dial::Fail(DOWN)));
    script.extend((0..2).map(|_| opens(&[Step::Fail(CallErrorKind::Failed)])));
    script.push(quiet());
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
    let breaks = opens(&[event(), Step::Fail(DOWN)]);
    let mut reader = RunningReader::new(vec![breaks; 40]);
    let at = reader.attempts(40).await;
    let doubling = [0, 0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 25_500];
    assert_on_time(&at[..10], &doubling);
    // The limit of ten subscribe calls a minute delays the eleventh to 60 s. The next back-off is 51.2 s, then 60 s.
    let then = [60_000, 111_200, 171_200];
    assert_on_time(&at[..13], &[&doubling[..], &then].concat());
    let pauses: Vec<_> = at[12..].windows(2).map(|w| w[1] - w[0]).collect();
    assert!(pauses.iter().all(|&p| p == 60_000 || p == 60_001));
    reader.stop().await;
}

/// Upstream: the kubelet closes the channel of events while the watcher may still send on it, which panics.
#[tokio::test(start_paused = true)]
async fn shutdown_during_any_dial_stream_or_pause_ends_the_reader() {
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
    // Without a shutdown, the reader makes all six dials of `script` within 500 ms.
    let reader = RunningReader::new(script());
    reader.idle(500).await;
    assert_eq!(reader.dialed().len(), 6);
    // The receiver is dropped, but the reader is not shut down: the reader ends by itself.
    let RunningReader { out, task, .. } = reader;
    drop(out);
    task.await.unwrap();
}

/// Upstream: if events are disabled, the stream ends at once with OK, and the kubelet subscribes
/// again in a loop.
#[tokio::test(start_paused = true)]
async fn reader_reports_unimplemented_disabled_and_broken_streams_as_different_ends() {
    let unimplemented = Step::Fail(CallErrorKind::Unimplemented);
    for (life, steps, end) in [
        (0, &[unimplemented.clone()][..], StreamEnd::NeverOffered),
        (
            2_000,
            &[wait(2_000), unimplemented],
            StreamEnd::NeverOffered,
        ),
        (0, &[], StreamEnd::Disabled),
        (20, &[wait(20)], StreamEnd::Disabled),
    ] {
        let mut reader = RunningReader::new(vec![opens(steps); 4]);
        assert_eq!(ends(&mut reader, 4).await, vec![end; 3]);
        let expected = [0, 1, 2, 3].map(|n| n * (60_000 + life));
        assert_on_time(&reader.dialed(), &expected);
        reader.stop().await;
    }
    let breaks = opens(&[event(), wait(2_000), Step::Fail(DOWN)]);
    let mut reader = RunningReader::new(vec![breaks; 4]);
    let lost = StreamEnd::Ended(Some(error(DOWN)));
    assert_eq!(ends(&mut reader, 4).await, vec![lost; 3]);
    assert_on_time(&reader.dialed(), &[0, 2_000, 4_100, 6_300]);
    reader.stop().await;
}

/// Upstream: after the last attempt to reconnect, the watcher goroutine loops without a pause.
#[tokio::test(start_paused = true)]
async fn ten_minutes_of_any_failure_cause_at_most_125_dials() {
    for (dial, most) in [
        (opens(&[]), 11),
        (opens(&[Step::Fail(CallErrorKind::Unimplemented)]), 11),
        (opens(&[Step::Fail(DOWN)]), 25),
        (opens(&[event(), Step::Fail(CallErrorKind::TooLarge)]), 25),
        // The reader dials a hundred times within five seconds, then less and less often.
        (Dial::Fail(DOWN), 125),
    ] {
        let reader = RunningReader::new(vec![dial; 10_000]);
        reader.idle(600_000).await;
        let attempts = reader.dialed().len();
        assert!((10..=most).contains(&attempts), "{attempts} attempts");
        reader.stop().await;
    }
}

/// In upstream's test RetryExhaustionClosesEventChannelAndLogsLastError (1.37), the second error ends the watcher,
/// because two attempts are the limit. Here attempts are not limited.
#[tokio::test(start_paused = true)]
async fn every_stream_error_is_reported_and_the_reader_continues() {
    let script = vec![
        opens(&[Step::Fail(CallErrorKind::Failed)]),
        opens(&[Step::Fail(DOWN)]),
        quiet(),
    ];
    let mut reader = RunningReader::new(script);
    let refused = [CallErrorKind::Failed, DOWN].map(|kind| StreamEnd::Refused(error(kind)));
    assert_eq!(ends(&mut reader, 3).await, refused);
    assert!(!reader.task.is_finished());
    reader.stop().await;
}

/// In upstream's test WatcherRetriesWhenStreamClosesWithoutError (1.37), the end of a stream without an error counts as
/// a failed attempt.
#[tokio::test(start_paused = true)]
async fn stream_end_without_an_error_is_reported() {
    let mut reader = RunningReader::new(vec![lives(3_000), lives(0), quiet()]);
    assert_eq!(
        ends(&mut reader, 3).await,
        [StreamEnd::Ended(None), StreamEnd::Disabled]
    );
    assert_on_time(&reader.dialed(), &[0, 3_000, 63_000]);
    reader.stop().await;
}

/// Upstream's WatcherStopsWhenContextIsCanceled (1.37).
#[tokio::test(start_paused = true)]
async fn shutdown_cancels_a_blocked_stream_and_reports_no_end() {
    let mut reader = RunningReader::new(vec![quiet()]);
    let subscribed = reader.change().await;
    assert!(matches!(subscribed, StreamChange::Subscribed { .. }));
    reader.idle(5_000).await;
    let at = reader.clock.now();
    reader.shutdown.cancel();
    (&mut reader.task).await.unwrap();
    assert_eq!(reader.clock.now().since(at).as_millis(), 0);
    assert_eq!(reader.changes(), [], "no end is reported");
}
