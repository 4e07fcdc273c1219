//! The mini-kubelet `static_pods`. The numbers come from the environment (`just test-kubelet`); without
//! them the runs are short.

use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::static_pods::crashes::{Plan, Variant, crash};
use pleg_tests::static_pods::{growth, replacement};

use crate::with_daemon;

on_both_versions! {
    crashes_evented: crashes(Variant::Evented);
    crashes_while_stream_stops_and_returns: crashes(Variant::StopsAndReturns);
    #[ignore = "one of many variants: just test-kubelet"]
    crashes_beside_second_subscriber: crashes(Variant::SecondSubscriber);
    #[ignore = "one of many variants: just test-kubelet"]
    crashes_polling: crashes(Variant::Polling);
    #[ignore = "one of many variants: just test-kubelet"]
    crashes_without_stream: crashes(Variant::NeverOffered);
    #[ignore = "a measurement: just measure-replacement"]
    container_that_died_is_replaced: replaced();
}

async fn crashes(daemon: &Daemon, variant: Variant) -> anyhow::Result<()> {
    crash(daemon, variant, Plan::from_env()?).await
}

async fn replaced(daemon: &Daemon) -> anyhow::Result<()> {
    replacement::measure(daemon, replacement::Plan::from_env()?).await
}

/// For PLEG_KUBELET_MINUTES.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "hours: just soak-kubelet MINUTES"]
async fn process_does_not_grow() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        growth::watch(daemon, growth::Plan::from_env()?).await
    })
    .await
}
