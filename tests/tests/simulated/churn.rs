//! 30 pods of two containers each: run, crash, restart, stop, remove. Every transition is announced
//! exactly once, with no call that the design does not name.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::Life;
use pleg_tests::lives;
use pleg_tests::wait::until;

use crate::{Node, SOON, settings};

const PODS: u32 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn evented_churn_is_announced_once() -> anyhow::Result<()> {
    churn(Mode::Evented, Duration::ZERO, 8).await
}

/// Every state lasts for twenty lists, so polling sees each one.
#[tokio::test(flavor = "multi_thread")]
async fn polling_churn_is_announced_once() -> anyhow::Result<()> {
    churn(Mode::Polling, Duration::from_secs(1), PODS as usize).await
}

async fn churn(mode: Mode, linger: Duration, at_once: usize) -> anyhow::Result<()> {
    let node = Node::up()?;
    let mut generator = node.start(settings(mode)).await?;
    let kubelet = node.kubelet()?;

    generator
        .drain_during(lives::churn(&kubelet, PODS, at_once, linger))
        .await?;
    // One that crashed and stays: the reason of its exit is read once more after two seconds.
    let kept = kubelet.run_pod("kept").await?;
    let life = Life::Exit {
        code: 3,
        after_ms: u64::try_from(linger.as_millis())?,
    };
    let crashed = kubelet.run(&kept, "job", 0, life).await?;
    lives::ended(&kubelet, &crashed).await?;

    generator
        .wait_until_removals_are_announced(&kubelet.objects())
        .await?;
    generator.wait_until_cache_equals_list(SOON).await?;
    // A list shows that it has ended, and the inspection that follows with which code.
    until(SOON, "the exit code is cached", || {
        let status = generator.pleg.get(&kept.uid).status;
        let code = status.containers.first().and_then(|c| c.details.exit_code);
        async move { (code == Some(3)).then_some(()) }
    })
    .await?;
    generator.check_complete(&kubelet)?;
    generator.report(&format!("{mode:?}"));
    assert_eq!(generator.pleg.counters().undone, 0, "no end was undone");
    let log = generator.recorder.log();
    match mode {
        Mode::Polling => {
            assert_eq!(log.calls.subscribes, 0, "polling asks for no stream");
            assert!(log.events.is_empty());
        }
        _ => calls_are_accounted_for(&generator).await?,
    }
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

/// Two calls a list and at most two a pod read, and each status that was due. No event is missed.
async fn calls_are_accounted_for(generator: &Generator) -> anyhow::Result<()> {
    // When no call is in flight: a call is counted when it begins, a list when it ends.
    let (calls, counters) = until(SOON, "two calls a list, and one a status", || {
        let (calls, counters) = (generator.recorder.log().calls, generator.pleg.counters());
        let lists = calls.full_lists == 2 * counters.lists;
        let all = lists && calls.statuses == counters.statuses;
        async move { all.then_some((calls, counters)) }
    })
    .await?;
    assert!(calls.pod_lists <= 2 * counters.pod_reads, "{calls:?}");
    assert_eq!(counters.pod_reads_failed, 0);
    assert_eq!(counters.missed.total(), 0, "nothing was missed");
    assert_eq!(calls.subscribes, 1, "one stream for the whole time");
    Ok(())
}
