//! Checks a generator while a second client takes a share of the events. (containerd 1.x sends each event to only
//! one of its subscribers.) Runs on real and simulated runtimes.

use std::time::Duration;

use anyhow::{Context, ensure};
use pleg::core::{Degraded, EventType, Instant, Kind, StreamState};
use pleg::runtime::clock::Clock;

use crate::generator::Generator;
use crate::kubelet::{Kubelet, Object, Objects};
use crate::wait::{until, until_ok};
use crate::workers::Plan;

/// The number of pods in a test with a second subscriber. The test takes about 40 s.
pub const PODS: u32 = 56;
/// The plan of the pod workers in these tests.
pub const PLAN: Plan = Plan {
    at_once: 16,
    restarts: 1,
    // The generator counts a lost STARTED only if a read shows the container running. So every container must run for
    // longer than the shortest relist period.
    job: Duration::from_millis(1500),
    spread: Duration::from_secs(1),
    keep: Duration::from_millis(2500),
};

/// Within one relist period plus this time after the first lost STARTED or STOPPED, the generator must relist every
/// second. A list shows the change within the relist period, and 10 s later the generator counts the event as missed.
/// Another 6 s are for slow reads: a containerd under load takes seconds for each.
const POLLED_WITHIN: Duration = Duration::from_secs(10 + 6);
/// The generator counts no missed events of a stream that is younger than this. The tests wait until the stream is old
/// enough.
const EXPECTED_AFTER: Duration = Duration::from_secs(10);
/// The shortest relist period.
const POLLING: Duration = Duration::from_secs(1);
/// The tolerance of the reported share of lost events.
const SHARE_TOLERANCE: f64 = 0.05;
/// After the last pod's removal, the time limit for the right share in health. A lost event counts only after 10 s.
const SHARE_WITHIN: Duration = Duration::from_secs(20);

/// What [`watch`] records about the generator while pods start and stop.
#[derive(Debug, Default)]
struct Seen {
    /// The instant at which the second subscriber first took an event, and the relist period at that instant.
    first_lost: Option<(Instant, Duration)>,
    /// The instant at which the relist period became one second, and all objects that the kubelet had created by then.
    polling: Option<(Instant, Objects)>,
    /// True if health has reported the stream as lossy.
    lossy: bool,
    /// Relist periods above one second that the generator had on the lossy stream although it had already begun to
    /// relist every second. There must be none.
    relaxed: Vec<Duration>,
}

/// Runs `work`, which creates pods, while a second subscriber takes STARTED and STOPPED events (`taken`: how many so
/// far). The generator must then begin to relist every second (see `POLLED_WITHIN`), and must announce all changes of
/// objects that are created later. Its health must report the cause and the share of lost events.
pub async fn work_beside_second_subscriber(
    generator: &mut Generator,
    kubelet: &Kubelet,
    taken: impl Fn() -> u64,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    wait_until_losses_count(generator).await?;
    let mut seen = Seen::default();
    tokio::select! {
        done = work => done?,
        () = watch(generator, kubelet, taken, &mut seen) => {}
    }
    let (first_lost, period) = seen
        .first_lost
        .context("the second subscriber took no event")?;
    ensure!(seen.lossy, "the stream is never lossy");
    let (polling, before) = seen.polling.context("the generator never polls")?;
    let after = polling.since(first_lost);
    let mut began_later = kubelet.objects();
    began_later.retain(|id, _| !before.contains_key(id));
    generator
        .wait_until_removals_are_announced(&began_later)
        .await?;

    let wrong = generator.announced.wrong(&kubelet.objects());
    ensure!(wrong.is_empty(), "{wrong:#?}");
    let announced = &generator.announced;
    let missing = [
        announced.missing(&began_later, None),
        announced.without_code(&began_later, None),
    ]
    .concat();
    ensure!(missing.is_empty(), "{missing:#?}");
    ensure!(
        after <= period + POLLED_WITHIN,
        "polled only after {after:?}, at a period of {period:?}"
    );
    ensure!(!began_later.is_empty(), "all work was done before");
    ensure!(seen.relaxed.is_empty(), "periods {:?}", seen.relaxed);
    let objects = kubelet.objects();
    until_ok(SHARE_WITHIN, "the share of lost events is reported", || {
        std::future::ready(compare_shares(generator, &objects))
    })
    .await?;
    Ok(())
}

