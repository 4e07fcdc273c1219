//! Tests of the mini-kubelet `static_pods` on real daemons. By default they are short. Environment variables make
//! them longer (`just test-kubelet`).

use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::static_pods::crashes::{Plan, Variant, crash};
use pleg_tests::static_pods::growth;
use pleg_tests::static_pods::poller::Poller;
use pleg_tests::wait::until;

use crate::{SOON, with_daemon};

on_both_versions! {
    crashes_evented: crashes(Variant::Evented);
    #[ignore = "one of many variants: just test-kubelet"]
    crashes_beside_second_subscriber: crashes(Variant::SecondSubscriber);
    #[ignore = "one of many variants: just test-kubelet"]
    crashes_polling: crashes(Variant::Polling);
}

async fn crashes(daemon: &Daemon, variant: Variant) -> anyhow::Result<()> {
    crash(daemon, variant, Plan::from_env()?).await
}

/// Tests [`Poller`], which checks containers in the crash tests. No mini-kubelet runs: the test starts the containers.
#[tokio::test(flavor = "multi_thread")]
async fn poller_detects_two_running_containers_of_one_name() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        let kubelet = Kubelet::new(daemon)?;
        let poller = Poller::start(kubelet.clone());
        let pod = kubelet.run_pod("pod").await?;
        let mut ids = Vec::new();
        for attempt in 0..2 {
            let life = Life::UntilTerminated { code: 7 };
            let id = kubelet.run(&pod, "app", attempt, life).await?;
            ids.push(id);
        }
        until(SOON, "they are seen running", || async {
            (poller.read(|o| o.doubles.len()) == 1).then_some(())
        })
        .await?;
        for id in &ids {
            kubelet.stop(id).await?;
        }
        until(SOON, "they are seen exited", || async {
            let codes = poller.read(|o| {
                let statuses = o.containers.values().filter_map(|c| c.status.as_ref());
                statuses.map(|s| s.exit_code).collect::<Vec<_>>()
            });
            (codes == [7, 7]).then_some(())
        })
        .await?;
        assert_eq!(
            poller.read(|o| (o.overlaps().len(), o.restarts("app"))),
            (1, 1)
        );
        Ok(())
    })
    .await
}

/// Runs for `PLEG_KUBELET_MINUTES` minutes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "hours: just soak-kubelet MINUTES"]
async fn mini_kubelet_leaks_no_memory_descriptor_or_task_during_crashes() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| growth::watch(daemon).await).await
}
