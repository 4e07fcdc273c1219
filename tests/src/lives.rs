//! Runs pods through a fixed sequence of calls on any runtime, without a generator.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use pleg::core::Id;
use pleg_cri::v1::ContainerState;

use crate::kubelet::{Kubelet, Life};
use crate::wait::{pass_time, until};

/// The time limit of each wait for something that should happen at once.
const SOON: Duration = Duration::from_secs(20);

/// Runs [`life_of_a_pod`] for `pods` pods, `at_once` of them at a time.
pub async fn churn(
    kubelet: &Kubelet,
    pods: u32,
    at_once: usize,
    linger: Duration,
) -> anyhow::Result<()> {
    futures::stream::iter(0..pods)
        .map(|n| life_of_a_pod(kubelet, n, linger))
        .buffer_unordered(at_once)
        .try_collect()
        .await
}

/// Runs a pod with an app and a job. The job crashes, is restarted and crashes again; then this function removes the
/// containers and the pod. Each state lasts for `linger`, so that a generator that polls can see the state.
pub async fn life_of_a_pod(kubelet: &Kubelet, n: u32, linger: Duration) -> anyhow::Result<()> {
    let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
    let app = kubelet.run(&pod, "app", 0, Life::UntilStopped).await?;
    let code = i32::try_from(n)? + 1;
    // A generator that polls announces Started only if a list shows the container running.
    let linger_ms = u64::try_from(linger.as_millis())?;
    let crash = Life::Exit {
        code,
        after_ms: linger_ms.max(u64::from(n % 5) * 50),
    };
    let job = kubelet.run(&pod, "job", 0, crash).await?;
    ended(kubelet, &job).await?;
    pass_time(linger).await;
    let second_crash = Life::Exit {
        code: code + 100,
        after_ms: linger_ms,
    };
    let again = kubelet.run(&pod, "job", 1, second_crash).await?;
    ended(kubelet, &again).await?;
    pass_time(linger).await;
    kubelet.stop(&app).await?;
    pass_time(linger).await;
    if n.is_multiple_of(2) {
        for id in [&app, &job, &again] {
            kubelet.remove(id).await?;
        }
    }
    kubelet.stop_pod(&pod).await?;
    pass_time(linger).await;
    kubelet.remove_pod(&pod).await
}

/// Waits until the runtime reports the container as exited.
pub async fn ended(kubelet: &Kubelet, id: &Id) -> anyhow::Result<()> {
    until(SOON, "the container exits", || async {
        let status = kubelet.container_status(id).await.ok()??;
        (status.state() == ContainerState::ContainerExited).then_some(())
    })
    .await
}

/// Retries a call for half a minute until it succeeds, as a kubelet does while its runtime is down.
pub async fn retry<T, F: Future<Output = anyhow::Result<T>>>(
    mut call: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let mut last = None;
    for _ in 0..150 {
        match call().await {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
        pass_time(Duration::from_millis(200)).await;
    }
    Err(last.context("never tried")?)
}