/// Waits until the stream is so old that the generator counts the stream's missed events.
async fn wait_until_losses_count(generator: &Generator) -> anyhow::Result<()> {
    let subscribed = until(SHARE_WITHIN, "there is a stream", || {
        let stream = generator.health().stream;
        std::future::ready(match stream {
            StreamState::Subscribed { since, .. } => Some(since),
            _ => None,
        })
    });
    let counted = subscribed.await?.after(EXPECTED_AFTER);
    generator.pleg.clock().sleep_until(counted).await;
    Ok(())
}

/// Records the generator's relist period and health in `seen`, until the caller drops the future.
async fn watch(
    generator: &mut Generator,
    kubelet: &Kubelet,
    taken: impl Fn() -> u64,
    seen: &mut Seen,
) {
    let clock: Clock = generator.pleg.clock();
    loop {
        generator.drain();
        let now = clock.now();
        let health = generator.health();
        if seen.first_lost.is_none() && taken() > 0 {
            seen.first_lost = Some((now, health.period));
        }
        seen.lossy |= health.loss.is_lossy();
        match (&seen.polling, health.period > POLLING) {
            (None, false) if seen.first_lost.is_some() => {
                seen.polling = Some((now, kubelet.objects()));
            }
            (Some(_), true) if seen.lossy => seen.relaxed.push(health.period),
            // The relist period was one second for another reason than lost events, and is longer now.
            (Some(_), true) => seen.polling = None,
            _ => {}
        }
        clock
            .sleep_until(now.after(Duration::from_millis(10)))
            .await;
    }
}

/// Checks that health names the second subscriber as the likely cause, and reports the share of lost events.
fn compare_shares(generator: &Generator, objects: &Objects) -> anyhow::Result<()> {
    let degraded = generator.pleg.health().degraded();
    let lossy = degraded.iter().find_map(|d| match d {
        Degraded::StreamLossy {
            loss,
            splits_events_between_subscribers: true,
            ..
        } => Some((loss, d.to_string())),
        _ => None,
    });
    let (loss, text) = lossy.with_context(|| format!("{degraded:?}"))?;
    ensure!(
        text.contains("another subscriber is the likely cause"),
        "{text}"
    );
    // Ignore events of sandboxes, because the generator does not count them.
    let (mut lost, mut arrived, mut started) = (0, 0, 0);
    let log = generator.recorder.log();
    let is_counted =
        |object: &Object| object.kind == Kind::Container && object.started && object.removed;
    for (id, _) in objects.iter().filter(|(_, object)| is_counted(object)) {
        for event in [EventType::Started, EventType::Stopped] {
            match log.has(id, event) {
                true => arrived += 1,
                false => lost += 1,
            }
            started += u64::from(event == EventType::Started && log.has(id, event));
        }
    }
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    // The generator does not count an arrived STOPPED if its cache shows the container as created (STARTED was lost),
    // but counts a lost STOPPED once a list shows the exit. So it may report a higher share of lost events.
    let (least, most) = (share(lost, lost + arrived), share(lost, lost + started));
    let reported = share(loss.missed, loss.expected);
    let within = least - SHARE_TOLERANCE..=most + SHARE_TOLERANCE;
    ensure!(
        within.contains(&reported),
        "{least} to {most} lost, {reported} reported: {text}"
    );
    let missed = share(loss.missed, lost);
    ensure!(
        (missed - 1.0).abs() <= 2.0 * SHARE_TOLERANCE,
        "{lost} events lost, {} missed",
        loss.missed
    );
    Ok(())
}
