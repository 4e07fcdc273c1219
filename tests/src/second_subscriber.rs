//! Checks a generator while another client takes a share of the events, as on containerd 1.x, which sends each
//! event to one subscriber only. Runs on real and simulated runtimes.

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
/// The number of pods at a time, how long containers run, and how long exited containers stay before they are removed.
pub const PLAN: Plan = Plan {
    at_once: 16,
    restarts: 1,
    // A lost STARTED counts only if a read shows the container running, so every container runs for longer than the
    // shortest relist period.
    job: Duration::from_millis(1500),
    spread: Duration::from_secs(1),
    keep: Duration::from_millis(2500),
};

/// The generator must list at the shortest period when this time and one relist period have passed since the first lost
/// STARTED or STOPPED. After that relist period a list shows the lost change; 10 s later the generator counts the event
/// as missed; and 6 s are for slow reads: a containerd under load takes seconds for each.
const POLLED_WITHIN: Duration = Duration::from_secs(10 + 6);
/// The generator expects no events from a stream that is younger than this, so the losses of such a stream do not
/// count.
const EXPECTED_AFTER: Duration = Duration::from_secs(10);
/// The shortest relist period.
const POLLING: Duration = Duration::from_secs(1);
/// The tolerance of the reported share of lost events.
const SHARE_TOLERANCE: f64 = 0.05;
/// The time for which the share may be wrong after the work: a relist finds the last losses, missed 10 s later.
const SHARE_WITHIN: Duration = Duration::from_secs(20);

/// Observations during the work.
#[derive(Debug, Default)]
struct Seen {
    /// The time of the first lost event, and the relist period at that time.
    first_lost: Option<(Instant, Duration)>,
    /// The time since which the relist period has been the shortest, and the objects that existed at that time.
    polling: Option<(Instant, Objects)>,
    /// True if the stream was ever lossy.
    lossy: bool,
    /// Relist periods longer than the shortest that were seen after the generator had begun to poll. There must be
    /// none.
    relaxed: Vec<Duration>,
}

/// Does the work while a second subscriber takes STARTED and STOPPED events; `taken` returns how many so far. The
/// generator must begin to poll in time, must announce all changes of pods created after that, and its health must
/// report the cause and the share of lost events.
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

/// Waits until the stream is old enough for its losses to count.
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

/// Watches the generator. Runs until the caller drops the future.
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
            // The stream is not lossy yet.
            (Some(_), true) => seen.polling = None,
            _ => {}
        }
        clock
            .sleep_until(now.after(Duration::from_millis(10)))
            .await;
    }
}

/// Checks that health reports the cause and, within the tolerance, the true share of lost events.
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
    // The generator does not count events of sandboxes, so this check does not either.
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
    // The generator expects an event only for a change that a read shows before the event arrives. If no read shows an
    // exit before its STOPPED arrives, only lost STOPPED count as expected, so the reported share is higher.
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
