//! Pod workers that act on what the generator reports, on each simulated runtime.

use std::time::Duration;

use anyhow::ensure;
use pleg::core::{Mode, Settings};
use pleg_sim::Mode as Runtime;
use pleg_tests::environment::number;
use pleg_tests::workers::{Observed, Plan, Workers};

use crate::in_process::{InProcess, MINUTE, SECOND};

/// Jobs that exit after one to two seconds.
const PLAN: Plan = Plan {
    at_once: 10,
    restarts: 4,
    job: SECOND,
    spread: SECOND,
    keep: Duration::ZERO,
};

/// A runtime whose calls take 2 ms and whose events arrive 10 ms late, and the kubelet's workers on it.
async fn run_workers(
    (runtime, mode): (Runtime, Mode),
    knob: &str,
    more: impl Fn(&InProcess, u32) -> bool,
) -> anyhow::Result<(InProcess, pleg_tests::generator::Generator, Observed)> {
    let node = InProcess::with(runtime, 11);
    let mut settings = Settings::default();
    settings.mode = mode;
    let mut generator = node.start(settings).await?;
    for knob in ["all.latency=2ms", "stamp.pause=10ms", knob] {
        node.sim.set_knob(knob)?;
    }
    let kubelet = node.kubelet()?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    let observed = generator
        .drain_during(workers.run(|n| more(&node, n)))
        .await?;
    node.sim.set_knob("status.not_found=off")?;
    generator.wait_until_cache_equals_list(MINUTE).await?;
    generator.check(&kubelet).await?;
    // Died has no exit code if the status call of the read was denied.
    let missing = generator.announced.missing(&kubelet.objects(), None);
    ensure!(missing.is_empty(), "{missing:#?}");
    Ok((node, generator, observed))
}

/// Status calls return NotFound for 2 % of existing ids. No container may be started twice because of
/// that, and every worker is answered.
async fn not_found(runtime: Runtime, mode: Mode) -> anyhow::Result<()> {
    let seconds = number("PLEG_NOT_FOUND_SECONDS", 15)?;
    let end = pleg::Clock::start()
        .now()
        .after(Duration::from_secs(seconds.into()));
    let more = |node: &InProcess, _| node.clock.now() < end;
    let (node, generator, observed) =
        run_workers((runtime, mode), "status.not_found=2%", more).await?;
    let denied = node.sim.fired().get("status.not_found").copied();
    println!("{runtime} {mode:?}, {seconds} s: {denied:?} statuses denied; {observed:?}");
    assert!(observed.doubles.is_empty(), "{:#?}", observed.doubles);
    assert!(observed.unanswered.is_empty(), "{:#?}", observed.unanswered);
    node.end(generator).await;
    Ok(())
}

/// The stream of a calm node misses nothing, and an idle node is relisted once a minute.
async fn calm(runtime: Runtime) -> anyhow::Result<()> {
    let more = |_: &InProcess, n| n < 30;
    let (node, generator, observed) =
        run_workers((runtime, Mode::Evented), "status.not_found=off", more).await?;
    let events = generator.recorder.log().events.len();
    println!(
        "{runtime}: {} missed of {events} events; {observed:?}",
        generator.missed()
    );
    assert_eq!(generator.missed(), 0);
    let idle = node
        .until(2 * MINUTE, "the relist period is 60 s", || {
            generator.health().period == MINUTE
        })
        .await?;
    println!("{runtime}: relisted every 60 s {idle:?} after the last event");
    node.end(generator).await;
    Ok(())
}

macro_rules! on_each_runtime {
    ($($name:ident: $runtime:ident;)*) => { $(
        mod $name {
            use super::{Mode, Runtime};

            #[tokio::test(start_paused = true)]
            async fn denied_status_starts_no_container_twice() -> anyhow::Result<()> {
                super::not_found(Runtime::$runtime, Mode::Evented).await
            }

            #[tokio::test(start_paused = true)]
            async fn denied_status_starts_no_container_twice_polling() -> anyhow::Result<()> {
                super::not_found(Runtime::$runtime, Mode::Polling).await
            }

            #[tokio::test(start_paused = true)]
            async fn calm_stream_misses_nothing_and_is_relisted_every_minute() -> anyhow::Result<()> {
                super::calm(Runtime::$runtime).await
            }
        }
    )* };
}

on_each_runtime! {
    containerd_1_7: Containerd17;
    containerd_2: Containerd2;
    crio: Crio;
}
