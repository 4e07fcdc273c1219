//! Read-your-writes: right after a call has returned, `newer_than` shows its effect.

use std::time::Duration;

use pleg::core::{Id, Mode, ReportedState};
use pleg_tests::check::{cache_is_right, states};
use pleg_tests::kubelet::{Life, Pod};
use pleg_tests::wait::until_right;

use crate::{Node, SOON, Subject, settings};

/// How often each of the four calls is followed.
const ROUNDS: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn evented() -> anyhow::Result<()> {
    read_your_writes(Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling() -> anyhow::Result<()> {
    read_your_writes(Mode::Polling).await
}

async fn read_your_writes(mode: Mode) -> anyhow::Result<()> {
    let node = Node::up()?;
    let subject = Subject::start(&node, settings(mode)).await?;
    let kubelet = node.kubelet()?;
    let mut took = Vec::new();
    for n in 0..ROUNDS {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        let id = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
        kubelet.start(&id).await?;
        took.push(follow(&subject, &pod, &id, &[ReportedState::Running]).await?);
        kubelet.stop(&id).await?;
        took.push(follow(&subject, &pod, &id, &[ReportedState::Exited]).await?);
        kubelet.remove(&id).await?;
        took.push(follow(&subject, &pod, &id, &[]).await?);
        kubelet.stop_pod(&pod).await?;
        kubelet.remove_pod(&pod).await?;
        took.push(follow(&subject, &pod, &pod.sandbox, &[]).await?);
    }
    took.sort_unstable();
    let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!(
        "{mode:?}: {} waits, median {median:?}, p99 {p99:?}",
        took.len()
    );
    if mode == Mode::Evented {
        assert!(median < Duration::from_millis(20), "median {median:?}");
    }
    until_right(SOON, "the cache equals the listing", || {
        cache_is_right(&subject.pleg, &subject.truth)
    })
    .await?;
    subject.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

/// Asks for a view from after the call; it must show the effect, for this runtime's lists do not
/// lag behind its own answers. Returns how long it took.
async fn follow(
    subject: &Subject,
    pod: &Pod,
    id: &Id,
    expected: &[ReportedState],
) -> anyhow::Result<Duration> {
    let asked = subject.pleg.now();
    let view = subject.pleg.newer_than(&pod.uid, asked, SOON).await?;
    let took = subject.pleg.now().since(asked);
    assert!(
        view.as_of >= Some(asked),
        "{view:?} is older than {asked:?}"
    );
    let shows: Vec<ReportedState> = states(&view)
        .into_iter()
        .filter(|(i, _)| i == id)
        .map(|(_, s)| s)
        .collect();
    assert_eq!(shows, expected, "{id} right after the call: {view:?}");
    Ok(took)
}
