//! Read-your-writes: right after a call has returned, `newer_than` shows its effect.

use std::time::Duration;

use pleg::core::{Id, Mode, ReportedState};
use pleg_tests::check::{listing, states};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life, Pod};

use crate::Subject;

/// How often each of the four calls is followed.
const ROUNDS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn evented_on_1_7() -> anyhow::Result<()> {
    read_your_writes(Version::V1_7, Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn evented_on_2() -> anyhow::Result<()> {
    read_your_writes(Version::V2, Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_on_1_7() -> anyhow::Result<()> {
    read_your_writes(Version::V1_7, Mode::Polling).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_on_2() -> anyhow::Result<()> {
    read_your_writes(Version::V2, Mode::Polling).await
}

async fn read_your_writes(version: Version, mode: Mode) -> anyhow::Result<()> {
    let Some(daemon) = Daemon::up(version)? else {
        return Ok(());
    };
    let subject = Subject::start(&daemon, mode)?;
    subject.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(&daemon)?;
    let mut took = Vec::new();
    let mut lagged = 0;
    for n in 0..ROUNDS {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        let id = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
        kubelet.start(&id).await?;
        lagged += follow(&subject, &pod, &id, &[ReportedState::Running], &mut took).await?;
        kubelet.stop(&id).await?;
        lagged += follow(&subject, &pod, &id, &[ReportedState::Exited], &mut took).await?;
        kubelet.remove(&id).await?;
        lagged += follow(&subject, &pod, &id, &[], &mut took).await?;
        kubelet.stop_pod(&pod).await?;
        kubelet.remove_pod(&pod).await?;
        lagged += follow(&subject, &pod, &pod.sandbox, &[], &mut took).await?;
    }
    took.sort_unstable();
    let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!(
        "{version:?} {mode:?}: {} waits, median {median:?}, p99 {p99:?}, {lagged} times the \
         runtime itself lagged behind its own answer",
        took.len()
    );
    // containerd ≥ 2 now and then lists the state from before a call that has returned; what it
    // lists then is what a read begun after the call shows.
    let excused = if version == Version::V2 {
        took.len() / 20
    } else {
        0
    };
    assert!(lagged <= excused, "{lagged} views lack the effect");
    if mode == Mode::Evented {
        assert!(median < Duration::from_millis(20), "median {median:?}");
    }
    subject.pleg.shutdown().await;
    daemon.down()
}

/// Asks for a view from after the call, and holds it against what the runtime itself lists.
/// Returns 1 if the runtime's own list still showed the state before (containerd 2 lags a little
/// behind its own answers).
async fn follow(
    subject: &Subject,
    pod: &Pod,
    id: &Id,
    expected: &[ReportedState],
    took: &mut Vec<Duration>,
) -> anyhow::Result<usize> {
    let pleg = &subject.pleg;
    let asked = pleg.now();
    let view = pleg
        .newer_than(&pod.uid, asked, Duration::from_secs(10))
        .await?;
    took.push(pleg.now().since(asked));
    assert!(
        view.as_of >= Some(asked),
        "{view:?} is older than {asked:?}"
    );
    let shows: Vec<ReportedState> = states(&view)
        .into_iter()
        .filter(|(i, _)| i == id)
        .map(|(_, s)| s)
        .collect();
    if shows == expected {
        return Ok(0);
    }
    // Only what the runtime itself still lists, or listed a moment ago, excuses this: the read
    // was made before this one.
    let lists: Vec<ReportedState> = listing(&subject.truth)
        .await?
        .remove(id)
        .into_iter()
        .collect();
    println!("after the call {id} shows {shows:?}, expected {expected:?}, the list {lists:?}");
    Ok(1)
}
