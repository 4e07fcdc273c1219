//! Runs pod workers, which act on the generator's views, on each simulated runtime.

use std::time::Duration;

use pleg::core::Settings;
use pleg_sim::Mode;
use pleg_tests::workers::{Plan, Workers};

use crate::node::{MINUTE, Node, SECOND};

/// Jobs that exit after one to two seconds.
const PLAN: Plan = Plan {
    at_once: 10,
    restarts: 3,
    job: SECOND,
    spread: SECOND,
    keep: Duration::ZERO,
};

/// Every call takes 2 ms, and events arrive 10 ms late. The generator must miss no event, answer every worker, and
/// relist the idle node only once a minute. No worker may start a container twice.
#[tokio::test(start_paused = true)]
async fn no_event_is_missed_on_any_simulated_runtime() -> anyhow::Result<()> {
    for runtime in [Mode::Containerd17, Mode::Containerd2, Mode::Crio] {
        println!("{runtime}");
        let node = Node::with(runtime, 11);
        let mut generator = node.start(Settings::default()).await?;
        node.set("all.latency=2ms");
        node.set("stamp.pause=10ms");
        let kubelet = node.kubelet()?;
        let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
        generator.drain_during(workers.churn(15)).await?;
        generator.wait_until_cache_equals_list(MINUTE).await?;
        generator.check(&kubelet).await?;
        let missing = generator.announced.missing(&kubelet.objects(), None);
        anyhow::ensure!(missing.is_empty(), "{missing:#?}");
        assert_eq!(generator.missed(), 0, "{runtime}");
        node.until(2 * MINUTE, "the relist period is 60 s", || {
            generator.health().period == MINUTE
        })
        .await?;
        node.end(generator).await;
    }
    Ok(())
}
