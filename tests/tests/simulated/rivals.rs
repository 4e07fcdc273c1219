//! Upstream's generators run on a runtime behind a real socket, as the benchmarks require.

use pleg::Pleg;
use pleg::core::{Id, LifecycleType, ReportedState};
use pleg_cri::CriRuntime;
use rivals::{Fifo, Ours, Port, Subject};

use crate::{Node, SOON};
use pleg_tests::kubelet::Life;

/// A container runs and exits with 3. Both are announced, and then the cache shows them.
async fn announces_and_caches_a_container<S: Subject>(
    start: impl FnOnce(CriRuntime) -> (S, Fifo),
) -> anyhow::Result<()> {
    let node = Node::up()?;
    let (subject, mut fifo) = start(node.runtime()?);
    if subject.name() != "generic" {
        tokio::time::timeout(SOON, node.sim.wait_for_subscribers(1)).await?;
    }
    let kubelet = node.kubelet()?;
    let pod = kubelet.run_pod("pod").await?;
    let id = kubelet.run(&pod, "app", 0, Life::UntilStopped).await?;
    announced(&mut fifo, LifecycleType::ContainerStarted, &id).await?;
    assert_eq!(subject.state(&pod.uid, &id), Some(ReportedState::Running));
    assert!(node.sim.kill_container(id.as_str(), 3));
    announced(&mut fifo, LifecycleType::ContainerDied, &id).await?;
    assert_eq!(subject.state(&pod.uid, &id), Some(ReportedState::Exited));
    tokio::time::timeout(SOON, healthy(&subject)).await?;
    subject.shutdown().await;
    node.down().await;
    Ok(())
}

/// Waits until it is healthy, after its first complete list. An evented one may announce a container before.
async fn healthy<S: Subject>(subject: &S) {
    while !subject.is_healthy() {
        tokio::task::yield_now().await;
    }
}

async fn announced(fifo: &mut Fifo, what: LifecycleType, id: &Id) -> anyhow::Result<()> {
    tokio::time::timeout(SOON, async {
        while let Some(event) = fifo.next().await {
            if event.event == what && event.data.as_ref() == Some(id) {
                return Ok(());
            }
        }
        anyhow::bail!("the generator has ended")
    })
    .await?
}

#[tokio::test(flavor = "multi_thread")]
async fn generic_port_announces_and_caches_container() -> anyhow::Result<()> {
    announces_and_caches_a_container(Port::generic).await
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_port_announces_and_caches_container() -> anyhow::Result<()> {
    announces_and_caches_a_container(Port::hint).await
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::expect_used, reason = "a test")]
async fn pleg_announces_and_caches_container() -> anyhow::Result<()> {
    announces_and_caches_a_container(|runtime| {
        Ours::start(Pleg::builder(runtime)).expect("valid settings")
    })
    .await
}
